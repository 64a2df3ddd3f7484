"""Copies ahead: a mover brings data to the next configuration before it is decided (rule R24).

From the decision until the end of a move every operation needs a quorum of the old servers and a
quorum of the new servers. Without copies ahead this time is as long as the copy of all objects. The
mover therefore copies first, as a plain reader of the old configuration: its requests carry no
successor, because no successor exists. The servers of the configuration that it will propose hold
the elements aside, under that configuration's id, and show them to nobody.

*What the copies may miss.* A copy alone moves no object. A write may complete after the mover's
read, and the proposal of another client may win. Nothing is therefore concluded from a copy: the
mover remembers which versions it copied only to copy again what changed meanwhile. After the
decision the mover lists the old configuration as always; each request carries the successor (R1).
Let t be the highest tag listed of an object, over a quorum. Every version that completed in the old
configuration without knowledge of the successor is in the listing: take the servers which stored
the version, and were listed. Each of them stored it before the listing, hence lists it or a higher
tag; or installed the successor first, and told the writer, who then writes to the new
configuration. So no completed version that the move has to bring is above t. The mover asks the new
servers to adopt exactly (object, t) (:meth:`ares.reconfig.mover.Mover._adopt`). A tag stands for
one value, for ever: a server which holds a copy under t holds its element of that value, and stores
it as if a PutData had brought it, durably, before it answers. With a quorum of such answers the
version is where put-data would have put it. Otherwise (no copy, an older or a newer copy, too few
servers) the object moves as without copies. Hence a lost, late or outdated copy costs time only,
and a mover that finishes the work of another may use the other's copies. With EC, t may belong to a
version that cannot be decoded. No mover could then have made a copy of it, and get-data decides
about the object.

Copies ahead are made only where one configuration is active. Listings of several configurations
would have to be united in the order of rule R10.

The time and the bytes of the phase are bounded: AHEAD_S, values of AHEAD_VALUE_BYTES_MAX, and the
memory of the servers (ares/replica/ahead_copies.py). The servers tell for how long they have had
copies for the target. Movers of the same target, one after the other, therefore share AHEAD_S:
leaders that change all the time could otherwise copy for ever. The phase ends before if nothing was
copied for COPY_GAP_S. The end of the phase cancels the copies under way. If no quorum of the new
servers answers, with the identities of the configuration and with room on their disks, before or
after the phase, the operation fails, and no configuration was proposed: users notice nothing.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from ares.dap.primitives import DataAccess, DataResult
from ares.dap.reading import BRIEF
from ares.engine.effects import Gather, Now, Operation, Pause, Report, Together
from ares.engine.phases import phase
from ares.model.configuration import Configuration, Server, Successor
from ares.model.errors import (
    ConfigurationRefused,
    ElementRefused,
    Superseded,
    Unavailable,
    Undecodable,
)
from ares.model.identity import NO_DOMAIN, CallId, ObjectName, ServerId
from ares.model.messages import (
    AheadReply,
    CopyOutcome,
    Describe,
    Description,
    Element,
    GetAhead,
    PutAhead,
    Question,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.units import MIB
from ares.model.value import WITHHELD
from ares.reconfig.listing import list_page
from ares.reconfig.mover import MoveOptions, Progress
from ares.reconfig.throttle import ByteWindow, Window
from ares.reconfig.traversal import detour
from ares.reconfig.view import View

AHEAD_S, COPY_GAP_S, END_LOOK_S = 60.0, 10.0, 0.5
"""Longest time of the phase, for all movers together; longest time without a copy; and the seconds
between two looks whether the phase is over.
"""

PASSES_MAX = 5
CHANGED_SHARE = 0.01
"""Passes over all objects, at most; the last pass is one that copied no more than this share.

