"""The result of the answers to a get-data (ares/dap/reading.py)."""

import msgspec
import pytest

from ares.dap.coding import coding_for
from ares.dap.reading import FIRST_BYTES, GET_DATA_PATIENCE_S, TRIP_S_MAX, Reading, patience_s
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import sealed
from ares.model.messages import DELETED_LENGTH, DataReply
from ares.model.tag import TAG_ZERO, Tag

C = Configuration.ec([f"s{number}" for number in range(5)], 3, 2).at("d", 1)
NEXT = Configuration.abd(["s0", "s1", "s2"]).at("d", 2)
VALUE = b"value" * 10
SIZE = len(VALUE)
OLD, NEW = Tag(1, 1), Tag(2, 1)
DATA = coding_for(C).encode(VALUE)


def element(number, tag=NEW, length=SIZE):
    return sealed(C.id, "k", tag, number, length, DATA[number] if length >= 0 else ())


def reply(number, *tags, carried=True, status=None, length=SIZE):
    successor = None if status is None else Successor(NEXT, status)
    return DataReply(
        1,
        tags,
        length if tags else DELETED_LENGTH,
        TAG_ZERO,
        element(number, tags[0], length) if tags and carried else None,
        successor,
    )


def answers(*replies):
    return {f"s{number}": given for number, given in enumerate(replies)}


def test_enough_elements_of_the_version():
    """Alg. 3:16-18."""
    reading = Reading(C, "k", 3)
    given = answers(*(reply(number, NEW, OLD) for number in range(4)))
    assert reading.settled(given)
    assert (reading.tag, reading.length, sorted(reading.elements)) == (NEW, SIZE, [0, 1, 2])
    assert reading.confirmed(given)
    assert not reading.withheld


def test_a_read_asks_for_missing_elements_of_the_newest_version():
    """Alg. 3:16-18."""
    reading = Reading(C, "k", 3)
    given = answers(reply(0, NEW), reply(1, NEW), reply(2, NEW, carried=False), reply(3))
    assert not reading.settled(given)
    assert reading.tag == NEW
    assert reading.holders(given) == ("s2",)
    reading.keep(element(2))
    assert reading.complete
    assert not reading.confirmed(given), "three of the quorum's four list it"


def test_the_version_below_a_write_in_progress_is_asked_for_by_name():
    reading = Reading(C, "k", 3)
    given = answers(*(reply(number, Tag(3, number), OLD) for number in range(4)))
    assert not reading.settled(given)
    assert (reading.tag, reading.elements) == (OLD, {})
    assert reading.holders(given) == ("s0", "s1", "s2", "s3")


def test_no_version_is_settled():
    """Alg. 3:13-15."""
    reading = Reading(C, "k", 3)
    dropped = DataReply(1, (Tag(9, 1), Tag(8, 1)), 5, NEW, None, None)
    assert not reading.settled(answers(dropped, reply(1, NEW), reply(2, NEW), reply(3)))
    assert reading.tag is None


@pytest.mark.parametrize(
    "bad",
    [
        msgspec.structs.replace(element(2), parts=(b"other",)),
        msgspec.structs.replace(element(2), index=3),
        element(2, OLD),
        sealed(C.id, "k", NEW, 5, SIZE, (b"x",)),
        sealed(C.id, "k", NEW, -1, SIZE, (b"x",)),
        sealed(C.id, "other", NEW, 2, SIZE, (b"x",)),
    ],
)
def test_a_bad_element_counts_as_missing(bad):
    reading = Reading(C, "k", 3)
    third = DataReply(1, (NEW,), SIZE, TAG_ZERO, bad, None)
    assert not reading.settled(answers(reply(0, NEW), reply(1, NEW), third, reply(3)))
    assert sorted(reading.elements) == [0, 1]


def test_withheld_when_the_successor_is_finalized_and_not_before():
    """Alg. 3:17-20."""
    reading = Reading(C, "k", 3)
    assert reading.settled(
        answers(*(reply(number, NEW, status=Status.PENDING) for number in range(4)))
    )
    assert not reading.withheld
    assert reading.successor.configuration == NEXT
    assert reading.settled(answers(reply(0), reply(1), reply(2), reply(3, status=Status.FINALIZED)))
    assert reading.withheld


def test_a_read_of_an_unwritten_object():
    reading = Reading(C, "k", 3)
    given = answers(*(reply(number) for number in range(4)))
    assert reading.settled(given)
    assert (reading.tag, reading.length) == (TAG_ZERO, DELETED_LENGTH)
    assert reading.confirmed(given), "t0 is at every server"


def test_a_tombstone_needs_no_elements():
    reading = Reading(C, "k", 3)
    silent = [reply(number, NEW, carried=False, length=DELETED_LENGTH) for number in (1, 2)]
    assert reading.settled(answers(reply(0, NEW, length=DELETED_LENGTH), *silent, reply(3)))
    assert reading.length == DELETED_LENGTH


def test_a_read_of_the_length_only():
    reading = Reading(C, "k", 0)
    assert reading.settled(answers(*(reply(number, NEW, carried=False) for number in range(4))))
    assert (reading.tag, reading.length, reading.elements) == (NEW, SIZE, {})


