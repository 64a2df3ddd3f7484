"""Batches of frames: what is detached, what is refused and why; the rest is a property (ares/codec.py)."""

import tracemalloc

import pytest

from ares.codec import DETACHED_BYTES_MIN, FRAMES_MAX, VERSION, decode, encode
from ares.errors import BadMessage
from ares.messages import PARTS_MAX, Ack, DataReply, Element, PutData
from ares.tag import TAG_ZERO, Tag

TAG = Tag(1, 2)
SMALL, LARGE = b"s" * (DETACHED_BYTES_MIN - 1), b"l" * DETACHED_BYTES_MIN


def put(*parts: bytes) -> PutData:
    return PutData(1, b"c" * 16, "k", TAG, Element(0, sum(map(len, parts)), 9, parts))


def reply(*parts: bytes) -> DataReply:
    return DataReply(2, (TAG,), 5, TAG_ZERO, Element(0, 5, 9, parts), None)


def test_large_parts_are_frames_of_their_own_and_not_copied():
    batch = [put(LARGE), put(SMALL), Ack(3, None), reply(LARGE, b"", LARGE), reply()]
    frames = encode(batch)
    assert [frames[1] is LARGE, frames[2] is LARGE, frames[3], frames[4] is LARGE] == [True, True, b"", True]
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
        ([bytes([VERSION + 1]) + encode([])[0][1:]], "message format 2, and this program speaks 1"),
        ([bytes([VERSION])], "not a batch of messages"),
        ([*encode([put(LARGE)]), b"extra"], "3 frames, 2 of them used"),
        ([encode([put(SMALL)])[0], SMALL], "2 frames, 1 of them used"),
        ([encode([put(LARGE), put(LARGE)])[0], LARGE], "frames 2 to 3, expected from 2 and below 2"),
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
    whole = message(*[part] * PARTS_MAX)
    assert decode(encode([whole])) == [whole]
    with pytest.raises(BadMessage, match=f"`array` of length <= {PARTS_MAX}"):
        decode(encode([message(*[part] * (PARTS_MAX + 1))]))


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


def test_missing_frames_are_refused():
    with pytest.raises(BadMessage):
        decode(encode([put(LARGE)])[:1])


def test_an_empty_batch():
    assert decode(encode([])) == []
