"""Every request and reply, typed and frozen, and the table of requests.

A request is classified by its type: the table names its handler, its answer, the rights that it
needs, the state that its answer shows, and the fact for which it may need room.

Bytes exist only in the codec. A request names its configuration by id (domain and index are part of
the digest) and a call; the reply names the call. A server's reply about a configuration carries
that configuration's ``successor`` (nextC): a client learns of a reconfiguration from any answer
(ARES II section 5.1, piggyback). Names follow Alg. 3-5; the paper's message is given where its name
differs.
"""

import enum
from functools import partial
from typing import Annotated, get_args

from msgspec import Meta, Struct

from ares.model.configuration import DELTA_MAX, Configuration, Successor
from ares.model.decision import USAGES_MAX as USAGES_MAX
from ares.model.decision import ConsensusDescription as ConsensusDescription
from ares.model.decision import Decided as Decided
from ares.model.decision import DescribeConsensus as DescribeConsensus
from ares.model.decision import FollowReport as FollowReport
from ares.model.decision import GetHint as GetHint
from ares.model.decision import Hint as Hint
from ares.model.decision import Propose as Propose
from ares.model.decision import TellFinalized as TellFinalized
from ares.model.decision import Undecided as Undecided
from ares.model.element import DELETED_LENGTH as DELETED_LENGTH
from ares.model.element import ELEMENT_PARTS_MAX as ELEMENT_PARTS_MAX
from ares.model.element import LEFT_LENGTH as LEFT_LENGTH
from ares.model.element import Element as Element
from ares.model.element import ValueLength
from ares.model.errors import BadInput
from ares.model.identity import (
    DOMAIN_BYTES_MAX,
    ConfigurationId,
    DomainName,
    ObjectName,
    ServerId,
)
from ares.model.listing_messages import PAGE_OBJECTS_MAX as PAGE_OBJECTS_MAX
from ares.model.listing_messages import ChangedObjects as ChangedObjects
from ares.model.listing_messages import ListedObject as ListedObject
from ares.model.listing_messages import ListObjects as ListObjects
from ares.model.listing_messages import ObjectsReply as ObjectsReply
from ares.model.listing_messages import WatchObjects as WatchObjects
from ares.model.log_messages import (
    Append,
    Appended,
    AwaitAppend,
    ChainReply,
    ChainReport,
    ChainRequest,
    Committed,
    EachRead,
    Fetch,
    Fetched,
    Forward,
    GivenBack,
    LogEntries,
    Look,
    LookDone,
    LookRow,
    ReadEach,
    ReadLog,
    RowFound,
    Seal,
    SealDone,
    Stand,
    Stood,
    TakeBack,
    Trim,
    TrimDone,
)
from ares.model.message import HandledBy as HandledBy
from ares.model.message import Message as Message
from ares.model.message import NeededRoom as NeededRoom
from ares.model.message import RequestKind, Spent, Trace
from ares.model.message import Role as Role
from ares.model.message import ShownState as ShownState
from ares.model.numbers import POSITION_MAX, Count, Rate, Seconds
from ares.model.numbers import Durations as Durations
from ares.model.tag import Tag
from ares.model.work import CONFIGURATION_WORK, LISTED_WORK, REQUEST_WORK

LEFT_NAMED_MAX = 20
"""Names of objects left behind by a move, for each configuration described."""

EARLIER_MAX = 64
"""Chains of a log told together with a new chain: the unfinalized ones, and the chain before them.
"""

SITES_REPORTED_MAX = 64
"""Sites in a domain's usage."""

ADOPTED_MAX = DROPPED_MAX = 256
"""Versions in a request to adopt copies, and names in a request to drop names: about as much work
as two turns have room for.
"""


# -- to a storage server ---------------------------------------------------------------------------


class GetTag(Message, frozen=True, tag=1):
    """QUERY-TAG (Alg. 3:3, Alg. 4:4)."""

    configuration: ConfigurationId
    object: ObjectName
    trace: Trace = None