A pass copies the objects that changed since their copy, and takes as much less time than the pass
before as it has less to copy.
"""

AHEAD_VALUE_BYTES_MAX = 4 * MIB
"""Largest value copied ahead: the end of the phase may lose the work for values under way."""

TAKERS_PATIENCE_S, ABLE_PATIENCE_S = 0.25, 3.0
"""Seconds a quorum waits for further servers to say whether they take copies; the second while too
few of the quorum could serve: a server far away may be able to.
"""

TAKERS_S = 1.0
"""Seconds for a quorum to say so where copies are only a gain: during a move of another client."""

PUT_AHEAD_S = 3.0
"""Seconds for a quorum to take a copy; afterwards the phase ends."""

ROOM_PAUSE_S = 0.02
"""Seconds between two attempts of a large value to get room on the link."""


class Copied(Struct, frozen=True):
    """The result of the phase.

    ``servers``: servers which may hold copies, and are asked to adopt them. ``bytes``: of all
    copied values.
    """

    servers: tuple[ServerId, ...] = ()
    bytes: int = 0


NOT_COPIED = Copied()


class _PhaseOver(Exception):
    """The end of the phase: all is copied, or time or room are used up."""


class PlainReads(DataAccess):
    """The primitives of a reader whose requests count as a mover's, and carry no successor."""

    def query(
        self,
        call: CallId,
        object: ObjectName,
        element: bool,
        wanted: Tag | None,
        carry: Successor | None,
        held: Tag | None,
    ) -> Question:
        """Return the query for a server, without ``carry``: no successor is decided."""
        return GetAhead(call, self.configuration.id, object, element, wanted)


def _usual_patience_s(*_: object) -> float:
    return TAKERS_PATIENCE_S


def copy_ahead(view: View, target: Configuration, manner: MoveOptions) -> Operation[Copied]:
    """Copy the domain's objects to the servers of ``target``, which is to be proposed next.

    Nothing is copied if the switch is off, if an earlier move is unfinished, or if too few servers
    of the target are of a release with copies. Raises :class:`ares.Unavailable` if no quorum of the
    target answers, and :class:`ares.ConfigurationRefused` if the answering servers cannot serve it;
    nothing was changed.
    """
    active = view.sequence.active
    if not view.switches.ahead or len(active) > 1 or target.dap == "chain":
        return NOT_COPIED
    yield Report(Progress("copy-ahead"))
    source = active[0]
    try:
        answers = yield from _able(target)
        servers = _takers(target, answers)
        if len(servers) < target.quorum_size:
            return NOT_COPIED
        left_s = AHEAD_S - max(answers[server].copying_s for server in servers)
        if left_s <= 0:
            return Copied(servers)
        reads = yield from _reads_of(view, source)
        copier = AheadCopier(view, reads, target, servers, manner)
        yield from copier.run(left_s)
        # the proposal follows: from then on users need a quorum of the target
        return Copied(_takers(target, (yield from _able(target))), copier.bytes)
    except Superseded as superseded:
        detour(view, superseded)
        return NOT_COPIED


def adopters(target: Configuration) -> Operation[tuple[ServerId, ...]]:
    """Return the servers of ``target``, decided already, which may hold copies of any client.

    Copies are only a gain here: where no quorum answers soon, no server is asked to adopt.
    """
    try:
        return _takers(target, (yield from _described(target, give_up_s=TAKERS_S)))
    except Unavailable:
        return ()


def _takers(target: Configuration, answers: Mapping[ServerId, Description]) -> tuple[ServerId, ...]:
    """Return the answering members of a release with copies ahead."""
    return tuple(
        server.id
        for server in target.servers
        if _is_member(server, answers.get(server.id)) and answers[server.id].ahead
    )


def _able(target: Configuration) -> Operation[Mapping[ServerId, Description]]:
    """Return the answers of ``target``'s servers, after a check that a quorum of it could serve.

    A server may have lost its memory, or filled its disk, since the configuration was made. After a
    decision for such servers every write would fail.
    """

    def patience_s(answers: Mapping[ServerId, Description], _: float) -> float:
        enough = len(answers) - len(_unable(target, answers)) >= target.quorum_size
        return TAKERS_PATIENCE_S if enough else ABLE_PATIENCE_S

    answers = yield from _described(target, patience_s)
    unable = _unable(target, answers)
    if len(answers) - len(unable) < target.quorum_size:
        raise ConfigurationRefused(
            f"too few servers of {target.describe()} can serve it: "
            f"{', '.join(f'{server} ({why})' for server, why in sorted(unable.items()))}. Nothing "
            "was changed"
        )
    return answers


