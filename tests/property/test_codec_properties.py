"""Round trips of all messages; other input raises BadMessage only (ares/model/codec.py)."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.model.codec import WIRE_VERSION, decode, encode
from ares.model.errors import BadMessage

from .strategies import BY_TYPE, batches

quick = settings(deadline=None, max_examples=150)


@pytest.mark.parametrize("kind", BY_TYPE, ids=lambda kind: kind.__name__)
def test_every_type_comes_back(kind):
    @settings(deadline=None, max_examples=25)
    @given(BY_TYPE[kind])
    def comes_back(message):
        [back] = decode(encode([message]))
        assert type(back) is kind
        assert back == message

    comes_back()


@quick
@given(batches)
def test_a_batch_comes_back_in_order(batch):
    frames = encode(batch)
    assert decode(frames) == batch
    assert all(type(frame) is bytes for frame in frames)


def garbled(frames):
    """Return None if the frames are refused, otherwise the decoded messages."""
    try:
        return decode(frames)
    except BadMessage:
        return None


@quick
@given(batches, st.data())
def test_truncation_is_refused(batch, data):
    frames = encode(batch)
    cut = data.draw(st.integers(0, len(frames[0]) - 1))
    assert garbled([frames[0][:cut], *frames[1:]]) is None


@quick
@given(batches, st.data())
def test_flipped_bits_never_raise_anything_else(batch, data):
    frames = [bytearray(frame) for frame in encode(batch)]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    garbled([bytes(frame) for frame in frames])


@quick
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_never_raise_anything_else(frames):
    garbled(frames)
    garbled([bytes([WIRE_VERSION]) + (frames[0] if frames else b""), *frames[1:]])


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)
tagged = st.builds(
    lambda tag, rest: [tag, *rest],
    st.sampled_from([*range(1, 10), *range(32, 38), *range(64, 72)]),
    st.lists(json, max_size=7),
)


@quick
@given(json | st.lists(tagged, max_size=3))
def test_well_formed_nonsense_never_raises_anything_else(value):
    garbled([bytes([WIRE_VERSION]) + msgspec.msgpack.encode(value)])


@quick
@given(batches, st.integers(0, 255).filter(lambda version: version != WIRE_VERSION))
def test_another_version_is_named(batch, version):
    frames = encode(batch)
    with pytest.raises(
        BadMessage, match=f"format {version}, and this program speaks {WIRE_VERSION}"
    ):
        decode([bytes([version]) + frames[0][1:], *frames[1:]])


@quick
@given(batches, st.binary(max_size=30), st.data())
def test_a_frame_too_many_is_refused(batch, extra, data):
    frames = encode(batch)
    frames.insert(data.draw(st.integers(1, len(frames))), extra)
    assert garbled(frames) is None


def test_deep_nesting_is_refused():
    assert garbled([bytes([WIRE_VERSION]) + b"\x91" * 200_000]) is None


def test_garbled_would_let_other_errors_through():
    with pytest.raises(TypeError):
        garbled([1, 2])