class GetData(Message, frozen=True, tag=2):
    """QUERY-LIST (Alg. 3:10, Alg. 4:8): all tags, and the element of ``wanted`` or of the newest.

    A large element comes only if ``element`` is set: k servers are asked for elements, the rest for
    tags. ``successor`` is rule R1: install the successor before the answer. ``held``: the client
    has this version; no element comes unless the newest version is above (the optimised DAPs of
    CoARES).
    """

    configuration: ConfigurationId
    object: ObjectName
    element: bool
    wanted: Tag | None = None
    successor: Successor | None = None
    held: Tag | None = None
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


class PutData(Message, frozen=True, tag=3):
    """PUT-DATA (Alg. 3:25, Alg. 4:16)."""

    configuration: ConfigurationId
    object: ObjectName
    tag: Tag
    element: Element
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return self.element.bulk


class ReadConfig(Message, frozen=True, tag=4):
    """READ-CONFIG (Alg. 4:28): a request for the successor."""

    configuration: ConfigurationId
    trace: Trace = None


class WriteConfig(Message, frozen=True, tag=5):
    """WRITE-CONFIG (Alg. 4:31): put-config."""

    configuration: ConfigurationId
    successor: Successor
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK


class CollectConfig(Message, frozen=True, tag=6):
    """GC-CONFIG (Alg. 4:36): the successor is finalized, drop the data."""

    configuration: ConfigurationId
    successor: Successor
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK


class Introduce(Message, frozen=True, tag=8):
    """The content of a configuration unknown to the server, answered only by a refusal.

    The following request is the question. ``earlier``: for a chain, the earlier configurations of
    its log in order, from the last known finalized configuration on. Raises :class:`BadInput` for a
    configuration without a place in its sequence, hence without an id.
    """

    configuration: Configuration
    earlier: Annotated[tuple[Configuration, ...], Meta(max_length=EARLIER_MAX)] = ()

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK * (1 + len(self.earlier))

    def __post_init__(self) -> None:
        if any(configuration.index < 0 for configuration in (self.configuration, *self.earlier)):
            raise BadInput(
                "a configuration without a place in its sequence cannot have state on a server"
            )


class Describe(Message, frozen=True, tag=9):
    """A request for a server's identity and contents.

    ``brief``: identity only; the contents of a server of thousands of domains make a large answer.
    ``usage_of``: domains whose users are to be reported, too. ``copies_of``: a configuration whose
    copies ahead are to be reported, too (rule R24).
    """

    brief: bool = False
    usage_of: Annotated[tuple[DomainName, ...], Meta(max_length=USAGES_MAX)] = ()
    copies_of: ConfigurationId | None = None

    @property
    def bulk(self) -> int:
        return LISTED_WORK * len(self.usage_of)


class Scrub(Message, frozen=True, tag=10):
    """A request to verify the disk.

    ``begin``: start now, unless a scrub is under way; otherwise only report progress.
    ``bytes_per_s``: speed from now on; 0: the server's configured speed.
    """

    begin: bool
    bytes_per_s: Count = 0


class SetLogLevel(Message, frozen=True, tag=11):
    """A request to a server or a consensus member: log from ``level`` on.

    Levels: debug, info, warning, error. The level holds until the next such request or a restart.
    """

    level: Annotated[str, Meta(max_length=32)]


class PullElement(Message, frozen=True, tag=12):
    """A request to pull the element of a version from servers of ``source``, and store it.

    The server stores the element as if a PutData of the sender had brought it: in such a move data
    travels from server to server. ``length``: bytes of the whole value.
    """

    configuration: ConfigurationId
    object: ObjectName
    tag: Tag
    length: ValueLength
    source: Configuration

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK


class Finalize(Message, frozen=True, tag=13):
    """A statement: this configuration is finalized.

    The server may name the configuration to clients in search of its domain from now on (rule R21).
    """

    configuration: ConfigurationId
    trace: Trace = None


class Where(Message, frozen=True, tag=14):
    """A question: which finalized configuration of the domain do you know?

    The answer may be outdated: a place to begin a traversal.
    """

    domain: Annotated[DomainName, Meta(max_length=DOMAIN_BYTES_MAX)]


