"""Random histories of a log: right histories, histories spoilt in a place, and large histories.

All randomness comes from the ``rng`` given.
"""

from random import Random

from msgspec import structs

from ares.testing.verify.log_history import LogEvent


def shown_by_a_log(
    rng: Random, count: int, batches: bool = True, spread: float = 3.0, unknown: float = 0.15
) -> list[LogEvent]:
    """Return operations with sequential effects, each between invocation and response."""
    log: list[str] = []
    events = []
    for number in range(count):
        moment = float(number)
        begin, end = (
            round(moment - rng.random() * spread, 1),
            round(moment + rng.random() * spread, 1),
        )
        kind = rng.choice(
            ["append", "append", "append", "read", "read", "nothing", "tail", "taken"]
        )
        client = f"c{number}"
        position = rng.randrange(len(log)) if log else 0
        if kind == "append":
            is_unknown = rng.random() < unknown
            entries = tuple(
                f"e{number}.{index}"
                for index in range(rng.choice([1, 1, 2]) if batches and not is_unknown else 1)
            )
            if is_unknown:
                events.append(
                    LogEvent(client, "append", "l", None, begin, None, entries, "unknown")
                )
                if rng.random() < 0.5:
                    continue
            else:
                events.append(LogEvent(client, "append", "l", len(log), begin, end, entries))
            log += entries
        elif kind == "read" and log:
            events.append(
                LogEvent(
                    client,
                    "read",
                    "l",
                    position,
                    begin,
                    end,
                    tuple(log[position : position + rng.choice([1, 1, 3])]),
                )
            )
        elif kind == "nothing":
            events.append(
                LogEvent(client, "read", "l", len(log) + rng.choice([0, 0, 1]), begin, end)
            )
        elif kind == "tail":
            events.append(LogEvent(client, "tail", "l", len(log), begin, end))
        elif kind == "taken" and log:
            events.append(
                LogEvent(
                    client, "append", "l", None, begin, end, (f"t{number}",), "failed", at=position
                )
            )
    return events


def spoilt(rng: Random, count: int, batches: bool = True) -> list[LogEvent]:
    """Return a history of a log with one or two operations at another time or position."""
    events = shown_by_a_log(rng, count, batches)
    for _ in range(rng.choice([1, 1, 2])):
        if events:
            index = rng.randrange(len(events))
            event = events[index]
            if rng.random() < 0.5 and event.position is not None and event.operation != "append":
                events[index] = structs.replace(
                    event, position=max(event.position + rng.choice([-1, 1]), 0)
                )
            else:
                by = rng.choice([-4.0, -2.0, 2.0, 4.0])
                ended = None if event.responded is None else event.responded + by
                events[index] = structs.replace(event, invoked=event.invoked + by, responded=ended)
    return events


def large(rng: Random, count: int) -> list[LogEvent]:
    """Return a right history of `count` operations."""
    return shown_by_a_log(rng, count, spread=20.0, unknown=0.01)
