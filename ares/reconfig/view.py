"""A client's knowledge of a domain, shared by all its operations on the domain: foremost cseq.

See ARES II section 3 and Table 1. Sharing cseq is safe because an entry is made only
after a quorum of the configuration where the successor was found knows the successor (rule R3): an
operation that finds the entry here may act as if it had found the successor itself.
"""

from collections.abc import Callable

from msgspec import Struct

from ares.dap.cache import ClientCache
from ares.dap.coding import MakeCoding, coding_for
from ares.dap.primitives import DataAccess
from ares.engine.readiness import Readiness
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import ConfigurationRefused
from ares.model.identity import ClientId, ConfigurationId
from ares.model.tag import TagSource

RETIRED_KEPT = 8
"""Retired entries kept for a gc-config of this client, in case it reconfigures.

A client without reconfigurations must not gather entries for ever.
"""


class ConfigurationSequence:
    """Entries by index, from a finalized configuration on: c0, or the domain's directory entry.

    The entries are cseq of writers (Alg. 1:1-6), readers (Alg. 1:25-30) and reconfigurers (Alg.
    5:1-5), which share it.

    ``last_finalized``: cseq[mu]; ``last_known``: cseq[lambda]. ``changing`` is called before either
    changes.
    """

    def __init__(self, first: Configuration) -> None:
        self._entries: dict[int, Configuration] = {first.index: first}
        self._finalized = self._last = first.index
        self.last_finalized = self.last_known = first
        self._known_at_quorum: dict[ConfigurationId, Successor] = {}
        self.changing: Callable[[], None] = lambda: None

    @property
    def active(self) -> list[Configuration]:
        """Return cseq[mu] to cseq[lambda], in order."""
        return [self._entries[index] for index in sorted(self._entries) if index >= self._finalized]

    @property
    def retired(self) -> list[Configuration]:
        """Return the entries before cseq[mu], in order."""
        return [self._entries[index] for index in sorted(self._entries) if index < self._finalized]

    @property
    def pending(self) -> Successor | None:
        """Return cseq[lambda] as the pending successor of cseq[mu], if a quorum of cseq[mu] knows.

        None where an operation has to ask anything else first (rule R3), or more configurations.
        """
        last = self.last_known
        known = self._known_at_quorum.get(self.last_finalized.id)
        follows = last.index == self.last_finalized.index + 1
        return known if follows and known == Successor(last, Status.PENDING) else None

    def before(self, configuration: Configuration) -> Configuration:
        """Return the entry before ``configuration``."""
        return self._entries[max(index for index in self._entries if index < configuration.index)]

    def knows(self, configuration: Configuration, successor: Successor) -> bool:
        """Return whether a quorum of ``configuration`` is known to know this successor.

        A later, finalized successor of the quorum counts, too.
        """
        known = self._known_at_quorum.get(configuration.id)
        if known is None:
            return False
        index, known_index = successor.configuration.index, known.configuration.index
        return (known_index == index and known.status >= successor.status) or (
            known_index > index and known.finalized
        )

    def add(self, found_in: Configuration, successor: Successor) -> None:
        """Enter a successor known now to a quorum of ``found_in`` (Alg. 2:14).

        Raises :class:`ConfigurationRefused` if another configuration has that place.
        """
        if not self.knows(found_in, successor):
            self._known_at_quorum[found_in.id] = successor
        self.adopt(successor)

    def adopt(self, successor: Successor) -> None:
        """Enter a configuration with a certain place.

        The place was decided, or is vouched for by the consensus service.
        """
        new = successor.configuration
        held = self._entries.get(new.index)
        if held is not None and held != new and held.id != new.id:
            # comparing is quicker than a digest
            raise ConfigurationRefused(
                f"two configurations for index {new.index} of domain {new.domain!r}: "
                f"{held.describe()} and {new.describe()}. The consensus service decided twice; "
                "nothing was moved. Check that all its members belong to this cluster"
            )
        finalizes = successor.finalized and new.index > self._finalized
        if not finalizes and (held is not None or new.index < self._finalized):
            return
        self.changing()
        self._entries[new.index] = new
        self._last = max(self._last, new.index)
        if finalizes:
            self._finalized = new.index
            for old in self.retired[:-RETIRED_KEPT]:
                self.forget(old)
        self.last_finalized, self.last_known = (
            self._entries[self._finalized],
            self._entries[self._last],
        )

    def forget(self, configuration: Configuration) -> None:
        """Drop a retired entry (Alg. 2:44); an active entry stays."""
        if configuration.index < self._finalized:
            self._entries.pop(configuration.index, None)
            self._known_at_quorum.pop(configuration.id, None)


class Switches(Struct, frozen=True):
    """ARES II's optimisations (and fast reads), each optional for a client.

    Clients of all combinations share servers. ``piggyback``: learn of successors from every reply
    instead of a read-config round. ``gc``: collect retired configurations. ``batch``: move many
    objects at once. ``fast_read``: a read that finds its version at a quorum does not write it
    back. ``optimised``: coverable objects and files send no value already held by the receiver
    (CoARES). ``ahead``: a move copies most data before the next configuration is decided (rule
    R24).
    """

    piggyback: bool = True
    gc: bool = True
    batch: bool = True
    fast_read: bool = True
    optimised: bool = True
    ahead: bool = True


class View:
    """A client's knowledge of a domain.

    ``tags``: the source of tags for the client's writes in this domain. ``coding``: makes the
    codings.
    """

    def __init__(
        self,
        client: ClientId,
        first: Configuration,
        switches: Switches,
        readiness: Readiness | None = None,
        coding: MakeCoding = coding_for,
    ) -> None:
        self.client = client
        self.domain = first.domain
        self.switches = switches
        self.sequence = ConfigurationSequence(first)
        self.tags = TagSource(client)
        self.memory = ClientCache()
        self.readiness = readiness or Readiness()
        self.coding = coding
        self._daps: dict[ConfigurationId, DataAccess] = {}

    def dap(self, configuration: Configuration) -> DataAccess:
        """Return the primitives of a configuration.

        Raises :class:`ares.ConfigurationRefused` if they are not available on this machine.
        """
        dap = self._daps.get(configuration.id)
        if dap is None:
            active = {known.id for known in self.sequence.active}
            self._daps = {id: known for id, known in self._daps.items() if id in active}
            dap = self._daps[configuration.id] = DataAccess(
                configuration, self.readiness, self.coding
            )
        return dap
