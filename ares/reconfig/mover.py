"""update-config: the move of a domain's objects into the next configuration (Alg. 5:23-36).

The newest version of every object moves, from all active configurations of the domain. Objects move
in groups: the moves of a group begin at once, hence servers answer them in a batch, and the next
round leaves in a batch, too. A message for each object would cost servers and mover several times
as much. Groups are small, because requests of clients come between two groups.

An object that cannot be decoded, or that the target refuses, does not stop the move. The mover sets
the object aside, moves all other objects, and then tries this object again, for longer. If the
second attempt fails, too, the move is not complete, and names the object as ``stuck``. At the
caller's wish the move leaves the object behind instead: a mark takes the object's place and records
the loss of the value.

The mark is a version of the object, with value LOST, in the target configuration. Hence the mark is
at a quorum before the target is finalized, is journaled, moves on with its domain, is listed by
`ls` and by `status`, makes a read fail with :class:`ares.model.errors.LeftBehind`, and gives way to
any later write or delete. The mark has the number of the highest tag t that can have been completed
in the sources (:func:`ares.dap.decidable.newest_possible`), and the writer 0, no client's id.
Reasons for this tag:

- A write that begins later takes a number above t: the write meets the mark, or asks the sources,
  where k servers of every quorum had t or more. A version which a completed read took from the
  sources, and a late read writes back, is therefore below every such write, and replaces the mark
  at most. (With a lower mark the version could replace a later write.)
- Versions completed in the sources are not above t: no reader gets an older version in place of the
  lost version.
- A write under way ends in the target, because the mover's looks have installed the successor (rule
  R1). If the write's number is the mark's number or higher, the write stands. A lower write is
  older than a version which may have been completed, and is ordered before this version.
- A version at some servers which was never completed can be above t. It belongs to a write which
  has not ended; any client may complete the write one day.
- Movers at the same time, or in sequence, put the same value under the mark's tag, whatever each
  mover saw.

The mark is put only in two cases: the servers' answers prove that no version can be decoded
(ares/dap/reading.py); or the servers of the target refuse the tag, so that the object could not be
written there either. In the second case the mark has a number which they accept, NUMBER_FLOOR: no
object reaches this number by writing, and a higher number is refused from every client. A version
already at a quorum of the target, and not older than t, needs no mark.

In a write-once domain (rule R25) a name which is listed by fewer servers than a quorum, even if
every silent server lists it, is passed over without a mark. If the name had been completed, a
quorum would have stored it, and only a drop makes a server forget. If it is being created, one of
these servers tells the writer of the successor (rule R1), where the put goes, too. Fewer than k
elements alone are no proof: elements rot. The mark of a lost value has the tag LOST_TAG, below the
tag of all values, because a put under way has no other tag than the lost value.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from ares.dap.primitives import DataAccess, DataResult
from ares.dap.reading import BRIEF, THOROUGH, RetryPolicy
from ares.engine.effects import Gather, Now, Operation, Pause, Report, Together
from ares.engine.phases import phase
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import ElementRefused, Superseded, Unavailable, Undecodable
from ares.model.identity import ClientId, ObjectName, ServerId
from ares.model.messages import Adopt, AheadReply, CopyOutcome, ObjectVersion, PullElement
from ares.model.tag import LOST_TAG, NUMBER_FLOOR, TAG_ZERO, Tag
from ares.model.value import LOST, WITHHELD, Value
from ares.reconfig.listing import ListingPage, list_page
from ares.reconfig.throttle import ByteWindow, Throttle, Window
from ares.reconfig.traversal import detour
from ares.reconfig.view import View

REFUSED_PAUSE_S = 0.5
"""Seconds for servers with slow clocks to catch up: until they do, they refuse a tag."""

ASIDE_AT_ONCE = 64
"""Number of objects set aside that are tried again at once: they wait most of the time."""

TURN_PAUSE_S, TURN_PAUSE_S_MAX = 0.01, 0.16
"""Seconds between the first two attempts of a large value to get room on the link, and at most.

