"""The fold: a table of cases for each command."""

import msgspec
import pytest

from ares.bucket import commands
from ares.bucket.bucket_state import ContentGone
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    AbortUpload,
    Beat,
    BeginUpload,
    Collected,
    Command,
    CompleteUpload,
    Conditions,
    CopyObject,
    CopyPart,
    CopySource,
    CreateBucket,
    DeleteBucket,
    DeleteObject,
    NamedPart,
    ObjectBatch,
    OpenSession,
    PutObject,
    PutPart,
    RaiseLevel,
    SetBucket,
    SetTags,
    decode_command,
    encode_command,
    request_print,
)
from ares.bucket.fold import UnknownLevel
from ares.bucket.index_records import CONTENT_LEVELS_MAX, Version, Versioning
from ares.bucket.row_keys import OBJECT_ROWS
from ares.model.units import MIB
from ares.testing.sim.buckets.index_audit import audit_index
from tests.bucket.index_driver import IndexDriver

O = CommandOutcome  # noqa: E741
BIG = 5 * MIB


@pytest.fixture
def index():
    return IndexDriver()


@pytest.fixture
def session(index):
    session = index.session()
    assert session.give(CreateBucket("photos")).done
    return session


def put(session, key="cat", etag="e1", length=MIB, **fields):
    conditions = fields.pop("conditions", Conditions())
    item = PutObject("photos", key, session.blob(length), etag, conditions)
    return session.give(item, **fields)


def take_apart(index, *sessions):
    """Let all sessions promise, and take apart the contents without a use."""
    at = index.state.position
    for each in sessions:
        each.give(Beat(at, bytes(16), at, 1))
    sessions[0].give(Collected(()))


def garbage(index):
    return [(blob.session, blob.counter) for _, blob in index.state.garbage(100)]


# -- put and its conditions ------------------------------------------------------------------------


def test_a_put_makes_an_entry_with_the_version_of_its_position(index, session):
    result = put(session, ms=5)
    entry = index.entry("cat")
    assert (result.outcome, result.version) == (O.DONE, Version(len(index.log) - 1))
    assert (entry.size, entry.etag, entry.ms, entry.null) == (MIB, "e1", 5, True)
    bucket = index.state.bucket("photos")
    assert (bucket.objects, bucket.versions, bucket.bytes) == (1, 1, MIB)


def test_an_overwritten_blob_is_garbage(index, session):
    put(session)
    put(session, etag="e2")
    assert garbage(index) == [(session.number, 2)]
    assert index.state.bucket("photos").bytes == MIB


@pytest.mark.parametrize(
    ("there", "conditions", "outcome"),
    [
        (False, Conditions(absent=True), O.DONE),
        (True, Conditions(absent=True), O.CONDITION_FAILED),
        (False, Conditions(present=True), O.NO_SUCH_KEY),
        (True, Conditions(present=True), O.DONE),
        (False, Conditions(etags=("e1",)), O.NO_SUCH_KEY),
        (True, Conditions(etags=("e0", "e1")), O.DONE),
        (True, Conditions(etags=("e2",)), O.CONDITION_FAILED),
        (False, Conditions(etags_out=("e1",)), O.DONE),
        (True, Conditions(etags_out=("e1",)), O.CONDITION_FAILED),
        (True, Conditions(etags_out=("e2",)), O.DONE),
        (False, Conditions(version=Version(2)), O.NO_SUCH_KEY),
        (True, Conditions(version=Version(2)), O.DONE),
        (True, Conditions(version=Version(3)), O.CONDITION_FAILED),
        (False, Conditions(size=MIB), O.NO_SUCH_KEY),
        (True, Conditions(size=MIB), O.DONE),
        (True, Conditions(size=1), O.CONDITION_FAILED),
        (True, Conditions(modified_after_ms=1999), O.DONE),
        (True, Conditions(modified_after_ms=2000), O.CONDITION_FAILED),
        (True, Conditions(modified_until_ms=2000), O.DONE),
        (True, Conditions(modified_until_ms=1999), O.CONDITION_FAILED),
        (True, Conditions(absent=True, present=True), O.CONDITION_FAILED),
        (True, Conditions(present=True, etags=("e1",), size=1), O.CONDITION_FAILED),
    ],
)
def test_conditions(index, session, there, conditions, outcome):
    if there:
        put(session, ms=2000)
    else:
        session.give(SetBucket("photos"))
    before = index.entry("cat")
    result = put(session, etag="new", conditions=conditions)
    assert result.outcome is outcome
    if outcome is O.DONE:
        assert index.entry("cat").etag == "new"
    else:
        assert index.entry("cat") == before
        assert garbage(index) == [(session.number, 3)]


