"""The table of goals, and the page of figures beside it (experiments/bench/performance_page.py)."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest

from ares.model.errors import AresError
from ares.model.units import MIB
from experiments import CHECKOUT
from experiments.bench import performance_page
from experiments.bench.__main__ import arguments, chosen, conditions, of_size
from experiments.bench.etcd_peer import Etcd
from experiments.bench.figures import Figure, goal_ratios
from experiments.bench.goals import GOALS_FILE, Goal, goals
from experiments.bench.moving import MOVING_CASES
from experiments.bench.moving import arguments as moving_arguments
from experiments.bench.peers import ARES_PEERS, Ares
from experiments.bench.performance_page import (
    UNKNOWN_COMMIT,
    GoalFigure,
    keep,
    main,
    page,
    read_figures,
    record,
    table,
    with_table,
    write_figures,
)
from experiments.bench.redis_peer import REDIS, Redis
from experiments.bench.scale import LONGEST_MS_OF, GrowthSample
from experiments.bench.scale import goal_figures as scale_figures
from experiments.bench.workload import FULL_WORKLOADS
from experiments.logs import log_size, log_speed
from experiments.logs.__main__ import main as measure_logs
from experiments.logs.log_peers import PEER_IN_FLIGHT, log_peers
from tests.experiments.test_bench_run import point

ETCD, MOVE = (
    "10 B, 1 client, ABD : etcd",
    "10,000 objects, ABD to EC, 16 clients, 400/s: p99 of reads",
)


def figure(median: float, commit: str = "0123abcd", date: str = "2026-11-27") -> GoalFigure:
    return GoalFigure(
        median, median / 2, median * 2, commit, date, "a machine", "experiments.bench"
    )


def test_a_verdict_has_the_distance_in_parts_of_the_limit():
    least, most = Goal("at least", 2.0, "", "A rate"), Goal("at most", 150, "B", "A size")
    assert [least.verdict(each) for each in (2.0, 2.5, 1.5)] == [
        "met by 0 %",
        "met by 25 %",
        "MISSED by 25 %",
    ]
    assert [most.verdict(each) for each in (150, 75, 450)] == [
        "met by 0 %",
        "met by 50 %",
        "MISSED by 200 %",
    ]
    assert [str(each) for each in (least, most)] == ["at least 2", "at most 150 B"]


def test_each_goal_is_once_in_the_table():
    found = msgspec.toml.decode(GOALS_FILE.read_bytes(), type=dict[str, dict[str, Goal]])
    assert len(goals()) == sum(map(len, found.values()))
    sentences = [goal.sentence for goal in goals().values()]
    assert len(set(sentences)) == len(sentences)
    assert all(goal.limit > 0 for goal in goals().values())


def named(bench: str) -> set[str]:
    return {name for name, goal in goals().items() if goal.bench.startswith(f"python -m {bench}")}


def test_the_bench_has_every_ratio_with_a_goal():
    for options in ([], ["--servers", "3", "--apart", "0.5"], ["--servers", "5", "--apart", "0.5"]):
        given = arguments(options)
        stores = [peer.name for peer in (*ARES_PEERS, *REDIS, Etcd())]
        points = [
            point(peer=name, workload=each.name) for name in stores for each in FULL_WORKLOADS
        ]
        command = " ".join(["experiments.bench", *options])
        wanted = {name for name in named(command) if goals()[name].bench == f"python -m {command}"}
        assert len(wanted) >= 3
        assert wanted <= {name for name, _ in goal_ratios(points, conditions(given))}


def test_the_other_benches_have_the_figures_with_a_goal():
    given = moving_arguments([])
    load = f"{given.objects:,} objects, {{}}, 16 clients, {given.rate:g}/s: p99 of {{}}s"
    saved = f"{given.objects:,} objects, 16 clients, {given.rate:g}/s: time with two configurations"
    assert named("experiments.bench.moving") == {
        *(load.format(case, kind) for case in MOVING_CASES for kind in ("read", "write")),
        f"{saved}, copied ahead : not",
    }
    key = GrowthSample("ABD n=5", "keys", 1_000_000, {"bytes per key and server": 184.0})
    of_objects = {"s to start": 150.0, "MiB": 150e9 / MIB, "names listed/s": 150.0}
    pauses = {f"{LONGEST_MS_OF}{work}": ms for work, ms in (("listing", 7.0), ("scrub", 150.0))}
    many = GrowthSample("core", "objects", 10_000_000, of_objects | pauses)
    assert scale_figures({"keys": [key], "objects": [many]}) == {
        name: Figure(150, 150, 150) for name in named("experiments.bench.scale")
    }
    assert named("experiments.logs --only peers") <= {
        f"log fsync, {in_flight} in flight : {name}"
        for in_flight in PEER_IN_FLIGHT
        for name in log_peers("fsync")
    }


class MemoryLog:
    """A log in this process; its entries are alike."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []

    async def append(self, entry: bytes) -> int:
        await asyncio.sleep(0)
        self._entries.append(entry)
        return len(self._entries) - 1

    async def append_many(self, entries: list[bytes]) -> None:
        for entry in entries:
            await self.append(entry)

    async def tail(self) -> int:
        return len(self._entries)

    async def read(self, position: int, reads: str = "craq") -> bytes:
        await asyncio.sleep(0)
        return self._entries[position]

    async def read_range(self, first: int, last: int) -> list[bytes]:
        await asyncio.sleep(0)
        return self._entries[first:last]

    async def follow(self, first: int) -> AsyncIterator[tuple[int, bytes]]:
        for position in range(first, len(self._entries)):
            yield position, self._entries[position]

    async def close(self) -> None:
        pass


