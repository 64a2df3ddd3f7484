"""What the nemesis can do to real processes: the Victims of nemesis.py."""

import asyncio

import msgspec
from msgspec import Struct

from ares.model.identity import ServerId
from ares.testing.torture.cluster import Cluster, Helper
from ares.testing.torture.partition import Direction, Network
from ares.testing.torture.reconfigurer import ReconfigurerPlan
from ares.testing.torture.records import Begun, Failed, Killed, Outcome, Reply, Wish, encoder

CLIENTS = ("a", "b")
"""The hosts of the client processes."""

RECONFIGURERS = "c"
"""The host of the processes that reconfigure."""

STUCK_S = 90.0

_reply_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class _Heard(Struct):
    begun: bool = False
    outcome: Outcome | None = None


class Reconfigurers:
    """Processes that reconfigure, one for each wish at a time; they are kept for the next wish if they live."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._plan = encoder.encode(ReconfigurerPlan(str(cluster.settings.path), timeout_s))
        self._log = cluster.settings.path.parent / "logs" / "reconfigurer.log"
        self._idle: list[Helper] = []
        self._busy: set[Helper] = set()

    async def reconfigure(self, wish: Wish, kill_after_s: float | None) -> Outcome:
        """Have the wish tried; ``kill_after_s``: kill -9 who tries it so long after it was asked to, if it is still at it."""
        helper = self._idle.pop() if self._idle else await Helper.start(self._cluster.inside(RECONFIGURERS), "reconfigurer", self._plan, self._log)
        self._busy.add(helper)
        helper.say(encoder.encode(wish))
        heard = _Heard()
        stuck = False
        try:
            async with asyncio.timeout(STUCK_S if kill_after_s is None else kill_after_s):
                await self._listen(helper, heard)
        except TimeoutError:
            stuck = kill_after_s is None
            await helper.kill()
            await self._listen(helper, heard)
        self._busy.discard(helper)
        if helper.alive:
            self._idle.append(helper)
        if heard.outcome is not None:
            return heard.outcome
        if stuck:
            return Failed(f"it was still at it after {STUCK_S:g} s")
        if kill_after_s is None and wish.dies_in is None:
            return Failed(f"the reconfigurer ended by itself: {helper.last_words()}")
        return Killed(heard.begun)

    async def close(self) -> None:
        """End them all."""
        for helper in (*self._idle, *self._busy):
            await helper.kill()

    async def _listen(self, helper: Helper, heard: _Heard) -> None:
        """Until the outcome or the end of the process, which is then reaped."""
        while line := await helper.hear():
            reply = _reply_decoder.decode(line)
            if not isinstance(reply, Begun):
                heard.outcome = reply
                return
            heard.begun = True
        await helper.end()


class Processes:
    """``network``: None if nobody can be cut off."""

    def __init__(self, cluster: Cluster, network: Network | None, reconfigurers: Reconfigurers) -> None:
        self._cluster = cluster
        self._network = network
        self.hosts = (*CLIENTS, RECONFIGURERS)
        self.has_network = network is not None
        self.kill = cluster.kill
        self.freeze = cluster.freeze
        self.thaw = cluster.thaw
        self.launch = cluster.launch
        self.identity = cluster.identity
        self.ended = cluster.ended
        self.reconfigure = reconfigurers.reconfigure

    def cut(self, id: ServerId, peers: list[str], direction: Direction) -> None:
        """Drop packets between ``id`` and ``peers``."""
        assert self._network is not None, "who has no network is not cut off"
        self._network.cut(id, peers, direction)

    def mend(self, id: ServerId) -> None:
        """Drop no more."""
        assert self._network is not None, "who has no network is not cut off"
        self._network.mend(id)
