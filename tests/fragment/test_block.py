"""Round trips of blocks and genesis blocks.

Other bytes are refused with the object's name.
"""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.fragment.block import (
    BLOCK_FORMAT,
    CHUNKED_FORMAT,
    HEADER_BYTES,
    Block,
    BlockId,
    BlockIds,
    Genesis,
    KnownBlock,
    block_name,
    block_prefix,
    decode_block,
    decode_genesis,
    encode_block,
    encode_genesis,
    genesis_name,
    new_genesis,
    parse_block_name,
)
from ares.fragment.divide import DIGEST_BYTES, RABIN, Sizes
from ares.model.errors import BadBlock, BadInput
from ares.model.identity import KEY_BYTES_MAX
from ares.model.numbers import INSTANT_MAX
from ares.model.tag import TAG_ZERO, Tag

words = st.integers(0, 2**64 - 1)
tags = st.builds(Tag, words, words)
ids = st.builds(BlockId, words, words)
seconds = st.integers(0, INSTANT_MAX)
parts = st.builds(
    KnownBlock,
    ids,
    tags,
    st.integers(0, 2**28),
    st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES),
    st.none() | ids,
)
genesis_blocks = st.builds(
    Genesis,
    ids,
    st.booleans(),
    st.just(Sizes()) | st.just(Sizes(64, 256, 1024)),
    st.none() | ids,
    st.lists(parts, max_size=4).map(tuple),
    st.lists(st.tuples(ids, seconds), max_size=3).map(tuple),
    seconds,
    tags,
    st.sampled_from([msgspec.UNSET, RABIN]),
)
EMPTY = new_genesis(BlockId(1, 2), False, Sizes())
BY_RABIN = new_genesis(BlockId(1, 2), False, Sizes(), RABIN)


@given(next=st.none() | ids, base=tags, created_s=seconds, data=st.binary(max_size=100))
def test_a_block_comes_back(next, base, created_s, data):
    block = Block(next, base, created_s, data)
    value = encode_block(block)
    assert len(value) == HEADER_BYTES + len(data)
    assert decode_block(value, "b") == block
    assert encode_block(Block(next, base, created_s, memoryview(data))) == value


def test_the_data_of_a_block_is_a_view_of_its_value():
    value = encode_block(Block(None, TAG_ZERO, 5, b"data"))
    data = decode_block(value, "b").data
    assert isinstance(data, memoryview)
    assert data.obj is value


def test_no_next_block_is_not_the_block_zero():
    first, absent = (encode_block(Block(next, TAG_ZERO, 0, b"")) for next in (BlockId(0, 0), None))
    assert first != absent
    assert decode_block(first, "b").next == BlockId(0, 0)
    assert decode_block(absent, "b").next is None


@given(genesis_blocks)
def test_a_genesis_block_comes_back(genesis):
    assert decode_genesis(encode_genesis(genesis), "g") == genesis


KNOWN = KnownBlock(BlockId(3, 4), Tag(5, 6), 7, bytes(DIGEST_BYTES))


def test_a_genesis_block_of_many_parts():
    many = tuple(
        KnownBlock(
            BlockId(2**64 - 1, n),
            Tag(n, 2**64 - 1),
            2**20,
            bytes(DIGEST_BYTES),
            BlockId(2**64 - 1, n + 1),
        )
        for n in range(6000)
    )
    genesis = msgspec.structs.replace(EMPTY, parts=many)
    value = encode_genesis(genesis)
    assert len(value) < 6000 * 100
    assert decode_genesis(value, "g") == genesis


DECODERS = [
    (decode_block, encode_block(Block(BlockId(1, 2), Tag(3, 4), 5, b"data"))),
    (decode_genesis, encode_genesis(EMPTY)),
    (decode_genesis, encode_genesis(BY_RABIN)),
]
LATEST = {decode_block: BLOCK_FORMAT, decode_genesis: CHUNKED_FORMAT}


@pytest.mark.parametrize(("decode", "value"), DECODERS)
def test_what_cannot_be_read_names_the_object(decode, value):
    for bad, told in [
        (b"", "no bytes"),
        (b"\0" + value[1:], "begins with 0"),
        (bytes([LATEST[decode] + 1]) + value[1:], "use a newer release"),
    ]:
        with pytest.raises(BadBlock, match=told) as raised:
            decode(bad, "\0file/x")
        assert raised.value.object == "\0file/x"
        assert "file 'x'" in str(raised.value)
    decode(value, "\0file/x")


@pytest.mark.parametrize(("decode", "value"), DECODERS)
def test_a_cut_off_value_is_refused(decode, value):
    for length in range(HEADER_BYTES if decode is decode_block else len(value)):
        with pytest.raises(BadBlock):
            decode(value[:length], "b")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_block_or_refused(rest):
    for decode in (decode_block, decode_genesis):
        with contextlib.suppress(BadBlock):
            decode(bytes([BLOCK_FORMAT]) + rest, "b")
    with contextlib.suppress(BadBlock):
        decode_genesis(bytes([CHUNKED_FORMAT]) + rest, "b")


def test_a_flag_that_no_writer_writes_is_refused():
    value = bytearray(encode_block(Block(None, TAG_ZERO, 0, b"")))
    value[1] = 2
    with pytest.raises(BadBlock, match="byte 1 is 2"):
        decode_block(bytes(value), "b")


