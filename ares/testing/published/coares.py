"""CoARES as published: coverable objects over ARES of 2022, or over ARES II.

ARES II describes it in words (section 2, "Consistency"; section 3, Extension 1) and prints no
algorithm. A write names the version that it replaces; it succeeds if this version is the latest,
else it becomes a read. The sentences leave these choices:

- The first phase of a write is get-data: a write that becomes a read returns the latest value.
- The version is of the client's last read or write of the object, and t0 before the first.
- Two concurrent writes over one version may both succeed, and the higher tag prevails: Alg. 1 has
  no step that excludes it.
- A client keeps a pair of each object for each configuration: the last pair that it put there.
  Hence the first get-data in a configuration brings the value.
- A server sends lower tags, too, and no value of them: an empty List is of a collected
  configuration (Alg. 4:39-41).
- Without put-data a client learns no nextC by the piggyback: a fast read has one round with the
  piggyback, and two rounds of read-config more without.
- The domain D of a file is what a quorum of servers lists after add-config: no client knows the
  blocks that other clients make meanwhile. Section 4.3.5 moves a file as a whole also before ARES
  II had batching; section 5.3, without batching, one block after another (``cobfs.py``).
"""

from collections.abc import Sequence
from typing import Any

from ares.engine.effects import Operation
from ares.engine.phases import WRITE_OBJECT, phase
from ares.model.configuration import Configuration, Successor
from ares.model.identity import ClientId, ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Value
from ares.reconfig.listing import list_page
from ares.registers.coverable import CoverableResult
from ares.testing.published.abd_dap import AbdDap
from ares.testing.published.ares2 import Ares2Client
from ares.testing.published.ares_2022 import AresClient
from ares.testing.published.data_access import Cs, Found, PublishedDap
from ares.testing.published.ec_dap import EcDap


class OptimisedDap(PublishedDap):
    """Primitives that move no value known to the client (section 3, Extension 1)."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._pairs: dict[ObjectName, tuple[Tag, Value]] = {}

    def local(self, object: ObjectName) -> tuple[Tag, Value]:
        """Return the local pair: the last pair that this client put; (t0, v0) before the first."""
        return self._pairs.get(object, (TAG_ZERO, TOMBSTONE))

    def held(self, object: ObjectName) -> Tag | None:
        """Return the local tag: servers send only the pairs with higher tags."""
        return self.local(object)[0]

    def get_data(
        self, object: ObjectName, carry: Successor | None = None
    ) -> Operation[tuple[Found, Cs]]:
        """Return the maximum pair at a quorum, and nextC; the local value has the local tag."""
        pair, cs = yield from super().get_data(object, carry)
        local = self.local(object)
        return (local if pair[0] == local[0] else pair), cs

    def put_data(self, object: ObjectName, tag: Tag, value: Value) -> Operation[Cs]:
        """Store the pair, only if its tag exceeds the local tag; return the quorum's nextC."""
        if tag <= self.local(object)[0]:
            return []
        cs = yield from super().put_data(object, tag, value)
        self._pairs[object] = tag, value
        return cs


class OptimisedAbdDap(OptimisedDap, AbdDap):
    """The optimised ABD-DAP."""


class OptimisedEcDap(OptimisedDap, EcDap):
    """The optimised EC-DAP."""


class CoAresClient(AresClient):
    """A reader, writer and reconfigurer of CoARES over ARES of 2022.

    ``read`` is cvr-read: it returns the version, which is the tag, and the value. ``versions``: the
    version of each object that this client read or wrote last. ``fragmented``: the objects of its
    reconfigurations are files.
    """

    abd_dap = OptimisedAbdDap
    ec_dap = OptimisedEcDap

    def __init__(
        self, client: ClientId, c0: Configuration, fragmented: bool = False, **parts: Any
    ) -> None:
        super().__init__(client, c0, **parts)
        self.fragmented = fragmented
        self.versions: dict[ObjectName, Tag] = {}

    def version(self, object: ObjectName) -> Tag:
        """Return the version that this client read or wrote last; t0 before the first."""
        return self.versions.get(object, TAG_ZERO)

    def dap(self, c: Configuration) -> AbdDap | EcDap:
        """Return the primitives of c; the pairs of left configurations are forgotten."""
        if c.id not in self._daps:
            kept = {id: dap for id, dap in self._daps.items() if dap.c.index >= self.mu}
            self._daps = kept
        return super().dap(c)

    def read(self, object: ObjectName) -> Operation[Found]:
        """Return the latest version and its value (cvr-read)."""
        tau, v = yield from super().read(object)
        self.versions[object] = tau
        return tau, v

    @phase(WRITE_OBJECT)
    def cvr_write(self, object: ObjectName, val: Value) -> Operation[CoverableResult]:
        """Write ``val`` over the version of this client; read, if another version is the latest."""
        tau, v = yield from self.ask_data(object)
        changed = tau == self.version(object)
        if changed:
            tau, v = Tag(tau.number + 1, self.id), val
        yield from self.put(object, tau, v)
        self.versions[object] = tau
        return CoverableResult(changed, tau, v)

    @phase("UpdateConfig")
    def update_config(self, objects: Sequence[ObjectName]) -> Operation[None]:
        """Move the objects; of a file all blocks in one reconfiguration (section 4.3.5)."""
        moved = set(objects)
        for i in self.indices(self.mu) if self.fragmented else ():
            for file in objects:
                moved |= yield from self._blocks(i, blocks_prefix(file))
        yield from super().update_config(sorted(moved))

    def _blocks(self, i: int, prefix: str) -> Operation[set[ObjectName]]:
        """Return the blocks at a quorum of configuration i, page by page."""
        found: set[ObjectName] = set()
        after: str | None = ""
        while after is not None:
            c = self.cseq[i].configuration
            page = yield from list_page(c, after, prefix, self.carry(i))
            found |= page.objects.keys()
            after = page.after
        return found


class CoAres2Client(CoAresClient, Ares2Client):
    """A reader, writer and reconfigurer of CoARES over ARES II."""


def blocks_prefix(file: ObjectName) -> str:
    """Return the prefix of the names of a file's blocks; the genesis block has the file's name."""
    return f"{file}/"
