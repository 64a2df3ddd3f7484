"""The Lists of a configuration behind their port (ares/replica/port.py)."""

from random import Random

import pytest

from ares.compiled import CORE
from ares.model.element import hollow
from ares.model.identity import KEY_BYTES_MAX
from ares.model.messages import DELETED_LENGTH, LEFT_LENGTH, Element, ListedObject
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.facts import ConfigurationUsage, JournalUsage, put_bytes, trimmed_bytes
from ares.replica.object_table import PythonObjectTable
from ares.replica.port import NAMES_AT_ONCE, PAGE_CHARACTERS_MAX, PutEffect, lists_of

NEW_TABLES = [PythonObjectTable, *([] if CORE is None else [CORE.ObjectTable])]


@pytest.fixture(params=NEW_TABLES, ids=lambda kind: kind.__name__)
def new_table(request):
    return request.param


def element(data: bytes = b"data") -> Element:
    return Element(0, len(data), 7, (data,))


TOMB = Element(0, DELETED_LENGTH, 0, ())


def filled(table, names):
    for name in names:
        table.put(name, Tag(1, 1), element())
    return table


def shown(table):
    """Return all that the port tells of the Lists."""
    return {
        name: (versions.trimmed, [tuple(entry) for entry in versions.entries], table.follows(name))
        for name, versions in lists_of(table)
    }


def test_a_table_without_puts(new_table):
    table = new_table(2, None)
    assert (len(table), table.elements, table.bytes, table.usage) == (0, 0, 0, None)
    assert (table.get("a"), table.newest("a"), table.version("a", Tag(1, 1))) == (None,) * 3
    assert not table.is_below("a", Tag(1, 1))
    assert not table.follows("a")
    assert list(table.names(None, 10)) == []
    assert table.page("", "", 10) == ((), False)
    assert not table.release(1)


def test_the_newest_versions_stay_and_the_highest_dropped_tag_is_told(new_table):
    """Alg. 4:19-25."""
    table = new_table(2, None)
    effects = [
        table.put("a", Tag(number, 1), element(b"x" * number)) for number in (2, 4, 4, 1, 1, 3, 2)
    ]
    assert effects == [
        *(PutEffect.STORED, PutEffect.STORED, PutEffect.NONE, PutEffect.TRIMMED),
        *(PutEffect.NONE, PutEffect.STORED, PutEffect.NONE),
    ]
    versions = table.get("a")
    assert (versions.tags(), versions.trimmed) == ((Tag(4, 1), Tag(3, 1)), Tag(2, 1))
    assert (len(table), table.elements, table.bytes) == (1, 2, 7)
    assert (table.newest("a"), versions.newest) == (Tag(4, 1), Tag(4, 1))
    assert table.version("a", Tag(3, 1)) == (Tag(3, 1), element(b"xxx"), 0)
    assert table.version("a", Tag(2, 1)) is None
    assert [table.is_below("a", Tag(3, writer)) for writer in (0, 1)] == [True, False]


def test_tags_are_ordered_by_number_and_by_writer(new_table):
    table = new_table(5, None)
    for tag in [Tag(2, 2), Tag(1, 2**64 - 1), Tag(2**64 - 1, 0), Tag(2, 1)]:
        table.put("a", tag, element())
    assert table.get("a").tags() == (Tag(2**64 - 1, 0), Tag(2, 2), Tag(2, 1), Tag(1, 2**64 - 1))
    assert not table.is_below("a", Tag(1, 1)), "there is room"


@pytest.mark.parametrize(
    "kept",
    [
        *(TOMB, Element(0, LEFT_LENGTH, 3, (b"",)), Element(0, 0, 5, ()), Element(0, 0, 5, (b"",))),
        *(element(b"x" * 8191), element(b"x" * 8192), element(b"x" * 100_000)),
        *(
            Element(4, 9, 2**64 - 1, (b"one", b"two")),
            hollow(element()),
            Element(31, 12, 9, (b"x",)),
        ),
        *(
            Element(0, 2**30, 1, (memoryview(b"y" * 9000),)),
            Element(0, 3, 1, (memoryview(b"abc"),)),
        ),
    ],
    ids=lambda kept: f"{kept.index}-{kept.length}-{kept.checksum}-{len(kept.parts)}",
)
def test_an_element_comes_back_as_it_was_given(new_table, kept):
    table = new_table(2, None)
    table.put("a", Tag(1, 1), element())
    table.put("a", Tag(2, 1), kept)
    [newest, older] = table.get("a").entries
    assert tuple(newest) == table.version("a", Tag(2, 1)) == (Tag(2, 1), kept, 0)
    assert (tuple(older), table.bytes) == ((Tag(1, 1), element(), 0), 4 + kept.size)
    assert table.get("a").deleted is (kept.length == DELETED_LENGTH)
    table.put("a", Tag(3, 1), TOMB)
    assert table.version("a", Tag(2, 1)) == (Tag(2, 1), kept, 0)
    table.put("a", Tag(4, 1), TOMB)
    assert table.bytes == 0