@pytest.fixture
def logs_in_memory(monkeypatch, tmp_path):
    """Let the benches of logs measure logs of this process, in small."""

    async def opened(*_: object) -> MemoryLog:
        return MemoryLog()

    for module in (log_speed, log_size):
        monkeypatch.setattr(
            module, "local_cluster", lambda *_: contextlib.nullcontext(tmp_path / "cluster.toml")
        )
        monkeypatch.setattr(module, "server_pids", lambda _: {"s0": os.getpid()})
        monkeypatch.setattr(module, "opened", opened)
    monkeypatch.setitem(log_speed.COUNT, "quick", 200)
    monkeypatch.setitem(log_size.SIZE_MIB, "quick", 1)
    monkeypatch.setattr(log_size, "FOLLOWED_ENTRIES", 64)
    monkeypatch.setattr(log_size, "READ_S", 0.02)


def logs(monkeypatch, tmp_path, parts: str) -> dict[str, GoalFigure]:
    monkeypatch.setattr(sys, "argv", ["logs", "--only", parts, "--results", str(tmp_path)])
    measure_logs()
    return read_figures([tmp_path / "logs_figures.json"])


def test_speed_and_size_of_logs_have_their_goals(logs_in_memory, monkeypatch, tmp_path):
    assert logs(monkeypatch, tmp_path, "speed").keys() == named("experiments.logs --only speed")
    both = named("experiments.logs --only speed") | named("experiments.logs --only size")
    assert logs(monkeypatch, tmp_path, "size").keys() == both, "a part left the other's figures out"


def test_a_failed_part_of_the_logs_leaves_the_figures_of_the_others(
    logs_in_memory, monkeypatch, tmp_path
):
    async def unread(self: MemoryLog, position: int, reads: str = "craq") -> bytes:
        raise AresError("no answer")

    logs(monkeypatch, tmp_path, "size")
    (tmp_path / "logs_figures.json").unlink()
    monkeypatch.setattr(MemoryLog, "read", unread)
    with pytest.raises(AresError, match="no operation of the log succeeded"):
        logs(monkeypatch, tmp_path, "speed")
    left = read_figures([tmp_path / "logs_figures.json"])
    assert left.keys() == {"log memory, appends"}


