"""Which configurations the nemesis wishes for, and where the reconfigurers of some of them die."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from ares.model.identity import ServerId
from ares.testing.torture.records import Stage, Wish

SERVERS_MIN = 3
"""Fewer survive no crash."""

DELTAS = (8, 12, 16)
"""At least the number of clients that write one object at once."""

OBJECTS_BEFORE_DEATH_MAX = 20

_STAGES: tuple[Stage, ...] = ("read-config", "update-config", "update-config", "finalize-config", "gc-config")


def random_wish(number: int, well: Sequence[ServerId], dangerous: bool, chance: Random) -> Wish:
    """Some of the servers, at least SERVERS_MIN, under any algorithm and parameters that survive a crash; ``dangerous``: its reconfigurer may die."""
    servers = tuple(chance.sample(well, chance.randint(SERVERS_MIN, len(well))))
    wish = Wish(number, "abd", servers, fresh=chance.random() < 0.3)
    if chance.random() < 0.6:
        k_max = len(servers) - 2
        wish = replace(wish, dap="ec", k=chance.randint(min(2, k_max), k_max), delta=chance.choice(DELTAS))
    if dangerous and chance.random() < 0.2:
        stage = chance.choice(_STAGES)
        wish = replace(wish, dies_in=stage, dies_after=chance.randint(1, OBJECTS_BEFORE_DEATH_MAX) if stage == "update-config" else 1)
    return wish
