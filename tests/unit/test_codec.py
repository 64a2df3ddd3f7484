"""Batches of frames: detached parts, and refusals with their reasons.

The rest is a property (ares/model/codec.py).
"""

import tracemalloc

import msgspec
import pytest

from ares.model.codec import (
    DETACHED_BYTES_MIN,
    FRAMES_MAX,
    WIRE_VERSION,
    decode,
    decode_replies,
    decode_requests,
    encode,
)
from ares.model.configuration import (
    CONFIGURATION_BYTES_MAX,
    DELTA_MAX,
    UNPLACED,
    Configuration,
    Server,
)
from ares.model.errors import BadMessage
from ares.model.messages import (
    ELEMENT_PARTS_MAX,
    LEFT_NAMED_MAX,
    PAGE_OBJECTS_MAX,
    Ack,
    ConfigurationReport,
    DataReply,
    Describe,
    Description,
    Element,
    Introduce,
    ListedObject,
    ObjectsReply,
    PutData,
    SetLogLevel,
)
from ares.model.tag import TAG_ZERO, Tag

TAG = Tag(1, 2)
SMALL, LARGE = b"s" * (DETACHED_BYTES_MIN - 1), b"l" * DETACHED_BYTES_MIN


def put(*parts: bytes) -> PutData:
    return PutData(1, b"c" * 16, "k", TAG, Element(0, sum(map(len, parts)), 9, parts))


def reply(*parts: bytes) -> DataReply:
    return DataReply(2, (TAG,), 5, TAG_ZERO, Element(0, 5, 9, parts), None)


def test_large_parts_are_frames_of_their_own_and_not_copied():
    batch = [put(LARGE), put(SMALL), Ack(3, None), reply(LARGE, b"", LARGE), reply()]
    frames = encode(batch)
    assert [frames[1] is LARGE, frames[2] is LARGE, frames[3], frames[4] is LARGE] == [
        True,
        True,
        b"",
        True,
    ]
    assert len(frames) == 5
    assert len(frames[0]) < 2 * DETACHED_BYTES_MIN
    assert batch[0].element.parts == (LARGE,), "what was encoded is as it was"
    back = decode(frames)
    assert back == batch
    assert back[0].element.parts[0] is LARGE


def test_many_small_parts_are_large_together():
    frames = encode([put(SMALL, b"x")])
    assert frames[1:] == [SMALL, b"x"]


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "1 to 65536 frames, not 0"),
        ([b""] * (FRAMES_MAX + 1), "1 to 65536 frames, not 65537"),
        ([b""], "message format none, and this program speaks 1"),
        (
            [bytes([WIRE_VERSION + 1]) + encode([])[0][1:]],
            "message format 2, and this program speaks 1",
        ),
        ([bytes([WIRE_VERSION])], "not a batch of messages"),
        ([*encode([put(LARGE)]), b"extra"], "3 frames, 2 of them used"),
        ([encode([put(SMALL)])[0], SMALL], "2 frames, 1 of them used"),
        (
            [encode([put(LARGE), put(LARGE)])[0], LARGE],
            "frames 2 to 3, expected from 2 and below 2",
        ),
    ],
)
def test_bad_batches_say_what_is_wrong(frames, why):
    with pytest.raises(BadMessage, match=why):
        decode(frames)


def test_elements_in_the_wrong_order_of_frames_are_refused():
    forward, backward = put(LARGE), PutData(1, b"c" * 16, "k", TAG, Element(0, 1, 9, (b"",), 2))
    header = encode([backward])[0]
    with pytest.raises(BadMessage, match="in frames 2 to 2"):
        decode([header, LARGE])
    assert decode(encode([forward])) == [forward]


@pytest.mark.parametrize("part", [b"", b"p" * 4, b"p" * 100])
@pytest.mark.parametrize("message", [put, reply])
def test_an_element_has_as_many_parts_as_the_largest_value_has_stripes(message, part):
    whole = message(*[part] * ELEMENT_PARTS_MAX)
    assert decode(encode([whole])) == [whole]
    with pytest.raises(BadMessage, match=f"`array` of length <= {ELEMENT_PARTS_MAX}"):
        decode(encode([message(*[part] * (ELEMENT_PARTS_MAX + 1))]))


def test_parts_without_number_are_refused_before_they_take_memory():
    header = encode([put(*[b"pp"] * 100), put(b"")])[0]
    for count in (300_000, 1_000_000):
        array = b"\xdd" + count.to_bytes(4, "big") + b"\xc4\x02pp" * count
        many = header.replace(b"\xdc" + (100).to_bytes(2, "big") + b"\xc4\x02pp" * 100, array)
        assert len(many) > 4 * count
        tracemalloc.start()
        with pytest.raises(BadMessage):
            decode([many])
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 64 * 1024