def test_each_look_is_a_fresh_one():
    reading = Reading(C, "k", 3)
    first = answers(*(reply(number, OLD) for number in range(4)))
    assert reading.settled(first)
    later = {f"s{number}": reply(number, NEW, OLD) for number in range(4)}
    assert reading.settled(later)
    assert reading.tag == NEW
    assert all(kept == element(index).parts for index, kept in reading.elements.items())


def test_versions_that_all_list_first_are_at_a_quorum_and_the_highest():
    reading = Reading(C, "k", 3)
    given = answers(*(reply(number, NEW, OLD) for number in range(4)))
    assert reading.settled(given)
    assert reading.agreed
    assert (reading.highest(given), reading.confirmed(given)) == (NEW, True)


def test_a_version_that_others_are_listed_above_is_neither():
    reading = Reading(C, "k", 3)
    given = answers(
        reply(0, Tag(3, 1), NEW),
        *(reply(number, NEW) for number in (1, 2)),
        reply(3, NEW, carried=False),
        reply(4, OLD),
    )
    reading.settled(given)
    assert not reading.agreed
    assert (reading.tag, reading.highest(given), reading.confirmed(given)) == (NEW, Tag(3, 1), True)
    fewer = {server: given[server] for server in ("s0", "s1", "s3", "s4")}
    assert not reading.confirmed(fewer)


def test_agreement_ends_with_an_answer_that_disagrees():
    reading = Reading(C, "k", 3)
    given = answers(*(reply(number, OLD, carried=False) for number in range(4)))
    assert not reading.settled(given)
    assert reading.agreed
    reading.settled(given | {"s4": reply(4, NEW, OLD)})
    assert not reading.agreed
    assert reading.highest(given | {"s4": reply(4, NEW, OLD)}) == NEW


def test_patience_grows_with_the_value():
    assert patience_s({}, 0.0) == GET_DATA_PATIENCE_S
    assert patience_s(answers(reply(0)), 1.0) < GET_DATA_PATIENCE_S + 1e-6
    assert patience_s(
        answers(DataReply(1, (NEW,), 2 * 10**8, TAG_ZERO, None, None), reply(1)), 0.0
    ) == pytest.approx(GET_DATA_PATIENCE_S + 1)


def test_patience_is_that_of_a_connection_that_begins_slowly():
    """At ten more round trips, 2^10 times the first amount has been sent."""
    large = answers(DataReply(1, (NEW,), 1024 * FIRST_BYTES, TAG_ZERO, None, None), reply(1))
    assert patience_s(large, 0.05) == pytest.approx(patience_s(large, 0.0) + 10 * 0.05)


def test_patience_does_not_grow_with_an_outage():
    """A quorum that came after a minute of an outage says nothing about the network."""
    large = answers(DataReply(1, (NEW,), 1024 * FIRST_BYTES, TAG_ZERO, None, None), reply(1))
    assert patience_s(large, 60.0) == patience_s(large, TRIP_S_MAX) < 10


def bare(number, *tags):
    """Return the answer of a server with no version above the version held."""
    return reply(number, *tags, carried=False)


def test_the_version_held_needs_no_elements():
    reading = Reading(C, "k", 3, NEW)
    given = answers(*(bare(number, NEW, OLD) for number in range(4)))
    assert reading.settled(given)
    assert reading.unchanged
    assert (reading.tag, reading.length, reading.elements) == (NEW, SIZE, {})
    assert reading.confirmed(given)


def test_a_version_above_the_one_held_needs_elements():
    reading = Reading(C, "k", 3, OLD)
    given = answers(reply(0, NEW, OLD), reply(1, NEW, OLD), bare(2, NEW, OLD), bare(3, OLD))
    assert not reading.settled(given)
    assert not reading.unchanged
    reading.keep(element(2))
    assert reading.complete


def test_a_version_below_the_one_held_needs_none():
    """An older configuration of a sequence: the version held is in a later configuration."""
    reading = Reading(C, "k", 3, NEW)
    given = answers(*(bare(number, OLD) for number in range(4)))
    assert reading.settled(given)
    assert reading.unchanged
    assert reading.tag == OLD


def test_a_write_in_progress_over_the_version_held():
    reading = Reading(C, "k", 3, OLD)
    given = answers(reply(0, NEW, OLD), bare(1, OLD), bare(2, OLD), bare(3, OLD))
    assert reading.settled(given)
    assert (reading.tag, reading.unchanged) == (OLD, True)


def test_the_version_held_under_other_writes_everywhere_is_not_known_by_its_length():
    reading = Reading(C, "k", 3, OLD)
    given = answers(*(reply(number, Tag(3, number), OLD) for number in range(4)))
    assert not reading.settled(given)
    assert reading.unchanged
    reading.keep(element(0, OLD))
    assert reading.complete


def test_a_tombstone_that_is_held_is_a_tombstone():
    reading = Reading(C, "k", 3, NEW)
    assert reading.settled(
        answers(*(reply(number, NEW, carried=False, length=DELETED_LENGTH) for number in range(4)))
    )
    assert reading.length == DELETED_LENGTH
    assert Reading(C, "k", 3, NEW).settled(answers(*(reply(number) for number in range(4))))
