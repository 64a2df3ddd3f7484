"""Frames, torn tails and flipped bits, without any file (ares/store/journal/format.py)."""

import msgspec
import pytest

from ares.model.element import intact, sealed
from ares.model.messages import ELEMENT_PARTS_MAX, PutData
from ares.model.tag import Tag
from ares.model.units import KIB
from ares.replica.facts import ConfigurationRecord, TagsTrimmed
from ares.store.journal.format import (
    ALIGNMENT,
    BATCH_MAGIC,
    BATCH_PREFIX_BYTES,
    FACTS_AT_ONCE,
    JOURNAL_FORMAT,
    Damage,
    Head,
    UnknownFormat,
    decode_batch,
    decode_head,
    encode_batch,
    encode_filled,
    encode_head,
    encode_mark,
    facts_of,
    kept_of_torn,
    parse_frame,
    walk,
)

from .journal_node import INITIAL, PHOTOS, put

SALT = 0x1234
ROOM = bytes(8 * KIB)
FACTS = [
    [put("a", 1, b"small"), ConfigurationRecord(PHOTOS, None, False)],
    [put("b", 2, b"large" * 4 * KIB, parts=3), put("c", 1), put("d", 1, b"x" * 9 * KIB)],
    [TagsTrimmed(INITIAL.id, "a", Tag(1, 1))],
    [put("ä€", 2**40, b"z" * 7 * KIB)],
]


def segment(synced=(0, 0, 0, 0), mark=None, first=5, batches=FACTS):
    """Return the bytes of the batches, and the end of each.

    Batches are numbered from ``first``; `synced` has the sync that each reports.
    """
    data, ends = b"", []
    for number, facts in enumerate(batches):
        data += b"".join(encode_batch(first + number, synced[number], SALT, list(facts)))
        ends.append(len(data))
    if mark is not None:
        data += b"".join(encode_mark(mark, SALT))
    return data, ends


def torn(data, first=5):
    frames, _, end = kept_of_torn(memoryview(bytes(data) + ROOM), 0, SALT, first)
    return frames, end


def test_what_is_written_is_read():
    data, ends = segment()
    frames, end = torn(data)
    assert [frame.end for frame in frames] == ends
    assert end == ends[-1]
    assert all(end % ALIGNMENT == 0 for end in ends)
    assert [decode_batch(frame, memoryview(data)).facts for frame in frames] == FACTS
    [large] = [
        fact for fact in decode_batch(frames[1], memoryview(data)).facts if fact.object == "b"
    ]
    assert isinstance(large, PutData)
    assert {type(part) for part in large.element.parts} == {memoryview}


@pytest.mark.parametrize("bytes_each", [0, 4, 60])
def test_what_an_earlier_release_took_in_more_parts_than_are_taken_now_comes_in_one(bytes_each):
    """The element was acknowledged: a store with such an element starts, and serves the element."""
    count, tag = ELEMENT_PARTS_MAX + 9, Tag(1, 1)
    element = sealed(
        INITIAL.id, "many", tag, 1, 5, (b"1234" * 10, *[b"p" * bytes_each] * (count - 1))
    )
    many = PutData(7, INITIAL.id, "many", tag, element)
    batches = [
        [put("a", 1, b"x"), many, ConfigurationRecord(PHOTOS, None, False)],
        [TagsTrimmed(INITIAL.id, "a", Tag(1, 1)), put("b", 2, b"y" * 9 * KIB), many],
    ]
    data, _ = segment(batches=batches)
    frames, _ = torn(data)
    for frame, facts in zip(frames, batches, strict=True):
        back = decode_batch(frame, memoryview(data)).facts
        [at] = [position for position, fact in enumerate(facts) if fact is many]
        assert back[:at] + back[at + 1 :] == facts[:at] + facts[at + 1 :]
        assert [bytes(part) for part in back[at].element.parts] == [b"".join(element.parts)]
        assert intact(INITIAL.id, "many", tag, back[at].element)


def test_heads_of_segments_are_decoded_or_refused():
    head = Head(JOURNAL_FORMAT, INITIAL.id, "s1", "0" * 32, 7, SALT, 5, ((1, 100), (3, 2**40)))
    data = memoryview(b"".join(encode_head(head)))
    assert decode_head(parse_frame(data, 0, 7)) == head
    assert parse_frame(data, 0, 8) is None, "another segment's"
    newer = memoryview(b"".join(encode_head(Head(JOURNAL_FORMAT + 1, b"", "", "", 7, 0, 0, ()))))
    with pytest.raises(UnknownFormat, match="use the release that wrote it"):
        decode_head(parse_frame(newer, 0, 7))
    with pytest.raises(Damage, match="not readable"):
        decode_head(parse_frame(memoryview(b"".join(encode_batch(1, 0, 7, []))), 0, 7))


def test_a_tail_is_cut_at_every_place():
    """Durable bytes are present; other bytes may be missing from any position on."""
    data, ends = segment()
    for cut in range(0, len(data), ALIGNMENT):
        frames, end = torn(data[:cut] + bytes(len(data) - cut))
        whole = [e for e in ends if e <= cut]
        padded = len(frames) == len(whole) + 1 and not any(data[cut : frames[-1].end])
        assert len(frames) == len(whole) or padded
        assert end == ([0, *ends][len(frames)])


