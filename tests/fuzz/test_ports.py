"""Garbage on live ports, in short; the long form is ``python -P -m ares.testing.fuzz``."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.testing.fuzz import fuzz, fuzz_attacks
from ares.testing.fuzz.fuzz import (
    GROWN_BYTES_MAX,
    FuzzTarget,
    ProcessSize,
    asked,
    fuzz_processes,
    judge,
    refuses,
    serves,
)
from ares.testing.torture.torture_cluster import TortureCluster

FRAMES = 6_000
STRANGERS = 20


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("security", ["none", "curve"])
def test_a_server_and_a_member_stand_a_hose_of_garbage(tmp_path: Path, security: str) -> None:
    settings = create(
        tmp_path / "c",
        InitPlan(1, 1, base_port=0, security=security, allow_no_faults=True, durability="memory"),
    )
    outcomes = fuzz_processes(
        settings, FRAMES if security == "none" else FRAMES // 10, 5, STRANGERS
    )
    assert [outcome.target.split()[0] for outcome in outcomes] == ["server", "consensus"]
    for outcome in outcomes:
        assert outcome.findings == []
        assert outcome.frames >= FRAMES // 10
        if security == "none":
            assert outcome.after.bad_batches > outcome.before.bad_batches
            assert len(outcome.by_attack) >= 6
        else:
            assert outcome.strangers == STRANGERS


@pytest.mark.parametrize(
    ("after", "answers", "finding"),
    [
        (ProcessSize(GROWN_BYTES_MAX + 101, 10, 9), True, "its memory grew"),
        (ProcessSize(100, 30, 9), True, "it keeps 20 descriptors more"),
        (ProcessSize(100, 10, 5), True, "it counted no bad batch"),
        (ProcessSize(100, 10, 9), False, "it does not answer"),
    ],
)
def test_what_gives_way_is_found(after: ProcessSize, answers: bool, finding: str) -> None:
    """The control: the verdict on a process with a fault."""
    before = ProcessSize(100, 10, 5)
    [found] = judge(before, after, answers, 1000)
    assert found.startswith(finding)
    assert judge(before, ProcessSize(200, 11, 9), True, 1000) == []


class Leaky(asyncio.Protocol):
    """A server that keeps its input and sends no answer."""

    kept = bytearray()

    def data_received(self, data: bytes) -> None:
        self.kept += data


@pytest.fixture
async def mute() -> AsyncIterator[FuzzTarget]:
    server = await asyncio.get_running_loop().create_server(Leaky, "127.0.0.1", 0)
    yield FuzzTarget("server", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()


async def test_what_does_not_answer_is_found(
    mute: FuzzTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "FUZZ_SERVES_S", 0.3)
    monkeypatch.setattr(fuzz_attacks, "FUZZ_CONNECT_S", 1.0)  # the server never sends a greeting
    outcome = await fuzz.fuzz(mute, 50, 1)
    assert outcome.findings == ["it does not answer any more"]


async def test_a_key_is_refused_only_if_it_is_unknown(tmp_path: Path) -> None:
    settings = create(
        tmp_path / "c",
        InitPlan(1, 0, base_port=0, security="curve", allow_no_faults=True, durability="memory"),
    )
    cluster = TortureCluster(settings, None)
    try:
        await cluster.start()
        [target] = fuzz.targets(settings, cluster)
        assert await serves(target) is not None
        assert await refuses(target)
        assert await asked(target, None, 0.3) is None
    finally:
        cluster.stop()