def test_one_of_rivals_wins(index):
    sessions = [index.session() for _ in range(8)]
    sessions[0].give(CreateBucket("photos"))
    outcomes = [put(each, conditions=Conditions(absent=True)).outcome for each in sessions]
    assert outcomes == [O.DONE] + [O.CONDITION_FAILED] * 7


def test_a_put_into_no_bucket_loses_its_blob(index, session):
    item = PutObject("other", "cat", session.blob(), "e")
    assert session.give(item).outcome is O.NO_SUCH_BUCKET
    assert garbage(index) == [(session.number, 2)]


def test_a_quota_counts_growth(index, session):
    session.give(SetBucket("photos", quota=3 * MIB))
    assert put(session, length=2 * MIB).done
    assert put(session, key="dog", length=2 * MIB).outcome is O.OVER_QUOTA
    assert put(session, length=3 * MIB).done
    assert put(session, length=MIB).done


# -- delete, versions ------------------------------------------------------------------------------


def test_a_delete_removes_the_object_and_is_repeatable(index, session):
    put(session)
    assert session.give(DeleteObject("photos", "cat")).done
    assert session.give(DeleteObject("photos", "cat")).done
    assert index.entry("cat") is None
    assert index.state.bucket("photos").versions == 0
    missing = DeleteObject("photos", "cat", conditions=Conditions(etags=("e1",)))
    assert session.give(missing).outcome is O.NO_SUCH_KEY


def test_a_delete_has_conditions(index, session):
    put(session)
    wrong = DeleteObject("photos", "cat", conditions=Conditions(etags=("e2",)))
    assert session.give(wrong).outcome is O.CONDITION_FAILED
    assert index.entry("cat") is not None


def test_versions_are_kept_and_a_deletion_is_one(index, session):
    session.give(SetBucket("photos", versioning=Versioning.ON))
    first = put(session).version
    put(session, etag="e2")
    marker = session.give(DeleteObject("photos", "cat"))
    assert marker.marker
    assert put(session, etag="e3", conditions=Conditions(present=True)).outcome is O.NO_SUCH_KEY
    bucket = index.state.bucket("photos")
    assert (bucket.objects, bucket.versions, bucket.bytes) == (0, 3, 2 * MIB)
    assert session.give(DeleteObject("photos", "cat", marker.version)).done
    assert index.entry("cat").etag == "e2"
    assert index.state.bucket("photos").objects == 1
    assert session.give(DeleteObject("photos", "cat", first)).done
    assert garbage(index) == [(session.number, 6), (session.number, 3)]


def test_a_null_version_is_replaced_under_newer_versions(index, session):
    put(session, etag="null 1")
    session.give(SetBucket("photos", versioning=Versioning.ON))
    for number in range(3):
        put(session, etag=f"v{number}")
    assert index.state.chosen("photos", "cat", None, True).etag == "null 1"
    session.give(SetBucket("photos", versioning=Versioning.SUSPENDED))
    put(session, etag="null 2")
    assert index.state.chosen("photos", "cat", None, True).etag == "null 2"
    assert index.state.bucket("photos").versions == 4
    assert session.give(DeleteObject("photos", "cat", null=True)).done
    assert index.entry("cat").etag == "v2"
    assert index.state.chosen("photos", "cat", None, True) is None
    session.give(DeleteObject("photos", "cat"))
    assert index.entry("cat").marker
    assert put(session, etag="null 3").null
    assert index.state.bucket("photos").versions == 4


def test_versioning_is_never_switched_off_again(index, session):
    session.give(SetBucket("photos", versioning=Versioning.ON))
    session.give(SetBucket("photos", versioning=Versioning.OFF))
    assert index.state.bucket("photos").versioning is Versioning.SUSPENDED