def test_a_put_after_the_successor_is_remembered(new_table):
    table = new_table(1, None)
    for name in "ab":
        table.put(name, Tag(2, 1), element())
    table.put("b", Tag(1, 1), element(), 0, True)
    table.put("c", Tag(1, 1), element(), follows=True)
    table.put("c", Tag(2, 1), element())
    assert [table.follows(name) for name in "abcd"] == [False, True, True, False]


def test_a_forgotten_object_leaves_nothing(new_table):
    account = JournalUsage()
    table = new_table(2, ConfigurationUsage(account))
    for number, place in ((1, 3), (2, 4), (3, 5)):
        table.put("a", Tag(number, 1), element(b"x" * number), place, True)
    table.put("b", Tag(1, 1), element(b"y" * 9000), 5)
    assert sorted(table.forget("a")) == [3, 4, 5], "the highest dropped tag is at 3"
    assert (table.get("a"), table.newest("a"), table.follows("a")) == (None, None, False)
    assert (len(table), table.elements, table.bytes) == (1, 1, 9000)
    assert account.live == {3: 0, 4: 0, 5: put_bytes("b", 9000)}
    assert list(table.forget("a")) == list(table.forget("never")) == []
    table.put("a", Tag(1, 1), element())
    assert shown(table)["a"] == (TAG_ZERO, [(Tag(1, 1), element(), 0)], False)
    table.forget("b")
    assert list(table.names(None, 9)) == ["a"]


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_puts_and_forgets_is_a_dictionary(new_table, seed):
    """Ten thousand objects, of which a few stay, and a row takes the place of another."""
    chance, held = Random(seed), {}
    table = new_table(1, ConfigurationUsage(JournalUsage()))
    names = [f"{chance.randrange(10**9):09}" for _ in range(10_000)]
    for turn in range(3):
        for name in names:
            held[name] = Tag(turn + 1, 1)
            table.put(name, held[name], element(name.encode()))
        for name in chance.sample(names, len(names)):
            if chance.random() < (0.5, 0.9, 0.999)[turn]:
                assert bool(table.forget(name)) is (held.pop(name, None) is not None)
    assert len(table) == len(held) > 0
    assert list(table.names(None, 10_000)) == sorted(held)
    assert {name: table.newest(name) for name in names} == {name: held.get(name) for name in names}
    assert all(table.get(name).element(tag) == element(name.encode()) for name, tag in held.items())
    assert table.bytes == 9 * len(held)
    for name in held:
        table.forget(name)
    assert (len(table), table.elements, table.bytes, table.page("", "", 9)) == (
        0,
        0,
        0,
        ((), False),
    )


def test_objects_are_forgotten_while_a_journal_is_read(new_table):
    table = new_table(1, None)
    table.begin_loading()
    filled(table, "dbca")
    table.forget("b")
    table.end_loading()
    assert list(table.names(None, 9)) == ["a", "c", "d"]


# -- names -----------------------------------------------------------------------------------------

NAMES = ["", "\0file/", "a", "aa", "ab", "a\0", "b" * 600, "z", "é" * 300, "\ud7ff", "\uffff", "𝄞"]


def test_names_are_ordered_by_code_point(new_table):
    table = filled(new_table(1, None), NAMES)
    assert list(table.names(None, 100)) == sorted(NAMES)
    for limit in (1, 2, 5):
        seen, after = [], None
        while names := table.names(after, limit):
            assert len(names) <= limit
            seen += names
            after = names[-1]
        assert seen == sorted(NAMES)
    assert list(table.names("ab", 2)) == ["b" * 600, "z"]
    assert list(table.names("aba", 1)) == ["b" * 600]


