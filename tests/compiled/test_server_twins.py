"""The compiled core of a server, equal to the Python path in state and answers.

A batch may also be left to Python.
"""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ares.compiled import CORE
from ares.model.codec import BATCH_MESSAGES_MAX, decode_replies, encode
from ares.model.configuration import Status, Successor
from ares.model.element import checksum, hollow, sealed
from ares.model.messages import (
    DELETED_LENGTH,
    LEFT_LENGTH,
    Ack,
    CollectConfig,
    Element,
    GetData,
    GetTag,
    ListObjects,
    PutData,
    QueryList,
    ReadConfig,
    Role,
    WriteConfig,
)
from ares.model.tag import NUMBER_FLOOR, Tag
from ares.net.zmtp.frames import head
from tests.compiled.server_twins import CODED, DEEP, FOREIGN, HOSTED, INITIAL, Keyed, twins

pytestmark = pytest.mark.skipif(CORE is None, reason="nothing is compiled")

NAMES = [
    "a",
    "b",
    "c",
    "ü" * 20,
    "\0file",
    "\0file/x",
    "\0mine",
    "\0domain/x",
    "\0follow/x",
    "n" * 1024,
    "n" * 1025,
    "é" * 512,
    "é" * 513,
    "",
]
USUAL = ["a", "b", "c"]
NUMBERS = [1, 2, 3, 4, 5, 200, 70_000]
ODD_NUMBERS = [0, NUMBER_FLOOR, NUMBER_FLOOR + 1, 2**64 - 1]
SIZES = [0, 1, 10, 300] * 20 + [8191, 8192, 9000]
CALLS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1]
WRITERS = [0, 1, 2**32, 2**64 - 1]
SENDERS = [
    Keyed(role, site)
    for role in (Role.READ, Role.WRITE, Role.RECONFIGURE, None)
    for site in ("", "here")
]

tags = some.builds(Tag, some.sampled_from(NUMBERS * 20 + ODD_NUMBERS), some.sampled_from(WRITERS))
names = some.sampled_from(USUAL * 60 + NAMES)
configurations = some.sampled_from(HOSTED * 40 + [FOREIGN])
calls = some.sampled_from(CALLS)


@some.composite
def puts(draw, odd):
    configuration, name, tag = draw(configurations), draw(names), draw(tags)
    index, size = int(configuration.dap == "ec"), draw(some.sampled_from(SIZES))
    length = draw(some.integers(0, size * configuration.k))
    parts: tuple[bytes, ...] = (bytes([draw(some.integers(0, 255))]) * size,)
    what = draw(some.sampled_from(["usual"] * 6 + odd))
    match what:
        case "deleted" | "left":
            length, parts = (
                DELETED_LENGTH if what == "deleted" else LEFT_LENGTH,
                draw(some.sampled_from([(), (b"",)])),
            )
        case "parts":
            parts = (*parts, b"more" * 300)
        case "index":
            index = draw(some.sampled_from([-1, 2, 4, 2**31]))
        case "length":
            length = draw(some.sampled_from([-3, size * configuration.k + 1, 2**40]))
    try:
        element = sealed(configuration.id, name, tag, index, length, parts)
    except Exception:  # the element cannot be sealed
        element = Element(index, length, 1, parts)
    if what == "seal":
        element = Element(index, length, element.checksum ^ 1, parts)
    return PutData(
        draw(calls), configuration.id, name, tag, element, b"t" * 25 if what == "traced" else None
    )


def successors(configuration):
    following = INITIAL if configuration is FOREIGN else configuration
    return Successor(
        following.at(following.domain, following.index + 1, INITIAL.id), Status.PENDING
    )


@some.composite
def gets(draw):
    configuration, wanted, held = (
        draw(configurations),
        draw(some.none() | tags),
        draw(some.none() | some.none() | tags),
    )
    successor = successors(configuration) if draw(some.integers(0, 9)) == 0 else None
    return GetData(
        draw(calls), configuration.id, draw(names), draw(some.booleans()), wanted, successor, held
    )


asks = some.builds(
    GetTag,
    calls,
    configurations.map(lambda configuration: configuration.id),
    names,
    some.sampled_from([None] * 60 + [b"t" * 25]),
)
ODD = ["deleted", "deleted", "left", "parts", "index", "length", "seal", "traced"]
others = some.one_of(
    some.builds(ReadConfig, calls, configurations.map(lambda configuration: configuration.id)),
    some.builds(
        ListObjects,
        calls,
        configurations.map(lambda configuration: configuration.id),
        some.just(""),
        some.just(10),
    ),
    configurations.map(
        lambda configuration: WriteConfig(3, configuration.id, successors(configuration))
    ),
    configurations.map(
        lambda configuration: CollectConfig(
            3,
            configuration.id,
            Successor(successors(configuration).configuration, Status.FINALIZED),
        )
    ),
)
usual = some.one_of(asks, gets(), puts(["deleted"]))
batches = some.one_of(
    some.lists(usual, min_size=1, max_size=8),
    some.lists(usual, min_size=1, max_size=8),
    some.lists(puts(ODD), max_size=3),
)


