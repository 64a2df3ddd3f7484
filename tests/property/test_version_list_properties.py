"""The List of a server against a complete model (ares/dap/version_list.py).

The model forgets no version.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from ares.dap.version_list import VersionList
from ares.model.messages import Element
from ares.model.tag import TAG_ZERO, Tag

tags = st.builds(Tag, st.integers(1, 6), st.integers(1, 3))
elements = st.builds(lambda data: Element(0, len(data), 0, (data,)), st.binary(max_size=6))


def broken(
    versions: VersionList, capacity: int, put: dict[Tag, Element], trimmed_before: Tag, stored: int
) -> str:
    """Return the broken invariant, or an empty text."""
    kept = sorted(put, reverse=True)[:capacity]
    checks = {
        "more than the capacity": len(versions.entries) <= capacity,
        "not the newest, in order": list(versions.tags()) == kept,
        "an element was replaced": all(versions.element(tag) is put[tag] for tag in kept),
        "trimmed went back": versions.trimmed >= trimmed_before,
        "trimmed is not what was dropped": versions.trimmed
        == max(set(put) - set(kept), default=TAG_ZERO),
        "the highest tag decreased": versions.newest == max(put, default=TAG_ZERO),
        "bytes are miscounted": stored == sum(put[tag].size for tag in kept),
    }
    return ", ".join(what for what, holds in checks.items() if not holds)


def run(versions, capacity, puts):
    put, stored = {}, 0
    for tag, element in puts:
        trimmed = versions.trimmed
        lost = versions.put(tag, element, capacity)
        stored += element.size - (lost[1].size if lost is not None else 0)
        put.setdefault(tag, element)
        if told := broken(versions, capacity, put, trimmed, stored):
            return told
    return ""


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 5), st.lists(st.tuples(tags, elements), max_size=30))
def test_a_list_holds_the_newest_versions_that_were_ever_put(capacity, puts):
    """Alg. 4:19-24."""
    assert run(VersionList(), capacity, puts) == ""


def test_a_list_that_forgets_to_trim_or_to_order_is_rejected():
    class Untrimmed(VersionList):
        def put(self, tag, element, capacity):
            return super().put(tag, element, 1000)

    class Unordered(VersionList):
        def put(self, tag, element, capacity):
            self.entries.append((tag, element, 0))

    one, two = (Tag(number, 1) for number in (1, 2))
    element = Element(0, 1, 0, (b"x",))
    assert "more than the capacity" in run(Untrimmed(), 1, [(one, element), (two, element)])
    assert "not the newest" in run(Unordered(), 2, [(one, element), (two, element)])