def test_records_at_a_place_are_found_a_few_names_at_a_time(new_table):
    table = new_table(2, ConfigurationUsage(JournalUsage()))
    for number, name in enumerate("abcdef"):
        table.put(name, Tag(1, 1), element(), number % 3)
    table.put("a", Tag(2, 1), element(), 7)
    table.put("a", Tag(3, 1), element(), 8)
    assert table.get("a").trimmed_place == 0
    assert [table.trimmed(name) for name in "abz"] == [(Tag(1, 1), 0), (TAG_ZERO, 0), None]
    table.put("b", Tag(2, 1), element(), 7)
    seen, after = [], None
    while True:
        found, after = table.at_place(7, after, 2)
        if after is None:
            break
        seen.append((list(found), after))
    assert seen == [(["a", "b"], "b"), ([], "d"), ([], "f")]
    assert [list(table.at_place(place, None, 9)[0]) for place in (0, 1, 8, 9)] == [
        *(["a", "d"], ["b", "e"], ["a"], []),
    ]
    assert tuple(table.at_place(7, "f", 9)) == ([], None)


def test_a_page_has_possible_names_with_the_prefix(new_table):
    table = filled(new_table(1, None), [*NAMES, "b" * (KEY_BYTES_MAX + 1), "é" * KEY_BYTES_MAX])
    table.put("ab", Tag(5, 2), TOMB)
    possible = [name for name in sorted(NAMES) if name]
    listed, more = table.page("", "", 100)
    assert ([each.name for each in listed], more) == (possible, False)
    assert ListedObject("ab", Tag(5, 2), True) in listed
    assert ListedObject("aa", Tag(1, 1), False) in listed
    for after, prefix, expected in [
        *(("", "a", ["a", "a\0", "aa", "ab"]), ("a", "a", ["a\0", "aa", "ab"])),
        *(("aa", "a", ["ab"]), ("b", "a", []), ("a", "b", ["b" * 600]), ("", "é", ["é" * 300])),
        *(("\uffff", "", ["𝄞"]), ("x", "z", ["z"]), ("z", "z", [])),
    ]:
        listed, more = table.page(after, prefix, 100)
        assert ([each.name for each in listed], more) == (expected, False), (after, prefix)


