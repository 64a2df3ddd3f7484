"""Properties of the fold under arbitrary commands of several sessions.

The model beside the fold is a dictionary of the newest etags by key, and decides conditions.
"""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ares.bucket.bucket_state import counted_digest, load_rows, rows_between
from ares.bucket.commands import (
    AbortUpload,
    Beat,
    BeginUpload,
    Collected,
    CompleteUpload,
    Conditions,
    CopyObject,
    CopySource,
    CreateBucket,
    DeleteBucket,
    DeleteObject,
    EndSession,
    KeepSnapshot,
    NamedPart,
    ObjectBatch,
    PutObject,
    PutPart,
    SetBucket,
    SetTags,
    decode_command,
    encode_command,
)
from ares.bucket.fold import BucketFold
from ares.bucket.garbage import may_drop
from ares.bucket.index_records import Version, Versioning
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import Saved
from ares.bucket.row_keys import OBJECT_ROWS, ROWS_END, VERSION_BYTES, after, of_key
from ares.bucket.watching.changes_at import WatchGap, changes_at
from ares.store.sqlite_table import SqliteTable
from ares.testing.sim.buckets.index_audit import audit_index
from tests.bucket.index_driver import IndexDriver

KEYS = ["a", "a\0", "a/b", "b"]
NAMES = ["one", "two"]
BYTES = 5 * 2**20
BOUNDS: dict[str, int] = {"kept": 20, "leftovers_at_once": 1}

_steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("put", "put", "put", "copy", "delete", "tags", "rename", "batch", "set"),
                *("begin", "part", "part", "complete", "abort", "create", "drop", "beat", "end"),
                *("open", "collect", "snapshot", "again", "retry", "junk"),
            ]
        ),
        st.integers(0, 2),
        st.sampled_from(NAMES),
        st.sampled_from(KEYS),
        st.sampled_from(KEYS),
        st.integers(0, 5),
    ),
    max_size=60,
)


class Play:
    """The steps of a play: commands made out of small numbers, and applied."""

    def __init__(self) -> None:
        self.index = IndexDriver(**BOUNDS)
        self.sessions = [self.index.session() for _ in range(3)]
        self.uploads = [(NAMES[0], KEYS[0], Version(0))]
        self.sent: list[bytes] = [b""]
        for bucket in NAMES:
            self.sessions[0].give(CreateBucket(bucket))

    def step(self, kind, who, bucket, key, other, number) -> Any:
        """Apply a step; return the command and its result, or None."""
        index = self.index
        session = self.sessions[who]
        if kind == "open":
            self.sessions[who] = index.session()
            return None
        if kind in ("again", "junk"):
            index.apply(self.sent[number % len(self.sent)] if kind == "again" else bytes([number]))
            return None
        session.lowest = max(1, session.used + 1 - number) if number else None
        operation = self._operation(kind, session, bucket, key, other, number)
        invocation = bytes([number]) if kind in ("put", "retry", "complete", "delete") else b""
        command = session.command(operation, invocation=invocation)
        self.sent.append(encode_command(command))
        applied = index.apply(self.sent[-1])
        if applied is not None and kind == "begin" and applied.result.done:
            self.uploads.append((bucket, key, applied.result.version))
        return command, applied

    def _operation(self, kind, session, bucket, key, other, number) -> Any:
        state = self.index.state
        conditions = [
            Conditions(), Conditions(), Conditions(absent=True), Conditions(present=True),
            Conditions(etags=("0", "1")), Conditions(etags_out=("2",)),
        ][number]  # fmt: skip
        upload = self.uploads[number % len(self.uploads)]
        put = PutObject(bucket, key, session.blob(number + 1), str(number), conditions)
        copy = CopyObject(bucket, other, CopySource(bucket, key), conditions)
        at = state.position
        match kind:
            case "put" | "retry":
                return put
            case "copy":
                return copy
            case "delete":
                return DeleteObject(bucket, key, null=number > 3, superseded=number > 4)
            case "tags":
                return SetTags(bucket, key, bytes([number]))
            case "rename" if key != other:
                return ObjectBatch((copy, DeleteObject(bucket, key)), atomic=True)
            case "batch" | "rename":
                return ObjectBatch((put, DeleteObject(bucket, other), copy))
            case "set":
                return SetBucket(bucket, Versioning(number % 3), quota=[0, 0, 20 * BYTES][who(key)])
            case "begin":
                return BeginUpload(bucket, key)
            case "part":
                return PutPart(*upload, 1 + number % 3, session.blob(BYTES), "p")
            case "complete":
                parts = tuple(NamedPart(part, "p") for part in range(1, 2 + number % 3))
                return CompleteUpload(*upload, parts, "whole", conditions)
            case "abort":
                return AbortUpload(*upload)
            case "create":
                return CreateBucket(bucket)
            case "drop":
                return DeleteBucket(bucket)
            case "beat":
                return Beat(at, bytes(16), max(0, at - number), session.used + 1, ())
            case "end":
                ending = self.sessions[number % 3].number
                known = state.sessions.get(ending)
                return EndSession(ending, 0 if known is None else known.last)
            case "collect":
                found = state.garbage(number)
                return Collected(tuple(blob for _, blob in found if may_drop(state, blob)))
            case _:
                return KeepSnapshot(at, bytes(16), session.blob(1))


