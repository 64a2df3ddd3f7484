"""The definition of linearizability, tried out: every order of a small history's operations.

The definition takes exponential time, is compared with other checkers, and shares only the events
with them.
"""

from collections.abc import Iterable
from functools import cache

from ares.testing.verify.history import Event


def is_linearizable(events: Iterable[Event]) -> bool:
    """Return whether each key's operations have a linearization. For a dozen operations a key.

    The order agrees with real time and gives every read the value last written.
    """
    everything = list(events)
    return all(
        _explained([event for event in everything if event.key == key])
        for key in {event.key for event in everything}
    )


def _explained(history: list[Event]) -> bool:
    sure = [event for event in history if event.outcome == "ok"]
    perhaps = [
        event for event in history if event.outcome == "unknown" and event.operation != "read"
    ]
    operations = sure + perhaps

    @cache
    def possible(left: frozenset[int], value: str | None) -> bool:
        """Return whether the operations left can follow when the register holds the value."""
        if all(index >= len(sure) for index in left):
            return True
        for index in left:
            operation = operations[index]
            if any(_precedes(operations[other], operation) for other in left - {index}):
                continue
            if operation.operation == "read":
                if operation.value == value and possible(left - {index}, value):
                    return True
            elif possible(
                left - {index}, None if operation.operation == "delete" else operation.value
            ):
                return True
        return False

    return possible(frozenset(range(len(operations))), None)


def _precedes(one: Event, other: Event) -> bool:
    return one.outcome == "ok" and one.responded is not None and one.responded < other.invoked
