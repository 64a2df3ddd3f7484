"""ARES of 2022: Alg. 1, 2 and 5 of ARES II without its modifications.

ARES II prints them struck out beside its own lines, and describes them in section 3: a read-config
before and after, a reconfiguration moves a single object, every read and write has two phases.

Alg. 2:3 is read as "the configuration whose servers named nextC". As printed, lastC is the last
entry of cseq: a client that knows configuration lambda as pending, and finds it again in an earlier
configuration, makes it its own successor and follows it for ever. ``printed_line_3`` takes the line
as printed; the servers of this project refuse such a successor.
"""

from collections.abc import Sequence

from ares.dap.coding import MakeCoding, coding_for
from ares.engine.effects import Agree, Gather, Operation
from ares.engine.phases import (
    PHASE_1,
    PHASE_2,
    READ_CONFIG,
    READ_OBJECT,
    RECONFIGURE,
    WRITE_OBJECT,
    phase,
)
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import BadInput
from ares.model.identity import ClientId, ConfigurationId, ObjectName
from ares.model.messages import Decided, ReadConfig, WriteConfig
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD, Value
from ares.testing.published.abd_dap import AbdDap
from ares.testing.published.data_access import Cs, Found, Measure, unmeasured
from ares.testing.published.ec_dap import EcDap


