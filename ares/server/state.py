"""A replica that tells which facts must be journaled, and is put together again from them.

The papers' servers keep their state for ever; ours restart (protocol section 11). What a journal holds are facts (ares/server/facts.py), joined in
any order. So it may copy a fact to its end and forget the old place, which is how it gives space back, and a crash in the middle of that leaves a
fact twice: no harm. What is left of a fact that its place is about to forget says :meth:`Outlasting.surviving`.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ares.configuration import Configuration, Successor
from ares.dap.element import intact
from ares.errors import StoreDamaged
from ares.identity import ConfigurationId, ServerId
from ares.messages import CollectConfig, Element, GetData, Introduce, ListObjects, PutData, Reply, Request, WriteConfig
from ares.pointer import ConflictingSuccessor, advance
from ares.server.facts import Fact, Pointed, Trimmed, fact_bytes_max, pointed_bytes
from ares.server.hosting import Hosting
from ares.server.places import Ledger, PlacedHosting
from ares.server.replica import Replica

_Pointer = tuple[Successor | None, bool]


class Outlasting:
    """``replica`` is for looking at; requests go through :meth:`handle`, after every fact of the journal went through :meth:`restore`."""

    def __init__(self, server: ServerId, identity: str, initial: Configuration) -> None:
        self._ledger = Ledger()
        self._hostings: dict[ConfigurationId, PlacedHosting] = {}
        self._homeless: dict[ConfigurationId, list[tuple[PutData | Trimmed, int]]] = {}
        self.replica = Replica(server, identity, initial, self._host)

    def _host(self, configuration: Configuration, position: int) -> PlacedHosting:
        hosting = self._hostings[configuration.id] = PlacedHosting(configuration, position, self._ledger)
        return hosting

    @property
    def died(self) -> int:
        """Bytes of the journal that are no longer needed, ever counted up."""
        return self._ledger.died

    @property
    def live(self) -> Mapping[int, int]:
        """Bytes of the journal that are still needed, about, by place."""
        return self._ledger.live

    # -- serving --------------------------------------------------------------------------------------------------------

    def room(self, request: Request) -> int:
        """How many bytes of journal the fact takes at most that ``request`` may leave; 0 when it cannot change anything."""
        match request:
            case PutData():
                hosting = self._hostings.get(request.configuration)
                if hosting is None or hosting.collected:
                    return 0
                versions = hosting.placed(request.object)
                return 0 if versions is not None and versions.position(request.tag) is not None else fact_bytes_max(request)
            case Introduce():
                return 0 if request.configuration.id in self._hostings else pointed_bytes(request.configuration)
            case WriteConfig() | CollectConfig() | GetData() | ListObjects():
                hosting = self._hostings.get(request.configuration)
                if hosting is None or request.successor is None or not _moves(hosting, request.successor, type(request) is CollectConfig):
                    return 0
                return pointed_bytes(hosting.configuration, request.successor)
        return 0

    def handle(self, request: Request, place: int) -> tuple[Reply | None, Fact | None]:
        """The reply, and the fact that must be durable before it leaves: to be journaled at ``place``."""
        self._ledger.place = place
        match request:
            case PutData():
                return self._put(request)
            case Introduce():
                id = request.configuration.id
            case WriteConfig() | CollectConfig() | GetData() | ListObjects() if request.successor is not None:
                id = request.configuration
            case _:
                return self.replica.handle(request), None
        before = self._pointer(id)
        reply = self.replica.handle(request)
        hosting = self._hostings.get(id)
        if hosting is None or self._pointer(id) == before:
            return reply, None
        hosting.point_from(place)
        return reply, hosting.pointed()

    def _put(self, request: PutData) -> tuple[Reply | None, Fact | None]:
        ledger = self._ledger
        ledger.stored = ledger.passed = False
        reply = self.replica.handle(request)
        if ledger.stored:
            return reply, request
        return reply, Trimmed(request.configuration, request.object, request.tag) if ledger.passed else None

    def _pointer(self, id: ConfigurationId) -> _Pointer | None:
        hosting = self._hostings.get(id)
        return None if hosting is None else (hosting.successor, hosting.collected)

    def replace(self, puts: Iterable[PutData]) -> None:
        """Hold these elements, which are the ones held, where they are in memory now: what the journal has mapped need not be there twice."""
        for put in puts:
            hosting = self._hostings.get(put.configuration)
            versions = hosting.placed(put.object) if hosting is not None else None
            if versions is not None:
                versions.replace(put.tag, put.element)

    # -- restarting -----------------------------------------------------------------------------------------------------

    def restore(self, fact: Fact, place: int) -> None:
        """Join a fact that the journal has at ``place``; elements are not verified, for that would read them all: each is, before it is answered.

        Raises :class:`StoreDamaged` when the fact cannot be this server's.
        """
        self._ledger.place = place
        if isinstance(fact, Pointed):
            self._restore_pointed(fact, place)
            return
        hosting = self._hostings.get(fact.configuration)
        if hosting is None:
            self._homeless.setdefault(fact.configuration, []).append((fact, place))
        elif isinstance(fact, PutData):
            hosting.keep(fact.object, fact.tag, fact.element)
        else:
            hosting.trim(fact.object, fact.tag)

    def _restore_pointed(self, fact: Pointed, place: int) -> None:
        refusal = self.replica.introduce(fact.configuration)
        if refusal is not None:
            raise StoreDamaged(f"of {self.replica.server}", f"it tells of a configuration that cannot be: {refusal[1]}")
        hosting = self._hostings[fact.configuration.id]
        try:
            if fact.successor is not None:
                hosting.install(fact.successor)
        except ConflictingSuccessor as error:
            raise StoreDamaged(f"of {self.replica.server}", f"it tells of a successor that cannot be: {error}") from error
        if fact.collected and not hosting.collected:
            hosting.let_go()
        if hosting.pointed() == fact:
            hosting.point_from(place)
        for waiting, its_place in self._homeless.pop(fact.configuration.id, []):
            self.restore(waiting, its_place)

    def restored(self) -> None:
        """Every fact was given. Raises :class:`StoreDamaged` if some belong to no configuration: a configuration is durable before what it holds."""
        if self._homeless:
            raise StoreDamaged(f"of {self.replica.server}", f"it has objects of {len(self._homeless)} configurations that it knows nothing of")

    # -- giving space back ----------------------------------------------------------------------------------------------

    def surviving(self, fact: Fact, place: int) -> Fact | None:
        """What must be kept of a fact at ``place`` when that place goes.

        Of an element that rotted: its tag, with no data, which is as good as missing.
        """
        if isinstance(fact, Pointed):
            hosting = self._hostings.get(fact.configuration.id)
            is_told_here = hosting is not None and hosting.pointed_place == place and hosting.pointed() == fact
            return fact if is_told_here else None
        hosting = self._hostings.get(fact.configuration)
        versions = hosting.placed(fact.object) if hosting is not None else None
        if versions is None:
            return None
        position = versions.position(fact.tag)
        if position is None:
            is_told_here = versions.trimmed == fact.tag and versions.trimmed_place == place
            return Trimmed(fact.configuration, fact.object, fact.tag) if is_told_here else None
        if not isinstance(fact, PutData) or versions.places[position] != place:
            return None
        if intact(fact.configuration, fact.object, fact.tag, fact.element):
            return fact
        rotten = fact.element
        return msgspec.structs.replace(fact, element=Element(rotten.index, rotten.length, rotten.checksum, ()))

    def move(self, fact: Fact, place: int) -> None:
        """``fact``, which survived, is journaled at ``place`` too; forget where else it is."""
        if isinstance(fact, Pointed):
            self._hostings[fact.configuration.id].point_from(place)
        else:
            self._hostings[fact.configuration].move(fact, place)


def _moves(hosting: Hosting, successor: Successor, collecting: bool) -> bool:
    try:
        after = advance(hosting.configuration, hosting.successor, successor)
    except ConflictingSuccessor:
        return False
    return after != hosting.successor or (collecting and after.finalized and not hosting.collected)