class QueryList(Message, frozen=True, tag=15):
    """QUERY-LIST as published (Alg. 4:8): a request for the whole List of an object.

    Only for the algorithms as published (ares/testing/published), which are not atomic: a server
    answers where its cluster file says ``published = true``. ``successor``: rule R1, see GetData.
    ``whole``: with its elements also once the configuration's successor is finalized, as ARES of
    2022 has it (Alg. 4:10-12 come with the piggyback). ``held``: the tag of the client's value, for
    the optimised primitives of CoARES: this tag and lower tags come without elements.
    """

    configuration: ConfigurationId
    object: ObjectName
    successor: Successor | None = None
    whole: bool = False
    trace: Trace = None
    held: Tag | None = None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


class GetAhead(Message, frozen=True, tag=16):
    """A mover's get-data before the decision of the next configuration (rule R24).

    The answer is as to a :class:`GetData` without a successor. The request does not count as a
    request of a user.
    """

    configuration: ConfigurationId
    object: ObjectName
    element: bool
    wanted: Tag | None = None
    trace: Trace = None


class PutAhead(Message, frozen=True, tag=17):
    """A copy of an element for a configuration which is not decided yet, and may never be.

    The server holds the copy in memory, shows it to no client, and drops it after some time, or
    when another configuration takes the place: index ``index`` of ``domain``.
    """

    configuration: ConfigurationId
    object: ObjectName
    tag: Tag
    element: Element
    domain: Annotated[DomainName, Meta(max_length=DOMAIN_BYTES_MAX)]
    index: Count

    @property
    def bulk(self) -> int:
        return self.element.bulk


class ObjectVersion(Struct, frozen=True, array_like=True, gc=False):
    """A version of an object."""

    name: ObjectName
    tag: Tag


class Adopt(Message, frozen=True, tag=18):
    """A request to store the copies held ahead of exactly these versions.

    The server stores an element as if a PutData of the sender had brought it.
    """

    configuration: ConfigurationId
    versions: Annotated[tuple[ObjectVersion, ...], Meta(max_length=ADOPTED_MAX)]

    @property
    def bulk(self) -> int:
        return sum([REQUEST_WORK + len(version.name) for version in self.versions])


class Drop(Message, frozen=True, tag=19):
    """A request to forget names of a write-once domain, without a tombstone (rule R25)."""

    configuration: ConfigurationId
    names: Annotated[tuple[ObjectName, ...], Meta(max_length=DROPPED_MAX)]
    trace: Trace = None

    @property
    def bulk(self) -> int:
        return sum([REQUEST_WORK + len(name) for name in self.names])


# -- from a storage server -------------------------------------------------------------------------


class TagReply(Message, frozen=True, tag=32):
    """The answer to :class:`GetTag`: the highest tag in the List."""

    tag: Tag
    successor: Successor | None
    spent: Spent | None = None


class DataReply(Message, frozen=True, tag=33):
    """The answer to :class:`GetData`.

    ``tags``: newest first. ``length``: of the newest whole value. ``trimmed``: the highest tag ever
    dropped from the List (EC). ``element`` belongs to the wanted tag, by default to the newest;
    None when not asked for or withheld. ``preceding``: each of ``tags`` was here before the server
    heard of a successor.
    """

    tags: Annotated[tuple[Tag, ...], Meta(max_length=DELTA_MAX + 1)]
    length: ValueLength
    trimmed: Tag
    element: Element | None
    successor: Successor | None
    preceding: bool = False
    spent: Spent | None = None

    @property
    def bulk(self) -> int:
        return LISTED_WORK * (len(self.tags) - 1) + (
            0 if self.element is None else self.element.bulk
        )


class Ack(Message, frozen=True, tag=34):
    """Done (put-data, put-config, gc-config), or simply the answer to READ-CONFIG."""

    successor: Successor | None
    spent: Spent | None = None


class Reason(enum.IntEnum):
    """The reason of a server's refusal."""

    UNKNOWN_CONFIGURATION = 1  # introduce it
    NOT_A_MEMBER = 2  # the configuration does not name this server
    IDENTITY = 3  # the configuration names an earlier life of this server, whose state is lost
    OTHER_CLUSTER = (
        4  # another configuration has this place: the client's cluster file is not this cluster's
    )
    CONFLICTING_SUCCESSOR = 5  # rule R2: two decisions for the same index
    BAD_ELEMENT = 6  # the checksum or the index does not fit
    BAD_REQUEST = 7
    STORAGE = 8  # the disk is full: the server changes no data, reads go on
    NOT_AUTHORIZED = 9  # the client's key lacks the right, or is not known (any more)
    NOT_CERTIFIED = 10  # no proof that the consensus service decided this configuration
    NOT_BROUGHT = 11  # the version cannot be had from other servers


