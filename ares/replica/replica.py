"""A storage server as a function: a request in, a reply out; no I/O.

See ARES II Alg. 4, and docs/protocol.md, Rules.

A server is a member of a configuration under its own identity, or refuses. A client introduces an
unknown configuration with the content. Before the server keeps state, the server checks its
membership and the absence of another configuration at the same place. A server restarted without
the old state has a new identity; configurations with the old identity are refused: this counts as a
crash, which reconfiguration repairs.

The papers' servers keep their state for ever; a server of ours with a journal restarts. The replica
names the facts to be journaled, and is rebuilt from them (ares/replica/facts.py), in any order.
Hence the journal may copy a fact to its end and forget the old place, which gives space back; a
crash in between leaves a fact twice, without harm. :meth:`Replica.surviving` returns the part to
keep of a fact when its place is about to go.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from itertools import count

import msgspec
from msgspec import Struct

from ares.dap.version_list import capacity
from ares.model.configuration import Configuration, ConflictingSuccessor, Successor, advance
from ares.model.element import hollow, intact, is_hollow
from ares.model.errors import AresError, BadInput, StoreDamaged
from ares.model.identity import (
    VALUE_BYTES_DEFAULT,
    ConfigurationId,
    DomainName,
    ServerId,
)
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    Ack,
    Adopt,
    AheadReply,
    CollectConfig,
    CopyOutcome,
    Describe,
    Description,
    Drop,
    Element,
    Finalize,
    GetData,
    Introduce,
    Keyed,
    ListObjects,
    Located,
    Message,
    PutAhead,
    PutData,
    QueryList,
    Reason,
    Refused,
    Reply,
    Request,
    Where,
    WriteConfig,
)
from ares.replica.ahead_copies import AheadCopies
from ares.replica.configuration_state import BadElement, Clock, ConfigurationState, no_clock
from ares.replica.facts import (
    PLACE_BYTES_MAX,
    ConfigurationRecord,
    ConfigurationUsage,
    Fact,
    JournalUsage,
    Key,
    NamesDropped,
    TagsTrimmed,
    dropped_bytes_max,
    fact_bytes_max,
    pointed_bytes,
)
from ares.replica.object_table import PythonObjectTable
from ares.replica.port import BatchReplay, NewTable, RunReplay
from ares.replica.recent_changes import CHANGES_KEPT, RecentChanges

_REASON_OF_ERROR = {
    ConflictingSuccessor: Reason.CONFLICTING_SUCCESSOR,
    BadElement: Reason.BAD_ELEMENT,
    BadInput: Reason.BAD_REQUEST,
}
_REFUSED_ERRORS = tuple(_REASON_OF_ERROR)

ADOPTED_BYTES_MAX = 1024 * 1024
"""Bytes of elements after which a request to adopt ends; the mover asks for the rest again."""

Pointing = Introduce | Finalize | WriteConfig | CollectConfig | GetData | ListObjects | QueryList
"""Requests with a possible change of a pointer."""


class ReplicaParts(Struct, frozen=True):
    """The parts of a replica that differ between surroundings."""

    clock: Clock = no_clock
    """See :class:`ares.replica.configuration_state.ConfigurationState`."""

    value_bytes: int = VALUE_BYTES_DEFAULT
    """Bytes of the largest value taken from clients."""

    new_table: NewTable = PythonObjectTable
    """Makes the table of a configuration's objects."""

    replay: BatchReplay | None = None
    """Joins usual batches of a journal into such tables; None: each fact is joined."""

    replay_run: RunReplay | None = None
    """Joins usual batches in a row."""

    new_epoch: Callable[[], int] = count(1).__next__
    """Numbers the lists of changes for watches; a process that may restart draws them at random."""

    changes_kept: int = CHANGES_KEPT


USUAL_PARTS = ReplicaParts()

