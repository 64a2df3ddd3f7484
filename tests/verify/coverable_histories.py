"""A coverable object simulated, and the definition for comparison with a checker of histories.

All randomness comes from the ``rng`` given. The object holds the highest version put into it. A
changed write *looks*, when the latest version must be the write's base, and later *puts* a new
version; every other operation takes effect in a single look (plain writes look at the version to
exceed, and put). Times are small integers, and equal times are frequent.
"""

from collections.abc import Generator
from contextlib import suppress
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import product
from random import Random

from msgspec import structs

from ares.testing.verify.history import Event

ZERO = (0, 0)


class Simulation:
    """Clients that write over known versions, the last or an old version.

    The clients do not always hear the outcome.
    """

    def __init__(self, rng: Random, clients: int, unknown: float, plain: float) -> None:
        self.rng, self.unknown, self.plain = rng, unknown, plain
        self.latest, self.values = ZERO, {ZERO: None}
        self.known = [[ZERO] for _ in range(clients)]
        self.spent = [0] * clients
        self.events: list[Event] = []

    def history(self, each: int) -> list[Event]:
        clients = [self._client(number, each) for number in range(len(self.known))]
        due = [(next(client), self.rng.random(), number) for number, client in enumerate(clients)]
        heapify(due)
        while due:
            now, _, number = heappop(due)
            with suppress(StopIteration):
                heappush(due, (now + clients[number].send(now), self.rng.random(), number))
        return self.events

    def _client(self, client: int, count: int) -> Generator[int, int, None]:
        """Run a client's operations sequentially.

        The generator receives the time and yields the delay until the next step.
        """
        rng = self.rng
        now = yield rng.randrange(4)
        for number in range(count):
            base = rng.choice(
                [*self.known[client][-3:], self.known[client][-1], self.known[client][-1]]
            )
            kind = rng.choices(["read", "plain", "cover"], [0.35, self.plain, 0.65 - self.plain])[0]
            value = None if kind == "read" or rng.random() < 0.1 else f"c{client}-{number}"
            operation = "read" if kind == "read" else "delete" if value is None else "write"
            event = Event(
                f"c{client}",
                operation,
                "k",
                value,
                float(now),
                None,
                "unknown",
                None,
                base if kind == "cover" else None,
            )
            now = yield rng.choice([0, 0, 1, 2, 4])
            looked = self.latest
            if kind == "read" or (kind == "cover" and looked != base):
                if kind == "read" or rng.random() >= self.unknown:
                    event = structs.replace(
                        event, operation="read", value=self.values[looked], tag=looked, outcome="ok"
                    )
            else:
                version = (max(looked[0], self.spent[client]) + 1, client + 1)
                self.spent[client], self.values[version] = version[0], value
                if rng.random() < self.unknown:
                    self.events.append(
                        structs.replace(event, tag=version if rng.random() < 0.3 else None)
                    )
                    now = yield rng.choice([0, 1, 3, 8])
                    if rng.random() < 0.7:
                        self.latest = max(self.latest, version)
                    continue
                now = yield rng.choice([0, 0, 1, 2, 4])
                self.latest = max(self.latest, version)
                event = structs.replace(event, tag=version, outcome="ok")
            now = yield rng.choice([0, 0, 1, 2])
            if event.outcome == "ok":
                self.known[client] = [*self.known[client][-2:], event.tag]
                event = structs.replace(event, responded=float(now))
            self.events.append(event)
            now = yield rng.choice([0, 0, 1])


def simulated(
    rng: Random, clients: int = 3, each: int = 2, unknown: float = 0.2, plain: float = 0.1
) -> list[Event]:
    """Return a history of a coverable object."""
    return Simulation(rng, clients, unknown, plain).history(each)


def spoilt(rng: Random, clients: int = 3, each: int = 2) -> list[Event]:
    """Return such a history with a few changes, at most three, which may still be right."""
    events = simulated(rng, clients, each)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(events))
        events[place] = _changed(rng, events[place], events)
    return events