DETAIL_CHARACTERS_MAX = 300
"""Characters of a refusal's detail, which may repeat the request."""


class Refused(Message, frozen=True, tag=36):
    """A refusal, with a reason for programs and words for people."""

    reason: Reason
    detail: str


class ConfigurationReport(Struct, frozen=True, array_like=True):
    """A server's state of a configuration; ``bytes`` counts element data.

    ``left``: number of undecodable objects left behind by a move; ``left_names``: the first of
    them. ``chain``: present for a chain, from a server that reports chains.
    """

    configuration: Configuration
    objects: Count
    bytes: Count
    collected: bool
    successor: Successor | None
    left: Count = 0
    left_names: Annotated[tuple[ObjectName, ...], Meta(max_length=LEFT_NAMED_MAX)] = ()
    chain: ChainReport | None = None


class DiskUsage(Struct, frozen=True, array_like=True):
    """The bytes of a durable server's store on its disk, and about how many are still needed.

    ``quarantined``: versions with a damaged element, not repaired yet; ``repaired``: since the
    server's start. ``full``: the disk is full, and changes are refused. ``free_bytes``: room on its
    file system; -1: not reported. ``in_logs``: damaged places of logs, not repaired yet.
    """

    disk_bytes: Count
    live_bytes: Count
    quarantined: Count = 0
    repaired: Count = 0
    full: bool = False
    free_bytes: Annotated[int, Meta(ge=-1, le=POSITION_MAX)] = -1
    in_logs: Count = 0


class ServerWork(Struct, frozen=True, array_like=True):
    """The work of a server since its start.

    ``queries``, ``fetches`` and ``puts``: requests GetTag, GetData and PutData received; QueryList
    counts as GetData. ``reading``, ``writing``: from a request's arrival until its reply left,
    waits for the disk included.
    """

    queries: Count
    fetches: Count
    puts: Count
    received_bytes: Count
    sent_bytes: Count
    reading: Durations
    writing: Durations
    queueing: Durations | None = None
    """Waits of a request before its turn; None from a release that does not tell."""
    committing: Durations | None = None
    """Durations of group commits; None without a disk."""


class AskedFrom(Struct, frozen=True, array_like=True):
    """Recent requests a second from clients at ``site`` to a server."""

    site: str
    per_s: Rate


class Usage(Struct, frozen=True, array_like=True):
    """The use of a domain at a server, by clients with a site.

    ``bytes``: of the elements in the domain's newest configuration at the server.
    """

    domain: DomainName
    bytes: Count
    asked: Annotated[tuple[AskedFrom, ...], Meta(max_length=SITES_REPORTED_MAX)]


class Description(Message, frozen=True, tag=37):
    """The answer to :class:`Describe`.

    ``cluster``: the id of c0 in the server's cluster file. ``unknown_keys``: refused attempts to
    connect. ``stored``: None if the server keeps all data in memory. ``work``: None from a release
    without this field. ``usage``: of the domains asked for which the server has. ``core``: the
    implementation of small operations, ``rust`` or ``python``; empty from a release without this
    field. ``side_by_side``: the server understands chains that commit side by side; False from a
    release without this field.
    """

    server: ServerId
    identity: str
    cluster: bytes
    version: str
    uptime_s: Seconds
    memory_bytes: Count
    hosted: tuple[ConfigurationReport, ...]
    unknown_keys: Count = 0
    stored: DiskUsage | None = None
    work: ServerWork | None = None
    usage: Annotated[tuple[Usage, ...], Meta(max_length=USAGES_MAX)] = ()
    core: str = ""
    side_by_side: bool = False
    ahead: bool = False
    """The server takes copies ahead of a decision; False from a release without this field."""
    copying_s: Seconds = 0.0
    """Seconds since the first copy ahead for the configuration asked about; 0 without a copy."""
    write_once: bool = False
    """The server knows write-once domains; False from a release without this field."""
    watches: bool = False
    """The server tells changes to watches; False from a release without this field."""

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK * len(self.usage) + REQUEST_WORK * len(self.hosted)


