"""Small random histories: of a simulated atomic register, spoilt, and arbitrary.

All randomness comes from the ``rng`` given. Times are small integers: equal times, which give no
order, are frequent. Values are unique unless ``repeated``.
"""

from random import Random

from msgspec import structs

from ares.testing.verify.history import Event

HORIZON = 12


class Atomic:
    """An atomic register and its clients.

    Every operation takes effect at a single moment between invocation and response.
    """

    def __init__(self, rng: Random, repeated: bool) -> None:
        self.rng = rng
        self.repeated = repeated
        self.writes = 0

    def history(self, count: int) -> list[Event]:
        effects = [self._operation(number) for number in range(count)]
        value, events = None, []
        for _, _, takes_effect, event in sorted(effects, key=lambda effect: effect[:2]):
            if event.operation == "read":
                events.append(
                    structs.replace(event, value=value if event.outcome == "ok" else None)
                )
                continue
            events.append(event)
            if takes_effect:
                value = event.value
        self.rng.shuffle(events)
        return events

    def _operation(self, number: int) -> tuple[int, float, bool, Event]:
        """Return the moment of effect, the rank at this moment, whether any, and the event."""
        rng = self.rng
        kind = rng.choice(["read", "read", "read", "write", "write", "delete"])
        moment = rng.randrange(HORIZON)
        invoked = max(moment - rng.choice([0, 0, 1, 2, 5]), 0)
        responded = moment + rng.choice([0, 0, 1, 2, 5])
        outcome = rng.choice(["ok"] * 6 + ["unknown", "unknown", "failed"])
        event = Event(
            f"c{number}",
            kind,
            "k",
            self._value() if kind == "write" else None,
            float(invoked),
            float(responded),
            outcome,
        )
        if outcome == "unknown":
            moment += rng.choice([0, 0, 3, 8])
            return moment, rng.random(), rng.random() < 0.7, structs.replace(event, responded=None)
        return moment, rng.random(), outcome == "ok", event

    def _value(self) -> str:
        self.writes += 1
        return self.rng.choice("ab") if self.repeated else f"v{self.writes}"


def atomic(rng: Random, repeated: bool, size: int = 9) -> list[Event]:
    """Return a linearizable history."""
    return Atomic(rng, repeated).history(rng.randint(1, size))


def spoilt(rng: Random, repeated: bool, size: int = 9) -> list[Event]:
    """Return a linearizable history with a few changes, at most three.

    The history may still be linearizable.
    """
    events = atomic(rng, repeated, size)
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(events))
        events[index] = _changed(rng, events[index], events)
    return events


def _changed(rng: Random, event: Event, events: list[Event]) -> Event:
    if event.operation == "read" and event.outcome == "ok" and rng.random() < 0.7:
        return structs.replace(event, value=rng.choice([other.value for other in events]))
    if event.responded is None:
        return structs.replace(event, outcome="ok", responded=event.invoked + rng.randrange(6))
    match rng.randrange(4):
        case 0:
            return structs.replace(
                event, responded=float(rng.randint(int(event.invoked), int(event.responded)))
            )
        case 1:
            return structs.replace(
                event, invoked=float(rng.randint(int(event.invoked), int(event.responded)))
            )
        case 2:
            return structs.replace(event, outcome="failed")
        case _:
            shift = rng.randint(-int(event.invoked), 6)
            return structs.replace(
                event, invoked=event.invoked + shift, responded=event.responded + shift
            )


def arbitrary(rng: Random, repeated: bool, size: int = 9) -> list[Event]:
    """Return any operations at any time; mostly not linearizable."""
    events = []
    for number in range(rng.randint(1, size)):
        kind = rng.choice(["read", "read", "read", "write", "write", "delete"])
        value: str | None = (
            "ab"[number] if number < 2 else rng.choice("ab") if repeated else f"v{number}"
        )
        if kind == "delete" or (kind == "read" and rng.random() < 0.2):
            value = None
        elif kind == "read":
            value = rng.choice("ab")
        invoked = float(rng.randrange(HORIZON))
        outcome = rng.choice(["ok"] * 7 + ["unknown"] * (3 if repeated else 1) + ["failed"])
        responded = None if outcome == "unknown" else invoked + rng.choice([0, 1, 3, 6, 12])
        events.append(Event(f"c{number}", kind, "k", value, invoked, responded, outcome))
    return events


KINDS = {"atomic": atomic, "spoilt": spoilt, "arbitrary": arbitrary}
