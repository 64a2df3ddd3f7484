"""The nemesis, which never exceeds the faults that configurations promise to survive.

The nemesis works in virtual time against a world with separate accounts.
"""

import asyncio
import heapq
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.model.configuration import Configuration, Server
from ares.model.identity import ServerId
from ares.testing.torture.nemesis import Nemesis, NemesisLedger
from ares.testing.torture.records import (
    Outcome,
    Timeline,
    Wish,
    WishDeclined,
    WishInstalled,
    WishKilled,
)

MEMBERS = ("r0", "r1", "r2")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only while all tasks wait."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0

    def time(self) -> float:
        return self._virtual_now

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready and self._scheduled:
            self._virtual_now = max(self._virtual_now, self._scheduled[0]._when)
        super()._run_once()


class Broken(AssertionError):
    """The nemesis hurt more servers than a configuration in use survives."""


class NemesisWorld:
    """The truth, kept without the ledger.

    The world knows lives, troubles, and the decided configurations without a known replacement.
    """

    has_network = True
    hosts = ("a", "b", "c")

    def __init__(self, servers: int, chance: Random) -> None:
        self.chance = chance
        self.lives = {ServerId(f"s{number}"): 1 for number in range(servers)}
        self.ailing: set[str] = set()
        self.acts = 0
        self.index = 0
        self.in_use = [self.named(list(self.lives)).at("default", 0)]
        self.settled = False

    def named(self, servers) -> Configuration:
        return Configuration.abd([Server(id, "h:1", self.identity(id)) for id in servers])

    def identity(self, server) -> str:
        return f"{server}/{self.lives[server]}"

    def kill(self, id):
        if id in self.lives:
            self.lives[id] += 1
        self._ail(id)

    def freeze(self, id):
        self._ail(id)

    def cut(self, id, peers, direction):
        assert peers
        assert id not in peers
        self._ail(id)

    def thaw(self, id):
        self.ailing.remove(id)

    def mend(self, id):
        self.ailing.remove(id)

    async def launch(self, id, slow=False):
        await asyncio.sleep(self.chance.uniform(0.2, 2))
        self.ailing.remove(id)

    def ended(self):
        return []

    def _ail(self, id):
        self.ailing.add(id)
        self.acts += 1
        if len(self.ailing & set(MEMBERS)) > 1:
            raise Broken("a majority of the consensus members")
        for configuration in self.in_use:
            lost = {
                server.id
                for server in configuration.servers
                if server.id in self.ailing or server.identity != self.identity(server.id)
            }
            if len(lost) > configuration.crashes_survived:
                raise Broken(f"{configuration.describe()}: {lost}")

    async def reconfigure(self, wish: Wish, kill_after_s: float | None) -> Outcome:
        chance = self.chance
        await asyncio.sleep(chance.uniform(0, 0.2))
        if self.ailing & set(wish.servers):
            return WishDeclined("silent")
        index, content = self.index + 1, wish.configuration()
        placed = Configuration(
            content.dap,
            self.named(wish.servers).servers,
            content.k,
            content.delta,
            content.backend,
            index=index,
        )
        await asyncio.sleep(chance.uniform(0, 0.5))
        if wish.dies_in == "read-config" or (kill_after_s is not None and chance.random() < 0.5):
            return WishKilled(True)
        if self.index < index:
            self.index = index
            self.in_use.append(placed)
        decided = next(each for each in self.in_use if each.index == self.index)
        await asyncio.sleep(chance.uniform(0, 3))
        if wish.dies_in or kill_after_s is not None:
            return WishKilled(True)
        announced = chance.random() < 0.9
        if announced:
            self.in_use = [each for each in self.in_use if each.index >= decided.index]
        return WishInstalled(decided, decided == placed, 0, announced)


class Reckless(NemesisLedger):
    """A ledger without memory of restarts.

    A restarted server is lost to the configurations that name the server.
    """

    def lost(self, configuration):
        return {server.id for server in configuration.servers if server.id in self.trouble}