class ScrubReply(Message, frozen=True, tag=38):
    """The state of a scrub, or the result of the last scrub.

    ``rounds``: scrubs completed since the server's start; 0 and not ``running``: no scrub took
    place. ``checked_bytes`` of ``total_bytes`` on the disk were verified. ``damaged``: places on
    the disk found unreadable or altered by this scrub. ``quarantined``: versions whose element
    awaits repair; ``repaired``: since the server's start. ``leaving``: damaged places from which
    live data is not copied away yet, because the disk is full. ``in_logs``: damaged places of logs
    that are not repaired yet.
    """

    running: bool
    rounds: Count
    checked_bytes: Count
    total_bytes: Count
    damaged: Count
    quarantined: Count
    repaired: Count
    leaving: Count = 0
    in_logs: Count = 0


class RequestDone(Message, frozen=True, tag=39):
    """The request is done."""


class Located(Message, frozen=True, tag=40):
    """The newest configuration of the domain known to this server as finalized, or None."""

    configuration: Configuration | None


class ListEntry(Struct, frozen=True, array_like=True, gc=False):
    """A version of a List: its tag and its element, or None for bottom (Alg. 4:12)."""

    tag: Tag
    element: Element | None


class ListReply(Message, frozen=True, tag=41):
    """The answer to :class:`QueryList`: the whole List, newest first, with (t0, v0) if present."""

    entries: Annotated[tuple[ListEntry, ...], Meta(max_length=DELTA_MAX + 1)]
    successor: Successor | None
    spent: Spent | None = None

    @property
    def elements(self) -> list[Element]:
        return [entry.element for entry in self.entries if entry.element is not None]

    @property
    def size(self) -> int:
        return sum([element.size for element in self.elements])

    @property
    def bulk(self) -> int:
        return LISTED_WORK * len(self.entries) + sum([element.bulk for element in self.elements])


class CopyOutcome(enum.IntEnum):
    """The outcome of a request about a copy; a byte of :class:`AheadReply`."""

    MISSING = 0  # no such copy, and no room for it
    DONE = 1  # the copy is held; or adopted, by this request
    KNOWN = 2  # the version was stored before


class AheadReply(Message, frozen=True, tag=42):
    """The answer to :class:`PutAhead` and :class:`Adopt`.

    ``outcomes``: a :class:`CopyOutcome` for each version of the request, in order. A server may
    answer for the first versions only; the rest is to be asked for again.
    """

    outcomes: Annotated[bytes, Meta(max_length=ADOPTED_MAX)]
    successor: Successor | None


Keyed = (
    GetTag
    | GetData
    | GetAhead
    | PutData
    | ReadConfig
    | WriteConfig
    | CollectConfig
    | ListObjects
    | Finalize
    | QueryList
    | Drop
    | WatchObjects
)
"""Requests about a configuration."""

Upkeep = Scrub | SetLogLevel
"""Requests to a process, about itself."""

Question = Keyed | Describe | Where | PullElement | PutAhead | Adopt
"""Requests of operations on objects; each is answered, unless the server ends."""

Carrier = GetData | WriteConfig | CollectConfig | ListObjects | QueryList | LookRow | Fetch
"""Requests that carry, or may carry, a successor (rule R1)."""

Timed = TagReply | DataReply | Ack | ObjectsReply | ListReply | ChangedObjects
"""Replies with the time spent on a traced request."""

READ_REPLIES = frozenset({TagReply, DataReply, ListReply})
"""Replies with a tag or with values: the reads of a server's counts."""

Request = Keyed | Describe | Where | Introduce | PutAhead | Adopt
"""Requests to the state machine of objects, ares/replica/replica.py."""
Reply = (
    TagReply
    | DataReply
    | Ack
    | ObjectsReply
    | Refused
    | Description
    | ScrubReply
    | RequestDone
    | Located
    | ListReply
    | AheadReply
    | ChangedObjects
)
ConsensusRequest = Propose | GetHint | TellFinalized | DescribeConsensus | SetLogLevel
ConsensusReply = Decided | Hint | Undecided | ConsensusDescription
AnyMessage = (
    Request
    | PullElement
    | ChainRequest
    | Upkeep
    | Reply
    | ChainReply
    | ConsensusRequest
    | ConsensusReply
)


