"""A process that reconfigures as it is told, and may be killed in the middle: the next one has to finish what it left.

It takes a :class:`ares.testing.torture.records.Wish` a line on stdin and answers each with replies, a line each, of which the last tells the outcome.
"""

import asyncio
import os
import signal
import sys
from collections import Counter

import msgspec
from msgspec import Struct

from ares.client.connect import connect, consensus_of
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.consensus.port import Consensus
from ares.model.errors import AresError, ConfigurationRefused, ConsensusUnavailable
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import Reconfigured
from ares.testing.torture.records import Begun, Done, Failed, Refused, Reply, Wish, encoder

HINT_S = 5.0


class ReconfigurerPlan(Struct, frozen=True):
    """``timeout_s`` bounds a standstill."""

    cluster: str
    timeout_s: float


class Attempt:
    """One wish under way."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._reports: Counter[str] = Counter()

    @property
    def begun(self) -> bool:
        return bool(self._reports)

    def progress(self, progress: Progress) -> None:
        """Tell the parent that the wish may be decided from now on; die here if that is wished for."""
        if not self._reports:
            _tell(Begun())
        self._reports[progress.stage] += 1
        if progress.stage == self._wish.dies_in and self._reports[progress.stage] == self._wish.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)


async def run_reconfigurer(plan: ReconfigurerPlan) -> None:
    """Serve wishes until stdin ends."""
    settings = Settings.load(plan.cluster)
    consensus = consensus_of(settings)
    wishes = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(wishes), sys.stdin)
    store = await connect(settings)
    while line := await wishes.readline():
        wish = msgspec.json.decode(line, type=Wish)
        if wish.fresh:
            await store.close()
            store = await connect(settings)
        _tell(await _fulfil(wish, store, consensus, plan.timeout_s))
    await store.close()
    await consensus.close()


async def _fulfil(wish: Wish, store: Manager, consensus: Consensus, timeout_s: float) -> Reply:
    attempt = Attempt(wish)
    try:
        result = await store.reconfigure(wish.configuration(), progress=attempt.progress, timeout_s=timeout_s)
    except ConfigurationRefused as error:
        return Failed(f"ConfigurationRefused: {error}") if attempt.begun else Refused(str(error))
    except AresError as error:
        return Failed(f"{type(error).__name__}: {error}")
    return Done(result.configuration, result.ours, result.moved, await _is_announced(result, consensus))


async def _is_announced(result: Reconfigured, consensus: Consensus) -> bool:
    """A reconfiguration succeeds also when nobody in the consensus service heard of it."""
    try:
        hint = await consensus.hint(result.configuration.domain, HINT_S)
    except ConsensusUnavailable:
        return False
    return hint is not None and hint.index >= result.configuration.index


def _tell(reply: Reply) -> None:
    sys.stdout.buffer.write(encoder.encode(reply) + b"\n")
    sys.stdout.buffer.flush()
