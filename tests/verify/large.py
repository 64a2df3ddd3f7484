"""A large history of a key: clients that work without a pause on an atomic register.

All randomness comes from the ``rng`` given.
"""

from heapq import heapify, heappop, heapreplace
from random import Random

from msgspec import structs

from ares.testing.verify.history import Event


def large(
    rng: Random,
    count: int,
    clients: int = 16,
    deletes: float = 0.0,
    unknown: float = 0.01,
    values: int = 0,
) -> list[Event]:
    """Return a linearizable history of ``count`` operations, half of them reads.

    ``values`` is the number of different values; 0 makes unique values.
    """
    ready = [(rng.random(), client) for client in range(clients)]
    heapify(ready)
    effects: list[tuple[float, Event]] = []
    for number in range(count):
        invoked, client = ready[0]
        responded = invoked + rng.expovariate(1.0)
        heapreplace(ready, (responded + rng.expovariate(10.0), client))
        operation = (
            "read" if rng.random() < 0.5 else "delete" if rng.random() < deletes else "write"
        )
        value = f"v{rng.randrange(values) if values else number}" if operation == "write" else None
        event = Event(f"c{client}", operation, "k", value, invoked, responded)
        if rng.random() < unknown:
            effects.append(
                (
                    invoked + rng.expovariate(0.1),
                    structs.replace(event, responded=None, outcome="unknown"),
                )
            )
        else:
            effects.append((rng.uniform(invoked, responded), event))
    return _applied(effects)


def _applied(effects: list[tuple[float, Event]]) -> list[Event]:
    heap = [(moment, number, event) for number, (moment, event) in enumerate(effects)]
    heapify(heap)
    value, events = None, []
    while heap:
        _, _, event = heappop(heap)
        if event.operation == "read":
            event = structs.replace(event, value=value if event.outcome == "ok" else None)
        else:
            value = event.value
        events.append(event)
    return events