@some.composite
def damaged(draw, frame):
    """Draw a frame with a small difference from frames of any program."""
    at, byte = (
        draw(some.integers(0, max(0, len(frame) - 1))),
        bytes([draw(some.sampled_from([0, 1, 0x91, 0xC0, 0xCC, 0xCD, 0xD0, 0xDC, 0xFF]))]),
    )
    match draw(some.sampled_from(["cut", "put in", "changed", "more"])):
        case "cut":
            return frame[:at]
        case "put in":
            return frame[:at] + byte + frame[at:]
        case "changed":
            return frame[:at] + byte + frame[at + 1 :]
    return frame + byte


@some.composite
def steps(draw):
    """Draw simultaneous reads, or progress of disks and loops."""
    kind = draw(
        some.sampled_from(
            ["batch"] * 8 + ["odd", "damaged", "damaged", "other", "commit", "loop", "disk"]
        )
    )
    if kind in ("commit", "loop", "disk"):
        return kind, None, None, None
    came = draw(some.lists(batches, min_size=1, max_size=3))
    if kind == "odd":
        came.append([draw(puts(ODD))])
    if kind == "other":
        came.append([draw(others)])
    frames = [frame for messages in came for frame in [encode(messages)] if len(frame) == 1]
    frames = [frame for [frame] in frames]
    if kind == "damaged" and frames:
        frames[-1] = draw(damaged(frames[-1]))
    return "batch", draw(some.integers(0, len(SENDERS) - 1)), frames, draw(some.booleans())


def go(half, step) -> None:
    kind, sender, frames, raw = step
    match kind:
        case "batch":
            half.receive(SENDERS[sender], frames, raw and all(frames))
        case "commit":
            half.take_steps()
        case "loop":
            half.loop.take()
        case "disk":
            half.disk.take()


@pytest.fixture
def _still(monkeypatch):
    """Make traced replies report no time."""
    monkeypatch.setattr(
        "ares.server.storage_server.time", SimpleNamespace(perf_counter=lambda: 0.0)
    )


@pytest.mark.usefixtures("_still")
@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_both_paths_are_one(journaled, keyed):
    quick = []

    @settings(max_examples=100, deadline=None)
    @given(some.lists(steps(), max_size=12))
    def run(course):
        compiled, pure = twins(journaled, keyed)
        for step in course:
            go(compiled, step)
            go(pure, step)
            assert compiled.sent == pure.sent
            assert compiled.state == pure.state
        compiled.take_steps()
        pure.take_steps()
        assert (compiled.sent, compiled.state) == (pure.sent, pure.state)
        quick.append(compiled.quick)

    run()
    assert sum(quick) > len(quick) / 3, "the core took too little for this to say anything"


def put(name, number, data=b"0123456789", configuration=INITIAL, writer=7, call=9):
    index = int(configuration.dap == "ec")
    return PutData(
        call,
        configuration.id,
        name,
        Tag(number, writer),
        sealed(configuration.id, name, Tag(number, writer), index, len(data), (data,)),
    )


@pytest.mark.parametrize("journaled", [False, True])
def test_long_courses_of_usual_batches(journaled):
    """The usual work of servers goes through the core completely, in each configuration."""
    compiled, pure = twins(journaled)
    for number in range(1, 40):
        configuration = HOSTED[number % 3]
        order = number * 7 % 40 + 1
        messages = [
            put(f"key-{place % 5}", order + place, bytes([place]) * (place * 40), configuration)
            for place in range(20)
        ]
        messages += [GetTag(place, configuration.id, f"key-{place}") for place in range(7)]
        messages += [
            GetData(place, configuration.id, f"key-{place}", bool(place % 2)) for place in range(7)
        ]
        for half in (compiled, pure):
            half.receive(SENDERS[0], encode(messages), True)
            if number % 3 == 0:
                half.take_steps()
        assert (compiled.sent, compiled.state) == (pure.sent, pure.state)
    # the journal's first batch begins a place, and so do some other batches
    assert compiled.quick >= (30 if journaled else 39)


