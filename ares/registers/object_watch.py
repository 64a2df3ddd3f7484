"""Watches of a domain's objects: every last change is told, and never backwards (rule R26).

A round asks a quorum of each configuration from the last finalized to the last for the versions
stored since the last round. The answers of a server are a sequence without holes: first the
listing, from a position of the list of recent changes on, and then the changes after this position.
Hence a completed write is told: the quorums of the write and of the round meet, and the common
server either has the version in the listing or stores the version later. The same holds after a
server lost the list of changes and begins with the listing again, and in a new configuration, which
begins with the listings of all servers. An earlier configuration may be left once a later
configuration is finalized: the mover brings every completed version there.

A version is told when a quorum of a configuration has reported the version, each server before
hearing of a successor (:func:`ares.registers.operations.at_quorum`), or after a read has brought
the version to a quorum. Every later read finds this version, or a newer version. The watch knows
the told versions and tells no older version; hence a watch needs memory for each name with the
prefix.

A *point* is the list of positions of a quorum, and of the few versions not told yet: all earlier
changes were told. A watch from a point on reads the listings as well, and tells a version only if
the version is among the changes after the point at some server, or no server without a hole since
the point reported the version.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ares.dap.primitives import DataResult
from ares.dap.reading import BRIEF
from ares.engine.effects import Answers, Gather, Operation, Together
from ares.engine.phases import phase
from ares.model.configuration import SERVERS_MAX, Configuration, latest_named
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    NotAuthorized,
    ObjectWatchGap,
    Superseded,
    Unavailable,
    Undecodable,
)
from ares.model.identity import (
    RESERVED,
    CallId,
    ConfigurationId,
    ObjectName,
    ServerId,
    is_object_name,
)
from ares.model.messages import (
    ChangedObjects,
    Describe,
    Description,
    ListedObject,
    WatchObjects,
)
from ares.model.numbers import Count, Word
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View
from ares.registers.operations import at_quorum, newest, propagate, query

WATCHED_NAMES_MAX = 1_000_000
"""Names that a watch keeps in memory."""

OPEN_NAMES_MAX = 100
"""Names of versions not told yet in a point."""

ROUNDS_UNTIL_READ = 10
"""Rounds in which a version may come to a quorum by itself before the watch reads the object."""

ROUNDS_UNTIL_READ_MAX = 640
READS_AT_ONCE = 64
COMPLETED_AT_ONCE = 2
"""Values in memory, which a watch brings to a quorum."""

ROUNDS_UNTIL_ASKED = 100
"""Rounds until silent servers are asked again whether they know watches."""

ALL_ANSWERS_S = 0.5
SOME_KNOWN_S = 2.0
"""Wait for a quorum of the known servers before the remaining servers are asked again."""

POINT_CHARACTERS_MAX = 256 * 1024

WatchAnswers = Mapping[ServerId, ChangedObjects]


class ObjectNotice(Struct, frozen=True):
    """A notice: every read of the object that begins now finds this version, or a newer one.

    ``deleted``: the version is a delete. ``since``: a watch from this point on tells all later
    changes, some of them again; None while the watch begins.
    """

    key: str
    tag: Tag
    deleted: bool
    since: str | None


class WatchPoint(Struct, frozen=True, array_like=True):
    """All changes up to these positions, of epochs of servers, were told, except for ``open``."""

    configuration: ConfigurationId
    positions: Annotated[dict[ServerId, tuple[Word, Count]], Meta(max_length=SERVERS_MAX)]
    open: Annotated[tuple[ObjectName, ...], Meta(max_length=OPEN_NAMES_MAX)] = ()

    def text(self) -> str:
        """Return the point for users."""
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()


def point_of(text: str) -> WatchPoint:
    """Return the point that ``text`` stands for. Raises :class:`BadInput`."""
    try:
        if not isinstance(text, str) or len(text) > POINT_CHARACTERS_MAX:
            raise ValueError
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(text), type=WatchPoint)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise BadInput(
            "this is no point of a watch: pass `since` of a notice, unchanged; nothing was sent"
        ) from error


class ServerPlace(Struct):
    """The place of a watch at a server: the fields of its next request.

    ``more``: the last answer was not the end. ``whole``: without a hole since the watch's point.
    """

    epoch: int = 0
    position: int = 0
    after: str | None = ""
    more: bool = True
    whole: bool = False

    def goes_on(self, reply: ChangedObjects) -> bool:
        """Return whether ``reply`` follows this place without a hole."""
        same = reply.epoch == self.epoch
        return same and (
            reply.after is None if self.after is None else reply.position == self.position
        )


class OpenVersion(Struct):
    """The newest version reported of an object, which is not told yet.

    ``servers`` of ``configuration`` reported it. ``changed``: it was not only in listings. ``due``:
    the round of the next read of the object.
    """

    listed: ListedObject
    configuration: ConfigurationId
    servers: set[ServerId]
    changed: bool
    due: int
    reads: int = 0


class ObjectWatch:
    """A watch of the objects of a domain whose names begin with ``prefix``.

    ``point``: where the watch began, or can go on after all notices taken.
    """

    def __init__(self, prefix: str, point: WatchPoint | None = None) -> None:
        self.prefix = prefix
        self.point = point
        self.rounds = 0
        self.more = False
        """Further versions were at the servers at the last round."""
        self.may_complete = True
        """No server has refused yet that this client brings a version to a quorum."""
        self._resuming = point is not None
        self._told: dict[ObjectName, Tag] = {}
        self._open: dict[ObjectName, OpenVersion] = {}
        self._settled: dict[ObjectName, OpenVersion] = {}
        """The versions at a quorum that may have been told before the point."""
        self._due: list[tuple[int, ObjectName]] = []
        self._places: dict[tuple[ConfigurationId, ServerId], ServerPlace] = {}
        self._notices: list[ListedObject] = []
        self.able: dict[ConfigurationId, tuple[ServerId, ...]] = {}
        """The servers of each configuration that know watches, as far as they answered."""
        if point is not None:
            for server, (epoch, position) in point.positions.items():
                place = ServerPlace(epoch, position, whole=True)
                self._places[point.configuration, server] = place
            for name in point.open:
                if self._watches(name):
                    self._begin_open(ListedObject(name, TAG_ZERO, False), point.configuration, True)

    # -- rounds ------------------------------------------------------------------------------------

    def requests(self, call: CallId, configuration: Configuration) -> list[WatchObjects]:
        """Return the request for each server that knows watches."""
        id, prefix = configuration.id, self.prefix
        places = [self._place(id, server) for server in self.able[id]]
        return [
            WatchObjects(call, id, prefix, place.epoch, place.position, place.after)
            for place in places
        ]

    def resumes(self, configuration: Configuration, answers: Answers) -> bool:
        """Return whether a quorum has all changes since the point; always if not resuming."""
        if not self._resuming or self.point is None or configuration.id != self.point.configuration:
            return True
        places = [(self._place(configuration.id, server), answers[server]) for server in answers]
        whole = [place for place, reply in places if place.whole and place.goes_on(reply)]
        return len(whole) >= configuration.quorum_size

    def take(
        self, configuration: Configuration, answers: Mapping[ServerId, ChangedObjects]
    ) -> None:
        """Take the answers of a round.

        A report counts towards a quorum if its server knew no successor.
        """
        for server, reply in answers.items():
            self.more |= reply.more
            place = self._place(configuration.id, server)
            whole = place.whole and place.goes_on(reply)
            self._places[configuration.id, server] = ServerPlace(
                reply.epoch, reply.position, reply.after, reply.more, whole
            )
            lasting = reply.successor is None
            for listed in reply.objects:
                if self._watches(listed.name):
                    self._report(configuration, server, listed, place.after is None, lasting)

    def _watches(self, name: ObjectName) -> bool:
        """Return whether the watch is of ``name``, which may come from a point of another watch."""
        return (
            name.startswith(self.prefix) and is_object_name(name) and not name.startswith(RESERVED)
        )

    def _report(
        self,
        configuration: Configuration,
        server: ServerId,
        listed: ListedObject,
        changed: bool,
        lasting: bool,
    ) -> None:
        name, tag = listed.name, listed.tag
        settled = self._settled.get(name)
        if settled is not None and tag <= settled.listed.tag:
            if tag == settled.listed.tag:
                settled.servers.add(server)
                settled.changed |= changed
            return
        if tag <= self._told.get(name, TAG_ZERO):
            return
        version = self._open.get(name)
        if version is None:
            version = self._begin_open(listed, configuration.id, changed)
        if tag < version.listed.tag:
            return
        if tag > version.listed.tag or configuration.id != version.configuration:
            version.listed, version.configuration, version.servers = listed, configuration.id, set()
        version.changed |= changed
        if lasting:
            version.servers.add(server)
            if len(version.servers) >= configuration.quorum_size:
                self._settle(version)

    def _begin_open(
        self, listed: ListedObject, configuration: ConfigurationId, changed: bool
    ) -> OpenVersion:
        due = self.rounds + ROUNDS_UNTIL_READ
        version = OpenVersion(listed, configuration, set(), changed, due)
        self._open[listed.name] = version
        heappush(self._due, (due, listed.name))
        if len(self._told) + len(self._open) + len(self._settled) > WATCHED_NAMES_MAX:
            raise BadInput(
                f"a watch keeps at most {WATCHED_NAMES_MAX} names in memory, and more begin with "
                f"{self.prefix!r}: watch longer prefixes"
            )
        return version

    def _settle(self, version: OpenVersion) -> None:
        """Tell a version that is at a quorum, or hold it while it may have been told before."""
        name = version.listed.name
        self._open.pop(name, None)
        if self._resuming:
            self._settled[name] = version
        else:
            self._told[name] = version.listed.tag
            self._notices.append(version.listed)

    def take_due(self) -> list[ObjectName]:
        """Return the objects to be read in this round, and plan their next reads."""
        names: list[ObjectName] = []
        while self._due and self._due[0][0] <= self.rounds and len(names) < READS_AT_ONCE:
            due, name = heappop(self._due)
            version = self._open.get(name)
            if version is not None and version.due == due:
                version.reads += 1
                wait = min(ROUNDS_UNTIL_READ << min(version.reads, 16), ROUNDS_UNTIL_READ_MAX)
                version.due = self.rounds + wait
                heappush(self._due, (version.due, name))
                names.append(name)
        return names

    def found(self, found: ListedObject) -> None:
        """Take the version that a read found, and brought to a quorum.

        A newer version that the read passed over stays open: its write may go on.
        """
        version, settled = self._open.get(found.name), self._settled.get(found.name)
        known = self._told.get(found.name, TAG_ZERO) if settled is None else settled.listed.tag
        rest = version if version is not None and version.listed.tag > found.tag else None
        if found.tag > known:
            is_same = version is not None and version.listed.tag == found.tag
            servers = version.servers if version is not None and is_same else set()
            id = ConfigurationId(b"") if version is None else version.configuration
            changed = version is None or version.changed
            self._settle(OpenVersion(found, id, servers, changed, 0))
        self._open.pop(found.name, None)
        if rest is not None:
            self._open[found.name] = rest

    # -- the end of a round ------------------------------------------------------------------------

    def end_round(self, active: list[Configuration]) -> list[ListedObject]:
        """Return the notices of a round, and move :attr:`point` behind them.

        ``active``: the configurations in force. Raises :class:`ObjectWatchGap` if the point's
        configuration was left before all changes since the point were read.
        """
        self.rounds += 1
        ids = {configuration.id for configuration in active}
        has_left = any(id not in ids for id, _ in self._places)
        self._places = {key: place for key, place in self._places.items() if key[0] in ids}
        if has_left and not self._resuming and len(self._open) > OPEN_NAMES_MAX:
            self._begin_again()
        self.able = {id: able for id, able in self.able.items() if id in ids}
        if self._resuming:
            assert self.point is not None, "a watch resumes from a point"
            if self.point.configuration not in ids:
                raise ObjectWatchGap
            for configuration in active:
                if configuration.id == self.point.configuration:
                    self._end_resuming(configuration)
        notices, self._notices = self._notices, []
        if not self._resuming and len(active) == 1 and len(self._open) <= OPEN_NAMES_MAX:
            self._move_point(active[0])
        return notices

    def _begin_again(self) -> None:
        """Read the listings again, after a configuration was left with too many open versions.

        Versions that never completed there are nowhere else, and would hold the point for ever. The
        listings have all others.
        """
        self._places.clear()
        self._open.clear()

    def _end_resuming(self, configuration: Configuration) -> None:
        """Tell the settled versions, except for those told before the point."""
        whole = {
            server
            for (id, server), place in self._places.items()
            if id == configuration.id and place.whole and not place.more
        }
        if len(whole) < configuration.quorum_size:
            return
        self._resuming = False
        settled, self._settled = self._settled, {}
        for name, version in settled.items():
            self._told[name] = version.listed.tag
            is_here = version.configuration == configuration.id
            if version.changed or not (is_here and version.servers & whole):
                self._notices.append(version.listed)

    def _move_point(self, configuration: Configuration) -> None:
        positions = {
            server: (place.epoch, place.position)
            for (_, server), place in self._places.items()
            if place.after is None
        }
        if len(positions) >= configuration.quorum_size:
            self.point = WatchPoint(configuration.id, positions, tuple(self._open))

    def _place(self, id: ConfigurationId, server: ServerId) -> ServerPlace:
        return self._places.get((id, server)) or ServerPlace()


@phase("Watch")
def watch_round(view: View, watch: ObjectWatch) -> Operation[list[ObjectNotice]]:
    """Ask a quorum of every configuration in force for changes, and return the notices.

    Raises :class:`ObjectWatchGap`; and :class:`ConfigurationRefused` if too few servers know
    watches.
    """
    if not watch.rounds or not view.switches.piggyback:
        yield from read_config(view)
    watch.more = False
    configuration: Configuration | None = view.sequence.last_finalized
    while configuration is not None:
        try:
            answers = yield from _ask(configuration, watch)
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        if not watch.resumes(configuration, answers):
            raise ObjectWatchGap
        watch.take(configuration, answers)
        named = latest_named(answers.values())
        configuration = yield from find_next_config(view, configuration, named)

    yield from _read_due(view, watch)
    before = watch.point
    notices = watch.end_round(view.sequence.active)
    return list(_with_points(notices, before, watch.point)) if notices else []


def _with_points(
    notices: list[ListedObject], before: WatchPoint | None, behind: WatchPoint | None
) -> Iterator[ObjectNotice]:
    """Yield the notices of a round: the point behind the round belongs to the last.

    The others share a text: a point has a hundred long names, and a round thousands of notices.
    """
    since, last = (None if point is None else point.text() for point in (before, behind))
    for number, listed in enumerate(notices, 1):
        text = last if number == len(notices) else since
        yield ObjectNotice(listed.name, listed.tag, listed.deleted, text)


def _ask(configuration: Configuration, watch: ObjectWatch) -> Operation[WatchAnswers]:
    """Ask the servers that know watches, which are found first, and again if some were silent."""
    id = configuration.id
    if len(watch.able.get(id, ())) < configuration.n and watch.rounds % ROUNDS_UNTIL_ASKED == 0:
        watch.able.pop(id, None)
    while True:
        if id not in watch.able:
            watch.able[id] = yield from _able_servers(configuration)
        all_known = len(watch.able[id]) == configuration.n
        try:
            answers: WatchAnswers = yield Gather(
                configuration,
                watch.requests,
                "watch",
                watch.able[id],
                configuration.quorum_size,
                lambda answers: watch.resumes(configuration, answers),
                lambda *_: ALL_ANSWERS_S,
                None if all_known else SOME_KNOWN_S,
                (configuration,),
                reply=ChangedObjects,
            )
        except Unavailable:
            if all_known:
                raise
            del watch.able[id]
        else:
            return answers


def _able_servers(configuration: Configuration) -> Operation[tuple[ServerId, ...]]:
    """Return the servers that know watches, a quorum at least.

    An earlier release cannot read the request, nor the requests sent together with it.
    """
    described: Mapping[ServerId, Description] = yield Gather(
        configuration,
        Describe,
        "describe",
        settled=lambda _: False,
        patience_s=lambda *_: ALL_ANSWERS_S,
        arguments=(True,),
    )
    able = [server for server in configuration.server_ids if server in described]
    early = [server for server in able if not described[server].watches]
    if len(able) - len(early) < configuration.quorum_size and early:
        raise ConfigurationRefused(
            f"{', '.join(early)} runs an earlier release, which knows no watches of objects: "
            "install this release there first"
        )
    return tuple(server for server in able if server not in early)


def _read_due(view: View, watch: ObjectWatch) -> Operation[None]:
    """Look for the due versions, and bring a version to a quorum if no quorum has the version.

    A look needs no memory for values, and waits for servers that are never the first to answer: a
    completed version may be there. A client with the role read cannot bring a version to a quorum:
    the client has to wait for the writer, and reads no more values in vain.
    """
    unsettled: list[ObjectName] = []

    def look(name: ObjectName) -> Operation[None]:
        with suppress(Undecodable):
            answers = yield from query(
                view,
                lambda dap, object: dap.get_data(object, confirming=True, effort=BRIEF, needed=0),
                name,
            )
            if at_quorum(answers, newest(answers)) is None:
                unsettled.append(name)
            else:
                watch.found(listed_from(name, newest(answers)))

    def complete(name: ObjectName) -> Operation[None]:
        if watch.may_complete:
            try:
                watch.found((yield from completed_version(view, name)))
            except NotAuthorized:
                watch.may_complete = False
            except (Undecodable, Unavailable):  # as with full disks
                pass

    yield Together(map(look, watch.take_due()), READS_AT_ONCE)
    yield Together(map(complete, unsettled), COMPLETED_AT_ONCE)


def completed_version(view: View, object: ObjectName) -> Operation[ListedObject]:
    """Return the newest version, brought to a quorum if necessary.

    Raises :class:`NotAuthorized` for a client with the role read, and :class:`Undecodable` and
    :class:`Unavailable` as reads do.
    """
    answers = yield from query(view, lambda dap, object: dap.get_data(object, effort=BRIEF), object)
    found = newest(answers)
    if at_quorum(answers, found) is None:
        assert found.value is not WITHHELD, (
            "the last configuration of a traversal has no finalized successor"
        )
        yield from propagate(view, object, found.tag, found.value)
    return listed_from(object, found)


def listed_from(object: ObjectName, found: DataResult) -> ListedObject:
    """Return the entry of a version that a read found."""
    return ListedObject(object, found.tag, found.value is TOMBSTONE)
