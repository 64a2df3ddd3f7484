"""The timers of many logs at a server: a bounded number in a turn, and each in its turn."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from ares.model.configuration import Configuration, Server
from ares.model.errors import StoreDamaged
from ares.model.identity import DEFAULT_DOMAIN, CallId, DomainName, ServerId
from ares.model.messages import Introduce
from ares.model.work import Meter
from ares.server import hosted_logs
from ares.server.hosted_logs import LOGS_TICK_WORK, HostedLogs, LogsParts
from ares.sharedlog.node import LogNode

ME = Server(ServerId("s0"), "127.0.0.1:1", "0" * 32)
LOGS = 25
AT_ONCE = 10


class AtOnce:
    """An event loop that calls at once."""

    def call_soon(self, callback: Callable[[], None], /) -> None:
        callback()

    def time(self) -> float:
        return time.monotonic()


class NoLinks:
    def open(self, deliver: object) -> None: ...

    def learn(self, server: object, address: str) -> None: ...


@pytest.fixture
def ticked(monkeypatch: pytest.MonkeyPatch) -> Counter[LogNode]:
    """Return the number of ticks of each node."""
    found: Counter[LogNode] = Counter()
    monkeypatch.setattr(LogNode, "tick", lambda node, now: found.update([node]))
    monkeypatch.setattr(hosted_logs, "LOGS_TICK_WORK_MAX", AT_ONCE * LOGS_TICK_WORK)
    return found


def many(meter: Meter) -> HostedLogs:
    initial = Configuration.abd([ME], allow_no_faults=True).at(DEFAULT_DOMAIN, 0)
    logs = HostedLogs(
        LogsParts(
            ME.id, "0" * 32, initial, lambda *_: None, pytest.fail, AtOnce(), NoLinks(), meter=meter
        )
    )
    for number in range(LOGS):
        chain = Configuration.chain([ME], allow_no_faults=True)
        named = chain.at(DomainName(f"log {number}"), 0, initial.cluster_id)
        logs.handle("client", Introduce(CallId(1), named))
    assert len(logs.nodes) == LOGS
    return logs


def test_each_log_has_its_turn_and_no_more_than_the_bound_in_a_turn(
    ticked: Counter[LogNode],
) -> None:
    logs = many(Meter())
    for count in range(1, 6):
        logs.tick()
        assert ticked.total() == count * AT_ONCE
    assert [ticked[node] for node in logs.nodes] == [2] * LOGS


def test_work_of_a_timer_ends_the_turn(
    ticked: Counter[LogNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter()

    def much(node: LogNode, now: float) -> None:
        ticked[node] += 1
        meter.spent += AT_ONCE * LOGS_TICK_WORK

    monkeypatch.setattr(LogNode, "tick", much)
    logs = many(meter)
    for _ in range(LOGS):
        logs.tick()
    assert [ticked[node] for node in logs.nodes] == [1] * LOGS


def test_a_timer_that_fails_keeps_no_other_from_its_turn(
    ticked: Counter[LogNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = many(Meter())

    def failing(node: LogNode, now: float) -> None:
        ticked[node] += 1
        if node is logs.nodes[8]:
            raise RuntimeError("a mistake")

    monkeypatch.setattr(LogNode, "tick", failing)
    with pytest.raises(ExceptionGroup, match="some logs"):
        logs.tick()
    logs.tick()
    logs.tick()
    assert min(ticked[node] for node in logs.nodes) == 1


def test_a_log_that_cannot_be_read_is_reported_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client that reads damaged records in a loop does not fill the log of the server."""
    logs = many(Meter())
    for _ in range(1000):
        logs.nodes[0].state.damage = StoreDamaged("a place", "it rotted")
        logs.tick()
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.message]
    assert len(said) == 10
    assert said[-1].endswith("it rotted (512 times so far)")