# -- copy, tags, batches ---------------------------------------------------------------------------


def copy(key, source="cat", **fields):
    of_source = {
        name: fields.pop(name) for name in ("version", "source_conditions") if name in fields
    }
    named = CopySource(
        "photos", source, of_source.get("version"),
        conditions=of_source.get("source_conditions", Conditions()),
    )  # fmt: skip
    return CopyObject("photos", key, named, **fields)


def test_a_copy_shares_the_blob_until_the_last_goes(index, session):
    put(session)
    assert session.give(copy("dog")).done
    session.give(DeleteObject("photos", "cat"))
    assert garbage(index) == []
    assert index.entry("dog").content.blob.counter == 2
    session.give(DeleteObject("photos", "dog"))
    assert garbage(index) == [(session.number, 2)]


def test_a_copy_onto_itself_keeps_the_bytes_and_changes_the_metadata(index, session):
    put(session)
    assert session.give(copy("cat", metadata=b"new")).done
    assert (index.entry("cat").metadata, garbage(index)) == (b"new", [])


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        (copy("dog", "no"), O.NO_SUCH_SOURCE),
        (copy("dog", version=Version(99)), O.NO_SUCH_SOURCE),
        (copy("dog", version=Version(2)), O.DONE),
        (copy("dog", source_conditions=Conditions(etags=("e2",))), O.CONDITION_FAILED),
        (copy("dog", source_conditions=Conditions(etags_out=("e1",))), O.CONDITION_FAILED),
        (copy("dog", conditions=Conditions(present=True)), O.NO_SUCH_KEY),
        (copy("cat", conditions=Conditions(absent=True)), O.CONDITION_FAILED),
    ],
)
def test_copies_are_judged_on_both_sides(session, operation, outcome):
    put(session)
    assert session.give(operation).outcome is outcome


def test_tags_change_no_version(index, session):
    version = put(session).version
    assert session.give(SetTags("photos", "cat", b"a=b")).version == version
    assert index.entry("cat").tags == b"a=b"
    assert session.give(SetTags("photos", "dog", b"a=b")).outcome is O.NO_SUCH_KEY


def test_a_batch_has_a_result_for_each_item(index, session):
    put(session)
    only_new = Conditions(absent=True)
    items = (
        PutObject("photos", "cat", session.blob(), "e2", only_new),
        PutObject("photos", "dog", b"ab", "e3", only_new),
        PutObject("photos", "dog", b"", "e4", only_new),
    )
    result = session.give(ObjectBatch(items))
    assert [item.outcome for item in result.items] == [
        *(O.CONDITION_FAILED, O.DONE, O.CONDITION_FAILED)
    ]
    assert result.items[1].version == Version(len(index.log) - 1, 1)
    assert garbage(index) == [(session.number, 3)]


def test_a_rename_is_atomic(index, session):
    put(session)
    rename = (copy("dog", conditions=Conditions(absent=True)), DeleteObject("photos", "cat"))
    assert session.give(ObjectBatch(rename, atomic=True)).done
    assert (index.entry("cat"), index.entry("dog").etag) == (None, "e1")
    put(session)
    assert session.give(ObjectBatch(rename, atomic=True)).outcome is O.BATCH_FAILED
    assert index.entry("cat") is not None
    with pytest.raises(ValueError, match="depends on an earlier item"):
        ObjectBatch((DeleteObject("photos", "cat"), copy("dog")), atomic=True)


def test_an_atomic_batch_needs_room_for_all_that_it_adds(index, session):
    """Judged singly both copies had room; then the second had no room, and the source was gone."""
    put(session, "a")
    put(session, "b", "e2")
    session.give(SetBucket("photos", quota=3 * MIB))
    copies = tuple(CopyObject("photos", f"to {key}", CopySource("photos", key)) for key in "ab")
    both = session.give(ObjectBatch(copies, atomic=True))
    assert both.outcome is O.BATCH_FAILED
    assert {item.outcome for item in both.items} == {O.OVER_QUOTA}
    one = (*copies, DeleteObject("photos", "a"))
    assert session.give(ObjectBatch(one, atomic=True)).done
    assert [index.entry(key) is not None for key in ("a", "b", "to a", "to b")] == [
        *(False, True, True, True)
    ]
    assert index.state.bucket("photos").bytes == 3 * MIB


