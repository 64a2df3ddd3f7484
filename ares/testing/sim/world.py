"""Virtual time, one generator, and the network between everybody: the world that a plan runs in."""

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from ares.model.codec import decode
from ares.testing.sim.plan import Chances, Fault, Plan
from ares.testing.sim.story import describe_message

DELAY_S_MAX = 3.0
SLOW_FACTOR = 50
BAD_LINK_LOSS = 0.8


class World:
    """An event heap over virtual seconds. ``story`` is kept only when asked for; ``digest`` covers every message that arrived, and when."""

    def __init__(self, plan: Plan, keep_story: bool) -> None:
        self.now = 0.0
        self.rng = Random(f"run {plan.scenario} {plan.seed}")
        self.chances = plan.chances
        self.story: list[str] | None = [] if keep_story else None
        self.messages = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._cuts: list[Fault] = []
        self._slow: set[str] = set()
        self._links: dict[tuple[str, str], float] = {}

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do it ``delay_s`` from now."""
        self._count += 1
        heappush(self._heap, (self.now + delay_s, self._count, action, arguments))

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._heap:
            return False
        self.now, _, action, arguments = heappop(self._heap)
        action(*arguments)
        return True

    def tell(self, text: str) -> None:
        """A line for the story."""
        if self.story is not None:
            self.story.append(f"{self.now * 1000:10.3f} ms  {text}")

    def send(self, source: str, target: str, frames: list[bytes], deliver: Callable[[str, list[bytes]], None]) -> None:
        """Put a batch on its way: once, twice or not at all, and late."""
        rng, chances = self.rng, self.chances
        loss = self._loss(source, target)
        if loss and rng.random() < loss:
            if self.story is not None:
                self.tell(f"{source} -> {target}  LOST {self._described(frames)}")
            return
        self.after(self._delay(source, target), self._arrive, source, target, frames, deliver)
        if chances.double and rng.random() < chances.double:
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
        if source in self._slow or target in self._slow:
            delay *= SLOW_FACTOR
        return min(delay, DELAY_S_MAX)

    def _arrive(self, source: str, target: str, frames: list[bytes], deliver: Callable[[str, list[bytes]], None]) -> None:
        if self._cuts and self._separated(source, target):
            if self.story is not None:
                self.tell(f"{source} -> {target}  CUT {self._described(frames)}")
            return
        self.messages += 1
        self._hash.update(f"{self.now!r}{source}{target}".encode())
        self._hash.update(frames[0])
        if self.story is not None:
            self.tell(f"{source} -> {target}  {self._described(frames)}")
        deliver(source, frames)

    def _described(self, frames: list[bytes]) -> str:
        return "; ".join(map(describe_message, decode(frames)))

    def _separated(self, source: str, target: str) -> bool:
        for cut in self._cuts:
            inside = {f"s{number}" for number in cut.servers}
            if source in inside and target not in inside and cut.kind != "cut-in":
                return True
            if target in inside and source not in inside and cut.kind != "cut-out":
                return True
        return False

    def cut(self, fault: Fault) -> None:
        self._cuts.append(fault)

    def mend(self, fault: Fault) -> None:
        if fault in self._cuts:
            self._cuts.remove(fault)

    def slow(self, names: set[str]) -> None:
        self._slow |= names

    def speed_up(self, names: set[str]) -> None:
        self._slow -= names

    def heal(self) -> None:
        """From now on the network is a good one."""
        self.chances = Chances(self.chances.delay_s, 3.0, 0.0, 0.0, self.chances.sync_s)
        self._cuts.clear()
        self._slow.clear()
