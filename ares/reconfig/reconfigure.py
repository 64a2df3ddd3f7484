"""Reconfiguration of a domain: agree on the next configuration, move every object into it, finalize, collect (Alg. 5).

Rule R1 closes the hole of the published piggyback: every request that moves data out of a configuration carries that configuration's
successor, and a server installs it before it answers. So at each server where a write's quorum meets the mover's, either the value was
stored before the mover looked, or the writer is told of the successor.

A reconfigurer may die anywhere. What it leaves pending stays in the sequence; the next reconfigurer moves data from everything since the last
finalized configuration, and so finishes it.
"""

from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct

from ares.configuration import Configuration, Status, Successor
from ares.dap.client import DataAccess, Found
from ares.dap.registry import data_access
from ares.effects import Agree, Announce, Now, Operation, Pause, Report, Together
from ares.errors import ConfigurationRefused, Superseded, Uncertain
from ares.identity import ObjectName
from ares.messages import Decided
from ares.reconfig.collection import gc_config
from ares.reconfig.listing import list_page
from ares.reconfig.throttle import Throttle, Window
from ares.reconfig.traversal import detour, put_config, read_config
from ares.reconfig.view import View
from ares.tag import TAG_ZERO, Tag
from ares.value import WITHHELD


class Progress(Struct, frozen=True):
    """How far a reconfiguration is. ``total`` counts the objects known so far and may grow; ``bytes`` is the data put into the new configuration."""

    stage: str
    moved: int = 0
    skipped: int = 0
    total: int = 0
    bytes: int = 0


class Reconfigured(Struct, frozen=True):
    """``configuration``: the decision, now finalized. ``ours``: whether it was the caller's proposal that was decided.

    ``moved``/``skipped``: objects copied / already there. ``uncollected``: retired configurations of which no quorum answered. ``announced``: whether
    the consensus service heard; if not, a client that knows only configurations whose servers are gone finds no way here until the next one.
    """

    configuration: Configuration
    ours: bool
    moved: int
    skipped: int
    bytes: int
    uncollected: list[Configuration]
    announced: bool = True


def reconfigure(view: View, wished: Configuration, throttle: Throttle | None = None) -> Operation[Reconfigured]:
    """Install ``wished``, or whatever was decided for its place, as the domain's next configuration (Alg. 5:6-12).

    ``throttle``: how fast data moves. If ``wished`` is what somebody left pending at the end of the sequence, that is finished: who tries again and
    again while servers have no room must not make the sequence longer each time.
    """
    yield Report(Progress("read-config"))
    yield from read_config(view)
    last = view.sequence.last_known
    if last.same_content(wished) and last != view.sequence.last_finalized:
        result = yield from install(view, wished, last, throttle)
    else:
        result = yield from advance(view, wished, throttle)
    return result


def advance(view: View, wished: Configuration, throttle: Throttle | None = None) -> Operation[Reconfigured]:
    """``reconfigure`` from the sequence as it is known. If ``wished`` was made from the last entry, it follows that one or does not come about."""
    yield Report(Progress("add-config"))
    decided = yield from add_config(view, wished)
    result = yield from install(view, wished, decided.configuration, throttle)
    return result


def install(view: View, wished: Configuration, target: Configuration, throttle: Throttle | None = None) -> Operation[Reconfigured]:
    """What remains once ``target`` is decided, whoever began with it (Alg. 5:8-12)."""
    try:
        result = yield from _install(view, wished, target, throttle)
    except Uncertain as error:
        error.may_have_taken_effect = True
        error.advice = f"configuration {target.index} is decided and pending: reads and writes go on, the next reconfig finishes it"
        raise
    return result


def _install(view: View, wished: Configuration, target: Configuration, throttle: Throttle | None) -> Operation[Reconfigured]:
    yield from announce_successor(view, target)
    mover = Mover(view, target, throttle)
    yield from mover.update_config()
    yield Report(mover.progress("finalize-config"))
    yield from finalize_config(view, target)
    announced: bool = yield Announce(target)
    uncollected: list[Configuration] = []
    if view.switches.gc:
        yield Report(mover.progress("gc-config"))
        uncollected = yield from gc_config(view)
    return Reconfigured(target, target.same_content(wished), mover.moved, mover.skipped, mover.bytes, uncollected, announced)


def add_config(view: View, wished: Configuration) -> Operation[Decided]:
    """Agree on what follows the last known configuration (Alg. 5:14-18)."""
    last = view.sequence.last_known
    decided = yield from agree(wished.at(last.domain, last.index + 1, last.cluster_id))
    return decided


def agree(proposal: Configuration) -> Operation[Decided]:
    """The decision for the proposal's place. Raises :class:`ConfigurationRefused` if this proposal, or the decision, cannot be used here."""
    data_access(proposal)
    try:
        decided: Decided = yield Agree(proposal)
    except Uncertain as error:
        error.may_have_taken_effect = True
        error.advice = "the proposal may still be decided: see what is in force before you try again"
        raise
    made = decided.configuration
    if (made.domain, made.index) != (proposal.domain, proposal.index) or made.cluster_id != proposal.cluster_id:
        raise ConfigurationRefused(
            f"the consensus service answers for index {made.index} of {made.domain!r} of another cluster: its members, or their journals, belong to "
            "another cluster file. Nothing was changed"
        )
    data_access(made)
    return decided


