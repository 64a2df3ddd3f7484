"""The changes of a bucket at a position of the log, told by the entry and any later state.

An entry alone does not tell whether a condition held, or whether the entry repeats an earlier
request. The index remembers the first result of each request, and the position of this result, for
:data:`ares.bucket.fold.INVOCATIONS_KEPT` positions. Hence no process keeps events for watchers: a
watcher reads the log again from any such position, with the index of any process. A repeat has no
result at its position, and is no change.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandResult
from ares.bucket.commands import (
    CompleteUpload,
    CopyObject,
    DeleteBucket,
    DeleteObject,
    ObjectBatch,
    PutObject,
    SetTags,
    decode_command,
)
from ares.bucket.row_keys import (
    INVOCATION_ORDER_ROWS,
    after,
    invocation_order_row,
    position_of_row,
)
from ares.model.errors import AresError

ToldOperation = PutObject | CopyObject | DeleteObject | SetTags | CompleteUpload | DeleteBucket
"""Operations of interest to watchers; a batch has several."""


class WatchGap(AresError):
    """Changes from ``since`` on cannot be told any more; changes from ``first`` on can."""

    def __init__(self, since: int, first: int) -> None:
        super().__init__(
            f"the changes from position {since} to {first} are too old to be told. No object is "
            "lost: watch again without a position, and list the bucket after the first mark"
        )
        self.since, self.first = since, first


class ToldChange(NamedTuple):
    """An operation that was applied, and its result."""

    operation: ToldOperation
    result: CommandResult


def changes_at(
    state: BucketState, position: int, entry: bytes, bucket: str
) -> Sequence[ToldChange]:
    """Return the changes of a bucket by the entry at ``position``, in the order of the batch.

    ``state``: of any later position. Raises :class:`WatchGap` if the index forgot the result, or
    remembered no result, because the command has no invocation.
    """
    command = decode_command(entry)
    if command is None:
        return ()
    operation = command.operation
    batch = isinstance(operation, ObjectBatch)
    items = operation.items if isinstance(operation, ObjectBatch) else (operation,)
    if not any(isinstance(item, ToldOperation) and item.bucket == bucket for item in items):
        return ()
    if not command.invocation:
        raise WatchGap(position, position + 1)
    result = _first_result(state, position)
    if result is None or not result.done:
        return ()
    return [
        ToldChange(item, told)
        for item, told in zip(items, result.items if batch else (result,), strict=True)
        if isinstance(item, ToldOperation) and item.bucket == bucket and told.done
        if told.version is not None or isinstance(item, DeleteBucket)
    ]


def _first_result(state: BucketState, position: int) -> CommandResult | None:
    """Return the result of a request first applied at ``position``; None for further entries.

    The index forgets the oldest results first, and has all results from the oldest on.
    """
    assert position < state.position, "the state has the entry"
    fingerprint = state.table.get(invocation_order_row(position))
    if fingerprint is not None:
        return state.invocation(fingerprint)
    oldest = state.table.scan(INVOCATION_ORDER_ROWS, after(INVOCATION_ORDER_ROWS), 1)
    first = position_of_row(oldest[0][0]) if oldest else state.position
    if position < first:
        raise WatchGap(position, first)
    return None