def test_a_rename_needs_no_room(index, session):
    put(session)
    session.give(SetBucket("photos", quota=MIB))
    rename = (copy("dog"), DeleteObject("photos", "cat"))
    assert session.give(ObjectBatch(rename, atomic=True)).done
    session.give(SetBucket("photos", quota=1))
    back = (copy("cat", "dog"), DeleteObject("photos", "dog"))
    assert session.give(ObjectBatch(back, atomic=True)).done
    session.give(SetBucket("photos", versioning=Versioning.ON))
    assert session.give(ObjectBatch(rename, atomic=True)).outcome is O.BATCH_FAILED


def test_an_object_beyond_the_largest_size_is_refused_and_the_index_goes_on(index, session):
    """An entry with a larger size could be written, and not be read again."""
    huge = 5 * 1024**4
    assert put(session, length=huge).done
    upload = session.give(BeginUpload("photos", "dog")).version
    source = CopySource("photos", "cat")
    for number in (1, 2):
        assert session.give(CopyPart("photos", "dog", upload, number, source, "e")).done
    whole = CompleteUpload("photos", "dog", upload, (NamedPart(1, "e"), NamedPart(2, "e")), "whole")
    assert session.give(whole).outcome is O.TOO_LARGE
    assert put(session, "dog", "e3").done


def test_an_entry_is_read_alike_at_any_depth_of_the_stack(session):
    """The decoder once skipped nested values of unknown fields, as far as the stack allowed."""
    nested: list = []
    for _ in range(500):
        nested = [nested]
    put = PutObject("photos", "cat", b"", "e1", Conditions(version=Version(2)))
    head, told = (
        (whole := encode_command(session.command(put)))[:1],
        msgspec.msgpack.decode(whole[1:]),
    )

    def with_nested(value):
        if value == [2, 0]:
            return [2, 0, nested]
        return list(map(with_nested, value)) if isinstance(value, list) else value

    assert decode_command(head + msgspec.msgpack.encode(told)) is not None
    entry = head + msgspec.msgpack.encode(with_nested(told))

    def deep(frames):
        return decode_command(entry) if frames == 0 else deep(frames - 1)

    assert deep(0) is None
    assert deep(400) is None


# -- multipart -------------------------------------------------------------------------------------


@pytest.fixture
def upload(session):
    result = session.give(BeginUpload("photos", "cat", metadata=b"m", tags=b"t"))
    return result.version


def part(session, upload, number, etag, length=BIG):
    return session.give(PutPart("photos", "cat", upload, number, session.blob(length), etag))


def complete(upload, *parts, **fields):
    named = tuple(NamedPart(number, etag) for number, etag in parts)
    return CompleteUpload("photos", "cat", upload, named, "whole-2", **fields)


def test_parts_become_an_object_and_the_rest_garbage(index, session, upload):
    part(session, upload, 2, "p2", 1)
    part(session, upload, 1, "old")
    part(session, upload, 1, "p1")
    part(session, upload, 7, "p7")
    assert index.state.bucket("photos").part_bytes == 2 * BIG + 1
    result = session.give(complete(upload, (1, "p1"), (2, "p2")))
    entry = index.entry("cat")
    assert (result.done, entry.size, entry.parts) == (True, BIG + 1, 2)
    assert index.state.part_sizes(entry) == [BIG, 1]
    assert (entry.metadata, entry.tags, entry.etag) == (b"m", b"t", "whole-2")
    assert garbage(index) == [(session.number, 4), (session.number, 6)]
    bucket = index.state.bucket("photos")
    assert (bucket.uploads, bucket.part_bytes, bucket.bytes) == (0, 0, BIG + 1)
    assert session.give(complete(upload, (1, "p1"))).outcome is O.NO_SUCH_UPLOAD


