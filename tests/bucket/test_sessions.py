"""Sessions, invocations, garbage and snapshots: the rules about several processes."""

import pytest

from ares.bucket import bucket_session
from ares.bucket.bucket_session import (
    CHECKED_RESULTS_MAX,
    READ_STILL_S,
    UNANSWERED_MAX,
    BucketSession,
    SessionBusy,
)
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    Beat,
    Collected,
    Conditions,
    CopyObject,
    CopySource,
    CreateBucket,
    DeleteObject,
    EndSession,
    KeepSnapshot,
    ObjectBatch,
    PutObject,
    decode_command,
    encode_command,
    request_print,
)
from ares.bucket.garbage import may_drop
from ares.bucket.index_records import OPEN_BLOBS_MAX, Blob
from ares.bucket.row_keys import RESULT_ROWS, after
from tests.bucket.index_driver import IndexDriver

O = CommandOutcome  # noqa: E741
NEW = Conditions(absent=True)
NO_DIGEST = bytes(16)


@pytest.fixture
def index():
    return IndexDriver()


@pytest.fixture
def session(index):
    session = index.session()
    session.give(CreateBucket("photos"))
    return session


def put(session, key="cat", etag="e1", **fields):
    return PutObject("photos", key, session.blob(), etag, fields.get("conditions", Conditions()))


def beat(index, reading_from=None, blobs_from=1, open_blobs=()):
    at = index.state.position
    return Beat(at, NO_DIGEST, at if reading_from is None else reading_from, blobs_from, open_blobs)


def results_kept(index):
    rows = index.state.table.scan(RESULT_ROWS, after(RESULT_ROWS), 1000)
    return len(rows)


# -- numbers and results ---------------------------------------------------------------------------


class CountedNumber(int):
    """A number with a count of comparisons."""

    compared = 0

    def __lt__(self, other):
        CountedNumber.compared += 1
        return int(self) < int(other)

    def __add__(self, other):
        return CountedNumber(int(self) + int(other))


def test_the_lowest_number_is_found_without_a_look_at_all_others(index, session):
    own = BucketSession(index.fold)
    own.number, own._next = session.number, CountedNumber(1)
    for _ in range(100):
        own.command(own.take_number(), beat(index), 0)
    assert own.lowest == 1
    own.settle(1)
    own.settle(50)
    assert own.lowest == 2
    assert CountedNumber.compared <= 100, "one for a command"


def test_a_repeated_command_has_the_first_result_and_keeps_its_blob(index, session):
    session.lowest = 2
    command = encode_command(session.command(put(session, conditions=NEW)))
    first = index.apply(command).result
    digest = index.state.digest
    assert index.apply(command).result == first
    assert first.done
    assert index.state.garbage(10) == []
    session.lowest = 99
    assert digest != index.state.digest  # the session's last command is later


def test_a_late_copy_below_the_lowest_number_is_nothing(index, session):
    old = encode_command(session.command(put(session)))
    index.apply(old)
    session.give(DeleteObject("photos", "cat"))
    assert index.apply(old).result.outcome is O.SETTLED
    assert index.entry("cat") is None


def test_results_go_below_the_lowest_number_and_at_the_end(index, session):
    session.lowest = 2
    for number in range(5):
        session.give(put(session, etag=str(number)))
    assert results_kept(index) == 5
    session.lowest = 5
    session.give(beat(index))
    assert results_kept(index) == 2
    session.give(EndSession(session.number, 0))
    assert results_kept(index) == 0


def test_a_session_may_name_new_blobs_of_its_own_only(index, session):
    other = index.session()
    session.lowest = 2
    used = session.blob()
    assert session.give(put(session)).done
    session.give(beat(index, blobs_from=3, open_blobs=(1,)))
    for blob in (other.blob(), used, Blob(session.number, 2, 9)):
        result = session.give(PutObject("photos", "dog", blob, "e"))
        assert result.outcome is O.MALFORMED
    twice = ObjectBatch((PutObject("photos", "dog", session.blob(), "e"),) * 2)
    assert session.give(twice).outcome is O.MALFORMED
    assert index.entry("dog") is None
    assert index.state.totals.malformed == 4


