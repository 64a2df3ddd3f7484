"""Autopilots at several sites: few bytes cross, an alarm brings the leader (docs/sites.md)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from ares.autopilot.handover import ALARM_S, Notebook, WatchCounts, alarms, encode, merge
from ares.autopilot.lookout import Lookout
from ares.autopilot.pilot import Autopilot
from ares.cluster.tables import AutopilotSettings
from ares.consensus.port import NoNotes
from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from tests.client.conftest import LogCluster

from .virtual_time import run_virtually

SITES = {ServerId(f"s{number}"): "aaabbbb"[number] for number in range(7)}
HEADERS = 104
"""Bytes of IP and TCP around a message, and around the acknowledgement."""

AUTOPILOT_BYTES_PER_S = 400.0
"""The part of a kibibyte left by beats to the autopilots: tests/consensus/test_beat.py."""

SETTLING_S, COUNTING_S = 200.0, 600.0
WAIT_S_MAX = 120.0


class SiteNotes:
    """Notes of a member to all further members; bytes between sites are counted."""

    def __init__(self, site: str, everyone: "dict[str, SiteNotes]", crossed: Counter[str]) -> None:
        self._site, self._everyone, self._crossed = site, everyone, crossed
        self._received: dict[str, tuple[bytes, float]] = {}
        everyone[site] = self

    def send_note(self, note: bytes) -> None:
        for site, other in self._everyone.items():
            if site != self._site:
                other._received[self._site] = note, asyncio.get_running_loop().time()
                self._crossed["".join(sorted(site + self._site))] += len(note) + HEADERS

    def received_notes(self) -> Sequence[tuple[bytes, float]]:
        now = asyncio.get_running_loop().time()
        return [(note, now - at) for note, at in self._received.values()]


class Sites:
    """Three servers at a, four at b, a member at a, b and c; ``crossed``: bytes of each pair."""

    def __init__(self, settings: AutopilotSettings, leader: str) -> None:
        self.crossed: Counter[str] = Counter()
        self.cluster, self.leader = LogCluster(7), leader
        self._settings = settings
        self._at = {server.address: SITES[id] for id, server in self.cluster.book.items()}
        self._count(self.cluster.network)

    def _count(self, network: Any) -> None:
        request, reply = network.carry_request, network.carry_reply

        def carry(address: str, origin: Any, frames: Sequence[Any], deliver: Any) -> None:
            pair = "".join(sorted({origin.site, self._at[address]} - {""}))
            self.crossed[pair] += sum(map(len, frames)) + HEADERS
            deliver(address, origin, frames)

        network.carry_request = lambda *words: carry(*words, request)
        network.carry_reply = lambda *words: carry(*words, reply)

    @contextlib.asynccontextmanager
    async def flying(self) -> AsyncIterator[dict[str, Autopilot]]:
        """Run the cluster, `default` at a, a domain and a log at b, and an autopilot a site."""
        cluster, everyone = self.cluster, dict[str, SiteNotes]()
        await cluster.start()
        user = cluster.manager()
        at_b = [cluster.book[ServerId(id)] for id in ("s3", "s4", "s5")]
        await user.create_domain("objects", Configuration.abd(at_b))
        await user.create_log("log", Configuration.chain(["s3", "s4", "s5"]))
        pilots = {
            site: Autopilot(
                Lookout(cluster.manager(site=site), cluster.book, SITES, site),
                lambda site=site: site == self.leader,
                self._settings,
                notes=SiteNotes(site, everyone, self.crossed),
            )
            for site in "abc"
        }
        flights = [asyncio.create_task(each.run()) for each in pilots.values()]
        try:
            yield pilots
        finally:
            for flight in flights:
                flight.cancel()
            await asyncio.gather(*flights, return_exceptions=True)
            await cluster.close()


@pytest.mark.slow
def test_few_bytes_cross_sites_while_nothing_happens() -> None:
    sites = Sites(AutopilotSettings(), "a")

    async def idle() -> None:
        async with sites.flying() as pilots:
            await asyncio.sleep(SETTLING_S)
            assert "watches 1 log" in pilots["a"].sentence()
            sites.crossed.clear()
            await asyncio.sleep(COUNTING_S)

    run_virtually(idle())
    assert 0 < sites.crossed["ab"] <= AUTOPILOT_BYTES_PER_S * COUNTING_S
    assert set(sites.crossed) <= {"ab", "a", "b"}, "only the leader's site watches others"


QUICK = AutopilotSettings(after_s=2.0, every_s=0.2, bytes_per_s=10**9, log_after_s=0.5)


@pytest.mark.parametrize("leader", ["a", "b"])
async def test_a_log_of_another_site_gets_a_spare_after_an_alarm(
    monkeypatch: pytest.MonkeyPatch, leader: str
) -> None:
    """The leader alone would look at the second site again in an hour."""
    monkeypatch.setattr("ares.autopilot.log_patrol.LOGS_LIST_S", 0.3)
    sites = Sites(QUICK, leader)
    async with sites.flying() as pilots, asyncio.timeout(WAIT_S_MAX):
        while "watches 1 log" not in pilots[leader].sentence():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(2 * QUICK.after_s)
        monkeypatch.setattr("ares.autopilot.lookout.REMOTE_S", 3600.0)
        monkeypatch.setattr("ares.autopilot.log_patrol.REMOTE_LIST_S", 3600.0)
        log = await sites.cluster.manager().log("log")
        await log.append(b"before")
        sites.cluster.stop("s4")
        while "s4" in (await log.current()).server_ids:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert await log.append(b"after") == 1
        while (await log.current()).n < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert {SITES[id] for id in (await log.current()).server_ids} == {"b"}


class Heard(NoNotes):
    """Notes kept in a list."""

    def __init__(self) -> None:
        self.notes: list[bytes] = []

    def send_note(self, note: bytes) -> None:
        self.notes.append(note)


def test_an_alarm_is_told_again_and_ends_untold() -> None:
    heard = Heard()

    async def alarmed() -> None:
        notebook = Notebook(heard)
        for seconds in range(100):
            notebook.raise_alarm("b" if 10 <= seconds < 60 else "")
            await asyncio.sleep(1)

    run_virtually(alarmed())
    assert heard.notes == [encode(WatchCounts(), "b")] * 5 + [encode(WatchCounts())]
    told = [(heard.notes[0], ALARM_S - 1), (encode(WatchCounts(), "c"), ALARM_S)]
    assert alarms(told, ALARM_S) == {"b"}


def test_an_alarm_does_not_hide_the_counts_of_the_leader() -> None:
    counts = WatchCounts(absent={(ServerId("s1"), "f" * 32): 9.0})
    notes = [(encode(counts), 2.0), (encode(WatchCounts(), "b"), 1.0)]
    assert merge(notes, 5.0, 60.0).absent == {(ServerId("s1"), "f" * 32): 11.0}


def test_a_note_of_the_release_before_is_understood() -> None:
    before = encode(WatchCounts(pending={b"id": 1.0}))
    assert alarms([(before, 1.0)], ALARM_S) == frozenset()
    short = msgspec.msgpack.encode([[], [], [[b"id", 1.0]]])
    assert merge([(short, 0.0)], 1.0, 1.0).pending == {b"id": 1.0}
