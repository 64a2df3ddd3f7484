"""Recordings made by hand, right and wrong."""

from msgspec import structs

from ares.testing.torture.records import Record
from ares.testing.verify.history import Event


def records(count: int = 40, key: str = "hot/0") -> list[Record]:
    """Return records of a writer and a reader in turns.

    Every read returns the last value written.
    """
    made = []
    for number in range(count):
        at = float(number)
        made.append(
            Record(
                Event(
                    "a.writer",
                    "write",
                    key,
                    f"a.writer-{number}",
                    at,
                    at + 0.1,
                    "ok",
                    (number + 1, 7),
                ),
                at + 0.1,
            )
        )
        made.append(
            Record(
                Event(
                    "b.reader",
                    "read",
                    key,
                    f"a.writer-{number}",
                    at + 0.2,
                    at + 0.3,
                    "ok",
                    (number + 1, 7),
                ),
                at + 0.3,
            )
        )
    return made


def with_stale_read(events: list[Event], key: str = "hot/0") -> list[Event]:
    """Return the events and a late read of the first value of ``key``, which was overwritten."""
    end = 1 + max(event.responded or event.invoked for event in events)
    writes = [
        event
        for event in events
        if (event.key, event.operation, event.outcome) == (key, "write", "ok")
    ]
    first = writes[0]
    assert any(later.invoked > (first.responded or 0) for later in writes), (
        "the value must have been overwritten"
    )
    return [*events, Event("late", "read", key, first.value, end, end + 0.1)]


def with_lost_write(made: list[Record]) -> list[Record]:
    """Return the records as if the last write had never reached a reader."""
    last = made[-1]
    return [
        *made[:-1],
        structs.replace(
            last,
            event=structs.replace(last.event, value=made[-3].event.value, tag=made[-3].event.tag),
        ),
    ]
