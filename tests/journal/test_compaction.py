"""Released and kept facts (ares/replica/compaction.py, ares/replica/facts.py)."""

import msgspec
import pytest

from ares.model.configuration import Status, Successor
from ares.model.element import intact
from ares.model.messages import CollectConfig, Finalize, GetData, Introduce, PutData
from ares.model.tag import Tag
from ares.model.units import KIB
from ares.replica.compaction import choose
from ares.replica.facts import ConfigurationRecord, TagsTrimmed, fact_bytes_max
from ares.replica.port import lists_of
from ares.store.journal.disk import Disk
from ares.store.journal.segments import NEW_SEGMENT_SUFFIX
from ares.store.port import Use

from .journal_node import INITIAL, NEXT, PHOTOS, Node, log_journal, plain, put, state


@pytest.mark.parametrize(
    ("places", "live", "chosen"),
    [
        ({}, {}, None),
        ({1: 100}, {1: 51}, None),
        ({1: 100}, {1: 50}, 1),
        ({1: 100, 2: 100, 3: 10}, {1: 40, 2: 30, 3: 4}, 2),
        ({1: 100, 2: 100}, {2: 90}, 1),
        ({1: 0}, {}, 1),
        ({1: 100}, {1: 120}, None),
    ],
)
def test_the_deadest_place_that_is_worth_it(places, live, chosen):
    assert choose(places, live) == chosen


def node_with(tmp_path, *requests):
    node = Node(log_journal(tmp_path / "j"))
    for request in requests:
        node.handle(request)
        node.commit()
    return node


def seal_place(node, filler=20, name="filler"):
    """Write until the current place is another place."""
    for number in range(filler):
        node.handle(put(f"{name} {number}", 1, b"f" * 5 * KIB))
    node.commit()
    assert node.journal.places()


