"""Commands to Raft that are under way: each is one, whoever waits for it and however often it is asked for (ares/consensus/raft/member.py).

A command whose answer is late was lost, with a leader that died, or it waits behind many others for a slow disk. In the first case it has to be
handed in again, which is safe, because the first proposal wins however often it comes. In the second every copy makes all others later still, until
none is answered before those who wait for it have given up, and asked again. So a command outlasts who waits for it, those who ask for the same
join it, and it is handed in again after ATTEMPT_S and then after twice as long each time.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from ares.consensus.raft.replicated import Outcome, crossing
from ares.model.errors import ConsensusUnavailable

ATTEMPT_S = 1.0
ATTEMPT_S_MAX = 8.0

PAUSE_S = 0.05
"""Between a failure and the next attempt."""

KEPT_S = 10.0
"""A command that nobody waits for any more may be joined for so long."""

HandIn = Callable[[Callable[[Any, int], None]], None]
"""Hands a command in, with the callback that gets its answer."""


class _Command:
    """``outcome``: that of any copy. ``asked``: how many wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: asyncio.Future[Outcome] = loop.create_future()
        self.again_at_s = 0.0
        self.attempt_s = ATTEMPT_S
        self.asked = 0
        self.end: asyncio.TimerHandle | None = None


class Commands:
    """Those of one member. Use it on one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Command] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def run(self, key: Hashable, hand_in: HandIn, timeout_s: float) -> Any:
        """What the command ``key`` returned. Raises :class:`ConsensusUnavailable` after ``timeout_s``, and what ``hand_in`` raises."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        why = "it was given no time"
        while (now_s := loop.time()) < deadline_s:
            command = self._begun(key, hand_in, now_s)
            try:
                result, why = await self._joined(key, command, min(command.again_at_s, deadline_s) - now_s)
            except TimeoutError:
                why = "no majority of the members confirmed it in time"
                continue
            if not why:
                return result
            await asyncio.sleep(PAUSE_S)
        raise ConsensusUnavailable(why)

    def _begun(self, key: Hashable, hand_in: HandIn, now_s: float) -> _Command:
        """The command, handed in if it is time."""
        loop = asyncio.get_running_loop()
        command = self._under_way.get(key) or _Command(loop)
        if now_s >= command.again_at_s:
            hand_in(crossing(loop, command.outcome))
            command.again_at_s = now_s + command.attempt_s
            command.attempt_s = min(2 * command.attempt_s, ATTEMPT_S_MAX)
        if key not in self._under_way:
            self._under_way[key] = command
            command.outcome.add_done_callback(lambda _: self._forget(key, command))
        return command

    async def _joined(self, key: Hashable, command: _Command, wait_s: float) -> Outcome:
        command.asked += 1
        if command.end is not None:
            command.end.cancel()
        try:
            return await asyncio.wait_for(asyncio.shield(command.outcome), wait_s)
        finally:
            command.asked -= 1
            if not command.asked and not command.outcome.done():
                command.end = asyncio.get_running_loop().call_later(KEPT_S, self._forget, key, command)

    def _forget(self, key: Hashable, command: _Command) -> None:
        if command.end is not None:
            command.end.cancel()
        if self._under_way.get(key) is command:
            del self._under_way[key]
