"""Processes that reconfigure on request, and may be killed in the middle.

The next process must finish the work of a killed process. Each takes a
:class:`ares.testing.torture.records.Wish` a line on stdin and answers with replies, a line each;
the last reply tells the outcome.
"""

import asyncio
import os
import signal
import sys
from collections import Counter

import msgspec
from msgspec import Struct, structs

from ares.client.connect import connect, consensus_of
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.consensus.port import Consensus
from ares.model.errors import AresError, ConfigurationRefused, ConsensusUnavailable
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import ReconfigurationResult
from ares.testing.torture.records import (
    Outcome,
    Reply,
    Wish,
    WishBegun,
    WishDeclined,
    WishFailed,
    WishInstalled,
    WishKilled,
    encoder,
    send_to_parent,
)
from ares.testing.torture.torture_cluster import RECONFIGURERS_HOST, Helper, TortureCluster

HINT_S = 5.0
BEFORE_SEAL = ("read-config", "prepare")
"""The early stages of a log's reconfigurer: up to them, no change and no proposal is made."""


class ReconfigurerPlan(Struct, frozen=True):
    """The settings of a reconfigurer. ``timeout_s`` bounds a standstill."""

    cluster: str
    timeout_s: float


async def run_reconfigurer(plan: ReconfigurerPlan) -> None:
    """Serve wishes until stdin ends."""
    settings = Settings.load(plan.cluster)
    consensus = consensus_of(settings)
    wishes = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(wishes), sys.stdin
    )
    stores: dict[bool, Manager] = {}
    while line := await wishes.readline():
        wish = msgspec.json.decode(line, type=Wish)
        if wish.fresh and wish.ahead in stores:
            await stores.pop(wish.ahead).close()
        if wish.ahead not in stores:
            client = structs.replace(settings.client, ahead=wish.ahead)
            stores[wish.ahead] = await connect(structs.replace(settings, client=client))
        send_to_parent(await _fulfil(wish, stores[wish.ahead], consensus, plan.timeout_s))
    for store in stores.values():
        await store.close()
    await consensus.close()


async def _fulfil(wish: Wish, store: Manager, consensus: Consensus, timeout_s: float) -> Reply:
    reports: Counter[str] = Counter()
    begun = False

    def report(progress: Progress) -> None:
        """Tell the parent of a possible decision from now on; die here if the wish demands."""
        nonlocal begun
        if not begun and not (wish.dap == "chain" and progress.stage in BEFORE_SEAL):
            begun = True
            send_to_parent(WishBegun())
        reports[progress.stage] += 1
        if progress.stage == wish.dies_in and reports[progress.stage] == wish.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        result = await store.reconfigure(
            wish.configuration(),
            domain=wish.domain,
            progress=report,
            timeout_s=timeout_s,
            transfer=wish.transfer,
        )
    except ConfigurationRefused as error:
        return WishFailed(f"ConfigurationRefused: {error}") if begun else WishDeclined(str(error))
    except AresError as error:
        return WishFailed(f"{type(error).__name__}: {error}")
    return WishInstalled(
        result.configuration, result.ours, result.moved, await _is_announced(result, consensus)
    )


async def _is_announced(result: ReconfigurationResult, consensus: Consensus) -> bool:
    """Return whether consensus announces the result.

    A reconfiguration succeeds even when no consensus member heard of the end.
    """
    try:
        hint = await consensus.hint(result.configuration.domain, HINT_S)
    except ConsensusUnavailable:
        return False
    return hint is not None and hint.index >= result.configuration.index


STUCK_S = 90.0

_reply_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class Reconfigurers:
    """Processes that reconfigure, one for each wish at a time.

    Live processes are kept for later wishes.
    """

    def __init__(self, cluster: TortureCluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._plan = encoder.encode(ReconfigurerPlan(str(cluster.settings.path), timeout_s))
        self._log = cluster.settings.path.parent / "logs" / "reconfigurer.log"
        self._idle: list[Helper] = []
        self._busy: set[Helper] = set()

    async def reconfigure(self, wish: Wish, kill_after_s: float | None) -> Outcome:
        """Have the wish tried, and return the outcome.

        ``kill_after_s``: seconds from the request to the kill of a process that is still working.
        """
        helper = (
            self._idle.pop()
            if self._idle
            else await Helper.start(
                self._cluster.inside(RECONFIGURERS_HOST), "reconfigurer", self._plan, self._log
            )
        )
        self._busy.add(helper)
        helper.send_line(encoder.encode(wish))
        heard: list[Reply] = []
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
        match heard:
            case [*_, WishInstalled() | WishDeclined() | WishFailed() as outcome]:
                return outcome
        if stuck:
            return WishFailed(f"it was still at it after {STUCK_S:g} s")
        if kill_after_s is None and wish.dies_in is None:
            return WishFailed(f"the reconfigurer ended by itself: {helper.last_words()}")
        return WishKilled(begun=bool(heard))

    async def close(self) -> None:
        for helper in (*self._idle, *self._busy):
            await helper.kill()

    async def _listen(self, helper: Helper, heard: list[Reply]) -> None:
        """Listen until the outcome or the end of the process, and reap an ended process."""
        while line := await helper.hear():
            reply = _reply_decoder.decode(line)
            heard.append(reply)
            if not isinstance(reply, WishBegun):
                return
        await helper.end()
