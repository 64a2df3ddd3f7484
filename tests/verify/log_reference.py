"""The definition of a log, tried out: every order of the operations of a small history.

The definition takes exponential time, is compared with the checker, and shares only the events with
it.
"""

from collections.abc import Sequence
from functools import cache

from ares.testing.verify.log_history import LogEvent


def is_log(events: Sequence[LogEvent]) -> bool:
    """Return whether an order of the operations agrees with real time and with a log's answers.

    For about nine operations.
    """
    sure = [
        event
        for event in events
        if event.outcome == "ok" or (event.outcome == "failed" and event.at is not None)
    ]
    perhaps = [
        event for event in events if event.outcome == "unknown" and event.operation == "append"
    ]
    operations = sure + perhaps

    @cache
    def possible(left: frozenset[int], log: tuple[str, ...]) -> bool:
        if all(index >= len(sure) for index in left):
            return True
        for index in left:
            operation = operations[index]
            if any(
                _precedes(operations[other], operation)
                for other in left - {index}
                if other < len(sure) or operation in perhaps
            ):
                continue
            after = _after(operation, log)
            if after is not None and possible(left - {index}, after):
                return True
        return False

    return possible(frozenset(range(len(operations))), ())


def _precedes(one: LogEvent, other: LogEvent) -> bool:
    if one.responded is not None and one.responded < other.invoked:
        return True
    appends = one.operation == other.operation == "append" and one.outcome == other.outcome == "ok"
    return appends and one.client == other.client and one.invoked < other.invoked


def _after(operation: LogEvent, log: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the log after the operation, or `None` if the record forbids the operation now."""
    if operation.operation == "append":
        if operation.outcome == "failed":
            return log if operation.at is not None and len(log) > operation.at else None
        if operation.outcome == "ok" and len(log) != operation.position:
            return None
        return log + operation.entries
    assert operation.position is not None
    if operation.operation == "tail":
        return log if len(log) == operation.position else None
    if not operation.entries:
        return log if len(log) <= operation.position else None
    return (
        log
        if log[operation.position : operation.position + len(operation.entries)]
        == operation.entries
        else None
    )