Each pause is twice the pause before: many values wait for a slow link at a time.
"""

NOBODY = ClientId(0)
REFUSED_MARK = Tag(NUMBER_FLOOR, NOBODY)
"""The mark of an object whose tag servers do not accept."""


class Progress(Struct, frozen=True):
    """The progress of a reconfiguration.

    ``total`` counts the objects known so far and may grow; ``bytes`` is the data put into the new
    configuration.
    """

    stage: str
    moved: int = 0
    skipped: int = 0
    total: int = 0
    bytes: int = 0


Transfer = Literal["client", "servers"]
"""The way of large values: through the mover, or from server to server."""

BRING_S, BRING_BYTES_PER_S = 3.0, 10e6
"""Seconds for servers to pull a value, and expected bytes a second; afterwards the mover carries
the value.
"""

NOT_BROUGHT_MAX = 8
"""Number of values in a row that servers failed to pull: the mover carries all further values.

The servers may be unable to reach each other.
"""


ADOPTED_AT_ONCE = 128
ADOPTING_MAX = 4
"""Versions in a request to adopt copies, and such requests under way: users wait behind them."""

ADOPT_PATIENCE_S, ADOPT_S = 0.1, 3.0
"""Seconds for further servers to adopt copies that no quorum has adopted, and for a quorum to
answer; afterwards no copies are adopted.
"""


class MoveOptions(Struct, frozen=True):
    """The manner of a move.

    ``throttle``: a limit of its speed. ``skip_undecodable``: leave behind objects that provably
    cannot be moved.
    """

    throttle: Throttle | None = None
    skip_undecodable: bool = False
    transfer: Transfer = "client"


USUAL_MANNER = MoveOptions()


class Mover:
    """The move of a domain's objects into ``target``, in a given ``manner``.

    ``stuck``: the objects not moved, and the reasons. ``left``: the objects left behind.
    ``adopters``: servers of the target that may hold copies ahead (rule R24).
    """

    def __init__(
        self, view: View, target: Configuration, manner: MoveOptions = USUAL_MANNER
    ) -> None:
        self.adopters: tuple[ServerId, ...] = ()
        self._view = view
        self._target = target
        self._throttle = manner.throttle
        self._not_brought = 0 if manner.transfer == "servers" else NOT_BROUGHT_MAX
        self._on_the_way = 0
        self._window = Window(view.switches.batch)
        self._byte_window = ByteWindow()
        self._sources: list[tuple[Configuration, Successor]] = []
        self._seen: set[ObjectName] = set()
        self._aside: dict[ObjectName, None] = {}
        self._refused: dict[ObjectName, Tag] = {}
        self._skip_undecodable = manner.skip_undecodable
        self._overtaken = False
        self._complete_from = 0
        self.stuck: dict[ObjectName, str] = {}
        self.left: list[ObjectName] = []
        self.moved = self.skipped = self.bytes = 0

    def progress(self, stage: str) -> Progress:
        return Progress(stage, self.moved, self.skipped, len(self._seen), self.bytes)

    @phase("UpdateConfig")
    def update_config(self) -> Operation[None]:
        """Move all objects: with batching side by side, without batching in sequence."""
        while not self._done_by_others:
            try:
                yield from self._move_all()
                yield Together(map(self._try_again, list(self._aside)), ASIDE_AT_ONCE)
                break
            except Superseded as superseded:
                detour(self._view, superseded)
        if self._done_by_others:
            self.stuck.clear()

    def _move_all(self) -> Operation[None]:
        """List and move the objects of the domain, source by source (Alg. 5:23-30, Alg. 5:33)."""
        for known in (self._seen, self._aside, self.stuck, self.left):
            known.clear()
        active = [
            configuration
            for configuration in self._view.sequence.active
            if configuration.index <= self._target.index
        ]
        self._sources = [
            (source, Successor(following, Status.PENDING)) for source, following in pairwise(active)
        ]
        for source, carry in self._sources:
            after: str | None = ""
            while (
                after is not None
                and not self._done_by_others
                and source.index >= self._complete_from
            ):
                page = yield from list_page(source, after, carry=carry)
                self._notice(page.successor)
                began: float = yield Now()
                self._window.hears(page.asked, began)
                fresh = [name for name in page.objects if name not in self._seen]
                self._seen.update(fresh)
                adopted = yield from self._adopt(page, fresh)
                left = [name for name in fresh if name not in adopted]
                if left or not adopted:
                    yield from self._move_listed(left, after)
                after = page.after

    def _move_listed(self, names: list[ObjectName], after: str) -> Operation[None]:
        """Move objects of a page of names after ``after``.

        A quorum of the target answers, also for no objects: a configuration with servers that
        cannot serve must not be finalized.
        """
        began: float = yield Now()
        there = yield from list_page(self._target, after)
        now: float = yield Now()
        self._byte_window.took(self._target.index, now - began, now)
        yield Together((self._move(name, there.may_have(name)) for name in names), self._window)

    def _adopt(self, page: ListingPage, names: list[ObjectName]) -> Operation[set[ObjectName]]:
        """Return the objects whose newest version a quorum of the target has from copies ahead.

        ``page``: a listing of the only source, whose requests carried the successor (R1). Its
        highest tag of an object is the version to be moved (ares/reconfig/copy_ahead.py). With
        several sources no copies are adopted.
        """
        adopted: set[ObjectName] = set()
        if len(self._sources) > 1 or len(self.adopters) < self._target.quorum_size:
            return adopted
        newest = [(name, max(entry.tag for entry in page.objects[name])) for name in names]
        versions = [ObjectVersion(name, tag) for name, tag in newest if tag != TAG_ZERO]
        parts = [
            versions[first : first + ADOPTED_AT_ONCE]
            for first in range(0, len(versions), ADOPTED_AT_ONCE)
        ]
        yield Together((self._adopt_part(part, adopted) for part in parts), ADOPTING_MAX)
        return adopted

    def _adopt_part(
        self, versions: list[ObjectVersion], adopted: set[ObjectName]
    ) -> Operation[None]:
        """Ask the target to adopt copies of these versions; add the objects to ``adopted``.

        Servers may answer for the first versions only.
        """
        while versions and self.adopters and not self._done_by_others:
            wanted = _AdoptedVersions(len(versions), self._target.quorum_size, len(self.adopters))
            try:
                answers: Mapping[ServerId, AheadReply] = yield Gather(
                    self._target,
                    Adopt,
                    "adopt",
                    to=self.adopters,
                    settled=wanted.settled,
                    patience_s=lambda *_: ADOPT_PATIENCE_S,
                    give_up_s=ADOPT_S,
                    arguments=(self._target.id, tuple(versions)),
                )
            except Unavailable:
                self.adopters = ()
                return
            counts = wanted.counts(answers)
            for version, (having, known) in zip(versions, counts, strict=False):
                if having < self._target.quorum_size:
                    continue
                adopted.add(version.name)
                if known == having:
                    self.skipped += 1
                else:
                    self.moved += 1
            yield Report(self.progress("update-config"))
            if not counts:
                return
            versions = versions[len(counts) :]

    @property
    def _done_by_others(self) -> bool:
        return self._overtaken or self._view.sequence.last_finalized.index >= self._target.index

    def _move(self, object: ObjectName, may_be_there: bool) -> Operation[None]:
        """Move an object as a member of a group, after a wait for the group's turn."""
        now: float = yield Now()
        wait_s = self._window.begins(
            now, self._throttle.busy_s(now) if self._throttle is not None else 0.0
        )
        try:
            if wait_s > 0:
                yield Pause(wait_s, retry=False)
            began: float = yield Now()
            yield from self._bring(object, may_be_there, BRIEF)
            self._window.rests_after((yield Now()) - began)
        except (Undecodable, ElementRefused):
            self._aside[object] = None
        finally:
            self._window.ends()

    def _try_again(self, object: ObjectName) -> Operation[None]:
        """Try an object set aside again, after all other objects have moved."""
        for pause_s in (REFUSED_PAUSE_S, REFUSED_PAUSE_S, 0.0):
            try:
                yield from self._bring(object, True, THOROUGH)
                self.stuck.pop(object, None)
                return
            except Undecodable as error:
                self.stuck[object] = error.why
                if self._skip_undecodable and error.proven:
                    is_once = self._target.write_once
                    yield from self._leave_behind(
                        object, LOST_TAG if is_once else mark_tag(error.newest)
                    )
                return
            except ElementRefused as error:
                self.stuck[object] = str(error)
            yield Pause(pause_s, retry=False)
        if self._skip_undecodable and self._refused[object].number > NUMBER_FLOOR:
            yield from self._leave_behind(object, REFUSED_MARK)

    def _leave_behind(self, object: ObjectName, tag: Tag) -> Operation[None]:
        """Put the mark at a quorum of the target."""
        yield from self._view.dap(self._target).put_data(object, tag, LOST)
        del self.stuck[object]
        self.left.append(object)
        yield Report(self.progress("update-config"))

    def _bring(
        self, object: ObjectName, may_be_there: bool, effort: RetryPolicy
    ) -> Operation[None]:
        """Move an object, or find the object in the target; repeat if the sources lost the value.

        Raises :class:`Undecodable`, unless the target has a version newer than all versions
        completed in the sources; and :class:`ElementRefused`.
        """
        while not self._done_by_others:
            try:
                moved = yield from self._copied(object, may_be_there, effort)
            except Undecodable as error:
                is_dropped = self._target.write_once and error.below_quorum
                if not is_dropped and not (yield from self._is_there(object, error.newest)):
                    raise
                self.skipped += 1
                moved = True
            if moved:
                yield Report(self.progress("update-config"))
                return

    def _copied(
        self, object: ObjectName, may_be_there: bool, effort: RetryPolicy
    ) -> Operation[bool]:
        """Copy the newest version of all sources to the target, unless the target has the version.

        Runs get-data on every source and put-data on the target. Without ``may_be_there`` the
        target is not asked first. Returns False if the sources lost the value in between.

        A version seen in a first look must not be fetched from its source alone in a second look: a
        quorum of the second look may have missed the version, while a later source, where the
        version was completed, has it. A small value comes with the first look.
        """
        began: float = yield Now()
        found = yield from self._ask_sources(
            lambda dap, carry: dap.get_version(object, carry, effort)
        )
        now: float = yield Now()
        self._window.took(now - began)
        self._byte_window.took(self._sources[0][0].index, now - began, now)
        if self._done_by_others:
            return False
        if found.tag == TAG_ZERO or (
            may_be_there and (yield from self._is_there(object, found.tag))
        ):
            self.skipped += 1
        else:
            if found.value is WITHHELD:
                yield from self._wait_for_turn(found.length)
                if self._not_brought < NOT_BROUGHT_MAX and (
                    yield from self._brought(object, found)
                ):
                    self.moved += 1
                    self.bytes += found.length
                    return True
                return (yield from self._carried(object, found, effort))
            if self._throttle is not None:
                self._throttle.count((yield Now()), found.length)
            yield from self._put(object, found.tag, found.value, found.length)
        return True

    def _carried(
        self, object: ObjectName, seen: DataResult, effort: RetryPolicy
    ) -> Operation[bool]:
        """Copy a large value through the mover, when its bytes have room on the link.

        Returns False if the sources lost the value.
        """
        pause_s = TURN_PAUSE_S
        while not self._byte_window.enter(seen.length):
            yield Pause(pause_s, retry=False)
            pause_s = min(2 * pause_s, TURN_PAUSE_S_MAX)
        try:
            began: float = yield Now()
            if self._byte_window.wants_look(began):
                there = yield from self._is_there(object, seen.tag)
                now: float = yield Now()
                self._byte_window.took(self._target.index, now - began, now)
                if there:
                    self.skipped += 1
                    return True
            found = yield from self._ask_sources(
                lambda dap, carry: dap.get_data(object, carry, effort=effort)
            )
            if found.value is WITHHELD:
                return False
            yield from self._put(object, found.tag, found.value, found.length)
        finally:
            self._byte_window.leave(seen.length)
        return True

    def _put(self, object: ObjectName, tag: Tag, value: Value, length: int) -> Operation[None]:
        """Put a version into the target, under its own tag (Alg. 5:35)."""
        try:
            yield from self._view.dap(self._target).put_data(object, tag, value)
        except ElementRefused:
            self._refused[object] = tag
            raise
        self.moved += 1
        self.bytes += max(length, 0)

    def _brought(self, object: ObjectName, found: DataResult) -> Operation[bool]:
        """Return whether a quorum of the target pulled this version from its source.

        The look has settled the version, and the request names the version's tag: no server
        decides. The mover carries versions which servers cannot get. (ARES, the optimisation of
        state transfer.)
        """
        source = next(source for source, _ in self._sources if source.id == found.configuration)
        # the values ahead in the servers' queues take their time, too
        self._on_the_way += found.length
        arguments, patience_s = (
            (self._target.id, object, found.tag, found.length, source),
            BRING_S + self._on_the_way / BRING_BYTES_PER_S,
        )
        try:
            yield Gather(
                self._target, PullElement, "bring", give_up_s=patience_s, arguments=arguments
            )
        except ElementRefused:  # the value is at fault, and not the way between servers
            return False
        except Unavailable:
            self._not_brought += 1
            return False
        finally:
            self._on_the_way -= found.length
        self._not_brought = 0
        return True

    def _is_there(self, object: ObjectName, tag: Tag) -> Operation[bool]:
        """Return whether a quorum of the target has this version, or a replacement."""
        try:
            there = yield from self._view.dap(self._target).get_version(object, effort=BRIEF)
        except Undecodable:
            return False
        return there.confirmed and there.tag >= tag

    def _wait_for_turn(self, length: int) -> Operation[None]:
        """Wait for the throttle before a large value travels.

        A value fetched before its turn would only take memory. Small values are here already, and
        the next objects wait.
        """
        while self._throttle is not None:
            now: float = yield Now()
            if (wait_s := self._throttle.wait_s(now, length)) <= 0:
                return
            yield Pause(wait_s, retry=False)

    def _ask_sources(
        self, ask: Callable[[DataAccess, Successor], Operation[DataResult]]
    ) -> Operation[DataResult]:
        """Return the newest version of the sources; of equal versions, the last source's.

        These are the questions and the maximum of Alg. 5:29-34.

        The oldest source is asked first, and each next source only after the previous source has
        answered. If they were asked together, or newest first, a completed version could be missed:
        the later source answers before a version of the earlier source arrives there; another mover
        then moves this version and finalizes the later source; and the earlier source, asked last,
        withholds the version. In the given order an earlier source which withholds its data reports
        this before the later source is asked. (A control keeps the order: "a mover that asks the
        newest source first".)

        Raises :class:`Undecodable` if a source without any decodable version lists a newer version.
        Of several such sources the error names the source with the newest version. The error is
        proven if all these errors are proven and no source has a decodable version, which might be
        the last completed version.
        """
        answers: list[DataResult] = []
        failures: list[Undecodable] = []
        for source, carry in self._sources:
            if source.index < self._complete_from or (answers and self._overtaken):
                continue
            try:
                found = yield from ask(self._view.dap(source), carry)
            except Undecodable as error:
                failures.append(error)
                continue
            self._notice(found.successor)
            answers.append(found)
        best = max((found.tag for found in answers), default=TAG_ZERO)
        newer = [error for error in failures if error.newest > best or not answers]
        if newer:
            newest = max(newer, key=lambda error: error.newest)
            raise Undecodable(
                newest.object,
                newest.why,
                newest.newest,
                best == TAG_ZERO and all(error.proven for error in newer),
                best == TAG_ZERO and all(error.below_quorum for error in newer),
            )
        return max(reversed(answers), key=lambda found: found.tag)

    def _notice(self, successor: Successor | None) -> None:
        """Take note of a finalized successor of a source.

        The successor has the data of all configurations before; their data may be gone. If the
        successor is the target, or later, no object is left to move.
        """
        if successor is None or not successor.finalized:
            return
        index = successor.configuration.index
        self._overtaken |= index >= self._target.index
        if any(source.index == index for source, _ in self._sources):
            self._complete_from = max(self._complete_from, index)


class _AdoptedVersions(Struct, frozen=True):
    """The count of servers with each of ``wanted`` versions, of ``asked`` servers."""

    wanted: int
    quorum: int
    asked: int

    def counts(self, answers: Mapping[ServerId, AheadReply]) -> list[tuple[int, int]]:
        """Return the numbers of servers with a version, and of servers that had it before.

        For the first versions, as far as every server has answered.
        """
        outcomes = [reply.outcomes for reply in answers.values()]
        reached = min(self.wanted, *map(len, outcomes))
        return [
            (
                sum(each[position] != CopyOutcome.MISSING for each in outcomes),
                sum(each[position] == CopyOutcome.KNOWN for each in outcomes),
            )
            for position in range(reached)
        ]

    def settled(self, answers: Mapping[ServerId, AheadReply]) -> bool:
        """Return whether no further answer is needed."""
        if len(answers) == self.asked:
            return True
        return all(having >= self.quorum for having, _ in self.counts(answers))


def mark_tag(newest: Tag) -> Tag:
    """Return the mark of an object without completed versions above ``newest``."""
    return Tag(max(newest.number, 1), NOBODY)