# -- the end of a session --------------------------------------------------------------------------


def test_a_silent_session_is_ended_and_fenced(index, session):
    other = index.session()
    last = index.state.sessions[session.number].last
    assert other.give(EndSession(session.number, last)).done
    before = index.state.digest
    applied = index.apply(encode_command(session.command(put(session), invocation=b"i")))
    assert applied.result.outcome is O.FENCED
    assert index.state.digest == before


def test_a_session_that_spoke_is_not_ended(index, session):
    other = index.session()
    last = index.state.sessions[session.number].last
    session.give(beat(index))
    assert other.give(EndSession(session.number, last)).outcome is O.NOT_TAKEN
    assert session.give(put(session)).done


def test_a_session_that_was_never_opened_is_fenced(index, session):
    for number in (session.number + 1, 10_000):
        command = session.command(put(session))
        applied = index.apply(encode_command(command.__class__(number, 9, 9, 0, command.operation)))
        assert applied.result.outcome is O.FENCED


def test_a_promise_holds_at_its_greatest_and_is_not_for_the_future(index, session):
    at = index.state.position
    session.give(Beat(at, NO_DIGEST, at, 1))
    session.give(Beat(at, NO_DIGEST, at - 1, 1))
    assert index.state.sessions[session.number].reading_from == at
    future = Beat(at, NO_DIGEST, 10_000, 1)
    assert session.give(future).outcome is O.NOT_TAKEN


@pytest.mark.parametrize("first", [0, 1])
def test_promises_about_blobs_hold_in_any_order(index, session, first):
    """A beat given to the log again comes after a later beat, and takes no promise back."""
    beats = [(4, (2, 3)), (7, (3, 5))]
    for blobs_from, open_blobs in (beats[first], beats[1 - first]):
        session.give(beat(index, blobs_from=blobs_from, open_blobs=open_blobs))
    told = index.state.sessions[session.number]
    assert (told.blobs_from, told.open_blobs) == (7, (3, 5))
    assert [counter for counter in range(1, 9) if told.may_name(counter)] == [3, 5, 7, 8]


def test_a_number_below_the_lowest_changes_nothing(index, session):
    old = session.command(put(session), ms=2**40)
    session.give(DeleteObject("photos", "cat"))
    before = index.state.digest
    assert index.apply(encode_command(old)).result.outcome is O.SETTLED
    assert (index.state.digest, index.state.totals.clock_ms) == (before, 2000 + 1000)


def test_a_malformed_command_is_remembered(index, session):
    """The copy once had a different result, after the name of the blob became a new blob's."""
    session.lowest = 2
    foreign = encode_command(session.command(PutObject("photos", "cat", Blob(9, 1, 1), "e")))
    for _ in range(2):
        assert index.apply(foreign).result.outcome is O.MALFORMED
    assert index.state.result(session.number, session.used).outcome is O.MALFORMED
    assert index.state.totals.malformed == 1


def test_the_most_silent_session_gives_its_place_to_a_new_one(index, session, monkeypatch):
    """Else processes that died could keep all places, and no session could end theirs."""
    monkeypatch.setattr("ares.bucket.fold.SESSIONS_MAX", 2)
    silent = index.session()
    session.give(DeleteObject("photos", "cat"))
    new = index.session()
    assert set(index.state.sessions) == {session.number, new.number}
    assert silent.give(DeleteObject("photos", "cat")).outcome is O.FENCED
    assert session.give(DeleteObject("photos", "cat")).done
    assert new.give(DeleteObject("photos", "cat")).done


def batch(count=100):
    return ObjectBatch(tuple(DeleteObject("photos", f"{number}") for number in range(count)))


