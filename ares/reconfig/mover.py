"""update-config: the newest version of every object of a domain, from every active configuration into the next one (Alg. 5:23-36).

Objects move in groups: those of a group begin at once, so that servers answer them in one batch, and the next round, too, leaves in one. A message
for each would cost servers and mover several times as much. Groups are small, for what clients ask comes between two of them.

An object that cannot be decoded, or that the target refuses, does not stop the others: it is set aside, and tried again when they are there, for
longer. If it is as before, the move is not complete, and says which ones are ``stuck``; or it leaves them behind, if the caller
wishes that: a mark takes the place of such an object, which says that its value is lost.

The mark is a version of the object, LOST for a value, in the configuration that is being moved to. So it is at a quorum before that is finalized, is
journaled, moves on with its domain, is listed by `ls` and by `status`, makes a read fail with :class:`ares.model.errors.LeftBehind`, and gives way to
any later write or delete. It has the number of the highest tag t that can have been completed in the sources
(:func:`ares.dap.decidable.newest_possible`), and the writer 0, which no client is. Why that tag:

- A write that begins later takes a number above it: it meets the mark, or asks the sources, where k servers of every quorum had t or more. So
  whatever a completed read took from the sources, and a late one writes back, is below every such write, and replaces the mark at most. (With a
  lower mark it could replace what was written since.)
- What was completed in the sources is not above t: nobody reads something older in place of what is lost.
- A write that is under way ends in the target, since the mover's looks have installed the successor (rule R1). If its number is that of the mark or
  higher, it stands. If it is lower, it is older than something that may have been completed, and is taken to have come before that.
- What may have reached some servers and was never completed can be above t. It is a write that has not ended, whichever client completes it one day.
- Movers at the same time, or one after the other, put the same value under the mark's tag, whatever each of them saw.

It is put only if what the servers said proves that no version can be decoded (ares/dap/reading.py), or if the servers of the target refuse the tag,
by which the object could not be written there either. Then the mark has a number that they take, NUMBER_FLOOR: no object gets there by being written,
and what is above is refused from everybody. A version that a quorum of the target has already, and that is not older than t, needs no mark.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from ares.dap.primitives import DataAccess, Found
from ares.dap.reading import BRIEF, THOROUGH, Effort
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import ElementRefused, Superseded, Unavailable, Undecodable
from ares.model.identity import ClientId, ObjectName
from ares.model.messages import Bring
from ares.model.tag import NUMBER_FLOOR, TAG_ZERO, Tag
from ares.model.value import LOST, WITHHELD
from ares.operation.effects import Gather, Now, Operation, Pause, Report, Together
from ares.reconfig.listing import list_page
from ares.reconfig.throttle import Throttle, Window
from ares.reconfig.traversal import detour
from ares.reconfig.view import View

REFUSED_PAUSE_S = 0.5
"""How long servers that refuse a tag, for their clocks are a little behind, are left to catch up."""

ASIDE_AT_ONCE = 64
"""How many objects that were set aside are tried again at once: they wait most of the time."""

NOBODY = ClientId(0)
REFUSED_MARK = Tag(NUMBER_FLOOR, NOBODY)
"""The mark of an object whose tag servers do not take."""


class Progress(Struct, frozen=True):
    """How far a reconfiguration is. ``total`` counts the objects known so far and may grow; ``bytes`` is the data put into the new configuration."""

    stage: str
    moved: int = 0
    skipped: int = 0
    total: int = 0
    bytes: int = 0


Transfer = Literal["client", "servers"]
"""How large values travel: through the mover, or from server to server."""

BRING_S, BRING_BYTES_PER_S = 3.0, 10e6
"""How long servers may take to bring a value, whatever its size, and for its bytes, until the mover carries it itself."""

NOT_BROUGHT_MAX = 8
"""After so many values in a row that servers could not bring, the mover carries all others: they do not reach each other, perhaps."""


class Manner(Struct, frozen=True):
    """How objects are moved. ``throttle``: no faster than that. ``skip_undecodable``: leave behind what provably cannot be moved."""

    throttle: Throttle | None = None
    skip_undecodable: bool = False
    transfer: Transfer = "client"


USUAL = Manner()


class Mover:
    """Into ``target``, in this ``manner``.

    ``stuck``: the objects that were not moved, and why. ``left``: those that were left behind.
    """

    def __init__(self, view: View, target: Configuration, manner: Manner = USUAL) -> None:
        self._view = view
        self._target = target
        self._throttle = manner.throttle
        self._not_brought = 0 if manner.transfer == "servers" else NOT_BROUGHT_MAX
        self._on_the_way = 0
        self._window = Window(view.switches.batch)
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

    def update_config(self) -> Operation[None]:
        """With batching many objects move side by side; without, one after the other."""
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
                self._window.hears(page.asked, (yield Now()))
                there = yield from list_page(self._target, after)
                fresh = [name for name in page.objects if name not in self._seen]
                self._seen.update(fresh)
                yield Together(
                    (self._move(name, there.may_have(name)) for name in fresh), self._window
                )
                after = page.after

    @property
    def _done_by_others(self) -> bool:
        return self._overtaken or self._view.sequence.last_finalized.index >= self._target.index

    def _move(self, object: ObjectName, may_be_there: bool) -> Operation[None]:
        """As one of a group, when it is its turn."""
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
        """What was set aside, when everything else has moved."""
        for pause_s in (REFUSED_PAUSE_S, REFUSED_PAUSE_S, 0.0):
            try:
                yield from self._bring(object, True, THOROUGH)
                self.stuck.pop(object, None)
                return
            except Undecodable as error:
                self.stuck[object] = error.why
                if self._skip_undecodable and error.proven:
                    yield from self._leave_behind(object, mark_tag(error.newest))
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

    def _bring(self, object: ObjectName, may_be_there: bool, effort: Effort) -> Operation[None]:
        """Move it, or find that the target has it; again if the sources did not have the value any more.

        Raises :class:`Undecodable`, unless the target has what is newer than all that was completed in the sources; and :class:`ElementRefused`.
        """
        while not self._done_by_others:
            try:
                moved = yield from self._copied(object, may_be_there, effort)
            except Undecodable as error:
                if not (yield from self._is_there(object, error.newest)):
                    raise
                self.skipped += 1
                moved = True
            if moved:
                yield Report(self.progress("update-config"))
                return

    def _copied(self, object: ObjectName, may_be_there: bool, effort: Effort) -> Operation[bool]:
        """get-data from every source, and put-data of the maximum; skip what the target has already. ``may_be_there``: else that is not asked.
        False if the sources did not have the value any more.

        A version seen in one look must not be fetched from its source alone in another: a quorum of the second look may have missed it there, while
        a later source, where it was completed, has it. A small value comes with the first look.
        """
        began: float = yield Now()
        found = yield from self._ask_sources(
            lambda dap, carry: dap.get_version(object, carry, effort)
        )
        self._window.took((yield Now()) - began)
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
                found = yield from self._ask_sources(
                    lambda dap, carry: dap.get_data(object, carry, effort=effort)
                )
            elif self._throttle is not None:
                self._throttle.count((yield Now()), found.length)
            if found.value is WITHHELD:
                return False
            try:
                yield from self._view.dap(self._target).put_data(object, found.tag, found.value)
            except ElementRefused:
                self._refused[object] = found.tag
                raise
            self.moved += 1
            self.bytes += max(found.length, 0)
        return True

    def _brought(self, object: ObjectName, found: Found) -> Operation[bool]:
        """Whether a quorum of the target got this version from the source where it was found. It is the version that the look settled, by its tag, so
        no server decides anything; and what servers cannot get, the mover carries. (ARES, the optimisation of state transfer.)
        """
        source = next(source for source, _ in self._sources if source.id == found.configuration)
        self._on_the_way += (
            found.length
        )  # what is before it in the queues of servers takes its time, too
        arguments, patience_s = (
            (self._target.id, object, found.tag, found.length, source),
            BRING_S + self._on_the_way / BRING_BYTES_PER_S,
        )
        try:
            yield Gather(self._target, Bring, "bring", give_up_s=patience_s, arguments=arguments)
        except Unavailable:
            self._not_brought += 1
            return False
        finally:
            self._on_the_way -= found.length
        self._not_brought = 0
        return True

    def _is_there(self, object: ObjectName, tag: Tag) -> Operation[bool]:
        """Whether a quorum of the target has this version, or one that replaces it."""
        try:
            there = yield from self._view.dap(self._target).get_version(object, effort=BRIEF)
        except Undecodable:
            return False
        return there.confirmed and there.tag >= tag

    def _wait_for_turn(self, length: int) -> Operation[None]:
        """Before a large value travels: what is fetched and waits would only take memory. Small ones are here, and those that follow wait."""
        while self._throttle is not None:
            now: float = yield Now()
            if (wait_s := self._throttle.wait_s(now, length)) <= 0:
                return
            yield Pause(wait_s, retry=False)

    def _ask_sources(
        self, ask: Callable[[DataAccess, Successor], Operation[Found]]
    ) -> Operation[Found]:
        """The newest of what the sources have; of the same in several, the last one's.

        Oldest first, and each only when the one before it has answered. Asked together, or newest first, a later source may answer before what an
        earlier one has comes to it; another mover then moves that there and finalizes the later one, and the earlier one, asked last, withholds it:
        nobody has said what was completed. In this order an earlier one that withholds its data says so before the later one is asked.
        (A control keeps that: "a mover that asks the newest source first".)

        Raises :class:`Undecodable` if a source in which none can be decoded lists what is newer; of several the one that lists the newest, proven if
        all are and no source has a version that can be decoded: that might be the last one that completed.
        """
        answers: list[Found] = []
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
            )
        return max(reversed(answers), key=lambda found: found.tag)

    def _notice(self, successor: Successor | None) -> None:
        """A finalized successor of a source has what those before it had; they need not be there any more. If it is the target, or something later,
        there is nothing left to move.
        """
        if successor is None or not successor.finalized:
            return
        index = successor.configuration.index
        self._overtaken |= index >= self._target.index
        if any(source.index == index for source, _ in self._sources):
            self._complete_from = max(self._complete_from, index)


def mark_tag(newest: Tag) -> Tag:
    """The mark of an object of which nothing newer than ``newest`` can have been completed."""
    return Tag(max(newest.number, 1), NOBODY)