@pytest.mark.parametrize("journaled", [False, True])
def test_both_twins_withhold_and_repair_a_rotten_element(journaled):
    """The element is withheld, and a new put by any client repairs the element."""
    compiled, pure = twins(journaled)
    small, other, again = put("a", 1), put("b", 1), put("a", 1)
    for half in (compiled, pure):
        half.receive(SENDERS[0], encode([small, other]))
        half.take_steps()
        half.replica.hosted[INITIAL.id].move(
            PutData(0, INITIAL.id, "a", small.tag, hollow(small.element)), 1
        )
        for asked in (
            [GetTag(1, INITIAL.id, "a")],
            [GetData(1, INITIAL.id, "a", True)],
            [put("b", 2), again],
            [GetData(1, INITIAL.id, "a", True)],
        ):
            half.receive(SENDERS[0], encode(asked))
            half.take_steps()
    assert (compiled.sent, compiled.state) == (pure.sent, pure.state)
    assert compiled.quick == 3, "the first batch, the tag, and the element when it is repaired"


@pytest.mark.parametrize("journaled", [False, True])
def test_a_domain_that_moves(journaled):
    """A pending successor is in every reply; a client with knowledge of it moves data.

    The server knows later versions. A finalized successor withholds data.
    """
    compiled, pure = twins(journaled)
    successor = successors(INITIAL)
    for half in (compiled, pure):
        half.receive(SENDERS[0], encode([put("a", 1), put("b", 1)]))
        half.take_steps()
        half.host.handle(SENDERS[0], [WriteConfig(2, INITIAL.id, successor)])
        half.take_steps()
        quick = half.quick
        for asked in (
            [
                GetData(3, INITIAL.id, "a", True, None, successor),
                GetTag(4, INITIAL.id, "a"),
                GetData(5, INITIAL.id, "never", True),
            ],
            [
                put("a", 2),
                GetData(6, INITIAL.id, "a", True),
                GetData(7, INITIAL.id, "b", True),
                put("b", 1),
                GetData(8, INITIAL.id, "b", True),
            ],
            [ListObjects(9, INITIAL.id, "", 10)],
        ):
            half.receive(SENDERS[0], encode(asked))
            half.take_steps()
        assert half.quick == quick + (2 if half is compiled else 0)
        half.host.handle(
            SENDERS[0],
            [WriteConfig(2, INITIAL.id, Successor(successor.configuration, Status.FINALIZED))],
        )
        half.receive(SENDERS[0], encode([GetData(10, INITIAL.id, "a", True)]))
        half.take_steps()
        assert half.quick <= quick + 2
        assert half.replica.hosted[INITIAL.id].carried == 1
    assert (compiled.sent, compiled.state) == (pure.sent, pure.state)


@pytest.mark.parametrize("journaled", [False, True])
def test_the_lists_of_small_puts_are_equal(journaled):
    """The core keeps small versions without Python; QueryList takes the Python path."""
    halves = twins(journaled)
    lists = []
    for half in halves:
        half.receive(
            SENDERS[1], encode([put("a", number, configuration=DEEP) for number in (1, 2)])
        )
        half.take_steps()
        lists.append(half.replica.handle(QueryList(3, DEEP.id, "a")))
    assert [half.quick for half in halves] == [1, 0]
    assert [entry.tag.number for entry in lists[0].entries] == [2, 1, 0]
    assert encode([lists[0]]) == encode([lists[1]])


def test_many_replies_that_wait_leave_in_batches_that_are_taken():
    halves = twins(journaled=True)
    for half in halves:
        for number in range(100):
            half.receive(SENDERS[0], encode([put(f"{number} {other}", 1) for other in range(100)]))
        assert not half.sent
        half.take_steps()
    compiled, pure = halves
    assert compiled.quick > 50
    assert compiled.state == pure.state
    for half in halves:
        acknowledged = [len(decode_replies(frames)) for _, frames in half.sent]
        assert sum(acknowledged) == 100 * 100
        assert max(acknowledged) <= BATCH_MESSAGES_MAX
        assert len(acknowledged) == 3


@pytest.mark.parametrize("journaled", [False, True])
def test_large_elements_are_withheld_from_readers_without_the_wish(journaled):
    compiled, pure = twins(journaled)
    for half in (compiled, pure):
        half.host.handle(SENDERS[0], [put("a", 1, b"x" * 9000), put("b", 1, b"x" * 8192)])
        half.take_steps()
        for name, wants in (("a", False), ("a", True), ("b", False), ("b", True)):
            half.receive(SENDERS[0], [encode([GetData(1, INITIAL.id, name, wants)])[0]])
            half.take_steps()
    assert (compiled.sent, compiled.state) == (pure.sent, pure.state)
    assert compiled.quick == 0


