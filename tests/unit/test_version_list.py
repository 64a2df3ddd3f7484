"""The List of an object at a server, case by case (ares/dap/version_list.py).

The model check is a property.
"""

from ares.dap.version_list import VersionList
from ares.model.messages import DELETED_LENGTH, Element
from ares.model.tag import TAG_ZERO, Tag


def element(size: int) -> Element:
    return Element(0, size, 0, (b"x" * size,))


TOMB = Element(0, DELETED_LENGTH, 0, ())


def test_a_version_list_without_writes():
    versions = VersionList()
    assert (versions.newest, versions.tags(), versions.trimmed, versions.deleted) == (
        TAG_ZERO,
        (),
        TAG_ZERO,
        True,
    )
    assert versions.element(Tag(1, 1)) is None


def test_what_is_not_kept_is_returned():
    """Alg. 4:19-25."""
    versions = VersionList()
    lost = [
        versions.put(Tag(number, 1), element(size), 2)
        for number, size in [(1, 10), (2, 20), (3, 5), (3, 5), (1, 10)]
    ]
    assert lost == [
        None,
        None,
        (Tag(1, 1), element(10), 0),
        (Tag(3, 1), element(5), 0),
        (Tag(1, 1), element(10), 0),
    ]
    assert versions.tags() == (Tag(3, 1), Tag(2, 1))
    assert versions.trimmed == Tag(1, 1)


def test_an_older_tag_takes_its_place():
    versions = VersionList()
    for number in (4, 1, 3, 2):
        versions.put(Tag(number, 1), element(number), 5)
    versions.put(Tag(3, 2), element(9), 5)
    assert [tag.number + tag.writer / 10 for tag in versions.tags()] == [4.1, 3.2, 3.1, 2.1, 1.1]
    assert versions.element(Tag(3, 2)).size == 9


def test_the_first_element_of_a_tag_stands():
    versions = VersionList()
    first = element(1)
    versions.put(Tag(1, 1), first, 2)
    assert versions.put(Tag(1, 1), element(2), 2) == (Tag(1, 1), element(2), 0)
    assert versions.element(Tag(1, 1)) is first


def test_a_tombstone_is_a_version():
    versions = VersionList()
    versions.put(Tag(1, 1), element(3), 1)
    assert not versions.deleted
    assert versions.put(Tag(2, 1), TOMB, 1) == (Tag(1, 1), element(3), 0)
    assert versions.deleted
    assert versions.newest == Tag(2, 1)