def announce_successor(view: View, target: Configuration) -> Operation[None]:
    """Tell a quorum of its predecessor what was decided to follow it (Alg. 5:19-20)."""
    yield from _tell_predecessor(view, Successor(target, Status.PENDING))


def finalize_config(view: View, target: Configuration) -> Operation[None]:
    """Tell a quorum of the predecessor that ``target`` holds everything (Alg. 5:37-42)."""
    yield from _tell_predecessor(view, Successor(target, Status.FINALIZED))


def _tell_predecessor(view: View, successor: Successor) -> Operation[None]:
    if view.sequence.last_finalized.index >= successor.configuration.index:
        return
    before = view.sequence.before(successor.configuration)
    try:
        yield from put_config(before, successor)
    except Superseded as superseded:
        detour(view, superseded)
        return
    view.sequence.add(before, successor)


class Mover:
    """update-config (Alg. 5:23-36): the newest version of every object of the domain, from every active configuration into ``target``."""

    def __init__(self, view: View, target: Configuration, throttle: Throttle | None = None) -> None:
        self._view = view
        self._target = target
        self._throttle = throttle
        self._window = Window(view.switches.batch)
        self._sources: list[tuple[Configuration, Successor]] = []
        self._seen: set[ObjectName] = set()
        self._overtaken = False
        self.moved = self.skipped = self.bytes = 0

    def progress(self, stage: str) -> Progress:
        return Progress(stage, self.moved, self.skipped, len(self._seen), self.bytes)

    def update_config(self) -> Operation[None]:
        """With batching many objects move side by side; without, one after the other."""
        while not self._done_by_others:
            try:
                yield from self._move_all()
                return
            except Superseded as superseded:
                detour(self._view, superseded)

    def _move_all(self) -> Operation[None]:
        self._seen.clear()
        active = [configuration for configuration in self._view.sequence.active if configuration.index <= self._target.index]
        self._sources = [(source, Successor(following, Status.PENDING)) for source, following in pairwise(active)]
        for source, carry in self._sources:
            after: str | None = ""
            while after is not None and not self._done_by_others:
                page = yield from list_page(source, after, carry=carry)
                there = yield from list_page(self._target, after)
                fresh = [name for name in page.objects if name not in self._seen]
                self._seen.update(fresh)
                yield Together((self._move(name, there.may_have(name)) for name in fresh), self._window)
                after = page.after

    @property
    def _done_by_others(self) -> bool:
        return self._overtaken or self._view.sequence.last_finalized.index >= self._target.index

    def _move(self, object: ObjectName, may_be_there: bool) -> Operation[None]:
        """get-data from every source, and put-data of the maximum; skip what the target has already. ``may_be_there``: else that is not asked.

        A version seen in one look must not be fetched from its source alone in another: a quorum of the second look may have missed it there, while
        a later source, where it was completed, has it. A small value comes with the first look.
        """
        while True:
            began: float = yield Now()
            found = yield from self._ask_sources(lambda dap, carry: dap.get_version(object, carry))
            self._window.took((yield Now()) - began)
            if self._done_by_others:
                return
            if found.tag == TAG_ZERO or (may_be_there and (yield from self._is_there(object, found.tag))):
                self.skipped += 1
                break
            yield from self._wait_for_turn(found.length)
            if found.value is WITHHELD:
                found = yield from self._ask_sources(lambda dap, carry: dap.get_data(object, carry))
            if found.value is not WITHHELD:
                yield from self._view.dap(self._target).put_data(object, found.tag, found.value)
                self.moved += 1
                self.bytes += max(found.length, 0)
                break
        yield Report(self.progress("update-config"))

    def _is_there(self, object: ObjectName, tag: Tag) -> Operation[bool]:
        """Whether a quorum of the target has this version, or one that replaces it."""
        there = yield from self._view.dap(self._target).get_version(object)
        return there.confirmed and there.tag >= tag

    def _wait_for_turn(self, length: int) -> Operation[None]:
        """Before the value travels: what is fetched and waits would only take memory."""
        while self._throttle is not None:
            now: float = yield Now()
            if (wait_s := self._throttle.wait_s(now, length)) <= 0:
                return
            yield Pause(wait_s, retry=False)

    def _ask_sources(self, ask: Callable[[DataAccess, Successor], Operation[Found]]) -> Operation[Found]:
        """The newest of what the sources have; of the same in several, the last one's."""
        answers = []
        for source, carry in self._sources:
            found = yield from ask(self._view.dap(source), carry)
            self._notice(found)
            answers.append(found)
        return max(reversed(answers), key=lambda found: found.tag)

    def _notice(self, found: Found) -> None:
        """If somebody finalized the target, or something later, it has everything and there is nothing left to move."""
        successor = found.successor
        if successor is not None and successor.finalized and successor.configuration.index >= self._target.index:
            self._overtaken = True