PART = [[1, 2], [3, 4], 5, bytes(DIGEST_BYTES)]


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("sizes", [512, 256, 1024]),
        ("parts", [[*PART[:3], b"short"]]),
        ("parts", [[*PART[:2], -1, PART[3]]]),
        ("parts", [[[-1, 2], *PART[1:]]]),
        ("file", [1]),
    ],
)
def test_a_genesis_block_that_makes_no_sense_is_refused(field, bad):
    fields = msgspec.msgpack.decode(encode_genesis(EMPTY)[1:]) | {"parts": [PART]}
    good = bytes([BLOCK_FORMAT]) + msgspec.msgpack.encode(fields)
    assert decode_genesis(good, "g").parts[0].length == 5
    with pytest.raises(BadBlock, match="not a genesis block"):
        decode_genesis(bytes([BLOCK_FORMAT]) + msgspec.msgpack.encode(fields | {field: bad}), "g")


def test_a_file_by_fastcdc_has_the_bytes_of_earlier_releases():
    assert encode_genesis(EMPTY) == bytes([1]) + msgspec.msgpack.encode(
        {
            "file": [1, 2],
            "atomic": False,
            "sizes": [524288, 524288, 1048576],
            "first": None,
            "parts": [],
            "retired": [],
            "modified_s": 0,
            "base": [0, 0],
        }
    )
    assert new_genesis(BlockId(1, 2), False, Sizes(), "fastcdc") == EMPTY


def test_another_chunking_is_in_a_format_that_earlier_releases_refuse():
    """Releases up to 0.1 read format 1 of both kinds of blocks, and no other."""
    value = encode_genesis(BY_RABIN)
    assert value == b"\2" + msgspec.msgpack.encode(
        msgspec.msgpack.decode(encode_genesis(EMPTY)[1:]) | {"chunking": "rabin"}
    )
    assert (EMPTY.chunking, BY_RABIN.chunking) == ("fastcdc", "rabin")
    changed = msgspec.structs.replace(BY_RABIN, modified_s=5, parts=(KNOWN,))
    assert decode_genesis(encode_genesis(changed), "g").chunking == "rabin"
    with pytest.raises(BadBlock, match="reads up to 1: use a newer release of ares"):
        decode_block(value, "g")


@pytest.mark.parametrize(
    ("format", "chunking", "told"),
    [
        (2, {"chunking": "gear"}, "has no chunking 'gear', only fastcdc and rabin"),
        (2, {"chunking": "g" * 10_000}, "has no chunking 'g{40}', only"),
        (2, {"chunking": 7}, "Expected `str`"),
        (2, {}, "format 2 with the chunking fastcdc, which no program writes"),
        (1, {"chunking": "rabin"}, "format 1 with the chunking rabin, which no program writes"),
    ],
)
def test_an_unknown_chunking_is_refused_by_name(format, chunking, told):
    fields = msgspec.msgpack.decode(encode_genesis(EMPTY)[1:]) | chunking
    with pytest.raises(BadBlock, match=told):
        decode_genesis(bytes([format]) + msgspec.msgpack.encode(fields), "g")


def test_ids_as_text_and_in_order():
    assert str(BlockId(0xAB, 0x1F)) == "00000000000000ab.1f"
    given_out = BlockIds(7)
    first, second = given_out.next(), given_out.next()
    assert first.creator == second.creator == 7
    assert first < second


def test_names_of_genesis_blocks_and_blocks():
    assert genesis_name("a/b") == "\0file/a/b"
    assert (
        block_name(BlockId(1, 2), BlockId(3, 4)) == "\0block/0000000000000001.2/0000000000000003.4"
    )


@given(ids, ids, ids)
def test_a_block_name_tells_its_id_and_begins_with_the_prefix_of_its_file_alone(file, id, other):
    name = block_name(file, id)
    assert parse_block_name(name) == (file, id)
    assert name.startswith(block_prefix(file))
    assert name.startswith(block_prefix(other)) == (file == other)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "\0file/x",
        "\0block/",
        "\0block/0000000000000001.2",
        "0000000000000001.2/0000000000000003.4",
        "\0block/0000000000000001.2/3.4",
        "\0block/0000000000000001.2/0000000000000003.04",
        "\0block/0000000000000001.2/0000000000000003.G",
        "\0block/0000000000000001.2/0000000000000003.-4",
        "\0block/0000000000000001.2/0000000000000003.4/",
        "\0block/0000000000000001.2/0000000000000003.4\n",
        "\0block/0000000000000001.2/0000000000000003.1" + 16 * "0",
        "\0block/0000000000000001.2/ 0000000000000003.4",
    ],
)
def test_other_names_are_no_blocks(name):
    with pytest.raises(BadBlock, match="not the name of a block"):
        parse_block_name(name)


@pytest.mark.parametrize("name", ["", "n" * (KEY_BYTES_MAX - 5), "\N{SNOWMAN}" * 340, "\ud800"])
def test_file_names_that_no_object_can_have(name):
    with pytest.raises(BadInput, match="name of a file"):
        genesis_name(name)


def test_the_longest_file_name():
    assert len(genesis_name("n" * (KEY_BYTES_MAX - 6)).encode()) == KEY_BYTES_MAX