def test_a_page_ends_at_its_limits(new_table):
    table = filled(new_table(1, None), [f"{number:03}" for number in range(20)])
    assert [each.name for each in table.page("", "", 3)[0]] == ["000", "001", "002"]
    assert [table.page("", "", limit)[1] for limit in (3, 19, 20, 21)] == [True, True, False, False]
    wide = filled(new_table(1, None), [f"{number:04}" + "é" * 500 for number in range(400)])
    listed, more = wide.page("", "", 1000)
    assert (len(listed), more) == (PAGE_CHARACTERS_MAX // 504, True)


def test_many_names_in_any_order(new_table):
    names = [f"{number * 7919 % 5003:05}" for number in range(5003)]
    table = filled(new_table(1, None), names)
    assert (len(table), table.elements) == (5003, 5003)
    assert [name for name, _ in lists_of(table)] == sorted(names)
    assert len(names) > NAMES_AT_ONCE
    assert all(table.newest(name) == Tag(1, 1) for name in names)
    assert table.newest("no such name") is None


def test_the_names_of_a_large_table_are_found(new_table):
    names = [f"{number * 7919 % 40_009:05}" for number in range(40_009)]
    table = filled(new_table(1, None), names)
    assert len(table) == 40_009
    assert {table.newest(name) for name in names} == {Tag(1, 1)}
    assert table.newest("40009") is None
    assert list(table.names("00998", 2)) == ["00999", "01000"]


def test_names_given_at_a_start_are_ordered_at_its_end(new_table):
    table = new_table(1, None)
    filled(table, ["n"])
    table.begin_loading()
    names = [f"{number * 7919 % 5003:05}" for number in range(5003)]
    filled(table, [*names, "same", "same" + "x" * 40, "same" + "x" * 41])
    table.put("n", Tag(2, 1), TOMB)
    assert table.newest("n") == Tag(2, 1)
    table.end_loading()
    expected = sorted([*names, "same", "same" + "x" * 40, "same" + "x" * 41, "n"])
    assert [name for name, _ in lists_of(table)] == expected
    filled(table, ["m"])
    assert list(table.names("5", 2)) == ["m", "n"]


# -- the journal -----------------------------------------------------------------------------------


def test_the_account_has_the_bytes_of_the_held_facts(new_table):
    account = JournalUsage()
    table = new_table(2, ConfigurationUsage(account))
    assert table.usage.account is account
    for number, place in [(1, 1), (2, 1), (3, 2), (5, 3)]:
        table.put("é", Tag(number, 1), element(b"x" * number), place)
    put, trimmed = put_bytes("é", 0), trimmed_bytes("é")
    assert account.live == {1: trimmed, 2: put + 3, 3: put + 5}
    assert account.died == 2 * put + 3 + trimmed
    versions = table.get("é")
    assert (versions.trimmed, versions.trimmed_place) == (Tag(2, 1), 1)
    assert [entry[2] for entry in versions.entries] == [3, 2]
    assert table.put("é", Tag(2, 9), element(), 4) == PutEffect.TRIMMED
    assert (table.get("é").trimmed_place, account.live[4]) == (4, trimmed)
    assert account.live[1] == 0
    table.move_trimmed("é", 6)
    table.move("é", Tag(3, 1), element(b"y" * 9), 6)
    table.move("é", Tag(9, 9), element(), 6)
    table.move("no such object", Tag(3, 1), element(), 6)
    table.move_trimmed("no such object", 6)
    assert {place: bytes for place, bytes in account.live.items() if bytes} == {
        3: put + 5,
        6: trimmed + put + 9,
    }
    assert table.version("é", Tag(3, 1)) == (Tag(3, 1), element(b"y" * 9), 6)
    assert (table.bytes, table.elements) == (14, 2)


def test_an_equal_element_at_another_address_keeps_its_place(new_table):
    account = JournalUsage()
    table = new_table(1, ConfigurationUsage(account))
    large = Element(0, 9000, 1, (b"z" * 9000,))
    table.put("a", Tag(1, 1), large, 5)
    before = dict(account.live), account.died
    view = Element(0, 9000, 1, (memoryview(b"z" * 9000),))
    table.replace("a", Tag(1, 1), view)
    table.replace("a", Tag(2, 1), view)
    table.replace("b", Tag(1, 1), view)
    _, held, place = table.version("a", Tag(1, 1))
    assert (held.parts[0] is view.parts[0], place, table.bytes) == (True, 5, 9000)
    assert (dict(account.live), account.died, len(table)) == (*before, 1)


def test_a_replaced_element_of_another_size_is_counted(new_table):
    table = new_table(1, None)
    table.put("a", Tag(1, 1), element(b"x"))
    table.replace("a", Tag(1, 1), element(b"four"))
    assert table.bytes == 4


def test_a_dropped_tag_of_a_journal_moves_only_forward(new_table):
    account = JournalUsage()
    table = new_table(1, ConfigurationUsage(account))
    for number, place in [(3, 1), (2, 2), (3, 4), (5, 5)]:
        table.trim("a", Tag(number, 1), place)
    versions = table.get("a")
    assert (versions.entries, versions.newest, versions.deleted) == ([], TAG_ZERO, True)
    assert (versions.trimmed, versions.trimmed_place) == (Tag(5, 1), 5)
    assert {place: bytes for place, bytes in account.live.items() if bytes} == {
        5: trimmed_bytes("a")
    }
    assert (table.newest("a"), table.elements, len(table)) == (TAG_ZERO, 0, 1)
    assert table.page("", "", 1) == ((ListedObject("a", TAG_ZERO, True),), False)
    assert table.put("a", Tag(4, 1), element(), 6) == PutEffect.STORED
    assert table.get("a").tags() == (Tag(4, 1),)


# -- the end of a configuration --------------------------------------------------------------------


def test_marks_of_the_python_table_are_given_back_in_portions():
    table = PythonObjectTable(1)
    for number in range(2500):
        table.put(f"{number}", Tag(1, 1), element(), follows=True)
    table.clear()
    assert [table.release(1000) for _ in range(6)] == [True] * 4 + [False] * 2


def test_a_cleared_table_is_empty_and_gives_its_memory_back_in_portions(new_table):
    table = filled(new_table(1, None), [f"{number}" for number in range(2500)])
    table.put("0", Tag(2, 1), element(), follows=True)
    table.clear()
    assert (len(table), table.elements, table.bytes) == (0, 0, 0)
    assert (table.get("0"), table.follows("0"), table.page("", "", 9)) == (None, False, ((), False))
    filled(table, ["new"])
    assert [table.release(1000) for _ in range(4)] == [True, True, False, False]
    assert shown(table) == {"new": (TAG_ZERO, [(Tag(1, 1), element(), 0)], False)}
    table.clear()
    table.clear()
    assert not table.release(10)