def _changed(rng: Random, event: Event, events: list[Event]) -> Event:
    other = rng.choice(events)
    match rng.randrange(8):
        case 0 | 1 if event.base is not None:
            return structs.replace(event, base=other.tag or (2, 9))
        case 2:
            return structs.replace(event, base=other.base)
        case 3 | 4 if event.tag is not None and other.tag is not None:
            return structs.replace(
                event,
                tag=other.tag,
                value=other.value
                if rng.random() < 0.8 and event.operation == "read"
                else event.value,
            )
        case 5 if event.tag is not None:
            return structs.replace(
                event, tag=(max(event.tag[0] + rng.choice([-1, 1, 3]), 0), event.tag[1])
            )
        case 6 if event.responded is not None:
            return structs.replace(event, outcome="failed")
        case _:
            shift = rng.randint(-8, 8)
            return structs.replace(
                event,
                invoked=event.invoked + shift,
                responded=None if event.responded is None else event.responded + shift,
            )


def judged(events: list[Event]) -> list[Event]:
    return [
        event
        for event in events
        if event.outcome == "ok" or (event.outcome == "unknown" and event.operation != "read")
    ]


def shown_versions(events: list[Event]) -> set:
    return {
        version
        for event in judged(events)
        for version in (event.tag, event.base)
        if version is not None and version != ZERO
    }


def ambiguous(events: list[Event]) -> bool:
    """Return whether a version may be of several writes, or has an unknown value."""
    silent = [event.value for event in judged(events) if event.tag is None]
    told = {event.tag for event in judged(events)}
    return len(set(silent)) < len(silent) or not shown_versions(events) <= told


def is_possible(events: list[Event]) -> bool:
    """Return whether a course of the object explains the history. For half a dozen operations.

    Writes without a version may have any version.
    """
    counted = judged(events)
    silent = [place for place, event in enumerate(counted) if event.tag is None]
    made = {event.tag for event in counted if event.operation != "read"}
    failed = {
        event.tag for event in events if event.outcome == "failed" and event.operation != "read"
    }
    candidates = [None, *(shown_versions(events) - made - failed)]
    for versions in product(candidates, repeat=len(silent)):
        tried = list(counted)
        for place, version in zip(silent, versions, strict=True):
            tried[place] = structs.replace(tried[place], tag=version)
        if _is_consistent(
            certain := [event for event in tried if event.tag is not None]
        ) and _has_course(certain):
            return True
    return False


def _is_consistent(events: list[Event]) -> bool:
    """Return whether each version has a single write and value, and is above its base."""
    writes = [event for event in events if event.operation != "read"]
    values = {ZERO: None} | {event.tag: event.value for event in writes}
    if len(values) < len(writes) + 1 or any(
        values.get(event.tag, "nobody's") != event.value for event in events
    ):
        return False
    return all(event.base is None or event.base < event.tag for event in events)


def _has_course(events: list[Event]) -> bool:
    """Return whether looks and puts have an order with each in its interval."""
    puts = [event.operation != "read" for event in events]

    @cache
    def possible(done: tuple[int, ...]) -> bool:
        """Return whether the remaining steps can follow.

        ``done`` has the number of steps that each operation has taken.
        """
        latest = max(
            (event.tag for event, steps in zip(events, done, strict=True) if steps == 2),
            default=ZERO,
        )
        ended = [steps > puts[place] for place, steps in enumerate(done)]
        if all(
            over or (event.outcome == "unknown" and steps)
            for event, steps, over in zip(events, done, ended, strict=True)
        ):
            return True
        for place, event in enumerate(events):
            if ended[place] or any(
                not ended[other] and _precedes(events[other], event) for other in range(len(events))
            ):
                continue
            if (done[place] or _may_look(event, latest)) and possible(
                (*done[:place], done[place] + 1, *done[place + 1 :])
            ):
                return True
        return False

    return possible((0,) * len(events))


def _may_look(event: Event, latest: tuple[int, int]) -> bool:
    if event.operation == "read":
        return latest == event.tag
    return latest == event.base if event.base is not None else latest < event.tag


def _precedes(one: Event, other: Event) -> bool:
    return one.outcome == "ok" and one.responded is not None and one.responded < other.invoked