def test_results_of_a_session_are_bounded_in_bytes(index, session, monkeypatch):
    monkeypatch.setattr("ares.bucket.fold.SESSION_RESULT_BYTES_MAX", 3000)
    session.lowest = 2
    outcomes = [session.give(batch()).outcome for _ in range(5)]
    assert outcomes[0] is O.DONE
    assert outcomes[-1] is O.BUSY
    blob = session.blob()
    assert session.give(put(session)).outcome is O.BUSY
    assert [each for _, each in index.state.garbage(9)] == [blob]
    assert index.state.sessions[session.number].result_bytes < 6000
    session.lowest = None
    assert session.give(put(session)).done


def test_results_of_invocations_are_bounded_in_bytes(index, session, monkeypatch):
    monkeypatch.setattr("ares.bucket.fold.INVOCATION_BYTES_MAX", 3000)
    for number in range(9):
        outcome = session.give(batch(), invocation=bytes([number])).outcome
    assert outcome is O.BUSY, "no promise lets an invocation be forgotten"
    assert session.give(batch()).done
    session.give(beat(index))
    assert session.give(batch(), invocation=b"last").done
    assert index.state.totals.invocation_bytes < 3000


# -- a session of a process ------------------------------------------------------------------------


@pytest.fixture
def own(index):
    own = BucketSession(index.fold)
    own.number = index.session().number
    return own


def test_a_slow_upload_holds_no_number(index, own):
    """The number was once taken at the beginning: 65,536 requests later no beat was possible."""
    slow = own.take_blob()
    for _ in range(70_000):
        own.settle(own.take_number())
    command = own.beat(0)
    assert decode_command(encode_command(command)) == command
    assert (command.operation.blobs_from, command.operation.open_blobs) == (2, (slow,))


def test_a_beat_lists_open_blobs_and_promises_the_rest(index, own):
    blobs = [own.take_blob() for _ in range(200)]
    for counter in blobs[::2]:
        own.close_blob(counter)
    told = own.beat(0).operation
    assert (len(told.open_blobs), told.blobs_from) == (OPEN_BLOBS_MAX, 2 * OPEN_BLOBS_MAX + 2)
    assert index.apply(encode_command(own.beat(0))).result.done
    session = index.state.sessions[own.number]
    assert [counter for counter in blobs if session.may_name(counter)] == [
        counter for counter in blobs if counter % 2 == 0 or counter > told.blobs_from
    ]


def test_requests_leave_numbers_for_beats(index, own):
    held = own.take_number()
    for _ in range(UNANSWERED_MAX - 1):
        own.settle(own.take_number())
    with pytest.raises(SessionBusy, match="try again later"):
        own.take_number()
    assert index.apply(encode_command(own.beat(0))).result.done
    own.settle(held)
    assert own.take_number() > UNANSWERED_MAX


def test_a_long_check_looks_again_and_lets_the_results_before_go(index, session, own):
    index.fold.kept = 10
    fingerprint = request_print(b"i", DeleteObject("photos", "cat"))
    check = own.begin_check(fingerprint)
    floor = own.reading_from
    assert own.first_result(check, fingerprint) is None
    assert session.give(DeleteObject("photos", "cat"), invocation=b"i").done
    own.beat(0)
    assert own.reading_from == floor
    for _ in range(10):
        session.give(DeleteObject("photos", "dog"))
    own.beat(0)
    assert own.reading_from == index.state.position
    for number in range(20):
        session.give(beat(index))
        index.apply(encode_command(own.beat(0)))
        session.give(DeleteObject("photos", "dog"), invocation=bytes([number]))
    assert index.state.invocation(fingerprint) is None
    assert own.first_result(check, fingerprint).done, "found when it looked again"
    own.end_check(check)
    assert own.first_result(check, fingerprint) is None


