"""Negative controls of buckets.

Each breaks a sentence about the index or about the steps of a gateway, and the scenario `bucket`
must notice the fault.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from msgspec import structs

from ares.bucket import bucket_requests, bucket_state, fold, multipart, object_changes
from ares.bucket.bucket_requests import TrimLog
from ares.bucket.bucket_session import BucketSession
from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    EndSession,
)
from ares.bucket.fold import BucketFold
from ares.bucket.garbage import may_drop
from ares.bucket.index_records import ContentPlace, SessionEntry, Version
from ares.sharedlog.log_operations import Follower
from ares.testing.sim.buckets.gateway_process import GatewayProcess
from tests.simulation.patches import together

# -- the order of the steps ------------------------------------------------------------------------


def conditions_checked_at_the_gateway_only() -> Any:
    return patch.object(object_changes, "judge", lambda conditions, entry: CommandOutcome.DONE)


def answers_at_the_append() -> Any:
    """Tell the user of a success when the log has the command."""

    def append(self: GatewayProcess, entry: bytes, name: tuple[int, int]) -> None:
        def appended(position: int | None, error: Exception | None) -> None:
            waiting = self._commits.pop(name, None) if position is not None else None
            if waiting is not None and not self.dead:
                waiting(CommandResult(CommandOutcome.DONE, Version(position or 0)), None)

        self._log.append(entry, 1.0, appended)

    return patch.object(GatewayProcess, "_append", append)


def commands_before_the_chunks() -> Any:
    """Give a command to the log while its chunks are on their way."""
    store = GatewayProcess._store

    def hasty(self: GatewayProcess, blob: Any, data: bytes, done: Any) -> None:
        store(self, blob, data, lambda *_: None)
        done(None, None)

    return patch.object(GatewayProcess, "_store", hasty)


def answers_from_an_index_that_is_not_verified() -> Any:
    return patch.object(GatewayProcess, "_verify", lambda self, act: act())


def early_failures_for_later_attempts() -> Any:
    return patch.object(bucket_requests, "may_answer_early", lambda request: True)


# -- garbage ---------------------------------------------------------------------------------------


def garbage_without_regard_to_readers() -> Any:
    def hasty(state: BucketState, blob: Any) -> bool:
        place = state.place(blob)
        return may_drop(state, blob) if place is None else place.garbage is not None

    return patch.object(bucket_requests, "may_drop", hasty)


def reads_that_are_not_registered() -> Any:
    """Leave the open reads out of the beats."""
    return patch.object(BucketSession, "begin_read", lambda self: 0)


def names_of_commands_under_way_dropped() -> Any:
    """Take every name without a place for litter."""

    def hasty(state: BucketState, blob: Any) -> bool:
        return state.place(blob) is None or may_drop(state, blob)

    return patch.object(bucket_requests, "may_drop", hasty)


def a_sweep_of_ended_sessions_only() -> Any:
    def lazy(state: BucketState, blob: Any) -> bool:
        unnamed = state.place(blob) is None and blob.session in state.sessions
        return not unnamed and may_drop(state, blob)

    return patch.object(bucket_requests, "may_drop", lazy)


def copies_without_uses() -> Any:
    """Make garbage of a blob or content when the first of its users goes."""

    def use(self: BucketState, piece: Any) -> None:
        row = bucket_state._place_row(piece)
        if row is not None:
            place = self.record(row, ContentPlace) or ContentPlace(0)
            self.put_record(row, structs.replace(place, uses=1))

    def give_up(self: BucketState, piece: Any) -> None:
        row = bucket_state._place_row(piece)
        place = None if row is None else self.record(row, ContentPlace)
        if place is not None and place.garbage is None:
            give_up_(self, piece)

    give_up_ = BucketState.give_up
    return together(
        patch.object(BucketState, "use", use), patch.object(BucketState, "give_up", give_up)
    )


def a_trim_before_the_snapshot() -> Any:
    """Trim the log when a snapshot begins."""
    keep_snapshot = bucket_requests.keep_snapshot

    def hasty(session: BucketSession, ms: int) -> Any:
        yield TrimLog(session.state.position)
        return (yield from keep_snapshot(session, ms))

    return patch("ares.testing.sim.buckets.gateway_process.keep_snapshot", hasty)


# -- sessions and results --------------------------------------------------------------------------


def commands_of_ended_sessions_applied() -> Any:
    take = BucketFold._take

    def careless(self: BucketFold, command: Any) -> Any:
        at = self.state.position
        if command.session < at and command.session not in self.state.sessions:
            self.state.set_session(command.session, SessionEntry(at, 1, at, 1))
            try:
                return take(self, command)
            finally:
                self.state.end_session(command.session)
        return take(self, command)

    return patch.object(BucketFold, "_take", careless)


def results_forgotten() -> Any:
    return patch.object(BucketState, "remember", lambda self, session, number, result: None)


def late_copies_that_run_again() -> Any:
    """Apply a number below the lowest like any other."""
    return patch.object(fold, "is_settled", lambda number, lowest: False)


def sessions_ended_although_they_spoke() -> Any:
    keep_up = BucketFold._keep_up

    def careless(self: BucketFold, command: Any, operation: Any) -> Any:
        if isinstance(operation, EndSession):
            operation = structs.replace(operation, last=2**62)
        return keep_up(self, command, operation)

    return patch.object(BucketFold, "_keep_up", careless)


def a_restart_that_keeps_its_session() -> Any:
    """Begin a new life of a gateway under the number of the last life's session."""
    numbers: dict[tuple[int, str], int] = {}
    begun: set[tuple[int, str]] = set()
    open_ = GatewayProcess._open

    def kept(self: GatewayProcess) -> None:
        gateway = (id(self._run), self.name.partition(".")[0])
        first, session = (id(self._run), self.name) not in begun, self.session
        begun.add((id(self._run), self.name))
        if first and gateway in numbers:
            session.number = numbers[gateway]
            return
        open_(self)

        def note() -> None:
            if session.number is None:
                self._later(0.01, note)
            else:
                numbers[gateway] = session.number

        note()

    return patch.object(GatewayProcess, "_open", kept)


