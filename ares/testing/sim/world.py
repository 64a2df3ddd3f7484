"""The world of a run: virtual time, a random generator, the network, consensus, and the story."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

from ares.model.codec import decode
from ares.model.configuration import Configuration, Successor
from ares.model.decision import DecisionTable
from ares.model.errors import ConsensusUnavailable
from ares.model.identity import CallId, ClientId, DomainName
from ares.model.messages import AnyMessage, Decided, Element, ListedObject
from ares.model.tag import Tag
from ares.replica.recent_changes import CHANGES_KEPT
from ares.testing.sim.invariants import SinglePlaces
from ares.testing.sim.plan import Chances, PlannedFault

DELAY_S_MAX = 3.0
SLOW_MESSAGE_FACTOR = 50
BAD_LINK_LOSS = 0.8

SIM_HEALING_S = 300.0
"""Seconds after the last fault by which every operation has to end."""

SIM_STEPS_MAX = 400_000


class WorldPlan(Protocol):
    """The parts of a plan that the world needs."""

    @property
    def scenario(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def chances(self) -> Chances: ...


class SimWorld:
    """An event heap over virtual seconds.

    ``story`` is kept only when asked for; ``digest`` covers every arrived message, with the time.
    ``read`` makes messages of frames, for the story. ``cuts``: the faults that separate servers
    now. ``slow``: servers with slow messages. ``epochs``: numbers of servers' lists of changes for
    watches, each of at most ``changes_kept`` changes.
    """

    def __init__(
        self,
        plan: WorldPlan,
        keep_story: bool,
        read: Callable[[list[bytes]], Sequence[Any]] = decode,
    ) -> None:
        self._read = read
        self.now = 0.0
        self.rng = Random(f"run {plan.scenario} {plan.seed}")
        self.chances = plan.chances
        self.story: list[str] | None = [] if keep_story else None
        self.messages = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self.cuts: list[PlannedFault] = []
        self.slow: set[str] = set()
        self.epochs = itertools.count(1)
        self.changes_kept = CHANGES_KEPT
        self._links: dict[tuple[str, str], float] = {}

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._heap, (self.now + delay_s, self._count, action, arguments))

    def step(self) -> bool:
        """Run the next event; return False if the heap is empty."""
        if not self._heap:
            return False
        self.now, _, action, arguments = heappop(self._heap)
        action(*arguments)
        return True

    def narrate(self, text: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.now * 1000:10.3f} ms  {text}")

    def send(
        self,
        source: str,
        target: str,
        frames: list[bytes],
        deliver: Callable[[str, list[bytes]], None],
        once: bool = False,
    ) -> None:
        """Send a batch: once, twice or not at all, and late. ``once``: never twice."""
        rng, chances = self.rng, self.chances
        loss = self._loss(source, target)
        if loss and rng.random() < loss:
            if self.story is not None:
                self.narrate(f"{source} -> {target}  LOST {self._described(frames)}")
            return
        self.after(self._delay(source, target), self._arrive, source, target, frames, deliver)
        if chances.double and not once and rng.random() < chances.double:
            self.after(self._delay(source, target), self._arrive, source, target, frames, deliver)

    def _loss(self, source: str, target: str) -> float:
        if not self.chances.bad_links:
            return self.chances.loss
        loss = self._links.get((source, target))
        if loss is None:
            bad = self.rng.random() < self.chances.bad_links
            loss = self._links[source, target] = BAD_LINK_LOSS if bad else self.chances.loss
        return loss

    def _delay(self, source: str, target: str) -> float:
        delay = self.chances.delay_s * self.rng.paretovariate(self.chances.tail)
        if source in self.slow or target in self.slow:
            delay *= SLOW_MESSAGE_FACTOR
        return min(delay, DELAY_S_MAX)

    def _arrive(
        self,
        source: str,
        target: str,
        frames: list[bytes],
        deliver: Callable[[str, list[bytes]], None],
    ) -> None:
        if self.cuts and self._separated(source, target):
            if self.story is not None:
                self.narrate(f"{source} -> {target}  CUT {self._described(frames)}")
            return
        self.messages += 1
        self._hash.update(f"{self.now!r}{source}{target}".encode())
        self._hash.update(frames[0])
        if self.story is not None:
            self.narrate(f"{source} -> {target}  {self._described(frames)}")
        deliver(source, frames)

    def _described(self, frames: list[bytes]) -> str:
        return "; ".join(map(describe_message, self._read(frames)))

    def _separated(self, source: str, target: str) -> bool:
        for cut in self.cuts:
            inside = {f"s{number}" for number in cut.servers}
            if source in inside and target not in inside and cut.kind != "cut-in":
                return True
            if target in inside and source not in inside and cut.kind != "cut-out":
                return True
        return False

    def mend(self, fault: PlannedFault) -> None:
        if fault in self.cuts:
            self.cuts.remove(fault)

    def heal(self) -> None:
        """Make the network good from now on."""
        self.chances = Chances(self.chances.delay_s, 3.0, 0.0, 0.0, self.chances.sync_s)
        self.cuts.clear()
        self.slow.clear()


_names: dict[bytes, str] = {}


def name_configuration(configuration: Configuration) -> str:
    """Return ``c2(ec s0,s1,s2)``; remember the id, for messages that carry only the id."""
    short = f"c{configuration.index}"
    _names[configuration.id] = short
    return f"{short}({configuration.dap} {','.join(configuration.server_ids)})"


def describe_message(message: AnyMessage) -> str:
    """Return ``PutData c0 k 3.1``: the kind, followed by the important fields."""
    words = [type(message).__name__]
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if value is True:
            words.append(field)
        elif value is not None and value is not False and field != "call":
            words.append(f"{field}={value}" if isinstance(value, int) else _described(value))
    return " ".join(words)


def _described(value: object) -> str:
    match value:
        case bytes():
            return _names.get(value, value.hex()[:6])
        case Configuration():
            return name_configuration(value)
        case Successor():
            return (
                f"next={name_configuration(value.configuration)}:{'F' if value.finalized else 'P'}"
            )
        case Element():
            return f"element {value.index} of {value.length} bytes"
        case Tag():
            return f"{value.number}.{value.writer}"
        case ListedObject():
            return f"{value.name} {_described(value.tag)}"
        case tuple():
            return "[" + " ".join(map(_described, value)) + "]"
        case _:
            return str(value)


GIVES_UP = 0.05
"""Probability that a client gives up on a proposal that is decided nevertheless."""


class SimConsensus:
    """The consensus service for clients: right, slow, at times without a leader, with lost answers.

    ``down_until``: no leader before this time; proposals wait.
    """

    def __init__(self, world: SimWorld, places: SinglePlaces) -> None:
        self.down_until = 0.0
        self.table: DecisionTable[Configuration] = DecisionTable()
        self._world = world
        self._places = places
        self.healed = False

    def propose(
        self,
        configuration: Configuration,
        proposer: ClientId,
        answer: Callable[[Decided], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        """Decide some time later; answer later still, or have the client give up first."""
        decided_in = self._wait()
        self._world.after(decided_in, self._decide, configuration, proposer, answer)
        if not self.healed and self._world.rng.random() < GIVES_UP:
            self._world.after(
                decided_in * self._world.rng.random(),
                refuse,
                ConsensusUnavailable("the simulated client lost patience"),
            )

    def _decide(
        self, configuration: Configuration, proposer: ClientId, answer: Callable[[Decided], None]
    ) -> None:
        decision = self.table.decide(
            configuration.domain, configuration.index, configuration, proposer
        )
        self._places.see(decision.content)
        self._world.narrate(
            f"consensus DECIDES c{configuration.index} for client {decision.proposer}"
        )
        self._world.after(
            self._wait(), answer, Decided(CallId(0), decision.content, decision.client)
        )

    def tell_finalized(self, configuration: Configuration, answer: Callable[[bool], None]) -> None:
        self.table.tell_finalized(configuration.domain, configuration.index, configuration)
        self._world.after(self._wait(), answer, True)

    def hint(self, domain: DomainName, answer: Callable[[Configuration | None], None]) -> None:
        down = self._world.now < self.down_until
        self._world.after(
            self._wait() if not down else 0.0, answer, None if down else self.table.hint(domain)
        )

    def _wait(self) -> float:
        wait = self._world.chances.delay_s * 4 * self._world.rng.paretovariate(1.5)
        return min(wait, 2.0) + max(0.0, self.down_until - self._world.now)
