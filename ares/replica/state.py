"""A replica that tells which facts must be journaled, and is put together again from them.

The papers' servers keep their state for ever; ours restart (docs/protocol.md, Rules). What a journal holds are facts (ares/replica/facts.py), joined
in any order. So it may copy a fact to its end and forget the old place, which is how it gives space back, and a crash in the middle of that leaves a
fact twice: no harm. What is left of a fact that its place is about to forget says :meth:`Outlasting.surviving`.
"""

from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from ares.model.configuration import Configuration, ConflictingSuccessor, Successor, advance
from ares.model.element import hollow, intact, is_hollow
from ares.model.errors import StoreDamaged
from ares.model.identity import ConfigurationId, ServerId
from ares.model.messages import CollectConfig, GetData, GetTag, Introduce, ListObjects, PutData, Reply, Request, WriteConfig
from ares.replica.facts import Fact, Pointed, Trimmed, fact_bytes_max, pointed_bytes
from ares.replica.hosting import Clock, Hosting, no_clock
from ares.replica.placed_hosting import PlacedHosting
from ares.replica.places import Key, Ledger
from ares.replica.replica import Replica

_Pointer = tuple[Successor | None, bool]


class Outlasting:
    """Requests go through :meth:`handle`, after every fact of the journal went through :meth:`restore`. ``replica``, ``ledger``: for looking at.

    ``clock``: see :class:`ares.replica.hosting.Hosting`."""

    def __init__(self, server: ServerId, identity: str, initial: Configuration, clock: Clock = no_clock) -> None:
        self._clock = clock
        self.ledger = Ledger()
        self._hostings: dict[ConfigurationId, PlacedHosting] = {}
        self._restoring = False
        self._homeless: dict[ConfigurationId, list[tuple[PutData | Trimmed, int]]] = {}
        self.replica = Replica(server, identity, initial, self._host)

    def _host(self, configuration: Configuration, position: int) -> PlacedHosting:
        hosting = self._hostings[configuration.id] = PlacedHosting(configuration, position, self.ledger, self._clock)
        if self._restoring:
            hosting.begin_restoring()
        return hosting

    @property
    def died(self) -> int:
        """Bytes of the journal that are no longer needed, ever counted up."""
        return self.ledger.died

    @property
    def live(self) -> Mapping[int, int]:
        """Bytes of the journal that are still needed, about, by place."""
        return self.ledger.live

    @property
    def quarantined(self) -> list[Key]:
        """The versions whose element is held hollow, and is missed: a configuration whose successor is finalized needs its elements no more."""
        ledger = self.ledger
        ledger.hollows = {key: None for key in ledger.hollows if self._is_hollow(key)}
        return [key for key in ledger.hollows if not self._is_left(key[0])]

    @property
    def repaired(self) -> int:
        """How many quarantined elements were put again."""
        return self.ledger.repaired

    def take_suspects(self) -> list[int]:
        """Places at which something was found damaged when it was asked for, since the last time."""
        suspects, self.ledger.suspects = list(self.ledger.suspects), {}
        return suspects

    def missing_bytes(self, key: Key) -> int:
        """How large the whole value is of which an element is missed."""
        versions = self._hostings[key[0]].placed(key[1])
        element = versions.element(key[2]) if versions is not None else None
        return element.length if element is not None else 0

    def is_quarantined(self, key: Key) -> bool:
        """Whether this version's element is among :attr:`quarantined`."""
        return self._is_hollow(key) and not self._is_left(key[0])

    def _is_hollow(self, key: Key) -> bool:
        hosting = self._hostings.get(key[0])
        versions = hosting.placed(key[1]) if hosting is not None else None
        element = versions.element(key[2]) if versions is not None else None
        return element is not None and is_hollow(element)

    def _is_left(self, id: ConfigurationId) -> bool:
        successor = self._hostings[id].successor
        return successor is not None and successor.finalized

    # -- serving --------------------------------------------------------------------------------------------------------

    def room(self, request: Request) -> int:
        """How many bytes of journal the fact takes at most that ``request`` may leave; 0 when it cannot change anything."""
        match request:  # what comes most first: to look at one class after the other takes as long as to answer
            case GetTag():
                return 0
            case PutData():
                hosting = self._hostings.get(request.configuration)
                return 0 if hosting is None or hosting.knows(request.object, request.tag) else fact_bytes_max(request)
            case GetData() if request.successor is None:
                return 0
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
        self.ledger.place = place
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

    def _put(self, request: PutData) -> tuple[Reply, Fact | None]:
        ledger = self.ledger
        ledger.stored = ledger.passed = False
        reply = self.replica.answer(request)
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

    def begin_restoring(self) -> None:
        """Every fact of a journal follows, then :meth:`restored`; nothing is served until then."""
        self._restoring = True
        for hosting in self._hostings.values():
            hosting.begin_restoring()

    def restore(self, fact: Fact, place: int) -> None:
        """Join a fact that the journal has at ``place``; elements are not verified, for that would read them all: each is, before it is answered.

        Raises :class:`StoreDamaged` when the fact cannot be this server's.
        """
        self.ledger.place = place
        if isinstance(fact, Pointed):
            self._restore_pointed(fact, place)
            return
        hosting = self._hostings.get(fact.configuration)
        if hosting is None:
            self._homeless.setdefault(fact.configuration, []).append((fact, place))
        elif isinstance(fact, PutData):
            hosting.restore(fact, place)
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
        for hosting in self._hostings.values():
            hosting.restored()
        self._restoring = False

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
        return msgspec.structs.replace(fact, element=hollow(fact.element))

    def held_at(self, place: int, readable: Container[Key] | None = None) -> Iterator[Fact | None]:
        """What is held of the facts at ``place``, from memory, with a None for each object that was looked at. ``place`` gets no more of them.

        ``readable``: large elements whose data may be looked at, for those of others are where the disk cannot be read; they come hollow. None: all.
        """
        for hosting in list(self._hostings.values()):
            yield hosting.pointed() if hosting.pointed_place == place else None
            yield from hosting.held_at(place, readable)

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