ABD = Configuration.abd(["s0", "s1", "s2"]).at("d", 1)
MANY = 100_000
REST = (
    ("backend", "isa_l_rs_cauchy"),
    ("domain", "d"),
    ("index", 1),
    ("cluster", b""),
    ("certificate", b""),
)


def tags(count: int) -> DataReply:
    return DataReply(1, (TAG,) * count, 5, TAG_ZERO, None, None)


def page(count: int) -> ObjectsReply:
    return ObjectsReply(1, (ListedObject("k", TAG, False),) * count, False, None)


def left(count: int) -> Description:
    return Description(
        1,
        "s0",
        "",
        b"",
        "1",
        0.0,
        0,
        (ConfigurationReport(ABD, 0, 0, False, None, count, ("k",) * count),),
    )


def described(count: int) -> Description:
    return Description(
        1, "s0", "", b"", "1", 0.0, 0, (ConfigurationReport(ABD, 0, 0, False, None),) * count
    )


def most_memory_to_refuse(decoding, frames, why):
    """Return the most bytes in use while these frames are refused because of ``why``."""
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage, match=why) as refused:
            decoding(frames)
        assert len(str(refused.value)) < 2000
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("large", [tags, page, left, described])
def test_a_server_reads_nothing_of_a_reply(large):
    frames = encode([Describe(1), large(MANY)])
    assert most_memory_to_refuse(decode_requests, frames, "not a batch of requests") < 16 * 1024
    with pytest.raises(BadMessage, match="not a batch of replies"):
        decode_replies(encode([Ack(1, None), Describe(1)]))


@pytest.mark.parametrize(
    ("reply", "most"), [(tags, DELTA_MAX + 1), (page, PAGE_OBJECTS_MAX), (left, LEFT_NAMED_MAX)]
)
def test_a_client_reads_no_more_of_a_reply_than_servers_send(reply, most):
    whole = [reply(most)]
    assert decode_replies(encode(whole)) == whole
    assert (
        most_memory_to_refuse(decode_replies, encode([reply(MANY)]), f"length <= {most}")
        < 16 * 1024
    )


@pytest.mark.parametrize("character", ["x", "\x01"])
@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("backend", str),
        ("domain", str),
        ("cluster", bytes),
        ("certificate", bytes),
        ("id", str),
        ("address", str),
        ("identity", str),
    ],
)
def test_a_part_of_a_configuration_is_not_larger_than_the_whole(field, kind, character):
    long = character * MANY if kind is str else character.encode() * MANY
    servers = (
        (Server(**{"id": "s0", field: long}),)
        if field in ("id", "address", "identity")
        else ABD.servers
    )
    wrong = msgspec.msgpack.encode(
        [[8, 1, ["ec", servers, 1, 8, *(long if field == name else usual for name, usual in REST)]]]
    )
    assert (
        most_memory_to_refuse(decode_requests, [bytes([WIRE_VERSION]) + wrong], "of length <=")
        < MANY + 32 * 1024
    )


def test_a_configuration_that_was_taken_before_is_taken():
    """The configuration is as large as possible, in a single name.

    A server's journal may have such a configuration.
    """
    large = Configuration("abd", (Server("s" * (CONFIGURATION_BYTES_MAX - 100)),)).at("d" * 10, 1)
    large.check_bounds()
    assert decode_requests(encode([Introduce(1, large)])) == [Introduce(1, large)]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_configuration_without_a_place_is_not_introduced(earlier):
    """Such a configuration has no id, under which a server could look for it."""
    message = msgspec.msgpack.decode(msgspec.msgpack.encode(Introduce(1, ABD, (ABD.at("d", 0),))))
    (message[3][0] if earlier else message[2])[ABD.__struct_fields__.index("index")] = UNPLACED
    wrong = msgspec.msgpack.encode([message])
    with pytest.raises(BadMessage, match="without a place in its sequence"):
        decode_requests([bytes([WIRE_VERSION]) + wrong])


def test_a_log_level_is_a_short_word():
    assert (
        most_memory_to_refuse(
            decode_requests, encode([SetLogLevel(1, "\x01" * MANY)]), "of length <="
        )
        < MANY + 32 * 1024
    )


def test_missing_frames_are_refused():
    with pytest.raises(BadMessage):
        decode(encode([put(LARGE)])[:1])


def test_an_empty_batch_is_encoded_and_decoded():
    assert decode(encode([])) == []