def test_a_put_whose_etag_comes_last_is_known_after_its_result_is_forgotten(index, session, own):
    index.fold.kept = 10
    named = request_print(b"i", put(session))
    check = own.begin_check(request_print(b"i", put(session, etag="")))
    first = session.give(put(session), invocation=b"i")
    session.give(put(session, etag="rival"))  # which a second effect of the first put would undo
    for number in range(40):
        session.give(beat(index))
        index.apply(encode_command(own.beat(0)))
        session.give(DeleteObject("photos", "dog"), invocation=bytes([number]))
    assert index.state.invocation(named) is None
    assert own.first_result(check, named) == first
    other = request_print(b"i", put(session, etag="other"))
    assert own.first_result(check, other) is None, "another body under the same id"


def test_a_check_keeps_the_results_of_a_few_requests_with_one_id(index, session, own):
    for number in range(CHECKED_RESULTS_MAX + 1):
        session.give(put(session, etag=str(number)), invocation=b"one")
    check = own.begin_check(request_print(b"one", put(session, etag="")))
    assert len(own._checks[check].results) == CHECKED_RESULTS_MAX


# -- invocations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("conditions", [Conditions(), NEW])
def test_a_retry_has_the_result_of_its_first_attempt(index, session, conditions):
    other = index.session()
    first = session.give(put(session, conditions=conditions), invocation=b"i")
    session.give(DeleteObject("photos", "cat"))
    assert other.give(put(other, conditions=conditions), invocation=b"i") == first
    assert index.entry("cat") is None
    assert (other.number, 1) in [(b.session, b.counter) for _, b in index.state.garbage(9)]


def test_a_retry_of_a_failure_fails_again(index, session):
    session.give(put(session))
    lost = session.give(put(session, etag="e2", conditions=NEW), invocation=b"i")
    session.give(DeleteObject("photos", "cat"))
    assert lost.outcome is O.CONDITION_FAILED
    again = put(session, etag="e2", conditions=NEW)
    assert session.give(again, invocation=b"i") == lost


@pytest.mark.parametrize("change", ["key", "etag", "conditions"])
def test_another_request_under_the_same_invocation_is_another_request(index, session, change):
    session.give(put(session, conditions=NEW), invocation=b"i")
    other = {"key": "cat", "etag": "e1", "conditions": NEW}
    other[change] = {"key": "dog", "etag": "e2", "conditions": Conditions(size=1)}[change]
    result = session.give(put(session, **other), invocation=b"i")
    assert result.outcome is (O.DONE if change == "key" else O.CONDITION_FAILED)


def test_invocations_are_forgotten_when_old_and_no_session_reads_before_them():
    index = IndexDriver(kept=10)
    session = index.session()
    session.give(CreateBucket("photos"))
    first = put(session, conditions=NEW)
    session.give(first, invocation=b"i")
    for number in range(30):
        session.give(DeleteObject("photos", "dog"), invocation=bytes([number]))
    again = put(session, conditions=NEW)
    assert session.give(again, invocation=b"i").done  # no promise: still known
    session.give(beat(index))
    session.give(DeleteObject("photos", "dog"), invocation=b"new")
    again = put(session, conditions=NEW)
    assert session.give(again, invocation=b"i").outcome is O.CONDITION_FAILED


# -- reads -----------------------------------------------------------------------------------------


def test_reads_that_stand_still_or_began_far_behind_are_ended(index, session, monkeypatch):
    own = BucketSession(index.fold)
    own.number = session.number
    still, busy = own.begin_read(), own.begin_read()
    begun = index.state.position
    for now_s in (0.0, READ_STILL_S - 1, READ_STILL_S + 1):
        own.end_old_reads(now_s)
        session.give(beat(index))
        assert own.goes_on(busy)
    assert not own.goes_on(still)
    assert own.reading_from == begun < index.state.position
    monkeypatch.setattr(bucket_session, "READ_POSITIONS_MAX", 2)
    young = own.begin_read()
    own.end_old_reads(READ_STILL_S + 2)
    assert [own.goes_on(read) for read in (busy, young)] == [False, True]
    assert own.beat(0).operation.reading_from == index.state.position, "nothing is held back"