@pytest.mark.parametrize(
    ("named", "outcome"),
    [
        ([(1, "p1"), (3, "p3")], O.BAD_PART),
        ([(1, "other")], O.BAD_PART),
        ([(2, "p2"), (1, "p1")], O.BAD_PART_ORDER),
        ([(1, "p1"), (1, "p1")], O.BAD_PART_ORDER),
        ([(2, "p2"), (3, "p3"), (4, "p4")], O.PART_TOO_SMALL),
        ([(1, "p1")], O.DONE),
        ([(2, "p2")], O.DONE),
    ],
)
def test_named_parts_are_judged(session, upload, named, outcome):
    part(session, upload, 1, "p1")
    part(session, upload, 2, "p2", 1)
    if outcome is O.PART_TOO_SMALL:
        part(session, upload, 3, "p3")
        part(session, upload, 4, "p4")
    assert session.give(complete(upload, *named)).outcome is outcome


def test_a_completion_has_conditions(index, session, upload):
    part(session, upload, 1, "p1")
    put(session)
    condition = Conditions(absent=True)
    result = session.give(complete(upload, (1, "p1"), conditions=condition))
    assert result.outcome is O.CONDITION_FAILED
    assert index.state.bucket("photos").uploads == 1


def test_an_aborted_upload_leaves_garbage_and_takes_no_part(index, session, upload):
    part(session, upload, 1, "p1")
    assert session.give(AbortUpload("photos", "cat", upload)).done
    assert part(session, upload, 2, "p2").outcome is O.NO_SUCH_UPLOAD
    assert garbage(index) == [(session.number, 3), (session.number, 5)]


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_the_parts_of_an_ended_upload_are_dropped_in_portions(index, session, upload, taken):
    """The bucket's counters and the end of the bucket wait for no part."""
    index.state.leftovers_at_once = 3
    for number in range(1, 8):
        part(session, upload, number, f"p{number}")
    if taken:
        named = [(number, f"p{number}") for number in (2, 7)[:taken]]
        assert session.give(complete(upload, *named)).done
        session.give(DeleteObject("photos", "cat"))
    else:
        assert session.give(AbortUpload("photos", "cat", upload)).done
    at_once = {0: 3, 1: 3, 2: 2}[taken]  # of parts 1, 2, 3, an object took over part 2
    assert len(garbage(index)) == at_once
    assert index.state.bucket("photos").part_bytes == 0
    assert session.give(DeleteBucket("photos")).done
    for dropped in (6, 7):
        audit_index(index.state)
        assert index.state.has_leftovers()
        session.give(Collected(()))
        assert len(garbage(index)) >= dropped - taken
    audit_index(index.state)
    take_apart(index, session)
    assert (index.state.has_leftovers(), len(garbage(index))) == (False, 7)
    assert index.state.table.scan(b"p", b"r", 10) == []


def test_portions_of_several_ended_uploads_come_one_after_the_other(index, session):
    index.state.leftovers_at_once = 2
    for parts in (4, 2, 3):
        upload = session.give(BeginUpload("photos", "cat")).version
        for number in range(1, parts + 1):
            part(session, upload, number, f"p{number}")
        session.give(AbortUpload("photos", "cat", upload))
    left = []
    while index.state.has_leftovers():
        left.append(9 - len(garbage(index)))
        session.give(Collected(()))
        audit_index(index.state)
    assert left == [3, 1]


def test_a_part_is_a_copy_of_a_range(index, session, upload):
    put(session, key="dog", length=2 * BIG)
    source = CopySource("photos", "dog")
    of = lambda number, first, length: CopyPart(  # noqa: E731
        "photos", "cat", upload, number, source, f"p{number}", first, length
    )
    assert session.give(of(1, BIG, BIG)).done
    assert session.give(of(2, 2 * BIG - 3, 0)).done
    assert session.give(of(3, BIG, 2 * BIG)).outcome is O.BAD_RANGE
    assert session.give(of(3, 3 * BIG, 0)).outcome is O.BAD_RANGE
    session.give(DeleteObject("photos", "dog"))
    assert session.give(complete(upload, (1, "p1"), (2, "p2"))).done
    pieces = list(index.state.leaves(index.entry("cat").content))
    assert [(piece.start, piece.length) for piece in pieces] == [(BIG, BIG), (2 * BIG - 3, 3)]
    assert garbage(index) == []
    session.give(DeleteObject("photos", "cat"))
    assert garbage(index) == []
    take_apart(index, session)
    assert len(garbage(index)) == 1