def rage(
    seed: int, servers: int, book: type[NemesisLedger] = NemesisLedger, seconds: float = 300.0
) -> tuple[NemesisWorld, Nemesis]:
    world = NemesisWorld(servers, Random(f"{seed} world"))
    ledger = book(world.in_use[0], {id: world.identity(id) for id in world.lives}, MEMBERS)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def run() -> Nemesis:
            nemesis = Nemesis(world, world.reconfigure, ledger, Timeline(), Random(seed))
            await nemesis.rage(seconds)
            return nemesis

        nemesis = runner.run(run())
    return world, nemesis


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 9))
def test_it_never_exceeds_what_is_survived_and_leaves_everything_well(seed, servers):
    world, nemesis = rage(seed, servers)
    assert world.acts > 20
    assert nemesis.reconfigurations["done"] > 3
    assert world.ailing == set()
    assert nemesis.problems == []


def test_bookkeeping_that_forgets_lost_lives_is_caught():
    with pytest.raises(BaseExceptionGroup) as caught:
        rage(1, 5, Reckless, seconds=3000)
    assert caught.group_contains(Broken)


def test_the_same_seed_has_the_same_intentions():
    first, _ = rage(7, 5, seconds=60)
    second, _ = rage(7, 5, seconds=60)
    assert (first.lives, first.acts, first.index) == (second.lives, second.acts, second.index)


async def test_wishes_name_only_servers_that_are_well_and_survive_a_crash():
    world = NemesisWorld(6, Random(1))
    ledger = NemesisLedger(world.in_use[0], {id: world.identity(id) for id in world.lives}, MEMBERS)
    ledger.hurt("s1", "stopped")
    nemesis = Nemesis(world, world.reconfigure, ledger, Timeline(), Random(2))
    wishes = [nemesis.wish(dangerous=True) for _ in range(300)]
    configurations = [wish.configuration() for wish in wishes]
    assert all("s1" not in wish.servers for wish in wishes)
    assert all(configuration.crashes_survived >= 1 for configuration in configurations)
    assert {configuration.dap for configuration in configurations} == {"abd", "ec"}
    assert {configuration.n for configuration in configurations} == {3, 4, 5}
    assert {wish.dies_in for wish in wishes} >= {
        None,
        "read-config",
        "update-config",
        "finalize-config",
        "gc-config",
    }
    for id in ("s2", "s3", "s4"):
        ledger.hurt(id, "dead")
    assert nemesis.wish() is None


class Ends(NemesisWorld):
    """A world in which a server ends by itself, once, during a cut."""

    has_ended = False

    def ended(self):
        if self.has_ended or "s0" not in self.ailing:
            return []
        self.has_ended = True
        self.lives["s0"] += 1
        return ["s0"]

    def thaw(self, id):
        assert not (id == "s0" and self.has_ended), "a process that ended cannot be continued"
        super().thaw(id)

    def mend(self, id):
        if not (id == "s0" and self.has_ended):
            super().mend(id)


async def test_a_server_that_ended_by_itself_is_told_of_and_started_again():
    world = Ends(5, Random(1))
    ledger = NemesisLedger(world.in_use[0], {id: world.identity(id) for id in world.lives}, MEMBERS)
    nemesis = Nemesis(world, world.reconfigure, ledger, Timeline(), Random(2))
    nemesis._freeze("s0")
    nemesis._notice_ended()
    await nemesis.heal()
    assert nemesis.problems == ["s0 ended by itself; see its log"]
    assert ledger.trouble == {}
    assert ledger.identities["s0"] == "s0/2"


class Mute(NemesisWorld):
    """A world in which hurt servers stay silent for a while, or for ever."""

    attempts = 0
    deaf_to = 3

    async def reconfigure(self, wish, kill_after_s):
        self.attempts += 1
        return (
            WishDeclined("silent")
            if self.attempts <= self.deaf_to
            else await super().reconfigure(wish, kill_after_s)
        )


@pytest.mark.parametrize(("deaf_to", "problems"), [(3, 0), (1000, 1)])
def test_the_last_reconfiguration_is_tried_again_but_not_for_ever(deaf_to, problems):
    world = Mute(4, Random(1))
    world.deaf_to = deaf_to
    ledger = NemesisLedger(world.in_use[0], {id: world.identity(id) for id in world.lives}, MEMBERS)

    async def run() -> Nemesis:
        nemesis = Nemesis(world, world.reconfigure, ledger, Timeline(), Random(3))
        await nemesis.rage(0)
        return nemesis

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        nemesis = runner.run(run())
    assert len(nemesis.problems) == problems
    assert nemesis.reconfigurations["done"] == 1 - problems
