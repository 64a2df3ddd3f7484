"""The objects of a fragmented file: its blocks, and the genesis block, which names the first block.

See CoBFS, "Data structures". A block's value is a header of fixed size followed by the data, hence
neither direction copies the data more than once: blocks are on the hot path. The genesis block is
MessagePack, and small. Both begin with a format byte.
"""

import re
import struct
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from ares.fragment.divide import DIGEST_BYTES, FASTCDC, Sizes, checked_chunking, digest
from ares.model.errors import BadBlock, BadInput
from ares.model.identity import KEY_BYTES_MAX, VALUE_BYTES_MAX, ClientId, ObjectName
from ares.model.numbers import Instant, Word
from ares.model.tag import TAG_ZERO, Tag

BLOCK_FORMAT = 1
"""First byte of every block, and of the genesis block of a file by FastCDC."""

CHUNKED_FORMAT = 2
"""First byte of a genesis block that names another chunking.

Releases that would ignore the name refuse this format.
"""

GENESIS_NAMES = "\0file/"
BLOCK_NAMES = "\0block/"
MARK_NAMES = "\0mark/"

_block_name = re.compile(
    BLOCK_NAMES + r"{0}/{0}".format(r"([0-9a-f]{16})\.(0|[1-9a-f][0-9a-f]{0,15})")
)

_layout = struct.Struct(">BBQQQQQ")
"""Format, presence of a next block, its id (two words), the base tag (two words), created_s."""

HEADER_BYTES = _layout.size


class BlockId(Struct, frozen=True, order=True, array_like=True, gc=False):
    """A block's id, unique without coordination.

    ``creator``: 64 random bits of a client's run; ``counter``: the run's own.
    """

    creator: Word
    counter: Word

    def __str__(self) -> str:
        return f"{self.creator:016x}.{self.counter:x}"


class BlockIds:
    """The ids given out by a client's run; ``creator``: 64 random bits."""

    def __init__(self, creator: int) -> None:
        self._creator = creator
        self._count = 0

    def next(self) -> BlockId:
        self._count += 1
        return BlockId(self._creator, self._count)

    def life(self, file_name: str) -> BlockId:
        """Return the id of a new life of a file.

        The id contains a digest of the file's name: blocks named in no list are thereby known to
        belong to the file.
        """
        return BlockId(name_digest(file_name), name_digest(str(self.next())))


def name_digest(name: str) -> int:
    """Return 64 bits of digest.

    The digest of a file's name begins every life of the file, except lives begun by an early
    release.
    """
    return int.from_bytes(digest(name.encode())[:8])


class KnownBlock(Struct, frozen=True, array_like=True, gc=False):
    """A block as last seen by a client.

    At version ``tag`` the block had ``length`` bytes of data with ``digest``, and was followed by
    ``next``.
    """

    id: BlockId
    tag: Tag
    length: Annotated[int, Meta(ge=0, le=VALUE_BYTES_MAX)]
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    next: BlockId | None = None


class Block(Struct, frozen=True):
    """The value of a block.

    ``base`` is the version which this version was written over (TAG_ZERO for a created block): it
    shows a writer whether a concurrent write over the same version replaced its own. ``created_s``
    is the wall clock at creation in whole seconds since the epoch, for collecting orphans.
    """

    next: BlockId | None
    base: Tag
    created_s: int
    data: bytes | memoryview


class Genesis(Struct, frozen=True):
    """The value of a file's genesis block.

    ``file`` names this life of the file: a file deleted and made again has other blocks. Not
    ``atomic``: blocks are mutable; ``first`` and the ``next`` pointers in the blocks are the truth
    and ``parts`` is a hint, the chain as of those tags. ``atomic``: blocks are written once;
    ``parts`` is the manifest and the truth, and ``retired`` are the blocks dropped by past puts,
    each with the second since the epoch of its drop. ``modified_s`` is in seconds since the epoch;
    ``base`` as in a block. ``other_chunking`` is absent from the encoding of a file by FastCDC.
    """

    file: BlockId
    atomic: bool
    sizes: Sizes
    first: BlockId | None
    parts: tuple[KnownBlock, ...]
    retired: tuple[tuple[BlockId, Instant], ...] = ()
    modified_s: Instant = 0
    base: Tag = TAG_ZERO
    other_chunking: str | UnsetType = field(default=UNSET, name="chunking")

    def __post_init__(self) -> None:
        checked_chunking(self.chunking)

    @property
    def chunking(self) -> str:
        """Return the way in which the file is cut."""
        return FASTCDC if self.other_chunking is UNSET else self.other_chunking

    @property
    def format(self) -> int:
        """Return the first byte of the encoding."""
        return BLOCK_FORMAT if self.chunking == FASTCDC else CHUNKED_FORMAT


_genesis_decoder = msgspec.msgpack.Decoder(Genesis)


