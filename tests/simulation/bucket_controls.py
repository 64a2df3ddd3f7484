"""Negative controls of buckets.

Each breaks a sentence about the index or about the steps of a gateway, and the scenario `bucket`
must notice the fault.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Literal
from unittest.mock import patch

import msgspec
from msgspec import structs

from ares.bucket import bucket_requests, bucket_state, fold, multipart, object_changes
from ares.bucket.bucket_requests import TrimLog
from ares.bucket.bucket_session import OPEN_COMMAND, BucketSession
from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    CopyObject,
    EndSession,
    OpenSession,
    PutObject,
    PutPart,
    encode_command,
    request_print,
)
from ares.bucket.fold import BucketFold
from ares.bucket.garbage import may_drop
from ares.bucket.index_records import ContentPlace, EndedUpload, SessionEntry, Version
from ares.bucket.port import RowTableFailed
from ares.bucket.row_keys import ended_upload_row
from ares.sharedlog.log_operations import Follower
from ares.testing.sim.buckets import gateway_process
from ares.testing.sim.buckets.bucket_oracle import BucketOracle
from ares.testing.sim.buckets.bucket_plan import (
    BucketPlan,
    BucketStep,
    BucketUserPlan,
    GatewayFault,
    draw_bucket,
)
from ares.testing.sim.buckets.gateway_process import GatewayProcess
from ares.testing.sim.buckets.simulated_table import SimTable
from ares.testing.sim.plan import Chances
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
                result = CommandResult(CommandOutcome.DONE, Version(position or 0))
                self._resume(*waiting, result, None)

        self._log.append(entry, 1.0, appended)

    return patch.object(GatewayProcess, "_append", append)


def commands_before_the_chunks() -> Any:
    """Give a command to the log while its chunks are on their way."""
    store = GatewayProcess._store

    def hasty(self: GatewayProcess, blob: Any, data: bytes, done: Any) -> None:
        store(self, blob, data, lambda *_: None)
        done(None, None)

    return patch.object(GatewayProcess, "_store", hasty)


def looks_of_earlier_requests() -> Any:
    """Let every second request use the look at the tail of the request before."""
    verify = GatewayProcess._verify
    looked: set[GatewayProcess] = set()

    def reused(self: GatewayProcess, act: Callable[[], None]) -> None:
        if self in looked:
            looked.remove(self)
            act()
            return
        looked.add(self)
        verify(self, act)

    return patch.object(GatewayProcess, "_verify", reused)


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


def a_sweep_by_a_quorums_listing() -> Any:
    """List the names of the first servers, a quorum: a late put left a name at another server."""
    members = gateway_process.members

    def quorum(view: Any) -> Any:
        servers = yield from members(view)
        return servers[: view.sequence.last_finalized.quorum_size]

    return patch.object(gateway_process, "members", quorum)


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


def copies_by_blob() -> Any:
    """Copy the blob that the gateway saw, in place of the source at the command's position."""
    seen: dict[bytes, Any] = {}
    change, copy, use = bucket_requests.change, object_changes._copy, BucketState.use

    def name(operation: Any) -> bytes:
        return msgspec.msgpack.encode(operation)

    def early(session: BucketSession, request: Any) -> Any:
        operation = request.operation
        if isinstance(operation, CopyObject):
            source = operation.source
            entry = session.state.newest(source.bucket, source.key)
            if entry is not None and not entry.marker:
                seen[name(operation)] = entry
        return change(session, request)

    def stale(state: BucketState, item: Any, version: Any) -> Any:
        entry = copy(state, item, version)
        known = seen.get(name(item))
        return entry if known is None else structs.replace(known, version=version)

    def revive(self: BucketState, piece: Any) -> None:
        place = None if piece.blob is None else self.place(piece.blob)
        if place is not None and place.garbage is not None:
            self.forget_garbage(piece.blob)
        use(self, piece)

    begin = BucketOracle.__init__

    def clear(self: BucketOracle, kept: int) -> None:
        seen.clear()
        begin(self, kept)

    return together(
        patch.object(BucketOracle, "__init__", clear),
        patch("ares.testing.sim.buckets.bucket_user.change", early),
        patch.object(object_changes, "_copy", stale),
        patch.object(BucketState, "use", revive),
    )


def blobs_closed_before_their_command() -> Any:
    """Leave open blobs out of the beats, as if a number were taken at the append for them, too."""

    def take_blob(self: BucketSession) -> int:
        self._next_blob += 1
        return self._next_blob - 1

    return patch.object(BucketSession, "take_blob", take_blob)


# -- objects ---------------------------------------------------------------------------------------


def batches_applied_in_part() -> Any:
    """Apply the items of an atomic batch that can be applied."""
    change_objects = object_changes.change_objects

    def careless(state: BucketState, batch: Any) -> Any:
        result = change_objects(state, structs.replace(batch, atomic=False))
        failed = batch.atomic and not all(item.done for item in result.items)
        return structs.replace(result, outcome=CommandOutcome.BATCH_FAILED) if failed else result

    return patch.object(fold, "change_objects", careless)