def test_each_goal_has_a_command_of_make_bench():
    """The tests above compare the names of figures with the goals of these commands."""
    commands = {
        "experiments.bench": "$(BENCH)",
        "experiments.bench.moving --no-durations": "$(BENCH).moving --no-durations",
        "experiments.bench.scale --only keys,objects --full": "$(BENCH).scale --only keys,objects",
        **dict.fromkeys(
            (f"experiments.logs --only {part}" for part in ("speed", "peers", "size")),
            "$(EXPERIMENTS).logs --only speed,peers,size",
        ),
        **dict.fromkeys(
            (f"experiments.bench --servers {count} --apart 0.5" for count in (3, 5)),
            "$(BENCH) --servers $$servers --apart 0.5",
        ),
    }
    assert {goal.bench for goal in goals().values()} == {f"python -m {each}" for each in commands}
    recipe = (CHECKOUT / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
    assert [words for words in commands.values() if words not in recipe] == []


def test_a_ratio_of_a_store_to_ares_is_the_inverse():
    slow = point(peer="ares-abd-curve", workload="1 MiB, 5 clients", median=2.0)
    found = dict(goal_ratios([slow, point(ratios={"ABD": Figure(0, 0, 0)})], "far, "))
    assert found == {
        "far, 1 MiB, 5 clients, ABD : ares-abd-curve": Figure(2.0, 1.0, 4.0),
        "far, 1 MiB, 5 clients, ares-abd-curve : ABD": Figure(0.5, 0.25, 1.0),
    }


def test_the_number_of_servers_changes_the_majority():
    ec, wait, alone = Ares("ec", dap="ec"), Redis("wait", wait=2), Redis("alone")
    for servers, k, replicas in ((3, 2, 1), (5, 3, 2)):
        assert (of_size(ec, servers).n, of_size(ec, servers).k) == (servers, k)
        assert [of_size(each, servers).wait for each in (wait, alone)] == [replicas, 0]
    assert [(ec.n, ec.k), wait.wait] == [(5, 3), 2]


def test_unix_sockets_are_not_measured_apart():
    missing: dict[str, str] = {}
    only = ["--only", "ares-abd,ares-abd-sockets"]
    assert len(chosen(arguments(only), missing)[0]) == 2
    peers, _ = chosen(arguments([*only, "--apart", "1"]), missing)
    assert [peer.name for peer in peers] == ["ares-abd"]
    assert missing == {"ares-abd-sockets": "ares-abd-sockets: Unix sockets cannot be apart"}


def test_the_page_has_a_line_for_every_goal():
    shown = page({ETCD: figure(7.0)}, {ETCD: figure(3.5, "76543210"), MOVE: figure(2.4)})
    rows = shown.splitlines()
    assert len(rows) == 1 + len(goals()) + 1
    [etcd] = [line for line in rows if line.startswith(ETCD)]
    cells = ["7 (3.5 to 14)", "at 0123abcd, 2026-11-27", "at least 3.5", "met by 100 %", "3.5"]
    cells.append("at 76543210")
    assert re.split("  +", etcd)[1:] == cells
    [move] = [line for line in rows if line.startswith(MOVE)]
    assert "not measured" in move
    assert move.endswith("2.4  at 0123abcd")
    assert rows[-1] == "measured at 0123abcd, 2026-11-27, experiments.bench: a machine"


def test_a_bench_records_the_figures_with_a_goal_alone(tmp_path):
    shown = record(tmp_path, "bench", {ETCD: Figure(3.49951, 3.0, 4.0), "else": Figure(1, 1, 1)})
    [recorded] = read_figures([tmp_path / "bench_figures.json"]).items()
    assert (recorded[0], recorded[1].median) == (ETCD, 3.5)
    assert recorded[1].commit
    assert len(shown.splitlines()) == 3
    assert record(tmp_path, "other", {"else": Figure(1, 1, 1)}) == ""
    assert read_figures([tmp_path / "other_figures.json"]) == {}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Return git's files of a checkout of its own, with a kept figure."""
    figures, text = tmp_path / "docs/performance.json", tmp_path / "docs/performance.md"
    write_figures(figures, {MOVE: figure(2.4)})
    text.write_text(f"before\n{performance_page.TABLE_BEGIN}{performance_page.TABLE_END}after\n")
    monkeypatch.setattr(performance_page, "KEPT_FIGURES", figures)
    monkeypatch.setattr(performance_page, "PAGE_OF_GOALS", text)
    return figures, text


def test_kept_figures_stand_until_they_are_measured_again(kept, tmp_path, capsys):
    figures, text = kept
    write_figures(tmp_path / "run/logs/some_figures.json", {ETCD: figure(4.0, "aaaa0000")})
    main([str(tmp_path / "run"), "--keep"])
    assert "kept 1 figures" in capsys.readouterr().out
    assert {name: each.commit for name, each in read_figures([figures]).items()} == {
        ETCD: "aaaa0000",
        MOVE: "0123abcd",
    }
    assert len(figures.read_text().splitlines()) == 4
    made = text.read_text()
    assert made.startswith("before\n")
    assert made.endswith("after\n")
    assert table(read_figures([figures])) in made
    assert "| 4 (2 to 8) | met by 14 % | aaaa0000, 2026-11-27, experiments.bench |" in made
    main([str(tmp_path / "no run"), "--keep"])
    assert text.read_text() == made


def test_the_newest_of_several_runs_is_kept(kept, tmp_path):
    """The order of files and of their times on the disk says nothing; nor do older kept figures."""
    figures, _ = kept
    early, late = "2026-11-28T09:00:00+00:00", "2026-11-28T10:00:00+00:00"
    write_figures(tmp_path / "run/a_figures.json", {ETCD: figure(5.0, "bbbb0000", late)})
    write_figures(tmp_path / "run/b_figures.json", {ETCD: figure(4.0, "aaaa0000", early)})
    write_figures(tmp_path / "run/c_figures.json", {MOVE: figure(9.0, "0000aaaa", "2026-11-26")})
    main([str(tmp_path / "run"), "--keep"])
    found = read_figures([figures])
    assert {name: each.commit for name, each in found.items()} == {
        ETCD: "bbbb0000",
        MOVE: "0123abcd",
    }


def test_a_file_without_figures_is_named(kept, tmp_path):
    (tmp_path / "cut_figures.json").write_text("{")
    with pytest.raises(SystemExit, match=r"cut_figures\.json has no figures"):
        main([str(tmp_path), "--keep"])


def test_the_parts_of_a_bench_are_recorded_together(tmp_path):
    record(tmp_path, "bench", {ETCD: Figure(4.0, 4.0, 4.0), MOVE: Figure(1.0, 1.0, 1.0)})
    record(tmp_path, "bench", {MOVE: Figure(2.0, 2.0, 2.0)})
    found = read_figures([tmp_path / "bench_figures.json"])
    assert {name: each.median for name, each in found.items()} == {ETCD: 4.0, MOVE: 2.0}
    assert all(each.run for each in found.values())


def test_figures_of_a_changed_checkout_are_not_kept(kept, tmp_path):
    before = [file.read_text() for file in kept]
    for commit in ("0123abcd-dirty", UNKNOWN_COMMIT):
        with pytest.raises(ValueError, match=f"'{ETCD}' was measured at {commit}"):
            keep({MOVE: figure(2.0), ETCD: figure(9.0, commit)})
    assert [file.read_text() for file in kept] == before


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("a page", {})