# -- the table of requests -------------------------------------------------------------------------


_of_objects = partial(RequestKind, HandledBy.OBJECTS)
_of_either = partial(RequestKind, HandledBy.EITHER, shows=ShownState.POINTER)
_of_logs = partial(RequestKind, HandledBy.LOGS)
_of_server = partial(RequestKind, HandledBy.SERVER)
_of_member = partial(RequestKind, HandledBy.MEMBER)
_pointer, _element = NeededRoom.POINTER, NeededRoom.ELEMENT

REQUEST_KINDS: dict[type[AnyMessage], RequestKind] = {
    GetTag: _of_objects(TagReply, Role.READ, ShownState.OBJECT),
    GetData: _of_objects(DataReply, Role.READ, ShownState.OBJECT, room=_pointer),
    GetAhead: _of_objects(DataReply, Role.RECONFIGURE, ShownState.OBJECT),
    QueryList: _of_objects(ListReply, Role.READ, ShownState.OBJECT, room=_pointer),
    PutData: _of_objects(Ack, Role.WRITE, ShownState.OBJECT, changes=True, room=_element),
    ListObjects: _of_objects(ObjectsReply, Role.READ, ShownState.LISTING, room=_pointer),
    WatchObjects: _of_objects(ChangedObjects, Role.READ, ShownState.LISTING),
    Drop: _of_objects(
        Ack, Role.WRITE, ShownState.LISTING, changes=True, room=NeededRoom.DROPPED_NAMES
    ),
    ReadConfig: _of_either(Ack, Role.READ),
    WriteConfig: _of_either(Ack, Role.READ, changes=True, room=_pointer),
    CollectConfig: _of_either(Ack, Role.RECONFIGURE, changes=True, room=_pointer),
    Introduce: _of_either(None, Role.READ, changes=True, room=_pointer),
    Finalize: _of_either(Ack, Role.RECONFIGURE, changes=True, room=_pointer),
    Append: _of_logs(Appended, Role.WRITE, changes=True),
    AwaitAppend: _of_logs(Appended, Role.WRITE),
    ReadLog: _of_logs(LogEntries, Role.READ),
    ReadEach: _of_logs(EachRead, Role.READ),
    Look: _of_logs(LookDone, Role.READ),
    Trim: _of_logs(TrimDone, Role.WRITE, changes=True),
    Seal: _of_logs(SealDone, Role.RECONFIGURE, changes=True),
    Stand: _of_logs(Stood, Role.READ),
    Forward: _of_logs(None, Role.READ, changes=True),
    Committed: _of_logs(None, Role.READ),
    TakeBack: _of_logs(None, Role.READ),
    GivenBack: _of_logs(None, Role.READ, changes=True),
    LookRow: _of_logs(RowFound, Role.READ),
    Fetch: _of_logs(Fetched, Role.READ),
    Describe: _of_server(Description, Role.READ, ShownState.EVERYTHING),
    Where: _of_server(Located, Role.READ),
    PullElement: _of_server(Ack, Role.RECONFIGURE, ShownState.OBJECT, changes=True),
    PutAhead: _of_server(AheadReply, Role.RECONFIGURE),
    Adopt: _of_server(AheadReply, Role.RECONFIGURE, ShownState.LISTING, changes=True),
    Scrub: _of_server(ScrubReply, Role.ADMIN),
    SetLogLevel: _of_server(RequestDone, Role.ADMIN),
    Propose: _of_member(Decided, Role.RECONFIGURE),
    GetHint: _of_member(Hint, Role.READ),
    TellFinalized: _of_member(Hint, Role.RECONFIGURE),
    DescribeConsensus: _of_member(ConsensusDescription, Role.READ),
}

REPLY_OF = {
    kind: row.reply
    for kind, row in REQUEST_KINDS.items()
    if row.reply is not None and kind in get_args(Question)
}