def who(key: str) -> int:
    return KEYS.index(key) % 3


_often = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_often
@given(_steps)
def test_counters_places_and_digest_are_those_of_a_scan(steps):
    play = Play()
    for step in steps:
        play.step(*step)
        audit_index(play.index.state)


@_often
@given(_steps, st.integers(1, 40))
def test_the_same_log_has_the_same_digest_with_either_table(tmp_path_factory, steps, every):
    play = Play()
    for step in steps:
        play.step(*step)
    path = tmp_path_factory.mktemp("index") / "rows"
    file = SqliteTable(path, b"log")
    fold = BucketFold(file, **BOUNDS)
    for position, entry in enumerate(play.index.log):
        if position % every == every - 1:
            fold.save()
            file.close()
            file = SqliteTable(path, b"log")
            fold = BucketFold(file, **BOUNDS)
        fold.apply(entry)
    file.close()
    assert fold.state.digest == play.index.state.digest
    assert fold.state.position == play.index.state.position


@_often
@given(_steps, st.integers(0, 70))
def test_a_process_that_begins_at_a_snapshot_comes_to_the_same_digest(steps, at):
    play = Play()
    for step in steps:
        play.step(*step)
    log = play.index.log
    at = min(at, len(log))
    first, second = BucketFold(MemoryTable(), **BOUNDS), MemoryTable()
    for entry in log[:at]:
        first.apply(entry)
    rows = rows_between(first.state.table, b"", ROWS_END)
    assert load_rows(second, rows, Saved(at, first.state.digest))
    later = BucketFold(second, **BOUNDS)
    for entry in log[at:]:
        assert first.apply(entry) == later.apply(entry)
    assert first.state.digest == later.state.digest == counted_digest(second)


@_often
@given(_steps)
def test_a_success_had_its_condition_true_one_position_earlier(steps):
    play = Play()
    there: dict[tuple[str, str], str] = {}
    for step in steps:
        before = {
            (bucket, key): entry.etag
            for bucket in NAMES
            for key in KEYS
            if (entry := play.index.state.newest(bucket, key)) is not None and not entry.marker
        }
        made = len(play.index.state.table.scan(b"i", b"j", 1000))
        played = play.step(*step)
        if played is None or played[1] is None:
            continue
        command, applied = played
        item = command.operation
        first = not command.invocation or (
            len(play.index.state.table.scan(b"i", b"j", 1000)) > made
        )
        if isinstance(item, PutObject) and applied.result.done and first:
            there = before
            etag, wanted = there.get((item.bucket, item.key)), item.conditions
            assert not (wanted.absent and etag is not None)
            assert not (wanted.present and etag is None)
            assert not (wanted.etags and etag not in wanted.etags)
            assert etag is None or etag not in wanted.etags_out
            assert play.index.state.newest(item.bucket, item.key).etag == item.etag


@_often
@given(_steps)
def test_a_droppable_name_is_never_named_again(steps):
    play = Play()
    droppable: set[Any] = set()
    for step in steps:
        play.step(*step)
        state = play.index.state
        named = {
            piece.blob
            for bucket in NAMES
            for key in KEYS
            if (entry := state.newest(bucket, key)) is not None
            for piece in state.leaves(entry.content)
        }
        assert not named & droppable
        droppable |= {blob for _, blob in state.garbage(100) if may_drop(state, blob)}
        assert all(may_drop(state, blob) for blob in droppable)


@_often
@given(_steps)
def test_the_changes_told_to_watchers_are_those_of_the_rows(steps):
    """Each changed row is told at the right position, and each told change has a changed row."""
    play = Play()
    for step in steps:
        play.step(*step)
    index, changed = IndexDriver(**BOUNDS), []
    for entry in play.index.log:
        before = object_rows(index)
        command = decode_command(entry)
        if command is not None and not command.invocation:
            command = replace(command, invocation=b"at %d" % len(index.log))
        index.apply(entry if command is None else encode_command(command))
        changed.append({row[:-VERSION_BYTES] for row, _ in before ^ object_rows(index)})
    for bucket in NAMES:
        since = 0  # as a client that lists after a gap
        while since is not None:
            since = _check_changes(index, bucket, since, changed)


def _check_changes(index, bucket, since, changed) -> int | None:
    """Check the changes from a position on; return the end of a gap, or None."""
    keys = {of_key(OBJECT_ROWS, bucket, key) for key in KEYS}
    for position in range(since, len(changed)):
        entry = index.log[position]
        try:
            changes = changes_at(index.state, position, entry, bucket)
        except WatchGap as gap:
            return gap.first
        told = [change.operation for change in changes]
        told = [item for item in told if not isinstance(item, DeleteBucket)]
        seen, rows = {of_key(OBJECT_ROWS, bucket, item.key) for item in told}, changed[position]
        assert rows & keys <= seen
        batch = len(told) > 1  # its items may take each other back, and tags may be as before
        assert seen == rows & keys or batch or isinstance(told[0], SetTags)
    return None


def object_rows(index):
    return set(rows_between(index.state.table, OBJECT_ROWS, after(OBJECT_ROWS)))