# -- garbage ---------------------------------------------------------------------------------------


def test_garbage_waits_for_every_promise(index, session):
    other = index.session()
    session.give(put(session))
    blob = index.entry("cat").content.blob
    assert not may_drop(index.state, blob)
    session.give(DeleteObject("photos", "cat"))
    session.give(beat(index))
    assert not may_drop(index.state, blob)
    other.give(beat(index, reading_from=index.state.position - 2))
    assert not may_drop(index.state, blob)
    other.give(beat(index))
    assert may_drop(index.state, blob)
    session.give(beat(index, blobs_from=session.used))
    session.give(Collected((blob,)))
    assert index.state.place(blob) is None
    assert index.state.garbage(10) == []


def test_a_wrong_collector_forgets_nothing_that_is_needed(index, session):
    session.give(put(session))
    blob = index.entry("cat").content.blob
    session.give(Collected((blob,)))
    session.give(DeleteObject("photos", "cat"))
    session.give(Collected((blob,)))
    assert index.state.place(blob).garbage is not None


def test_a_name_without_a_place_waits_for_its_session(index, session):
    unused = session.blob(ahead=1)
    session.give(beat(index, blobs_from=unused.counter))
    session.give(beat(index, blobs_from=9, open_blobs=(unused.counter,)))
    assert not may_drop(index.state, unused)
    session.give(beat(index, blobs_from=9))
    assert may_drop(index.state, unused)
    far = session.blob(ahead=100)
    assert not may_drop(index.state, far)
    session.give(EndSession(session.number, 0))
    assert may_drop(index.state, far)
    assert not may_drop(index.state, Blob(index.state.position, 1, 1))


def test_a_copied_blob_is_not_garbage_while_an_entry_has_it(index, session):
    session.give(put(session))
    blob = index.entry("cat").content.blob
    session.give(CopyObject("photos", "dog", CopySource("photos", "cat")))
    session.give(DeleteObject("photos", "cat"))
    session.give(beat(index))
    assert not may_drop(index.state, blob)


# -- snapshots -------------------------------------------------------------------------------------


def test_two_snapshots_are_kept_and_the_third_makes_garbage(index, session):
    blobs = []
    for _ in range(3):
        blobs.append(session.blob())
        keep = KeepSnapshot(index.state.position, NO_DIGEST, session.blob())
        assert session.give(keep).done
    assert len(index.state.snapshots()) == 2
    session.give(beat(index))
    assert [may_drop(index.state, blob) for blob in blobs] == [True, False, False]


def test_a_snapshot_is_newer_than_the_last_and_not_of_the_future(index, session):
    at = index.state.position
    assert session.give(KeepSnapshot(at + 9, NO_DIGEST, session.blob())).outcome is O.NOT_TAKEN
    assert session.give(KeepSnapshot(at, NO_DIGEST, session.blob())).done
    assert session.give(KeepSnapshot(at, NO_DIGEST, session.blob())).outcome is O.NOT_TAKEN


def test_garbage_that_its_session_may_still_name_is_not_forgotten(index, session):
    """A command of the session could name a forgotten blob again, after its name was dropped."""
    session.lowest = 2
    session.give(put(session))
    session.give(put(session, etag="e2"))
    [(_, blob)] = index.state.garbage(10)
    other = index.session()
    for each in (session, other):
        each.give(beat(index))
    other.give(Collected((blob,)))
    assert [each for _, each in index.state.garbage(10)] == [blob]
    assert may_drop(index.state, blob)
    session.give(beat(index, blobs_from=3))
    other.give(Collected((blob,)))
    assert index.state.garbage(10) == []
    assert may_drop(index.state, blob)


def test_an_end_cannot_say_that_it_has_seen_the_future(index, session):
    other = index.session()
    end = EndSession(session.number, index.state.position)
    assert other.give(end).outcome is O.NOT_TAKEN
    assert other.give(EndSession(session.number, index.state.position - 1)).done
