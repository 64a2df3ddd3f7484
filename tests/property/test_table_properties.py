"""Random operations on Python's table of objects and on the core's: the two agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.compiled import CORE
from ares.model.element import hollow
from ares.model.messages import DELETED_LENGTH, Element
from ares.model.tag import Tag
from ares.replica.facts import ConfigurationUsage, JournalUsage
from ares.replica.object_table import PythonObjectTable
from ares.replica.port import lists_of

pytestmark = pytest.mark.skipif(CORE is None, reason="nothing is compiled")

NAMES = ["", "a", "a\0", "aa", "ab", "b" * 300, "é", "\uffff", "𝄞", "n" * 1025, "é" * 1000]
names = (
    st.sampled_from(NAMES[1:4])
    | st.sampled_from(NAMES)
    | st.text(st.characters(codec="utf-8"), max_size=3)
)
tags = st.builds(
    Tag,
    st.integers(1, 6) | st.integers(1, 60) | st.just(2**64 - 1),
    st.just(1) | st.sampled_from([1, 2, 2**64 - 1]),
)
places = st.integers(0, 4) | st.just(2**32 - 1)
small = st.builds(lambda data: Element(1, len(data), 9, (data,)), st.binary(max_size=40))
elements = st.one_of(
    *(small, small.map(hollow), st.just(Element(0, DELETED_LENGTH, 0, ()))),
    *(st.just(Element(3, 2**30, 2**64 - 1, (b"x" * 8191,))), st.just(Element(31, 0, 0, (b"",)))),
    *(
        st.just(Element(2, 9000, 1, (memoryview(b"y" * 9000),))),
        st.just(Element(2, 4, 1, (b"ab", b"cd"))),
    ),
)
operations = st.one_of(
    st.tuples(st.just("put"), names, tags, elements, places, st.booleans()),
    st.tuples(st.just("trim"), names, tags, places),
    st.tuples(st.just("move"), names, tags, elements, places),
    st.tuples(st.just("move_trimmed"), names, places),
    st.tuples(st.just("replace"), names, tags, elements),
    st.tuples(st.just("version"), names, tags),
    st.tuples(st.just("trimmed"), names),
    st.tuples(st.just("is_below"), names, tags),
    st.tuples(st.just("newest"), names),
    st.tuples(st.just("follows"), names),
    st.tuples(st.just("names"), names | st.none(), st.integers(0, 9)),
    st.tuples(st.just("at_place"), places, names | st.none(), st.integers(0, 9)),
    st.tuples(st.just("page"), names, st.sampled_from(["", "a", "é", "n"]), st.integers(1, 9)),
    st.tuples(st.just("forget"), names),
    st.tuples(st.just("clear")),
    st.tuples(st.just("release"), st.integers(0, 5)),
)


def state(table):
    account = table.usage and table.usage.account
    return (
        [
            (name, versions.trimmed, versions.trimmed_place, list(map(tuple, versions.entries)))
            for name, versions in lists_of(table)
        ],
        (len(table), table.elements, table.bytes),
        account and ({place: n for place, n in account.live.items() if n}, account.died),
    )


def both(capacity, journaled):
    return [
        kind(capacity, ConfigurationUsage(JournalUsage()) if journaled else None)
        for kind in (PythonObjectTable, CORE.ObjectTable)
    ]


def told(result):
    return list(result) if isinstance(result, list | tuple) else result


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([1, 2, 3, 9, 40]), st.booleans(), st.lists(operations, max_size=40))
def test_the_tables_agree(capacity, journaled, some):
    tables = both(capacity, journaled)
    for name, *arguments in some:
        python, core = (told(getattr(table, name)(*arguments)) for table in tables)
        assert python == core, name
        assert state(tables[0]) == state(tables[1]), name


@settings(deadline=None, max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(0, 5000), st.sampled_from(["", "p" * 20]))
def test_the_tables_agree_on_many_names(random, count, prefix):
    tables = both(1, True)
    names = [f"{prefix}{random.randrange(20_000)}" for _ in range(count)]
    loaded = random.randrange(count + 1)
    for table in tables:
        table.begin_loading()
    for number, name in enumerate(names):
        if number == loaded:
            for table in tables:
                table.end_loading()
        for table in tables:
            table.put(name, Tag(1, number), Element(0, 1, 0, (b"x",)), 1)
        if number % 2:
            name = names[number * 7919 % len(names)]
            assert told(tables[0].forget(name)) == told(tables[1].forget(name))
    if loaded == count:
        for table in tables:
            table.end_loading()
    assert state(tables[0]) == state(tables[1])


def test_another_table_is_noticed():
    """A control: a table that forgets the highest dropped tag."""
    python, core = both(1, True)
    for number in (1, 2):
        for table in (python, core):
            table.put("a", Tag(number, 1), Element(0, 1, 0, (b"x",)), 1)
    assert state(python) == state(core)
    python.lists["a"].trimmed = Tag(0, 0)
    assert state(python) != state(core)