# -- invocations -----------------------------------------------------------------------------------


def invocations_without_key_and_etag() -> Any:
    rule = lambda invocation, _: invocation and invocation.ljust(16, b"-")  # noqa: E731
    return together(
        patch.object(fold, "request_print", rule),
        patch.object(bucket_requests, "request_print", rule),
    )


def invocations_of_conditional_commands_alone() -> Any:
    change_once = BucketFold._change_once

    def careless(self: BucketFold, command: Any, operation: Any) -> Any:
        if bucket_requests._conditions(operation) is None:
            command = structs.replace(command, invocation=b"")
        return change_once(self, command, operation)

    return patch.object(BucketFold, "_change_once", careless)


def invocations_forgotten_by_age_alone() -> Any:
    """Forget old invocations although a command that was checked before them is under way."""
    forget = BucketState.forget_invocations

    def careless(self: BucketState, below: int, count_max: int) -> None:
        forget(self, self.position - 3, count_max)

    return patch.object(BucketState, "forget_invocations", careless)


def uploads_that_outlast_their_completion() -> Any:
    """Keep the upload and its parts when an object is made of them: complete it twice."""
    return patch.object(multipart, "_end", lambda *_: None)


# -- determinism -----------------------------------------------------------------------------------


def another_order_of_entries_read_together() -> Any:
    take = Follower.take

    def reversed_(self: Follower, *arguments: Any) -> Any:
        first, entries = yield from take(self, *arguments)
        return first, tuple(reversed(entries))

    return patch.object(Follower, "take", reversed_)


BUCKET_FIRST_SEEDS: dict[Callable[[], Any], int] = {
    conditions_checked_at_the_gateway_only: 3,
    answers_at_the_append: 0,
    commands_before_the_chunks: 0,
    answers_from_an_index_that_is_not_verified: 3,
    early_failures_for_later_attempts: 27,
    garbage_without_regard_to_readers: 45,
    reads_that_are_not_registered: 52,
    names_of_commands_under_way_dropped: 6,
    a_sweep_of_ended_sessions_only: 1,
    copies_without_uses: 0,
    a_trim_before_the_snapshot: 0,
    commands_of_ended_sessions_applied: 20,
    results_forgotten: 3,
    late_copies_that_run_again: 18,
    sessions_ended_although_they_spoke: 1,
    a_restart_that_keeps_its_session: 67,
    invocations_without_key_and_etag: 2,
    invocations_of_conditional_commands_alone: 5,
    invocations_forgotten_by_age_alone: 23,
    uploads_that_outlast_their_completion: 1,
    another_order_of_entries_read_together: 2,
}
"""The controls, each with the first seed known to notice the control."""