def large_object(index, session, parts, key="big"):
    """Make an object of many parts, all of which are copies of one blob."""
    put(session, "source", length=BIG)
    upload = session.give(BeginUpload("photos", key)).version
    source = CopySource("photos", "source")
    for number in range(1, parts + 1):
        session.give(CopyPart("photos", key, upload, number, source, "p"))
    session.give(DeleteObject("photos", "source"))
    named = tuple(NamedPart(number, "p") for number in range(1, parts + 1))
    assert session.give(CompleteUpload("photos", key, upload, named, "big")).done
    return index.entry(key)


@pytest.mark.parametrize("versioning", [Versioning.OFF, Versioning.ON])
def test_a_put_looks_the_newest_version_up_once(index, session, monkeypatch, versioning):
    session.give(SetBucket("photos", versioning=versioning))
    put(session)
    scanned, scan = [], index.state.table.scan
    monkeypatch.setattr(
        index.state.table, "scan", lambda *bounds: (scanned.append(bounds[0][:1]), scan(*bounds))[1]
    )
    assert put(session, etag="e2").done
    assert scanned.count(OBJECT_ROWS) == 1


def test_a_copy_moves_no_pieces(index, session, monkeypatch):
    large_object(index, session, 1000)
    written = []
    put_row = index.state.table.put
    monkeypatch.setattr(
        index.state.table, "put", lambda *row: (written.append(len(row[1])), put_row(*row))
    )
    copies = tuple(copy(f"copy {number}", "big") for number in range(100))
    assert session.give(ObjectBatch(copies)).done
    assert len(written) < 1000
    assert max(written) < 10_000, "the result of the batch"
    assert sum(written) < 100_000
    assert sum(1 for _ in index.state.leaves(index.entry("copy 7").content)) == 1000


def test_a_shared_content_is_taken_apart_after_its_last_use_and_every_promise(index, session):
    reader = index.session()
    large_object(index, session, 3)
    assert session.give(copy("dog", "big")).done
    session.give(DeleteObject("photos", "big"))
    take_apart(index, session, reader)
    content = index.entry("dog").content
    assert len(list(index.state.leaves(content))) == 3
    session.give(DeleteObject("photos", "dog"))
    take_apart(index, session)
    assert len(list(index.state.leaves(content))) == 3, "the reader may need it"
    assert not index.state.has_leftovers()
    take_apart(index, session, reader)
    assert len(garbage(index)) == 1
    with pytest.raises(ContentGone, match="read the object again"):
        list(index.state.leaves(content))


def test_contents_are_taken_apart_in_portions(index, session):
    for number in range(4):
        large_object(index, session, 2, f"big{number}")
        session.give(DeleteObject("photos", f"big{number}"))
    content = large_object(index, session, 3, "last").content
    session.give(DeleteObject("photos", "last"))
    index.state.leftovers_at_once = 5
    take_apart(index, session)
    assert (index.state.has_leftovers(), len(garbage(index))) == (True, 2)
    session.give(Collected(()))
    assert (index.state.has_leftovers(), len(garbage(index))) == (True, 4)
    with pytest.raises(ContentGone):  # also while pieces are left
        list(index.state.leaves(content))
    audit_index(index.state)
    session.give(Collected(()))
    assert (index.state.has_leftovers(), len(garbage(index))) == (False, 5)
    audit_index(index.state)


