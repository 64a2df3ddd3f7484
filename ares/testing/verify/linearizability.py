"""Linearizability of read/write registers, judged from outside: by invocations, responses and values alone, never by tags.

A history is linearizable if and only if that of every key is (Herlihy and Wing), so each key is judged for itself. Operation A comes before B if it
responded before B was invoked; at the same time is no order. Values written once are judged in n log n steps (zones.py); if a key's reads
return values that were written more than once, such as "absent" after two deletes, an exact search follows (search.py), and if its budget is
spent the key is *undecided*.
"""

from collections.abc import Iterable, Iterator, Sequence

from ares.testing.verify.findings import Report, Undecided, Violation
from ares.testing.verify.history import Event
from ares.testing.verify.register import Contradiction, Register, by_key, named
from ares.testing.verify.search import Search
from ares.testing.verify.shrinking import shrink
from ares.testing.verify.zones import conflicts, contradiction, zones_of

STATES_MAX = 500_000
"""How many states the search looks at for a key, unless told otherwise."""

_SHRINKING_STATES_MAX = 20_000


def check(events: Iterable[Event], states_max: int = STATES_MAX) -> Report:
    """Judge a history; each violation names few operations that contradict each other by themselves.

    ``states_max`` bounds the search on a key with repeated values. Raises :class:`ares.BadInput` if a completed operation has no
    response.
    """
    keys = by_key(events)
    violations: list[Violation] = []
    undecided: list[Undecided] = []
    for key, own in keys.items():
        for finding in _judge(own, states_max):
            if isinstance(finding, Contradiction):
                violations.append(Violation(key, finding.why, tuple(sorted(finding.events, key=lambda event: event.invoked))))
            else:
                undecided.append(Undecided(key, finding))
    return Report(sum(map(len, keys.values())), len(keys), tuple(violations), tuple(undecided))


def _judge(events: Sequence[Event], states_max: int) -> Iterator[Contradiction | str]:
    """Contradictions on one key, or why there is no saying."""
    register = Register(events)
    unexplained = list(register.unexplained())
    if unexplained:
        yield from unexplained
        wrong = {read for found in unexplained for read in found.events if read.operation == "read"}
        register = Register(event for event in events if event not in wrong)
    zones = zones_of(register)
    overlapping = list(conflicts(zones))
    for one, other in overlapping:
        yield _explained(shrink(one.events | other.events, _contradictory))
    if unexplained or overlapping or not register.repeated:
        return
    search = Search(register, zones)
    match search.run(states_max):
        case False:
            yield _explained(shrink(events, _contradictory, search.reached))
        case None:
            values = ", ".join(map(named, register.repeated[:3])) + (", ..." if len(register.repeated) > 3 else "")
            yield f"{states_max} states of the search did not tell; read and more than once written (or initial): {values}"


def _polynomial(register: Register) -> Iterator[Contradiction]:
    yield from register.unexplained()
    for one, other in conflicts(zones_of(register)):
        yield contradiction(one, other)


def _contradictory(events: Sequence[Event]) -> bool:
    """Whether there surely is no linearization."""
    register = Register(events)
    if any(_polynomial(register)):
        return True
    return bool(register.repeated) and Search(register, zones_of(register)).run(_SHRINKING_STATES_MAX) is False


def _explained(events: Sequence[Event]) -> Contradiction:
    """The contradiction of few events, in words."""
    why = next((found.why for found in _polynomial(Register(events))), "no order of these operations explains every read")
    return Contradiction(why, tuple(events))