@pytest.mark.parametrize("block", [512, 4096])
def test_a_block_that_is_lost_cuts_there(block):
    data, ends = segment()
    for start in range(0, len(data), block):
        lost = data[:start] + bytes(len(data[start : start + block])) + data[start + block :]
        frames, _ = torn(lost)
        hit = next(number for number, end in enumerate(ends) if end > start)
        assert len(frames) == (hit if lost != data else len(ends))


@pytest.mark.parametrize("known", [1, 2, 3, 4])
def test_what_was_durable_and_is_broken_is_damage(known):
    """A later batch, or the mark behind the last, reports that batches up to some were durable."""
    synced = [min(4 + number, 4 + known) if number >= known else 0 for number in range(4)]
    data, ends = segment(synced, mark=4 + known if known == 4 else None)
    metadata = set()
    for number, end in enumerate(ends[:known]):
        start = ([0, *ends])[number]
        frame = parse_frame(memoryview(data), start, SALT)
        body_end = frame.parts[0][0] if frame.parts else end
        metadata |= set(
            range(start, start + BATCH_PREFIX_BYTES + 8 * len(frame.parts) + len(frame.body))
        ) & set(range(start, body_end))
    for at in sorted(metadata)[::7]:
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        with pytest.raises(Damage):
            torn(flipped)


def test_a_flipped_bit_without_a_known_end_is_a_torn_tail():
    """Negative control of the test above."""
    data, ends = segment()
    flipped = bytearray(data)
    flipped[ends[2] + 9] ^= 0x10
    assert len(torn(flipped)[0]) == 3


def test_flipped_bits_in_data_that_was_durable_are_left_to_the_seal():
    data, _ = segment(synced=(0, 0, 6, 6))
    frame = list(walk(memoryview(data), 0, SALT, 5))[1]
    flipped = bytearray(data)
    flipped[frame.parts[0][0] + 100] ^= 1
    assert len(torn(flipped)[0]) == 4
    cut, _ = torn(bytes(flipped[: frame.end]))
    assert len(cut) == 1, "not known to be durable: a torn write"


def test_what_a_client_wrote_does_not_pass_for_a_frame():
    forged = b"".join(encode_mark(99, SALT + 1)) * 400
    data, ends = segment(batches=[[put("a", 1, forged)], *FACTS[1:]])
    frames, end = torn(data[: BATCH_PREFIX_BYTES - 8] + bytes(8) + data[BATCH_PREFIX_BYTES:])
    assert (frames, end) == ([], 0)
    assert ends


def test_a_batch_out_of_turn_ends_the_row():
    data = b"".join(b"".join(encode_batch(number, 0, SALT, [])) for number in (5, 7))
    assert [frame.sequence for frame in torn(data)[0]] == [5]
    assert torn(data, first=6)[0] == []


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\x91\x93\x7f\x01\x02", b"\x92\x90\xa1a"])
def test_a_body_that_is_no_batch(body):
    from ares.store.journal.format import encode_frame

    data = memoryview(b"".join(encode_frame(BATCH_MAGIC, 1, 0, SALT, body)))
    with pytest.raises(Damage, match="not readable"):
        decode_batch(parse_frame(data, 0, SALT), data)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_filled_batches_have_exactly_the_wanted_size(count):
    """Releases that know no filler read the facts as well: they decode two fields."""
    facts = [ConfigurationRecord(PHOTOS, None, False)]
    groups = [*[[], facts, [], []][: count - 1], facts]
    least = sum(len(b"".join(encode_batch(7, 6, SALT, group))) for group in groups)
    for more in [*range(0, 400, ALIGNMENT), 70 * KIB]:
        frames = encode_filled(7, SALT, groups, least + more)
        data = memoryview(b"".join(frames))
        assert len(data) == least + more
        found = list(walk(data, 0, SALT, 7))
        assert [frame.sequence for frame in found] == list(range(7, 7 + count))
        assert [frame.end - frame.start for frame in found] == list(map(len, frames))
        batches = [decode_batch(frame, data) for frame in found]
        assert [batch.facts for batch in batches] == groups
        assert all(batch.discarded == () for batch in batches)
    assert encode_filled(7, SALT, groups, least - ALIGNMENT) is None


def test_a_long_batch_is_decoded_in_parts(monkeypatch):
    few = [fact for facts in FACTS for fact in facts]
    facts = [*few, *(put(f"{number}", 1, bytes(100)) for number in range(4000)), *few]
    data = memoryview(b"".join(encode_batch(1, 0, SALT, facts, [3, 4])))
    frame, at_once = parse_frame(data, 0, SALT), []

    def decoded(frame, view):
        at_once.append(decode_batch(frame, view))
        return at_once[-1]

    monkeypatch.setattr("ares.store.journal.format.decode_batch", decoded)
    assert list(facts_of(frame, data)) == facts
    assert sum(len(batch.facts) for batch in at_once) == len(facts)
    assert max(len(batch.facts) for batch in at_once) == FACTS_AT_ONCE
    broken = msgspec.structs.replace(frame, body=memoryview(b"\x92" + frame.body[2:]))
    with pytest.raises(Damage, match="batch 1 is not readable"):
        list(facts_of(broken, data))