class AresClient:
    """A reader, writer and reconfigurer of ARES; it runs a single operation at a time.

    The state is of Alg. 1:1-6, Alg. 1:25-30 and Alg. 5:1-5.

    ``cseq``: the configuration sequence, by index; an absent index is bottom.
    """

    printed_line_3 = False
    batching = False
    piggyback = False
    abd_dap: type[AbdDap] = AbdDap
    ec_dap: type[EcDap] = EcDap

    def __init__(
        self,
        client: ClientId,
        c0: Configuration,
        coding: MakeCoding = coding_for,
        measure: Measure = unmeasured,
    ) -> None:
        self.id = client
        self.cseq = {c0.index: Successor(c0, Status.FINALIZED)}  # Alg. 1:6, 1:30, 5:5
        self._coding = coding
        self._measure = measure
        self._daps: dict[ConfigurationId, AbdDap | EcDap] = {}

    @property
    def mu(self) -> int:
        """Return the index of the last finalized entry."""
        return max(j for j, entry in self.cseq.items() if entry.finalized)

    @property
    def lambda_(self) -> int:
        """Return the index of the last entry."""
        return max(self.cseq)

    def dap(self, c: Configuration) -> AbdDap | EcDap:
        """Return the primitives of c."""
        if c.id not in self._daps:
            kind = self.ec_dap if c.dap == "ec" else self.abd_dap
            self._daps[c.id] = kind(c, self._coding, self._measure, not self.piggyback)
        return self._daps[c.id]

    # -- read and write ----------------------------------------------------------------------------

    @phase(WRITE_OBJECT)
    def write(self, object: ObjectName, val: Value) -> Operation[Tag]:
        """Write ``val``; return its tag (Alg. 1:7-24, with the struck-out lines)."""
        tau_max = yield from self.ask_tags(object)
        tau = Tag(tau_max.number + 1, self.id)  # Alg. 1:16
        yield from self.put(object, tau, val)
        return tau

    @phase(READ_OBJECT)
    def read(self, object: ObjectName) -> Operation[Found]:
        """Return the tag and the value read (Alg. 1:31-48, with the struck-out lines)."""
        tau_max, v_max = yield from self.ask_data(object)
        yield from self.put(object, tau_max, v_max)
        return tau_max, v_max  # Alg. 1:47

    @phase(PHASE_1)
    def ask_tags(self, object: ObjectName) -> Operation[Tag]:
        """Return the maximum tag of all configurations."""
        tau_max = TAG_ZERO
        yield from self.read_config()  # Alg. 1:8
        for i in self.indices(self.mu):
            tau_c, _ = yield from self.dap(self.cseq[i].configuration).get_tag(object)
            tau_max = max(tau_c, tau_max)  # Alg. 1:13
        return tau_max

    @phase(PHASE_1)
    def ask_data(self, object: ObjectName) -> Operation[tuple[Tag, Value]]:
        """Return the maximum pair of all configurations."""
        max_pair = maximum([])
        yield from self.read_config()  # Alg. 1:32
        for i in self.indices(self.mu):
            pair, _ = yield from self.dap(self.cseq[i].configuration).get_data(object)
            max_pair = maximum([max_pair, pair])  # Alg. 1:37
        return max_pair

    @phase(PHASE_2)
    def put(self, object: ObjectName, tau: Tag, v: Value) -> Operation[None]:
        """Put the pair into the last configuration, while later ones come (Alg. 1:17-23, 40-46)."""
        known = None
        while known != self.lambda_:
            known = self.lambda_
            c = self.cseq[known].configuration
            yield from self.dap(c).put_data(object, tau, v)  # Alg. 1:20, 1:43
            yield from self.read_config()  # Alg. 1:21, 1:44

    def indices(self, first: int) -> list[int]:
        """Return the indices of entries from ``first`` to lambda."""
        return sorted(j for j in self.cseq if j >= first)

    # -- sequence traversal ------------------------------------------------------------------------

    def find_next_config(self, c: Configuration, cs: Cs) -> Operation[Successor | None]:
        """Return the nextC in the replies of c's servers, after a put-config (Alg. 2:1-17)."""
        last_c = self.cseq[self.lambda_].configuration if self.printed_line_3 else c  # Alg. 2:2-3
        known = [entry for entry in cs if entry is not None]
        cs_f = [entry for entry in known if entry.finalized]  # Alg. 2:4
        next_c = None  # Alg. 2:11
        if cs_f:  # Alg. 2:5-7
            next_c = max(cs_f, key=lambda entry: entry.configuration.index)
        elif known:  # Alg. 2:8-10
            next_c = known[0]
        if next_c is not None:  # Alg. 2:13
            self.cseq[next_c.configuration.index] = next_c  # Alg. 2:14
            yield from self.put_config(last_c, next_c)  # Alg. 2:15
        return next_c  # Alg. 2:16

    @phase(READ_CONFIG)
    def read_config(self) -> Operation[None]:
        """Learn the rest of the sequence (Alg. 2:18-26)."""
        cs: Successor | None = self.cseq[self.mu]  # Alg. 2:19-20
        while cs is not None:  # Alg. 2:21
            found = yield from self.get_next_config(cs.configuration)  # Alg. 2:22
            cs = yield from self.find_next_config(cs.configuration, found)  # Alg. 2:23

    def get_next_config(self, c: Configuration) -> Operation[Cs]:
        """Return the nextC of a quorum of c (Alg. 2:27-32)."""
        replies = yield Gather(c, ReadConfig, "get-next-config", arguments=(c.id,))  # Alg. 2:28-29
        return [reply.successor for reply in replies.values()]  # Alg. 2:30-31

    @phase("PutConfig")
    def put_config(self, c: Configuration, next_c: Successor) -> Operation[None]:
        """Tell a quorum of c of nextC (Alg. 2:33-36)."""
        yield Gather(c, WriteConfig, "put-config", arguments=(c.id, next_c))  # Alg. 2:34-35

    # -- reconfiguration ---------------------------------------------------------------------------

    @phase(RECONFIGURE)
    def reconfig(self, c: Configuration, objects: Sequence[ObjectName]) -> Operation[Configuration]:
        """Install c, or the decision for its place, for the domain of ``objects`` (Alg. 5:6-13).

        c is never bottom (Alg. 5:7). Raises :class:`BadInput` for several objects without batching.
        """
        if not self.batching and len(objects) != 1:
            raise BadInput(
                f"without batching a reconfiguration moves one object, not {len(objects)}: each "
                "object needs a domain of its own"
            )
        yield from self.read_config()  # Alg. 5:8
        yield from self.add_config(c)  # Alg. 5:9
        yield from self.update_config(objects)  # Alg. 5:10
        yield from self.finalize_config()  # Alg. 5:11
        yield from self.gc_config()  # Alg. 5:12
        return self.cseq[self.lambda_].configuration

    @phase("AddConfig")
    def add_config(self, c: Configuration) -> Operation[None]:
        """Agree on the next configuration, and tell a quorum of the last (Alg. 5:14-22)."""
        lam = self.lambda_  # Alg. 5:15
        last = self.cseq[lam].configuration  # Alg. 5:16
        decided: Decided = yield Agree(  # Alg. 5:17-18
            c.at(last.domain, lam + 1, last.cluster_id)
        )
        d = Successor(decided.configuration, Status.PENDING)
        self.cseq[lam + 1] = d  # Alg. 5:19
        yield from self.put_config(last, d)  # Alg. 5:20

    @phase("UpdateConfig")
    def update_config(self, objects: Sequence[ObjectName]) -> Operation[None]:
        """Move the maximum pair of each object into the last configuration (Alg. 5:23-36)."""
        lam = self.lambda_  # Alg. 5:25
        m: dict[ObjectName, list[Found]] = {o: [] for o in objects}  # Alg. 5:26-28
        for i in self.indices(self.mu):  # Alg. 5:24, 5:29
            for o in objects:  # Alg. 5:30
                c = self.cseq[i].configuration
                pair, _ = yield from self.dap(c).get_data(o, self.carry(i))  # Alg. 5:31
                m[o].append(pair)  # Alg. 5:32: tau is read as t of line 31
        for o in objects:  # Alg. 5:33
            tau, v = maximum(m[o])  # Alg. 5:34
            yield from self.dap(self.cseq[lam].configuration).put_data(o, tau, v)  # Alg. 5:35

    def carry(self, i: int) -> Successor | None:
        """Return the successor that a request to configuration i carries: none, as printed."""
        return None

    @phase("FinalizeConfig")
    def finalize_config(self) -> Operation[None]:
        """Tell a quorum of the configuration before that the last is finalized (Alg. 5:37-42)."""
        lam = self.lambda_  # Alg. 5:38
        d = self.cseq[lam].configuration
        last = self.cseq[lam] = Successor(d, Status.FINALIZED)  # Alg. 5:39
        yield from self.put_config(self.cseq[lam - 1].configuration, last)  # Alg. 5:40

    def gc_config(self) -> Operation[None]:
        """Do nothing: ARES has no garbage collection."""
        yield from ()


def maximum(pairs: Sequence[Found]) -> tuple[Tag, Value]:
    """Return the pair with the highest tag, of the pairs with a value (Alg. 1:37).

    Bottom cannot be encoded for put-data: Alg. 5:34 is read as line 1:37, which leaves bottom out.
    """
    # Alg. 1:37: the maximum has no first value, and is read as (t0, v0)
    found: tuple[Tag, Value] = (TAG_ZERO, TOMBSTONE)
    for tag, value in pairs:
        if value is not WITHHELD and tag >= found[0]:
            found = tag, value
    return found