@pytest.mark.parametrize("journaled", [False, True])
def test_the_length_of_a_large_element_is_told_with_other_versions(journaled):
    compiled, pure = twins(journaled)
    for half in (compiled, pure):
        small, large = (
            put("a", *version, configuration=DEEP) for version in ((1,), (2, b"x" * 9000))
        )
        half.host.handle(SENDERS[0], [small, large])
        half.take_steps()
        for wanted in (Tag(1, 7), Tag(3, 7), Tag(2, 7)):
            half.receive(SENDERS[0], encode([GetData(1, DEEP.id, "a", True, wanted)]))
            half.take_steps()
        half.receive(SENDERS[0], encode([put("a", 3, configuration=DEEP)]))
        half.take_steps()
    assert (compiled.sent, compiled.state) == (pure.sent, pure.state)
    assert compiled.quick == 3, "all but the read of the large element"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x01",
        b"\x01\x90",
        b"\x02" + encode([GetTag(1, INITIAL.id, "a")])[0][1:],
        encode([GetTag(1, INITIAL.id, "a")])[0] + b"\0",
        encode([GetTag(1, INITIAL.id, "a")])[0].replace(b"\x01\x01\xc4", b"\x01\xcc\x01\xc4"),
        encode([GetTag(1, INITIAL.id, "a")])[0].replace(b"\xa1a", b"\xd9\x01a"),
        encode([GetTag(1, INITIAL.id, "a")])[0].replace(b"\xa1a", b"\xa1\xff"),
        encode([GetTag(1, INITIAL.id, "a")] * 513)[0],
        encode([Ack(1, None)])[0],
        encode([put("a", 1), GetTag(1, INITIAL.id, "")])[0],
        encode([put("a", 1), put("a", NUMBER_FLOOR + 1)])[0],
        encode([put("a", 1), put("a", 2, b"x" * 8192)])[0],
        encode([put("a", 1), GetTag(1, FOREIGN.id, "a")])[0],
    ],
)
def test_what_is_unusual_changes_nothing(frame):
    compiled, _ = twins()
    before = compiled.state
    assert compiled.host.serve(SENDERS[2], [[frame]]) is None
    assert compiled.host.serve(SENDERS[2], memoryview(head(len(frame)) + frame)) is None
    assert compiled.state == before


def test_only_whole_messages_are_taken():
    compiled, _ = twins()
    [frame] = encode([put("a", 1)])
    read = head(len(frame)) + frame
    for came in (
        read[:-1],
        read + b"\0",
        b"\x01" + read[1:],
        b"\x04" + read[1:],
        b"\x02" + b"\xff" * 8 + frame,
        b"",
    ):
        assert compiled.host.serve(SENDERS[0], memoryview(came)) is None
    assert len(compiled.replica.hosted[INITIAL.id].objects) == 0
    assert compiled.host.serve(SENDERS[0], memoryview(read * 3)).puts == 3


def test_the_core_serves_only_roles_that_suffice():
    compiled, _ = twins(keyed=True)
    reader, writer, _, stranger = SENDERS[::2]
    asked, changed, moved = (
        encode([GetTag(1, INITIAL.id, "a")]),
        encode([put("a", 1)]),
        encode([put("\0domain/a", 1)]),
    )
    assert [
        compiled.host.serve(sender, [asked]) is not None for sender in (reader, writer, stranger)
    ] == [True, True, False]
    assert [
        compiled.host.serve(sender, [changed]) is not None for sender in (reader, writer, stranger)
    ] == [False, True, False]
    assert compiled.host.serve(writer, [moved]) is None
    for name, served in (("\0mine", False), ("\0file", False), ("\0file/x", True)):
        assert (compiled.host.serve(writer, [encode([put(name, 1)])]) is not None) == served


def test_users_are_counted():
    compiled, _ = twins()
    here, nowhere = Keyed(Role.READ, "here"), Keyed(Role.READ)
    for sender in (here, nowhere):
        compiled.receive(
            sender, [encode([GetTag(1, INITIAL.id, "a")] * 3 + [GetTag(1, CODED.id, "a")])[0]]
        )
    assert compiled.quick == 2
    assert compiled.host.users._counts["here"] == {INITIAL.id: 3.0, CODED.id: 1.0}


class Careless:
    """A core that forgets the last request of a batch, as a faulty core might."""

    def __init__(self, core) -> None:
        self._core = core

    def serve(self, came, *more):
        served = self._core.serve(came, *more)
        if served is not None and served.puts:
            self._core.serve([encode([put("a", 9, b"forged")])], *more)
        return served


def test_another_table_is_noticed():
    compiled, pure = twins(server=Careless)
    for half in (compiled, pure):
        half.receive(SENDERS[0], encode([put("b", 1)]))
    assert compiled.sent == pure.sent
    assert compiled.state != pure.state


def test_seals_are_the_same():
    """The test uses every length up to the length at which the hash changes method."""
    compiled, _ = twins()
    for size in (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 8191):
        data = bytes(range(256)) * 32
        messages = [put("s" * (size % 200 + 1), size + 1, data[:size], DEEP)]
        assert (
            checksum(DEEP.id, messages[0].object, messages[0].tag, 1, size, (data[:size],))
            == messages[0].element.checksum
        )
        assert compiled.host.serve(SENDERS[0], [encode(messages)]).puts == 1
