"""The exhaustive searches whose counts docs/piggyback-counterexample.md names."""

from functools import cache
from typing import Any

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.testing.published.ares2 import Ares2Client, Ares2Switches
from tests.paper.all_schedules import OBJECT, Count, ScheduleSearch
from tests.protocol.protocol_world import servers

C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
C1 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 1, C0.id)


@cache
def count(r1: bool, gc: bool) -> tuple[Count, int]:
    """Return the number of schedules, and of states, of a write beside a reconfiguration.

    A read follows when both are complete; its second phase cannot change its value, and is left
    out.
    """

    def client(number: int) -> Ares2Client:
        return Ares2Client(ClientId(number), C0, Ares2Switches(gc=gc, r1=r1))

    def lost(results: list[Any]) -> bool:
        tag, _, found = results
        return found != (tag, b"new")

    search = ScheduleSearch(
        [C0, C1],
        [
            lambda: client(1).write(OBJECT, b"new"),
            lambda: client(2).reconfig(C1, [OBJECT]),
            lambda: client(3).ask_data(OBJECT),
        ],
        {2: (0, 1)},
        lost,
    )
    return search.count(search.first()), search.states
