"""CoBFS's fragmentation module (FM) as published: CoARESF is CoBFS with CoARES as its memory.

ARES II describes it in words (section 2, "Fragmented objects"; section 3, Extension 2). A file is a
list of blocks, each a coverable object with data and the id of the next block. The genesis block
has no data. A read follows the list, one block after another (Fig. 5). A write changes only the
blocks that differ: a modified block by a coverable write; new blocks first, then the coverable
write of the block before them; a deleted block becomes empty and stays in the list. The cuts are
those of Rabin fingerprints. ``ares/fragment`` has the pure functions: cuts, the match of digests,
the encoding of a block. The sentences leave these choices:

- Edits go from the first to the last, new blocks from the last to the first. A new block is a
  coverable write over t0, since the memory has no other write.
- A writer edits the list as it last saw it. Where a write became a read, the block is the one read,
  and a block that is new to the writer is read, too; other blocks are as before.
- Blocks that were made, and whose predecessor's write became a read, stay outside of the list.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ares.engine.effects import Operation
from ares.fragment.block import Block, BlockId, BlockIds, decode_block, encode_block
from ares.fragment.divide import Chunk, Content, digest
from ares.fragment.match import GENESIS, Edit, match
from ares.model.configuration import Configuration
from ares.model.errors import ObjectNotFound
from ares.model.identity import DEFAULT_DOMAIN, DomainName, ObjectName
from ares.model.tag import TAG_ZERO
from ares.model.value import Answered
from ares.testing.published.coares import CoAresClient, blocks_prefix

NO_FILE = Block(None, TAG_ZERO, 0, b"")
"""The genesis block of a file that was never written."""


class UnbatchedClient:
    """A client of CoARESF over ARES II without batching (section 5.3).

    Each object is a domain with c0's servers, and has a configuration sequence of its own. ``make``
    makes a client with the first configuration of a domain.
    """

    def __init__(self, c0: Configuration, make: Callable[[Configuration], CoAresClient]) -> None:
        self.id = make(c0).id
        self._c0, self._make = c0, make
        self._clients: dict[ObjectName, CoAresClient] = {}

    def of(self, object: ObjectName) -> CoAresClient:
        """Return the client of an object."""
        if object not in self._clients:
            domain = DomainName(object)
            self._clients[object] = self._make(self._c0.at(domain, 0, self._c0.cluster_id))
        return self._clients[object]

    def reconfig(self, c: Configuration, objects: Sequence[ObjectName]) -> Operation[Configuration]:
        """Install c for one object after another, of each file's blocks as read before."""
        for object in objects:
            installed = yield from self.of(object).reconfig(c, [object])
        return installed


class FileUpdate(Struct, frozen=True):
    """The result of a write: whether all blocks prevailed, and the number of written blocks."""

    changed: bool
    written: int


class FragmentedObject:
    """A file as seen by a client ``dsmm`` of the shared memory.

    ``blocks``: L_f, the list of blocks as last seen, without the genesis block.
    """

    def __init__(self, dsmm: CoAresClient | UnbatchedClient, file: ObjectName) -> None:
        self.dsmm = dsmm
        self.file = file
        self.genesis = NO_FILE
        self.blocks: list[tuple[BlockId, Block]] = []
        self._ids = BlockIds(dsmm.id)

    @property
    def objects(self) -> list[ObjectName]:
        """Return the names of all blocks as last seen, of the genesis block first."""
        return [self.file, *(self._name(id) for id, _ in self.blocks)]

    def fm_read(self) -> Operation[bytes]:
        """Follow the list; return the whole file. Raises :class:`ObjectNotFound` without a file."""
        self.genesis = yield from self._dsmm_read(self.file)
        yield from self._follow({})
        return b"".join(block.data for _, block in self.blocks)

    def fm_update(self, content: Content) -> Operation[FileUpdate]:
        """Write ``content`` where it differs from the list as last seen."""
        places: list[tuple[BlockId | None, Block]] = [(None, self.genesis), *self.blocks]
        known, changed, written = dict(self.blocks), True, 0
        for edit in self.fm_block_identify(content.chunks):
            id, block = places[edit.block - GENESIS]
            data = [block.data if edit.chunk is None and not edit.empty else b""]
            if edit.chunk is not None:
                data = [content.load(content.chunks[edit.chunk])]
            data += [content.load(chunk) for chunk in content.chunks[slice(*edit.insert)]]
            prevails, found = yield from self._fm_update_block(id, block, data)
            known |= found
            changed, written = changed and prevails, written + len(data)
        yield from self._follow(known)
        return FileUpdate(changed, written)

    def fm_block_identify(self, chunks: Sequence[Chunk]) -> Sequence[Edit]:
        """Return the differences of the list and the new chunks, by string matching of digests."""
        old = [(len(block.data), digest(block.data)) for _, block in self.blocks]
        edits = match(old, [(chunk.length, chunk.digest) for chunk in chunks]).edits
        new = self._memory(self.file).version(self.file) == TAG_ZERO
        return [Edit(GENESIS)] if new and not edits else edits

    def _fm_update_block(
        self, id: BlockId | None, block: Block, data: Sequence[bytes | memoryview]
    ) -> Operation[tuple[bool, dict[BlockId, Block]]]:
        """Give a block its data, data[0], and behind it new blocks; None: the genesis block.

        Returns whether the write prevails, and the blocks known from it.
        """
        following, known = block.next, dict[BlockId, Block]()
        for each in reversed(data[1:]):
            new = self._ids.next()
            name, known[new] = self._name(new), Block(following, TAG_ZERO, 0, each)
            yield from self._memory(name).cvr_write(name, encode_block(known[new]))
            following = new
        name = self.file if id is None else self._name(id)
        value = encode_block(Block(following, TAG_ZERO, 0, data[0]))
        covered = yield from self._memory(name).cvr_write(name, value)
        found = self._decoded(name, covered.value)
        if id is None:
            self.genesis = found
        else:
            known[id] = found
        return covered.changed, known

    def _follow(self, known: Mapping[BlockId, Block]) -> Operation[None]:
        """Walk along the list, and read all blocks that are not ``known``."""
        self.blocks, id = [], self.genesis.next
        while id is not None:
            block = known.get(id) or (yield from self._dsmm_read(self._name(id)))
            self.blocks.append((id, block))
            id = block.next

    def _memory(self, object: ObjectName) -> CoAresClient:
        return self.dsmm.of(object) if isinstance(self.dsmm, UnbatchedClient) else self.dsmm

    def _dsmm_read(self, name: ObjectName) -> Operation[Block]:
        _, value = yield from self._memory(name).read(name)
        return self._decoded(name, value)

    def _decoded(self, name: ObjectName, value: Answered) -> Block:
        if not isinstance(value, bytes):
            raise ObjectNotFound(self.file, DEFAULT_DOMAIN)
        return decode_block(value, name)

    def _name(self, id: BlockId) -> ObjectName:
        return ObjectName(f"{blocks_prefix(self.file)}{id}")