def test_ranges_of_nested_contents_are_the_bytes(index, session):
    """A part is a range of an object whose parts are ranges: compared with bytes."""
    index.state.part_bytes_min = 0
    size = 50
    put(session, "a", length=2 * size)
    first = list(range(2 * size))

    def joined(key, *ranges):
        upload = session.give(BeginUpload("photos", key)).version
        for number, (source, begin, length) in enumerate(ranges, 1):
            named = CopySource("photos", source)
            part = CopyPart("photos", key, upload, number, named, "p", begin, length)
            assert session.give(part).done
        parts = tuple(NamedPart(number, "p") for number in range(1, len(ranges) + 1))
        assert session.give(CompleteUpload("photos", key, upload, parts, key)).done

    joined("b", ("a", 7, size), ("a", 0, size + 1), ("a", 5, 3))
    joined("c", ("b", 3, size + 2), ("b", size - 1, size), ("b", 2 * size - 9, 11))
    second = first[7 : size + 7] + first[: size + 1] + first[5:8]
    third = (
        second[3 : size + 5] + second[size - 1 : 2 * size - 1] + second[2 * size - 9 : 2 * size + 2]
    )
    content = index.entry("c").content
    assert content.length == len(third)
    for begin, length in [(0, None), (size - 20, 40), (2 * size - 1, 9), (len(third), 0), (5, 1)]:
        found = [
            first[place]
            for piece in index.state.leaves(content, begin, length)
            for place in range(piece.start, piece.start + piece.length)
        ]
        assert found == third[begin : None if length is None else begin + length]


def test_contents_are_nested_to_a_depth(index, session):
    put(session, "a", length=BIG)
    outcomes = []
    for _ in range(CONTENT_LEVELS_MAX + 1):
        upload = session.give(BeginUpload("photos", "a")).version
        for number in (1, 2):
            length = BIG if number == 1 else 1
            part = CopyPart(
                "photos", "a", upload, number, CopySource("photos", "a"), "p", 0, length
            )
            session.give(part)
        parts = (NamedPart(1, "p"), NamedPart(2, "p"))
        outcomes.append(session.give(CompleteUpload("photos", "a", upload, parts, "e")).outcome)
    assert outcomes == [O.DONE] * CONTENT_LEVELS_MAX + [O.TOO_NESTED]
    assert sum(piece.length for piece in index.state.leaves(index.entry("a").content)) == BIG + 1


# -- buckets ---------------------------------------------------------------------------------------


def test_a_bucket_is_created_once_and_deleted_when_empty(index, session):
    assert session.give(CreateBucket("photos")).outcome is O.BUCKET_EXISTS
    session.give(SetBucket("photos", name="cors", configuration=b"<xml>"))
    put(session)
    assert session.give(DeleteBucket("photos")).outcome is O.BUCKET_NOT_EMPTY
    session.give(DeleteObject("photos", "cat"))
    begun = session.give(BeginUpload("photos", "cat"))
    assert session.give(DeleteBucket("photos")).outcome is O.BUCKET_NOT_EMPTY
    session.give(AbortUpload("photos", "cat", begun.version))
    assert session.give(DeleteBucket("photos")).done
    assert session.give(DeleteBucket("photos")).outcome is O.NO_SUCH_BUCKET
    assert session.give(SetBucket("photos")).outcome is O.NO_SUCH_BUCKET


# -- entries that are no commands ------------------------------------------------------------------


def _raw(*fields):
    return b"\x01" + msgspec.msgpack.encode(list(fields))


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x01",
        b"\x00\x90",
        b"\xff\x90",
        b"\x02" + encode_command(Command(0, 1, 1, 0, OpenSession(1)))[1:],
        _raw(0, 1, 1, 0, [1, 0]),
        _raw(0, 1, 1, 0, [1, 256]),
        _raw(0, 1, 1, 0, [99, 1]),
        _raw(0, 1, 1, 0, [1, 1, 1]),
        _raw(0, 1, 1, 0, [1, 1], 0, b"", 0),
        _raw(-1, 1, 1, 0, [1, 1]),
        _raw(0, 0, 0, 0, [1, 1]),
        _raw(2**63, 1, 1, 0, [1, 1]),
        _raw(0, 1, 2, 0, [1, 1]),
        _raw(0, 70_000, 1, 0, [1, 1]),
        _raw(0, 1, 1, 2**62, [1, 1]),
        _raw(0, 1, 1, 0, [16, "UPPER"]),
        _raw(0, 1, 1, 0, [16, "a\n"]),
        _raw(0, 1, 1, 0, [32, "photos", "", b"", "e"]),
        _raw(0, 1, 1, 0, [32, "photos", "ä" * 600, b"", "e"]),
        _raw(0, 1, 1, 0, [32, "photos", "k", b"a" * 3073, "e"]),
        _raw(0, 1, 1, 0, [32, "photos", "k", [1, 1, 0], "e"]),
        _raw(0, 1, 1, 0, [32, "photos", "k", [1, 1, 2**43], "e"]),
        _raw(0, 1, 1, 0, [32, "photos", "k", [1, 1, 1, 65_536], "e"]),
        _raw(0, 1, 1, 0, [49, "photos", "k", [1, 0], 1, b"a" * 3073, "e"]),
        _raw(0, 1, 1, 0, [2, 0, bytes(16), 0, 1, [1] * 65]),
        _raw(0, 1, 1, 0, [18, "photos", None, None, "unknown", b"x"]),
        _raw(0, 1, 1, 0, [36, []]),
        b"\x01" + b"\x91" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_command_is_counted_and_changes_nothing_else(index, entry):
    assert index.apply(entry) is None
    assert (index.state.totals.malformed, index.state.position) == (1, 1)
    assert index.session().give(CreateBucket("photos")).done