def _unable(target: Configuration, answers: Mapping[ServerId, Description]) -> dict[ServerId, str]:
    """Return the answering servers that could not serve ``target``, and why."""
    return {
        server.id: "its disk is full" if _is_member(server, found) else "it lost its memory"
        for server in target.servers
        if (found := answers.get(server.id)) is not None
        and not (_is_member(server, found) and _has_room(found))
    }


def _is_member(server: Server, found: Description | None) -> bool:
    return found is not None and found.identity == server.identity


def _has_room(found: Description) -> bool:
    return found.stored is None or not found.stored.full


def _reads_of(view: View, source: Configuration) -> Operation[DataAccess]:
    """Return primitives whose requests all servers of ``source`` can read.

    A server which has not said its release may be of an earlier one, and refuse a whole batch with
    a GetAhead. Plain requests count as a user's, and are as right.
    """
    answers = yield from _described(source)
    if len(_takers(source, answers)) == source.n:
        return PlainReads(source, view.readiness, view.coding)
    return view.dap(source)


def _described(
    configuration: Configuration,
    patience_s: Callable[[Mapping[ServerId, Description], float], float] = _usual_patience_s,
    give_up_s: float | None = None,
) -> Operation[Mapping[ServerId, Description]]:
    """Return the descriptions of a quorum, and of further servers that answer soon.

    The configuration itself is not sent: it may never be decided.
    """
    answers: Mapping[ServerId, Description] = yield Gather(
        configuration.at(NO_DOMAIN, 0),
        Describe,
        "are you up",
        settled=lambda answers: len(answers) == configuration.n,
        patience_s=patience_s,
        give_up_s=give_up_s,
        arguments=(True, (), configuration.id),
    )
    return answers