RELEASED_AT_ONCE, RELEASE_STEPS = 1000, 10
"""Lists of collected configurations whose memory is freed at a time, and looks at a configuration.

A look frees the same part of the Lists; hence thousands of small configurations take many times.
"""


Homeless = PutData | TagsTrimmed | NamesDropped | memoryview
"""A fact of a configuration that is not known yet, or an encoded batch with such facts."""


class Replica:
    """The state of a storage server.

    ``initial``: c0 of the cluster file, the only configuration accepted at this place.
    ``journaled``: the server has a journal, which first gives all facts to :meth:`restore`;
    afterwards requests in need of room (:class:`ares.model.messages.NeededRoom`) go through
    :meth:`put` and :meth:`point`. ``account``: the account of the journal. ``ahead``: copies for
    configurations that may be decided, in memory (rule R24). ``changes``: for watches (rule R26).
    """

    def __init__(
        self,
        server: ServerId,
        identity: str,
        initial: Configuration,
        journaled: bool = False,
        parts: ReplicaParts = USUAL_PARTS,
    ) -> None:
        self.server = server
        self.identity = identity
        self.journaled = journaled
        self.account = JournalUsage()
        self.changes = RecentChanges(parts.new_epoch, parts.changes_kept)
        self.ahead = AheadCopies(parts.clock)
        self._releasing: dict[ConfigurationId, ConfigurationState] = {}
        """The collected configurations which may have memory to be freed."""
        self._cluster = initial.cluster_id
        self._parts = parts
        self._hosted: dict[ConfigurationId, ConfigurationState] = {}
        self._places: dict[tuple[DomainName, int], ConfigurationId] = {
            (initial.domain, initial.index): initial.id
        }
        self._final: dict[DomainName, Configuration] = {}
        self._restoring = False
        self._places_read: set[int] = set()
        self._homeless: dict[ConfigurationId, list[tuple[Homeless, int]]] = {}
        self.introduce(initial)

    # -- serving -----------------------------------------------------------------------------------

    def handle(self, request: Request) -> Reply | None:
        """Return the reply; None: no reply is due. Never raises for a client's input."""
        if isinstance(request, Introduce):
            return self._introduced(request)
        if isinstance(request, Describe):
            return self.describe(request)
        if isinstance(request, Where):
            return Located(request.call, self._final.get(request.domain))
        if isinstance(request, PutAhead):
            return self._hold(request)
        if isinstance(request, Adopt):
            return self.adopt(request, self.answer)
        if isinstance(request, Drop):
            return self.drop(request, 0)[0]
        return self.answer(request)

    def answer(self, request: Keyed) -> Reply:
        """Return the reply to a request about a configuration.

        Never raises for a client's input.
        """
        hosting = self._hosted.get(request.configuration)
        if hosting is None:
            return Refused(request.call, Reason.UNKNOWN_CONFIGURATION, "introduce it")
        try:
            return hosting.answers[type(request)](request)
        except _REFUSED_ERRORS as error:
            return _refused(request, error)

    def _hold(self, request: PutAhead) -> AheadReply:
        """Hold a copy, unless the version is here, or another configuration has its place."""
        id, place = request.configuration, (request.domain, request.index)
        hosting, final = self._hosted.get(id), self._final.get(request.domain)
        is_late = (final is not None and final.index >= request.index) or (
            hosting is not None and hosting.knows(request.object, request.tag)
        )
        held = not is_late and self._places.get(place, id) == id and self.ahead.hold(request)
        return AheadReply(
            request.call, bytes([CopyOutcome.DONE if held else CopyOutcome.MISSING]), None
        )

    def adopt(self, request: Adopt, put: Callable[[PutData], Reply | None]) -> Reply | None:
        """Store the copies held of these versions; return None if ``put`` has no reply.

        ``put`` stores an element as if a client had sent it: every check of a PutData is made now,
        and none before. A tag stands for a single value, hence a copy of the wished tag is the
        wished version, whoever made the copy (rule R24).
        """
        id = request.configuration
        hosting = self._hosted.get(id)
        if hosting is None:
            return Refused(request.call, Reason.UNKNOWN_CONFIGURATION, "introduce it")
        self.ahead.touch(id)
        outcomes, size = bytearray(), 0
        for object, tag in [(version.name, version.tag) for version in request.versions]:
            if size > ADOPTED_BYTES_MAX:
                break
            if hosting.knows(object, tag):
                outcomes.append(CopyOutcome.KNOWN)
                continue
            element = self.ahead.take(id, object, tag)
            reply = None
            if element is not None:
                size += element.size
                reply = put(PutData(request.call, id, object, tag, element))
                if reply is None:
                    return None
            outcomes.append(CopyOutcome.DONE if isinstance(reply, Ack) else CopyOutcome.MISSING)
        return AheadReply(request.call, bytes(outcomes), hosting.successor)

    def put_room(self, request: PutData) -> int:
        """Return the most bytes of journal needed by :meth:`put`; 0 without a change of state."""
        hosting = self._hosted.get(request.configuration)
        known = hosting is None or hosting.knows(request.object, request.tag)
        return 0 if known else fact_bytes_max(request)

    def pointer_room(self, request: Pointing) -> int:
        """Return the most bytes of journal needed by :meth:`point`; 0 without a change of state."""
        if isinstance(request, Introduce):
            known = request.configuration.id in self._hosted
            return 0 if known else pointed_bytes(request.configuration)
        hosting = self._hosted.get(request.configuration)
        if hosting is None:
            return 0
        if isinstance(request, Finalize):
            successor, moves = hosting.successor, not hosting.finalized
        else:
            successor = request.successor
            moves = successor is not None and _moves(
                hosting, successor, isinstance(request, CollectConfig)
            )
        return pointed_bytes(hosting.configuration, successor) if moves else 0

    def put(self, request: PutData, place: int) -> tuple[Reply, Fact | None]:
        """Return the reply, and the fact which must be durable before the reply leaves.

        The fact is to be journaled at ``place``.
        """
        hosting = self._hosted.get(request.configuration)
        if hosting is None:
            return self.answer(request), None
        try:
            fact = hosting.put(request, place)
        except _REFUSED_ERRORS as error:
            return _refused(request, error), None
        return Ack(request.call, hosting.successor), fact

    def point(self, request: Pointing, place: int) -> tuple[Reply | None, Fact | None]:
        """Return the reply, and the fact which must be durable before the reply leaves.

        The fact is to be journaled at ``place``.
        """
        id = request.configuration.id if isinstance(request, Introduce) else request.configuration
        hosting = self._hosted.get(id)
        before = None if hosting is None else hosting.pointed()
        reply = self.handle(request)
        hosting = self._hosted.get(id)
        if hosting is None or hosting.pointed() == before:
            return reply, None
        hosting.point_from(place)
        return reply, hosting.pointed()

    def drop_room(self, request: Drop) -> int:
        """Return the most bytes of journal needed by :meth:`drop`; 0 without a change of state."""
        hosting = self._hosted.get(request.configuration)
        if hosting is None or not any(
            hosting.objects.newest(name) is not None for name in request.names
        ):
            return 0
        places = hosting.capacity * len(request.names)
        return dropped_bytes_max(request.names) + PLACE_BYTES_MAX * places

    def drop(self, request: Drop, place: int) -> tuple[Reply, Fact | None]:
        """Return the reply, and the fact which must be durable before the reply leaves.

        The fact is to be journaled at ``place``. Copies ahead of the names go, too: they would be
        litter after a move.
        """
        hosting = self._hosted.get(request.configuration)
        if hosting is None:
            return self.answer(request), None
        try:
            fact = hosting.drop(request, place)
        except _REFUSED_ERRORS as error:
            return _refused(request, error), None
        self.ahead.drop_names(hosting.configuration.domain, request.names)
        return Ack(request.call, hosting.successor), fact

    def replace(self, puts: Iterable[PutData]) -> None:
        """Hold these elements, equal to the held elements, at their new addresses in memory.

        Data mapped by the journal need not be in memory twice.
        """
        for put in puts:
            hosting = self._hosted.get(put.configuration)
            if hosting is not None:
                hosting.objects.replace(put.object, put.tag, put.element)

    def introduce(self, configuration: Configuration) -> tuple[Reason, str] | None:
        """Keep state for ``configuration``, or return the reason of a refusal."""
        position = next(
            (
                position
                for position, server in enumerate(configuration.servers)
                if server.id == self.server
            ),
            None,
        )
        if position is None:
            return Reason.NOT_A_MEMBER, f"{self.server} is not in {configuration.describe()}"
        if configuration.dap == "chain":
            return Reason.BAD_REQUEST, "a chain holds a log, and no objects"
        place = (configuration.domain, configuration.index)
        if (
            configuration.cluster_id != self._cluster
            or self._places.get(place, configuration.id) != configuration.id
        ):
            return (
                Reason.OTHER_CLUSTER,
                f"index {place[1]} of domain {place[0]!r} is another configuration here: is this "
                "the right cluster file?",
            )
        if configuration.servers[position].identity != self.identity:
            return (
                Reason.IDENTITY,
                f"{self.server} was restarted and lost its memory; reconfigure to take it in anew",
            )
        if configuration.id not in self._hosted:
            usage = ConfigurationUsage(self.account) if self.journaled else None
            hosting = ConfigurationState(
                configuration,
                position,
                self._parts.clock,
                self._parts.new_table(capacity(configuration), usage),
                self._note_final,
                self._parts.value_bytes,
            )
            hosting.changes = self.changes
            if self._restoring:
                hosting.begin_restoring()
            hosting.answers[CollectConfig] = partial(self._collect, hosting)
            self._hosted[configuration.id] = hosting
            if configuration.index == 0:
                self._note_final(configuration)
        self._places[place] = configuration.id
        self.ahead.keep_only(configuration)
        return None

    def _collect(self, hosting: ConfigurationState, request: CollectConfig) -> Reply:
        reply = hosting.collect(request)
        if hosting.collected:
            self._releasing[hosting.configuration.id] = hosting
        return reply

    def _note_final(self, configuration: Configuration) -> None:
        """Record a configuration that may be named (rule R21).

        A domain's first configuration may always be named: no version completed earlier.
        """
        named = self._final.get(configuration.domain)
        if named is None or named.index < configuration.index:
            self._final[configuration.domain] = configuration
            self.ahead.drop_until(configuration)

    @property
    def hosted(self) -> Mapping[ConfigurationId, ConfigurationState]:
        """Return the hosted configurations, for reading only."""
        return self._hosted

    def describe(self, request: Describe) -> Description:
        hosted = (
            () if request.brief else tuple(hosting.describe() for hosting in self._hosted.values())
        )
        return Description(
            *(request.call, self.server, self.identity, self._cluster, "", 0.0, 0, hosted),
            side_by_side=True,
            ahead=True,
            copying_s=0.0 if request.copies_of is None else self.ahead.copying_s(request.copies_of),
            write_once=True,
            watches=True,
        )

    def _introduced(self, request: Introduce) -> Reply | None:
        try:
            request.configuration.check_bounds()
        except BadInput as error:
            return refusal(request, Reason.BAD_REQUEST, str(error))
        refused = self.introduce(request.configuration)
        return None if refused is None else refusal(request, *refused)

    # -- restarting --------------------------------------------------------------------------------

    def begin_restoring(self) -> None:
        """Begin to restore: every fact of a journal follows, and :meth:`restored` is the end.

        No request is served until the end.
        """
        self._restoring = True
        for hosting in self._hosted.values():
            hosting.begin_restoring()

    def restore(self, fact: Fact, place: int) -> None:
        """Join a fact which the journal has at ``place``.

        Elements are not verified, which would read them all: each is verified before an answer.
        Raises :class:`StoreDamaged` when the fact cannot be this server's.
        """
        self._places_read.add(place)
        if isinstance(fact, ConfigurationRecord):
            self._restore_pointed(fact, place)
            return
        hosting = self._hosted.get(fact.configuration)
        if hosting is None:
            self._homeless.setdefault(fact.configuration, []).append((fact, place))
        else:
            hosting.restore(fact, place)

    def restore_batch(self, body: memoryview, place: int) -> bool:
        """Join the facts of a batch at ``place`` of the journal; return False without any effect.

        The batch is encoded (ares/store/journal/format.py), and need not be decoded: this is quick,
        and takes no memory for facts of configurations that a later batch introduces.
        """
        self._places_read.add(place)
        replay = self._parts.replay
        unknown = None if replay is None else replay(self._hosted, body, place)
        for id in unknown or ():
            self._homeless.setdefault(id, []).append((body, place))
        return unknown is not None

    def restore_run(
        self, frames: memoryview, salt: int, sequence: int, place: int
    ) -> tuple[int, int]:
        """Join usual batches in a row; see :class:`ares.replica.port.RunReplay`."""
        self._places_read.add(place)
        replay = self._parts.replay_run
        return (0, 0) if replay is None else replay(self._hosted, frames, salt, sequence, place)

    def _replayed(self, body: memoryview, place: int, only: ConfigurationId) -> bool:
        replay = self._parts.replay
        return replay is not None and replay(self._hosted, body, place, only) is not None

    def _restore_pointed(self, fact: ConfigurationRecord, place: int) -> None:
        refused = self.introduce(fact.configuration)
        if refused is not None:
            raise StoreDamaged(
                f"of {self.server}", f"it tells of a configuration that cannot be: {refused[1]}"
            )
        hosting = self._hosted[fact.configuration.id]
        try:
            if fact.successor is not None:
                hosting.install(fact.successor)
        except ConflictingSuccessor as error:
            raise StoreDamaged(
                f"of {self.server}", f"it tells of a successor that cannot be: {error}"
            ) from error
        if fact.collected and not hosting.collected:
            hosting.let_go()
            self._releasing[hosting.configuration.id] = hosting
        if fact.finalized:
            hosting.mark_finalized()
        if hosting.is_recorded_by(fact):
            hosting.point_from(place)
        for waiting, its_place in self._homeless.pop(fact.configuration.id, []):
            if not isinstance(waiting, memoryview):
                self.restore(waiting, its_place)
            elif not self._replayed(waiting, its_place, fact.configuration.id):
                raise StoreDamaged(
                    f"of {self.server}", f"a batch of place {its_place} cannot be joined again"
                )

    def restored(self) -> None:
        """End the restoring after the last fact.

        Raises :class:`StoreDamaged` if some facts belong to no configuration: a configuration is
        durable before its contents.
        """
        if self._homeless:
            raise StoreDamaged(
                f"of {self.server}",
                f"it has objects of {len(self._homeless)} configurations that it does not know",
            )
        for hosting in self._hosted.values():
            hosting.restored()
            hosting.drop_records.keep_only(self._places_read)
        self._places_read.clear()
        self._restoring = False

    # -- giving space back -------------------------------------------------------------------------

    def surviving(self, fact: Fact, place: int) -> Fact | None:
        """Return the part to keep of a fact at ``place`` when this place goes.

        For a rotten element the part is the tag without data, which counts as missing.
        """
        if isinstance(fact, ConfigurationRecord):
            hosting = self._hosted.get(fact.configuration.id)
            return (
                hosting.pointed()
                if hosting is not None
                and hosting.pointed_place == place
                and hosting.is_recorded_by(fact)
                else None
            )
        hosting = self._hosted.get(fact.configuration)
        if hosting is None:
            return None
        if isinstance(fact, NamesDropped):
            return hosting.drop_records.surviving(fact, place)
        held = hosting.objects.version(fact.object, fact.tag)
        if held is None:
            is_told_here = hosting.objects.trimmed(fact.object) == (fact.tag, place)
            return TagsTrimmed(fact.configuration, fact.object, fact.tag) if is_told_here else None
        if not isinstance(fact, PutData) or held[2] != place:
            return None
        if intact(fact.configuration, fact.object, fact.tag, fact.element):
            return fact
        return msgspec.structs.replace(fact, element=hollow(fact.element))

    def held_at(self, place: int, readable: Container[Key] | None = None) -> Iterator[Fact | None]:
        """Yield the held facts at ``place``, from memory, with a None for some objects examined.

        ``place`` receives no new facts. ``readable``: large elements with readable data; the disk
        cannot be read at further large elements, which come hollow. None: all are readable.
        """
        for hosting in list(self._hosted.values()):
            yield hosting.pointed() if hosting.pointed_place == place else None
            yield from hosting.held_at(place, readable)

    def move(self, fact: Fact, place: int) -> None:
        """Record ``place`` as the only place in the journal of the surviving ``fact``."""
        if isinstance(fact, ConfigurationRecord):
            self._hosted[fact.configuration.id].point_from(place)
        else:
            self._hosted[fact.configuration].move(fact, place)

    def give_back(self, place: int) -> None:
        """Note that ``place`` exists no more: its facts are journaled elsewhere, or not needed."""
        for hosting in self._hosted.values():
            hosting.drop_records.give_back(place)

    @property
    def has_dropped(self) -> bool:
        """Return whether collected configurations may have memory to be freed."""
        return bool(self._releasing)

    def release(self) -> bool:
        """Free some memory of collected configurations; return whether more is to be freed."""
        for _ in range(RELEASE_STEPS):
            if not self._releasing:
                return False
            id, hosting = next(iter(self._releasing.items()))
            if not hosting.release(RELEASED_AT_ONCE // RELEASE_STEPS):
                del self._releasing[id]
        return self.has_dropped

    # -- elements that rotted ----------------------------------------------------------------------

    @property
    def quarantined(self) -> list[Key]:
        """Return the versions whose element is held hollow, and missed.

        A configuration with a finalized successor needs no elements any more.
        """
        self.account.hollows = {
            key: None for key in self.account.hollows if self.is_quarantined(key)
        }
        return list(self.account.hollows)

    def is_quarantined(self, key: Key) -> bool:
        """Return whether this version's element is among :attr:`quarantined`."""
        element = self._element(key)
        if element is None or not is_hollow(element):
            return False
        successor = self._hosted[key[0]].successor
        return successor is None or not successor.finalized

    def missing_bytes(self, key: Key) -> int:
        """Return the size of the whole value of the missed element."""
        element = self._element(key)
        return element.length if element is not None else 0

    def take_suspects(self) -> list[int]:
        """Return and clear the places where a read found damage."""
        suspects, self.account.suspects = list(self.account.suspects), {}
        return suspects

    def _element(self, key: Key) -> Element | None:
        hosting = self._hosted.get(key[0])
        held = None if hosting is None else hosting.objects.version(key[1], key[2])
        return None if held is None else held[1]


def refusal(request: Message, reason: Reason, detail: str) -> Refused:
    """Return a refusal with the begin of ``detail``, which may repeat the request at length."""
    return Refused(request.call, reason, detail[:DETAIL_CHARACTERS_MAX])


def _refused(request: Message, error: AresError) -> Refused:
    return refusal(
        request,
        next(reason for kind, reason in _REASON_OF_ERROR.items() if isinstance(error, kind)),
        str(error),
    )


def _moves(hosting: ConfigurationState, successor: Successor, collecting: bool) -> bool:
    try:
        after = advance(hosting.configuration, hosting.successor, successor)
    except ConflictingSuccessor:
        return False
    return after != hosting.successor or (collecting and after.finalized and not hosting.collected)
