"""A server's state for a configuration (ares/replica/configuration_state.py; Alg. 4)."""

import msgspec
import pytest

from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import PART_BYTES_MIN, sealed
from ares.model.messages import (
    DELETED_LENGTH,
    LEFT_LENGTH,
    LEFT_NAMED_MAX,
    PAGE_OBJECTS_MAX,
    CollectConfig,
    GetData,
    GetTag,
    ListedObject,
    ListObjects,
    PutData,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.configuration_state import INLINE_BYTES_MAX, BadElement, ConfigurationState

EC = Configuration.ec([f"s{number}" for number in range(5)], 3, 2).at("d", 1)
ABD = Configuration.abd(["s0", "s1", "s2"]).at("d", 1)
NEXT = ABD.at("d", 2, EC.cluster_id)
ME = 2


def hosting(configuration: Configuration = EC) -> ConfigurationState:
    return ConfigurationState(configuration, ME)


def put(
    host: ConfigurationState,
    name: str,
    number: int,
    data: bytes = b"data",
    index: int | None = None,
    length: int = 3,
) -> PutData:
    own = ME if host.configuration.dap == "ec" else 0
    tag = Tag(number, 1)
    element = sealed(
        host.configuration.id, name, tag, own if index is None else index, length, (data,)
    )
    return PutData(1, host.configuration.id, name, tag, element)


def get(
    host: ConfigurationState, name: str = "k", element: bool = False, wanted: Tag | None = None
):
    return host.get_data(GetData(7, host.configuration.id, name, element, wanted))


def test_an_object_never_written():
    """Alg. 4:1-7."""
    host = hosting()
    reply = get(host)
    assert (reply.call, reply.tags, reply.length, reply.element, reply.trimmed) == (
        7,
        (),
        DELETED_LENGTH,
        None,
        TAG_ZERO,
    )
    assert host.get_tag(GetTag(7, EC.id, "k")).tag == TAG_ZERO
    assert host.describe().objects == 0


def test_all_tags_and_the_newest_element():
    """Alg. 4:4-9, Alg. 4:14-15."""
    host = hosting()
    for number in (1, 3, 2):
        host.put_data(put(host, "k", number, bytes([number])))
    reply = get(host)
    assert [tag.number for tag in reply.tags] == [3, 2, 1]
    assert (reply.element.parts, reply.length, reply.trimmed) == ((b"\x03",), 3, TAG_ZERO)
    assert host.get_tag(GetTag(7, EC.id, "k")).tag == Tag(3, 1)
    host.put_data(put(host, "k", 4))
    assert get(host).trimmed == Tag(1, 1)
    assert [tag.number for tag in get(host).tags] == [4, 3, 2]


def test_a_version_by_name():
    host = hosting()
    for number in (1, 2):
        host.put_data(put(host, "k", number, bytes([number])))
    assert get(host, wanted=Tag(1, 1)).element.parts == (b"\x01",)
    assert get(host, wanted=Tag(9, 1)).element is None


def test_a_large_element_must_be_asked_for():
    host = hosting()
    host.put_data(put(host, "small", 1, b"x" * INLINE_BYTES_MAX))
    host.put_data(put(host, "large", 1, b"x" * (INLINE_BYTES_MAX + 1)))
    assert get(host, "small").element is not None
    assert get(host, "large").element is None
    assert get(host, "large", element=True).element.size == INLINE_BYTES_MAX + 1


@pytest.mark.parametrize("configuration", [EC, ABD])
def test_elements_that_do_not_fit_are_not_stored(configuration):
    """Alg. 4:16-18."""
    host = hosting(configuration)
    good = put(host, "k", 1)
    wrong_bytes = msgspec.structs.replace(good.element, parts=(b"dat",))
    for bad in (
        put(host, "k", 1, index=1),
        msgspec.structs.replace(good, element=wrong_bytes),
        msgspec.structs.replace(good, object="other"),
    ):
        with pytest.raises(BadElement, match="was not stored"):
            host.put_data(bad)
    assert host.describe().objects == 0
    host.put_data(good)
    assert host.describe().objects == 1


def test_bytes_are_counted():
    host = hosting(ABD)
    for name, number, data in [
        ("a", 1, b"12345"),
        ("a", 2, b"12"),
        ("b", 1, b"1"),
        ("a", 1, b"late"),
    ]:
        host.put_data(put(host, name, number, data, length=1))
    assert (host.bytes, host.describe().bytes, host.describe().objects) == (3, 3, 2)


def test_values_are_withheld_once_the_successor_is_finalized():
    """Alg. 4:10-13."""
    host = hosting()
    host.put_data(put(host, "k", 1))
    host.install(Successor(NEXT, Status.PENDING))
    assert get(host, element=True).element is not None
    host.install(Successor(NEXT, Status.FINALIZED))
    reply = get(host, element=True)
    assert (reply.element, reply.tags) == (None, (Tag(1, 1),))
    assert reply.successor.finalized


def test_collecting_drops_everything_for_good():
    """Alg. 4:16-18, Alg. 4:39-43."""
    host = hosting()
    host.put_data(put(host, "k", 1))
    assert host.collect(CollectConfig(5, EC.id, Successor(NEXT, Status.PENDING))).call == 5
    assert (host.collected, host.bytes) == (False, 4), "only a finalized successor lets go of data"
    acknowledged = host.collect(CollectConfig(5, EC.id, Successor(NEXT, Status.FINALIZED)))
    assert acknowledged.successor == Successor(NEXT, Status.FINALIZED)
    assert (host.collected, host.bytes, len(host.objects)) == (True, 0, 0)
    assert host.put_data(put(host, "k", 2)).successor.finalized
    assert (host.bytes, len(host.objects)) == (0, 0)


NAMES = ["a", "b", "b1", "b2", "b\N{SNOWMAN}", "c", "ba"]


@pytest.mark.parametrize(
    ("after", "prefix", "limit", "names", "more"),
    [
        ("", "", 100, sorted(NAMES), False),
        ("", "", len(NAMES), sorted(NAMES), False),
        ("", "", 2, ["a", "b"], True),
        ("b", "", 2, ["b1", "b2"], True),
        ("aa", "", 1, ["b"], True),
        ("c", "", 5, [], False),
        ("", "b", 100, ["b", "b1", "b2", "ba", "b\N{SNOWMAN}"], False),
        ("", "b", 2, ["b", "b1"], True),
        ("b", "b", 2, ["b1", "b2"], True),
        ("a", "b", 1, ["b"], True),
        ("c", "b", 5, [], False),
        ("", "x", 5, [], False),
        ("", "", 0, ["a"], True),
        ("", "", -5, ["a"], True),
    ],
)
def test_listed_pages_are_bounded_and_prefixed(after, prefix, limit, names, more):
    host = hosting()
    for name in NAMES:
        host.put_data(put(host, name, 1))
    page = host.list_objects(ListObjects(1, EC.id, after, limit, prefix))
    assert [listed.name for listed in page.objects] == names
    assert page.more is more


def test_a_page_has_a_limit_of_its_own():
    host = hosting(ABD)
    for number in range(PAGE_OBJECTS_MAX + 1):
        host.put_data(put(host, f"{number:06}", 1))
    page = host.list_objects(ListObjects(1, ABD.id, "", 10**9))
    assert (len(page.objects), page.more) == (PAGE_OBJECTS_MAX, True)


def test_tombstones_are_listed_as_such():
    host = hosting()
    host.put_data(put(host, "here", 1))
    host.put_data(put(host, "gone", 1))
    host.put_data(put(host, "gone", 2, b"", length=DELETED_LENGTH))
    assert host.list_objects(ListObjects(1, EC.id, "", 9)).objects == (
        ListedObject("gone", Tag(2, 1), True),
        ListedObject("here", Tag(1, 1), False),
    )


@pytest.mark.parametrize("configuration", [EC, ABD])
def test_only_what_is_above_the_version_held_is_sent(configuration):
    host = hosting(configuration)
    host.put_data(put(host, "k", 2))
    for held, sent in [
        (Tag(1, 9), True),
        (Tag(2, 0), True),
        (Tag(2, 1), False),
        (Tag(2, 2), False),
        (Tag(3, 0), False),
    ]:
        for asked in (True, False):
            reply = host.get_data(GetData(7, configuration.id, "k", asked, held=held))
            assert (reply.element is not None) is sent
            assert (reply.tags, reply.length) == ((Tag(2, 1),), 3), "tags always"


def test_a_version_that_is_asked_for_by_name_is_compared_itself():
    host = hosting()
    for number in (1, 2, 3):
        host.put_data(put(host, "k", number))
    for wanted, sent in [(1, False), (2, False), (3, True)]:
        reply = host.get_data(GetData(7, EC.id, "k", True, Tag(wanted, 1), held=Tag(2, 1)))
        assert (reply.element is not None) is sent


@pytest.mark.parametrize("parts", [2, 3, 256])
@pytest.mark.parametrize("configuration", [EC, ABD])
def test_an_element_in_smaller_parts_than_a_coding_makes_is_refused(configuration, parts):
    host, tag = hosting(configuration), Tag(1, 1)
    own = ME if configuration.dap == "ec" else 0
    pieces = (b"p" * PART_BYTES_MIN,) * (parts - 1)
    few = sealed(configuration.id, "k", tag, own, 1, (*(piece[:-1] for piece in pieces), b""))
    with pytest.raises(BadElement, match="was not stored"):
        host.put_data(PutData(1, configuration.id, "k", tag, few))
    assert get(host).tags == ()
    host.put_data(
        PutData(
            1,
            configuration.id,
            "k",
            tag,
            sealed(configuration.id, "k", tag, own, 1, (*pieces, b"")),
        )
    )
    assert get(host).tags == (tag,)


def test_objects_left_behind_are_counted_exactly_up_to_a_bound_and_soon_beyond(monkeypatch):
    monkeypatch.setattr("ares.replica.configuration_state.LEFT_SEEN_MAX", 50)
    host = hosting(ABD)
    names = [f"object {number:03}" for number in range(200)]
    for name in names:
        host.put(put(host, name, 1, b"", length=LEFT_LENGTH))
    assert host.left_behind() == (200, tuple(names[:LEFT_NAMED_MAX]))
    for name in names[:190]:
        host.put(put(host, name, 2))
    found = [host.left_behind() for _ in range(5)]
    assert found[-1] == (10, tuple(names[190:]))
    assert all(set(named) <= set(names[190:]) for _, named in found)
    for name in names[190:]:
        host.put(put(host, name, 2, b"", length=DELETED_LENGTH))
    assert host.left_behind() == (0, ())