def test_a_command_of_another_partition_is_none_of_ours(index, session):
    assert index.apply(encode_command(session.command(CreateBucket("other"), partition=1))) is None
    assert index.state.bucket("other") is None


def test_a_level_is_put_in_force_when_all_know_it_and_stops_who_does_not(index):
    old, new = index.session(), index.session(level=2)
    assert new.give(RaiseLevel(2)).outcome is O.NOT_TAKEN
    assert index.apply(b"\x02later") is None
    index.state.end_session(old.number)
    assert new.give(RaiseLevel(2)).done
    assert new.give(CreateBucket("photos")).done
    with pytest.raises(UnknownLevel, match="use a later release"):
        index.apply(b"\x02later")
    assert index.session(level=1).give(CreateBucket("more")).outcome is O.FENCED
    assert new.give(CreateBucket("more")).done, "a level that is not known breaks nothing"


def test_bounds_of_the_encoding_hold_for_our_own_commands(session):
    largest = PutObject("photos", "k" * 1024, session.blob(), "e" * 64, metadata=b"m" * 8192)
    command = session.command(largest, invocation=b"i" * 64)
    assert decode_command(encode_command(command)) == command
    assert commands.COMMAND_LEVEL == 1


# -- the same bytes in every release ---------------------------------------------------------------


def test_the_digest_of_a_log_is_the_same_in_every_release(index, session):
    """Another digest after a change needs a new level: releases share a log."""
    put(session, invocation=b"i", conditions=Conditions(etags_out=("e",)))
    session.give(PutObject("photos", "small", b"abc", "e2", tags=b"t"))
    upload = session.give(BeginUpload("photos", "whole")).version
    for number in (1, 2):
        item = PutPart("photos", "whole", upload, number, session.blob(BIG), "p")
        session.give(item, lowest=2)
    parts = (NamedPart(1, "p"), NamedPart(2, "p"))
    session.give(CompleteUpload("photos", "whole", upload, parts, "e3"), invocation=b"j", lowest=2)
    session.give(ObjectBatch((copy("dog"), DeleteObject("photos", "cat")), atomic=True))
    session.give(Beat(4, bytes(16), 3, 5, (4,)))
    session.give(SetBucket("photos", Versioning.ON, 7, "cors", b"<xml>"))
    session.give(DeleteObject("photos", "whole"))
    assert f"{index.state.digest:032x}" == "2dca693384bd5a0b71e13e874693e27a"


class RenamedPut(PutObject, frozen=True, tag=32):
    """The class of a later release: another name, and a field with a default."""

    later: int = 0


def test_the_print_of_a_request_depends_on_no_name_of_a_class_and_no_default():
    fields = ("photos", "cat", b"", "e", Conditions(absent=True))
    assert request_print(b"i", RenamedPut(*fields)) == request_print(b"i", PutObject(*fields))
    assert request_print(b"i", RenamedPut(*fields, later=1)) != (
        request_print(b"i", PutObject(*fields))
    )
    assert request_print(b"", PutObject(*fields)) == b""
