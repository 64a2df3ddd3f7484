"""Pages of object names from a quorum, united (ares/reconfig/listing.py)."""

from ares.model.configuration import Configuration, Status, Successor
from ares.model.messages import ListedObject, ListObjects, ObjectsReply
from ares.model.tag import Tag
from ares.reconfig.listing import PAGE_OBJECTS, ListingPage, list_page

C = Configuration.abd(["s0", "s1", "s2"]).at("d", 1)
NEXT = Successor(C.at("d", 2), Status.FINALIZED)


def listed(name: str, number: int = 1) -> ListedObject:
    return ListedObject(name, Tag(number, 1), False)


def page(*replies: ObjectsReply) -> ListingPage:
    """Return the page that ``list_page`` makes of these answers."""
    listing = list_page(C, "", carry=None)
    next(listing)
    try:
        listing.send({f"s{number}": reply for number, reply in enumerate(replies)})
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a listing of one page asks once")


def reply(names: str, more: bool = False, successor: Successor | None = None) -> ObjectsReply:
    return ObjectsReply(1, tuple(map(listed, names)), more, successor)


def test_the_request_for_a_page():
    gather = next(list_page(C, "after", "prefix", NEXT))
    assert gather.requests(7, *gather.arguments) == ListObjects(
        7, C.id, "after", PAGE_OBJECTS, "prefix", NEXT
    )
    assert gather.configuration == C
    assert gather.needed == 0


def test_complete_answers_are_united_in_order():
    united = page(reply("bd"), reply("acd"))
    assert list(united.objects) == ["a", "b", "c", "d"]
    assert [len(united.objects[name]) for name in "abcd"] == [1, 1, 1, 2]
    assert (united.answered, united.after, united.successor) == (2, None, None)


def test_names_beyond_the_shortest_page_wait():
    united = page(reply("abcd"), reply("ac", more=True), reply("abde", more=True))
    assert list(united.objects) == ["a", "b", "c"]
    assert united.after == "c"


def test_a_full_page_that_is_the_last_one_cuts_nothing():
    assert page(reply("abc"), reply("abcd")).after is None


def test_a_server_that_claims_more_of_nothing_cuts_nothing():
    united = page(reply("", more=True), reply("ab"))
    assert (list(united.objects), united.after) == (["a", "b"], None)


def test_the_successor_of_any_answer_is_told():
    assert page(reply("a"), reply("a", successor=NEXT)).successor == NEXT