def test_what_survives_of_a_place(tmp_path):
    # capacity 2: 4 and 5 stay, 3 is the highest dropped
    overwritten = [put("o", number, b"v") for number in range(1, 6)]
    requests = [
        Introduce(1, PHOTOS),
        *overwritten,
        put("kept", 1, b"k" * 9 * KIB),
        put("p", 1, b"x", PHOTOS),
    ]
    node = node_with(tmp_path, *requests)
    node.handle(CollectConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    seal_place(node)
    place = min(node.journal.places())
    facts = list(node.journal.read(place))
    kept = [kept for fact in facts if (kept := node.replica.surviving(fact, place)) is not None]
    assert [
        fact
        for fact in kept
        if not (isinstance(fact, PutData) and fact.object.startswith("filler"))
    ] == [
        TagsTrimmed(INITIAL.id, "o", Tag(3, 1)),
        overwritten[3],
        overwritten[4],
        put("kept", 1, b"k" * 9 * KIB),
        ConfigurationRecord(PHOTOS, Successor(NEXT, Status.FINALIZED), True),
    ]
    before = node.state
    assert node.compact(place)
    assert node.state == before == Node(log_journal(tmp_path / "j")).state
    assert place not in Node(log_journal(tmp_path / "j")).journal.places()


def test_a_pointer_of_an_earlier_release_after_one_that_says_finalized_survives(tmp_path):
    """An earlier release leaves out the word "finalized" when the pointer moves.

    A reader of both facts must keep the finalized state.
    """
    node = node_with(
        tmp_path, Introduce(1, PHOTOS), put("a", 1, b"v", PHOTOS), Finalize(1, PHOTOS.id)
    )
    earlier = ConfigurationRecord(PHOTOS, Successor(NEXT, Status.PENDING), False)
    assert node.journal.reserve(fact_bytes_max(earlier), Use.DATA) is not None
    node.journal.append(earlier, fact_bytes_max(earlier))
    node.commit()
    again = Node(log_journal(tmp_path / "j"))
    before = again.state
    seal_place(again)
    for place in list(again.journal.places()):
        assert again.compact(place)
    after = Node(log_journal(tmp_path / "j")).state
    assert after[PHOTOS.id] == before[PHOTOS.id]
    assert after[PHOTOS.id][0] == Successor(NEXT, Status.PENDING)


def test_the_highest_dropped_tag_outlasts_the_element(tmp_path):
    """Without the tag, a later read could return an older version (ares/dap/version_list.py)."""
    node = node_with(tmp_path, *[put("o", number, b"v") for number in range(1, 6)])
    for _ in range(3):
        seal_place(node)
        for place in list(node.journal.places()):
            assert node.compact(place)
        node = Node(log_journal(tmp_path / "j"))
        assert node.replica.hosted[INITIAL.id].objects.get("o").trimmed == Tag(3, 1)


def test_the_account_of_what_lives_is_right_after_anything(tmp_path):
    """A count after a restart gives the same account."""
    node = node_with(tmp_path, Introduce(1, PHOTOS))
    for number in range(1, 150):
        node.handle(
            put(
                "abcde"[number % 5],
                number % 37,
                b"d" * (number * 97 % 3000),
                [INITIAL, PHOTOS][number % 2],
                writer=number % 3,
            )
        )
        node.commit()
        if number % 50 == 49:
            for place in list(node.journal.places()):
                assert node.compact(place)
    counted = {
        place: bytes
        for place, bytes in Node(log_journal(tmp_path / "j")).replica.account.live.items()
        if bytes
    }
    assert counted == {place: bytes for place, bytes in node.replica.account.live.items() if bytes}
    node.handle(CollectConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    node.commit()
    after = sum(node.replica.account.live.values())
    assert (
        after
        == sum(Node(log_journal(tmp_path / "j")).replica.account.live.values())
        < sum(counted.values())
    )


def test_views_stay_valid_when_their_segment_is_gone(tmp_path):
    data = bytes(range(256)) * 80
    node = node_with(tmp_path, put("a", 1, data))
    [part] = node.replica.hosted[INITIAL.id].objects.get("a").entries[0][1].parts
    assert isinstance(part, memoryview)
    seal_place(node)
    place = min(node.journal.places())
    assert node.compact(place)
    assert not (tmp_path / "j" / f"{place:08}.log").exists()
    assert bytes(part) == data
    [moved] = node.replica.hosted[INITIAL.id].objects.get("a").entries[0][1].parts
    assert moved == data
    assert moved.obj is not part.obj


def rot(path, where):
    data = bytearray(path.read_bytes())
    at = data.find(where)
    assert at > 0
    with open(path, "r+b") as file:
        file.seek(at + 10)
        file.write(bytes([data[at + 10] ^ 4]))


def test_an_element_that_rotted_counts_as_missing_before_and_after_compaction(tmp_path):
    data = b"precious" * 2 * KIB
    node = node_with(tmp_path, put("a", 1, data), put("a", 2, b"newer" * 2 * KIB))
    seal_place(node)
    place = min(node.journal.places())
    rot(tmp_path / "j" / f"{place:08}.log", b"precious")
    for _ in range(2):
        node = Node(log_journal(tmp_path / "j"))
        reply = node.handle(GetData(1, INITIAL.id, "a", True, Tag(1, 1)))
        assert reply.tags == (Tag(2, 1), Tag(1, 1))
        assert reply.element is None
        newer = node.handle(GetData(1, INITIAL.id, "a", True, Tag(2, 1))).element
        assert intact(INITIAL.id, "a", Tag(2, 1), newer)
        hosting = node.replica.hosted[INITIAL.id]
        if place in node.journal.places():
            assert node.compact(place)
            assert hosting.bytes == sum(
                element.size
                for _, versions in lists_of(hosting.objects)
                for _, element, _ in versions.entries
            )


def test_a_resend_leaves_no_fact(tmp_path):
    once = [
        Introduce(1, PHOTOS),
        put("a", 1, b"x" * 9 * KIB),
        put("b", 2, b"y"),
        CollectConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)),
    ]
    node = node_with(tmp_path, *once)
    before = node.journal.bytes_on_disk
    for request in once * 50:
        node.handle(msgspec.structs.replace(request, call=8))
        node.commit()
    assert node.journal.bytes_on_disk == before
    assert node.state == state(plain(once))


class Undying(Disk):
    """A disk with a loss of power at each removal of a segment."""

    def unlink(self, path):
        if path.suffix == NEW_SEGMENT_SUFFIX:
            super().unlink(path)


def test_what_was_copied_is_not_counted_on_where_it_was_before(tmp_path):
    """A crash after the copies were durable leaves the old place; the next start removes it."""
    node = Node(log_journal(tmp_path / "j", Undying()))
    for request in [
        Introduce(1, PHOTOS),
        put("o", 1, b"v"),
        put("kept", 1, b"k" * 9 * KIB),
        put("p", 1, b"x", PHOTOS),
    ]:
        node.handle(request)
    seal_place(node)
    for request in [put("o", number, b"v") for number in (2, 3)]:
        node.handle(request)
    gone = min(node.journal.places())
    node.compact(gone)
    again = Node(log_journal(tmp_path / "j"))
    assert again.state == node.state
    seal_place(again, name="more")
    before = again.state
    for place in sorted(again.journal.places()):
        again.compact(place)
    assert again.state == Node(log_journal(tmp_path / "j")).state == before
