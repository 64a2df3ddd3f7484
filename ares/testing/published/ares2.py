"""ARES II: Alg. 1, 2 and 5 with their modifications, each on or off.

Without piggyback, reads and writes are as in ARES, and no client may collect: a read does not go on
from a collected configuration, and returns v0. Without gc, reconfig has no line 5:12; without
batching, a reconfiguration moves a single object. ``r1`` adds the rule that the paper lacks: a
get-data of update-config carries the configuration's successor, and a server installs the successor
before the answer.
"""

from typing import Any

from msgspec import Struct

from ares.engine.effects import Gather, Operation
from ares.engine.phases import PHASE_1, PHASE_2, phase
from ares.model.configuration import Configuration, Successor
from ares.model.identity import ClientId, ObjectName
from ares.model.messages import CollectConfig
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import Value
from ares.testing.published.ares_2022 import AresClient, maximum


class Ares2Switches(Struct, frozen=True):
    """The modifications of ARES II (sections 5.1 to 5.3), and rule R1."""

    piggyback: bool = True
    gc: bool = True
    batching: bool = True
    r1: bool = False


AS_PRINTED = Ares2Switches()


class Ares2Client(AresClient):
    """A reader, writer and reconfigurer of ARES II; ``more``: as for ARES."""

    def __init__(
        self,
        client: ClientId,
        c0: Configuration,
        switches: Ares2Switches = AS_PRINTED,
        **more: Any,
    ) -> None:
        super().__init__(client, c0, **more)
        self.switches = switches
        self.batching, self.piggyback = switches.batching, switches.piggyback

    @phase(PHASE_1)
    def ask_tags(self, object: ObjectName) -> Operation[Tag]:
        """Return the maximum tag (Alg. 1:9-15)."""
        if not self.piggyback:
            return (yield from super().ask_tags(object))  # Alg. 1:8
        tau_max = TAG_ZERO  # Alg. 1:13: it has no first value, and is read as t0
        cs: Successor | None = self.cseq[self.mu]  # Alg. 1:9-10
        while cs is not None:  # Alg. 1:11
            c = cs.configuration
            tau_c, found = yield from self.dap(c).get_tag(object)  # Alg. 1:12
            tau_max = max(tau_c, tau_max)  # Alg. 1:13
            cs = yield from self.find_next_config(c, found)  # Alg. 1:14
        return tau_max

    @phase(PHASE_1)
    def ask_data(self, object: ObjectName) -> Operation[tuple[Tag, Value]]:
        """Return the maximum pair (Alg. 1:33-39)."""
        if not self.piggyback:
            return (yield from super().ask_data(object))  # Alg. 1:32
        max_pair = maximum([])
        cs: Successor | None = self.cseq[self.mu]  # Alg. 1:33-34
        while cs is not None:  # Alg. 1:35
            c = cs.configuration
            pair, found = yield from self.dap(c).get_data(object)  # Alg. 1:36
            max_pair = maximum([max_pair, pair])  # Alg. 1:37
            cs = yield from self.find_next_config(c, found)  # Alg. 1:38
        return max_pair

    @phase(PHASE_2)
    def put(self, object: ObjectName, tau: Tag, v: Value) -> Operation[None]:
        """Put the pair into the last configuration and the successors (Alg. 1:17-23, 40-46)."""
        if not self.piggyback:
            yield from super().put(object, tau, v)  # Alg. 1:21, 1:44
            return
        cs: Successor | None = self.cseq[self.lambda_]  # Alg. 1:17-18, 1:40-41
        while cs is not None:  # Alg. 1:19, 1:42
            c = cs.configuration
            found = yield from self.dap(c).put_data(object, tau, v)  # Alg. 1:20, 1:43
            cs = yield from self.find_next_config(c, found)  # Alg. 1:22, 1:45

    @phase("GCConfig")
    def gc_config(self) -> Operation[None]:
        """Point earlier entries to the last finalized entry, and forget them (Alg. 2:37-46)."""
        if not self.switches.gc:
            return
        mu = self.mu  # Alg. 2:38
        cid = [i for i in sorted(self.cseq) if i < mu]  # Alg. 2:39
        for id in cid:  # Alg. 2:40
            c = self.cseq[id].configuration
            yield Gather(  # Alg. 2:41-42: next has no value, and is read as cseq[mu]
                c, CollectConfig, "gc-config", arguments=(c.id, self.cseq[mu])
            )
            del self.cseq[id]  # Alg. 2:44

    def carry(self, i: int) -> Successor | None:
        """Return the successor in a request to configuration i, under rule R1."""
        later = [j for j in self.cseq if j > i]
        return self.cseq[min(later)] if self.switches.r1 and later else None
