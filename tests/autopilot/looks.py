"""Servers, configurations and watches for tests of the autopilot's decisions."""

from collections.abc import Collection, Mapping

from ares.autopilot.judge import Finish, NoAction, Replace, Roster, Stuck, Verdict, Watch
from ares.model.configuration import Configuration, Server
from ares.model.identity import ServerId

AFTER_S = 60.0
EVERY_S = 5.0
BOOK = {
    server.id: server
    for server in (
        Server(ServerId(f"s{number}"), f"host{number}:1", f"{number:032x}") for number in range(8)
    )
}
ALL = frozenset(BOOK.values())
ROSTER = Roster(BOOK, {}, frozenset())


def identities(*numbers: int) -> dict[ServerId, str]:
    """Return answers of these servers, under the identities of the book."""
    return {ServerId(f"s{number}"): f"{number:032x}" for number in numbers}


def abd(*numbers: int, index: int = 0) -> Configuration:
    return Configuration.abd(
        [BOOK[ServerId(f"s{number}")] for number in numbers], allow_no_faults=True
    ).at("default", index)


def ec(*numbers: int, k: int, index: int = 0) -> Configuration:
    return Configuration.ec(
        [BOOK[ServerId(f"s{number}")] for number in numbers], k, allow_no_faults=True
    ).at("default", index)


def watched(
    *looks: Mapping[ServerId, str], long: bool = True, asked: Collection[Server] = ALL
) -> Watch:
    """Return a watch after long answers of all servers, followed by these looks.

    Each look counts for as long as necessary. ``asked`` has the members that are asked for.
    """
    watch, now = Watch(AFTER_S, gap_s=2 * EVERY_S), 0.0
    for answers in (identities(*range(8)), *looks):
        for _ in range(int(AFTER_S / EVERY_S) + 1 if long else 1):
            watch.look(now, answers, asked)
            now += EVERY_S
    return watch


def check(active: list[Configuration], watch: Watch, verdict: Verdict) -> None:
    """Check the properties of every verdict; raise AssertionError."""
    target = active[-1]
    match verdict:
        case NoAction() | Stuck():
            return
        case Finish(finished):
            assert len(active) > 1, "nothing is pending"
            assert finished == target
        case Replace(wished, changes, unfilled):
            assert changes, "nothing changes"
            assert (wished.dap, wished.n, wished.k, wished.delta, wished.backend) == (
                target.dap,
                target.n,
                target.k,
                target.delta,
                target.backend,
            )
            for old, new in zip(target.servers, wished.servers, strict=True):
                assert old == new or (old, new) in changes, (
                    "a position changed that was not to change"
                )
            for old, new in changes:
                assert watch.is_gone(old), f"{old.id} is not gone"
                assert watch.is_here(new), f"{new.id} does not answer"
            assert set(unfilled) == {
                server.id for server in wished.servers if watch.is_gone(server)
            }
            before, after = (sum(map(watch.is_here, some.servers)) for some in (target, wished))
            assert after == before + len(changes), "a server that was counted on is gone"
    for configuration in active:
        assert sum(map(watch.is_here, configuration.servers)) >= configuration.quorum_size, (
            "data is to be moved from where no quorum answers"
        )