class AheadCopier:
    """The copies by ``reads`` to ``servers`` of ``target``. ``bytes``: copied so far.

    ``_looked``: the version of each object that was looked at, copied or not. It tells a further
    pass what changed, and nothing is concluded from it. ``_held``: the objects with copies.
    """

    def __init__(
        self,
        view: View,
        reads: DataAccess,
        target: Configuration,
        servers: tuple[ServerId, ...],
        manner: MoveOptions,
    ) -> None:
        self.bytes = 0
        self._source, self._target, self._servers = reads.configuration, target, servers
        self._reads = reads
        self._puts = view.dap(target)
        self._roster = target.at(NO_DOMAIN, 0)
        self._positions = [target.server_ids.index(server) for server in servers]
        self._large = manner.transfer == "client"
        self._throttle = manner.throttle
        self._window = Window(view.switches.batch)
        self._byte_window = ByteWindow()
        self._copied = self._seen = 0
        self._copied_at = 0.0
        self._looked: dict[ObjectName, Tag] = {}
        self._held: set[ObjectName] = set()

    @phase("CopyAhead")
    def run(self, left_s: float) -> Operation[None]:
        """Copy until all is copied, or ``left_s`` seconds or the room are used up."""
        try:
            yield Together(iter((self._copy_all(), self._end_in_time(left_s))), 2)
        except _PhaseOver:
            return

    def _end_in_time(self, left_s: float) -> Operation[None]:
        now = began = self._copied_at = yield Now()
        while now < min(began + left_s, self._copied_at + COPY_GAP_S):
            yield Pause(END_LOOK_S)
            now = yield Now()
        raise _PhaseOver

    def _copy_all(self) -> Operation[None]:
        for _ in range(PASSES_MAX):
            before, self._seen = self._copied, 0
            yield from self._copy_changed()
            if self._copied - before <= CHANGED_SHARE * self._seen:
                break
        raise _PhaseOver

    def _copy_changed(self) -> Operation[None]:
        """Copy the objects whose highest tag is not the tag of a copy."""
        after: str | None = ""
        while after is not None:
            page = yield from list_page(self._source, after)
            if page.successor is not None:  # the proposal of another client was decided
                raise _PhaseOver
            self._window.hears(page.asked, (yield Now()))
            self._seen += len(page.objects)
            changed = [
                name
                for name, listed in page.objects.items()
                if max(entry.tag for entry in listed) != self._looked.get(name)
            ]
            yield Together(map(self._copy, changed), self._window)
            after = page.after

    def _copy(self, object: ObjectName) -> Operation[None]:
        """Copy an object as a member of a group, after a wait for the group's turn."""
        now: float = yield Now()
        wait_s = self._window.begins(
            now, self._throttle.busy_s(now) if self._throttle is not None else 0.0
        )
        try:
            if wait_s > 0:
                yield Pause(wait_s, retry=False)
            began: float = yield Now()
            yield from self._bring(object)
            self._window.rests_after((yield Now()) - began)
        except (Undecodable, ElementRefused):
            return  # the move decides about this object
        finally:
            self._window.ends()

    def _bring(self, object: ObjectName) -> Operation[None]:
        began: float = yield Now()
        found = yield from self._reads.get_version(object, effort=BRIEF)
        now: float = yield Now()
        self._window.took(now - began)
        self._byte_window.took(self._source.index, now - began, now)
        if found.successor is not None:  # the proposal of another client was decided
            raise _PhaseOver
        self._looked[object] = found.tag
        if found.tag == TAG_ZERO:
            return
        if found.value is WITHHELD:
            yield from self._bring_large(object, found)
        else:
            if self._throttle is not None:
                self._throttle.count(now, found.length)
            yield from self._put(object, found)

    def _bring_large(self, object: ObjectName, seen: DataResult) -> Operation[None]:
        """Copy a value that did not come with its version, when it has room on the link."""
        if not self._large or seen.length > AHEAD_VALUE_BYTES_MAX:
            return
        while self._throttle is not None:
            now: float = yield Now()
            if (wait_s := self._throttle.wait_s(now, seen.length)) <= 0:
                break
            yield Pause(wait_s, retry=False)
        while not self._byte_window.enter(seen.length):
            yield Pause(ROOM_PAUSE_S, retry=False)
        try:
            found = yield from self._reads.get_data(object, effort=BRIEF)
            if found.value is not WITHHELD and found.length <= AHEAD_VALUE_BYTES_MAX:
                yield from self._put(object, found)
        finally:
            self._byte_window.leave(seen.length)

    def _put(self, object: ObjectName, found: DataResult) -> Operation[None]:
        """Send a version's elements to the servers; end the phase where too few have room."""
        assert found.value is not WITHHELD
        elements = self._puts.elements(object, found.tag, found.value)
        try:
            answers: Mapping[ServerId, AheadReply] = yield Gather(
                self._roster,
                self._copies,
                "copy-ahead",
                to=self._servers,
                needed=self._target.quorum_size,
                give_up_s=PUT_AHEAD_S,
                arguments=(object, found.tag, elements),
            )
        except ElementRefused:
            raise
        except Unavailable as error:  # a look at all servers follows
            raise _PhaseOver from error
        missing = sum(reply.outcomes[:1] != _HELD for reply in answers.values())
        if len(self._servers) - missing < self._target.quorum_size:
            raise _PhaseOver
        self._looked[object] = found.tag
        self._held.add(object)
        self._copied += 1
        self._copied_at = yield Now()
        self.bytes += max(found.length, 0)
        held = len(self._held)
        yield Report(Progress("copy-ahead", held, 0, max(held, self._seen), self.bytes))

    def _copies(
        self, call: CallId, object: ObjectName, tag: Tag, elements: list[Element]
    ) -> list[Question]:
        id, domain, index = self._target.id, self._target.domain, self._target.index
        return [
            PutAhead(call, id, object, tag, elements[position % len(elements)], domain, index)
            for position in self._positions
        ]


_HELD = bytes([CopyOutcome.DONE])