def quotas_not_judged() -> Any:
    accept = lambda bucket, growth: CommandOutcome.DONE  # noqa: E731
    return together(
        patch.object(object_changes, "over_quota", accept),
        patch.object(multipart, "over_quota", accept),
    )


def an_unfinished_entry_that_is_passed_over() -> Any:
    """Go on behind an entry of which a full disk left a half."""

    @contextmanager
    def unfinished(self: BucketFold) -> Iterator[BucketState]:
        yield self.state

    def check(self: SimTable) -> None:
        if self.full:
            raise RowTableFailed("full")

    def go_on(self: GatewayProcess) -> None:
        self._follow(self.fold.state.position)

    return together(
        patch.object(BucketFold, "_unfinished", unfinished),
        patch.object(SimTable, "_check", check),
        patch.object(GatewayProcess, "_break", go_on),
    )


# -- sessions and results --------------------------------------------------------------------------


def commands_of_ended_sessions_applied() -> Any:
    take = BucketFold._take

    def careless(self: BucketFold, command: Any) -> Any:
        at = self._state.position
        if command.session < at and command.session not in self._state.sessions:
            self._state.set_session(command.session, SessionEntry(at, 1, at, 1))
            try:
                return take(self, command)
            finally:
                self._state.end_session(command.session)
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
            operation = structs.replace(operation, last=self._state.position - 1)
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


def sessions_taken_for_ended_before_their_open() -> Any:
    """Take a name for litter if its session is not known here, though it may open later."""

    def hasty(state: BucketState, blob: Any) -> bool:
        unknown = state.place(blob) is None and blob.session not in state.sessions
        return unknown or may_drop(state, blob)

    return patch.object(bucket_requests, "may_drop", hasty)


def session_numbers_chosen_by_clients() -> Any:
    """Let a gateway choose the number of its session, and give its Open until it is in the log."""
    take = BucketFold._take
    chosen: list[int] = [10**6]

    def choose(self: GatewayProcess) -> None:
        if self.session.number is None:
            chosen[0] += 1
            self.session.number = chosen[0]
            give(self, encode_command(structs.replace(OPEN_COMMAND, session=chosen[0])))

    def give(self: GatewayProcess, entry: bytes) -> None:
        def appended(position: int | None, error: Exception | None) -> None:
            if position is None and not self.dead:
                self._later(0.2, give, self, entry)

        self._log.append(entry, 0.2, appended)

    def registered(self: BucketFold, command: Any) -> Any:
        applied = take(self, command)
        if isinstance(command.operation, OpenSession) and applied.result.done:
            session = self._state.sessions[applied.session]
            self._state.end_session(applied.session)
            self._state.set_session(command.session, session)
            self.opened = {*getattr(self, "opened", ()), command.session}  # type: ignore[attr-defined]
        return applied

    def has_ended(self: BucketSession) -> bool:
        return self.number in getattr(self.fold, "opened", ()) and not self.is_live

    def judge(self: Any, position: int, command: Any) -> None:
        self._sessions[command.session] = position

    return together(
        patch.object(GatewayProcess, "_open", choose),
        patch.object(BucketFold, "_take", registered),
        patch.object(BucketOracle, "_judge_open", judge),
        patch.object(BucketOracle, "looked", lambda *_: None),
        patch.object(BucketSession, "has_ended", property(has_ended)),
    )