def encode_block(block: Block) -> bytes:
    """Return the value of the block's object; the data is copied once."""
    following = block.next
    present, creator, counter = (
        (0, 0, 0) if following is None else (1, following.creator, following.counter)
    )
    header = _layout.pack(
        BLOCK_FORMAT,
        present,
        creator,
        counter,
        block.base.number,
        block.base.writer,
        block.created_s,
    )
    return b"".join((header, block.data))


def decode_block(value: bytes, name: str) -> Block:
    """Return the block in ``value``, its data a view of ``value``.

    Raises :class:`BadBlock` naming the object ``name``.
    """
    _check_format(value, name)
    if len(value) < HEADER_BYTES:
        raise BadBlock(name, f"{len(value)} bytes, and the header alone has {HEADER_BYTES}")
    _, present, creator, counter, number, writer, created_s = _layout.unpack_from(value)
    if present > 1:
        raise BadBlock(
            name, f"byte 1 is {present}, and may be 0 (the last block) or 1 (another follows)"
        )
    following = BlockId(creator, counter) if present else None
    return Block(
        following, Tag(number, ClientId(writer)), created_s, memoryview(value)[HEADER_BYTES:]
    )


def new_genesis(file: BlockId, atomic: bool, sizes: Sizes, chunking: str = FASTCDC) -> Genesis:
    """Return the genesis block of a file without blocks."""
    other = UNSET if chunking == FASTCDC else chunking
    return Genesis(file, atomic, sizes, None, (), other_chunking=other)


def encode_genesis(genesis: Genesis) -> bytes:
    """Return the value of the genesis block's object."""
    return bytes([genesis.format]) + msgspec.msgpack.encode(genesis)


def decode_genesis(value: bytes, name: str) -> Genesis:
    """Return the genesis block in ``value``.

    Raises :class:`BadBlock` naming the object ``name``.
    """
    _check_format(value, name, CHUNKED_FORMAT)
    try:
        genesis = _genesis_decoder.decode(memoryview(value)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBlock(name, f"not a genesis block that this program reads: {error}") from error
    if value[0] != genesis.format:
        raise BadBlock(
            name,
            f"format {value[0]} with the chunking {genesis.chunking}, which no program writes",
        )
    return genesis


def _check_format(value: bytes, name: str, latest: int = BLOCK_FORMAT) -> None:
    if not value:
        raise BadBlock(name, "no bytes at all")
    if value[0] > latest:
        raise BadBlock(
            name,
            f"format {value[0]}, and this program reads up to {latest}: use a newer release of "
            "ares",
        )
    if not value[0]:
        raise BadBlock(name, "it begins with 0, which is no format of a block")


def genesis_name(file_name: str) -> ObjectName:
    """Return the name of the file's genesis block.

    Raises :class:`BadInput` for an impossible name.
    """
    if not isinstance(file_name, str):
        raise BadInput(f"the name of a file is text (str), not {type(file_name).__name__}")
    longest = KEY_BYTES_MAX - len(GENESIS_NAMES)
    try:
        size = len(file_name.encode())
    except UnicodeEncodeError as error:
        raise BadInput(f"the name of a file is text that UTF-8 can hold: {error}") from error
    if not 1 <= size <= longest:
        raise BadInput(f"the name of a file has 1 to {longest} bytes of UTF-8, not {size}")
    return ObjectName(GENESIS_NAMES + file_name)


def mark_name(file_name: str) -> ObjectName:
    """Return the name of the file's mark, an object which is always absent.

    Its tag limits the reach of fences of the file (ares/fragment/collect.py).
    """
    return ObjectName(MARK_NAMES + file_name)


def block_prefix(file: BlockId) -> str:
    """Return the prefix of the names of all blocks, and of blocks only, of this life of a file."""
    return f"{BLOCK_NAMES}{file}/"


def lives_prefix(file_name: str) -> str:
    """Return the prefix of the blocks of all lives of a file.

    Lives begun by an early release are not covered.
    """
    return f"{BLOCK_NAMES}{name_digest(file_name):016x}."


def block_name(file: BlockId, id: BlockId) -> ObjectName:
    """Return the name of the object of block ``id`` of the file."""
    return ObjectName(f"{BLOCK_NAMES}{file}/{id}")


def parse_block_name(name: str) -> tuple[BlockId, BlockId]:
    """Return the life of a file and the id of the block with this object name.

    Raises :class:`BadBlock` for any other name.
    """
    found = _block_name.fullmatch(name)
    if found is None:
        raise BadBlock(
            name,
            f"not the name of a block, which is {BLOCK_NAMES!r}, the id of a file, '/', and its "
            "own",
        )
    creator, counter, own_creator, own_counter = (int(word, 16) for word in found.groups())
    return BlockId(creator, counter), BlockId(own_creator, own_counter)