class _EarlySession:
    """A session that may read before its OpenSession is folded."""

    is_live = True

    def __init__(self, session: BucketSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def reads_before_the_own_open() -> Any:
    """Read while the own OpenSession is on the way to the log."""
    get_object = bucket_requests.get_object

    def early(session: Any, bucket: str, key: str) -> Any:
        return get_object(_EarlySession(session), bucket, key)  # type: ignore[arg-type]

    serves = lambda gateway: not gateway.table.failed  # noqa: E731
    return together(
        patch.object(GatewayProcess, "serves", property(serves)),
        patch("ares.testing.sim.buckets.bucket_user.get_object", early),
    )


def fenced_taken_for_no_change_after_a_snapshot() -> Any:
    """Make a change again after the session's end, though this process skipped positions."""
    return patch.object(GatewayProcess, "knows_all_since", lambda self, session: True)


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


def puts_without_a_print_before_their_etag() -> Any:
    """Hold no check for a put before its data has told the etag."""

    def late(invocation: bytes, operation: Any) -> bytes:
        unnamed = isinstance(operation, PutObject | PutPart) and not operation.etag
        return b"" if unnamed else request_print(invocation, operation)

    return patch.object(bucket_requests, "request_print", late)


def checks_that_keep_no_results() -> Any:
    """Move the floor of a check, and keep no result from before the floor."""
    return patch.object(BucketState, "invocations", lambda *_: {})


def uploads_that_outlast_their_completion() -> Any:
    """Keep the upload and its parts when an object is made of them: complete it twice."""
    return patch.object(multipart, "_end", lambda *_: None)


def contents_dropped_although_an_object_took_them_over() -> Any:
    """Give up the contents of all parts left, without regard to the parts of an object."""
    end = BucketState.end_parts

    def careless(self: BucketState, upload: Version, taken: Sequence[int]) -> None:
        end(self, upload, taken)
        if self.record(ended_upload_row(upload), EndedUpload) is not None:
            self.put_record(ended_upload_row(upload), EndedUpload())

    return patch.object(BucketState, "end_parts", careless)


def parts_beyond_a_portion_that_stay() -> Any:
    """Drop the first portion of the parts of an ended upload, and forget the rest."""

    def careless(self: BucketState, upload: Version, taken: Sequence[int]) -> None:
        self._drop_parts(upload, taken, self.leftovers_at_once)

    return patch.object(BucketState, "end_parts", careless)


# -- determinism -----------------------------------------------------------------------------------


def another_order_of_entries_read_together() -> Any:
    take = Follower.take

    def reversed_(self: Follower, *arguments: Any) -> Any:
        first, entries = yield from take(self, *arguments)
        return first, tuple(reversed(entries))

    return patch.object(Follower, "take", reversed_)


# -- plays -----------------------------------------------------------------------------------------


def a_gateway_stopped_beyond_a_trim(seed: int) -> BucketPlan:
    """Draw a plan in which a gateway with commands under way stops until the log is trimmed.

    The commands have no invocation id. The stop ends before the gateway gives them up, and beyond
    the end of its session.
    """
    rng = Random(f"stopped beyond a trim {seed}")

    def user(name: str, gateway: int, requests: int, ids: Literal["own", "none"]) -> BucketUserPlan:
        steps = tuple(
            BucketStep(rng.expovariate(1 / 0.03), "put", rng.choice(["k0", "k1", "k2"]), gateway)
            for _ in range(requests)
        )
        return BucketUserPlan(name, steps, ids=ids)

    return structs.replace(
        draw_bucket(seed),
        chances=Chances(0.005, 2.0, 0.0, 0.0, 0.005, 0.0),
        clients=(
            *(user(f"u{each}", 0, 20, "none") for each in range(4)),
            *(user(f"v{each}", 1, 40, "own") for each in range(2)),
        ),
        skews_ms=(0, 0),
        lags_s=(0.0, 0.0),
        faults=(),
        gateway_faults=(GatewayFault("stop", 0, rng.uniform(0.8, 1.2), 2.8),),
        moves=(),
        kept=1000,
        snapshot_every=2,
        answer_loss=0.0,
    )


BUCKET_PLAYS: dict[Callable[[], Any], Callable[[int], BucketPlan]] = {
    fenced_taken_for_no_change_after_a_snapshot: a_gateway_stopped_beyond_a_trim,
}
"""Plays of the controls which the scenario's plans hardly ever notice."""

BUCKET_FIRST_SEEDS: dict[Callable[[], Any], int] = {
    contents_dropped_although_an_object_took_them_over: 0,
    parts_beyond_a_portion_that_stay: 0,
    conditions_checked_at_the_gateway_only: 0,
    answers_at_the_append: 0,
    commands_before_the_chunks: 0,
    looks_of_earlier_requests: 1,
    answers_from_an_index_that_is_not_verified: 3,
    early_failures_for_later_attempts: 52,
    garbage_without_regard_to_readers: 48,
    reads_that_are_not_registered: 88,
    names_of_commands_under_way_dropped: 4,
    a_sweep_of_ended_sessions_only: 0,
    a_sweep_by_a_quorums_listing: 59,
    copies_without_uses: 0,
    a_trim_before_the_snapshot: 0,
    copies_by_blob: 60,
    blobs_closed_before_their_command: 0,
    batches_applied_in_part: 0,
    quotas_not_judged: 11,
    an_unfinished_entry_that_is_passed_over: 6,
    sessions_taken_for_ended_before_their_open: 203,
    session_numbers_chosen_by_clients: 6,
    reads_before_the_own_open: 1,
    commands_of_ended_sessions_applied: 6,
    results_forgotten: 2,
    late_copies_that_run_again: 35,
    sessions_ended_although_they_spoke: 3,
    a_restart_that_keeps_its_session: 21,
    fenced_taken_for_no_change_after_a_snapshot: 6,
    invocations_without_key_and_etag: 5,
    invocations_of_conditional_commands_alone: 0,
    invocations_forgotten_by_age_alone: 0,
    puts_without_a_print_before_their_etag: 0,
    checks_that_keep_no_results: 44,
    uploads_that_outlast_their_completion: 0,
    another_order_of_entries_read_together: 1,
}
"""The controls, each with the first seed known to notice the control."""
