"""The upkeep of the index by a process: beats, the end of silent sessions, and garbage.

The live session with the lowest number drops garbage and sweeps. Several sessions may do this at
the same time, as each judges by its own fold (ares/bucket/garbage.py).
"""

import asyncio
import logging
from time import monotonic

from ares.bucket.commands import Collected, EndSession
from ares.bucket.garbage import may_drop, may_forget
from ares.bucket.index_records import Blob
from ares.client.buckets.blob_store import BlobStore, blob_of_chunk, chunk_names
from ares.client.buckets.bucket_index import BucketIndex, now_ms
from ares.client.buckets.bucket_values import SweepReport
from ares.model.errors import AresError
from ares.model.identity import ObjectName, ServerId
from ares.platform import tasks

SESSION_BEAT_S = 2.0
SESSION_SILENCE_S = 15.0
"""Seconds without a command of a session, by this process's own clock, that end the session."""

COLLECTION_S = 2.0
"""Seconds between collections."""

BLOBS_AT_ONCE, CHUNKS_DROPPED = 1000, 10_000
"""Blobs of a collection, and chunks with which it has enough: it bounds the work in a turn."""

SWEEP_S = 600.0
"""Seconds between passes of the sweep."""

PAGE_S = 0.1
"""Seconds between pages of names: the sweep takes a small part of a server."""

DROP_S = 30.0
"""Longest standstill of a collection or of a page of the sweep."""

log = logging.getLogger(__name__)


class IndexUpkeep:
    """The upkeep of a life of the index."""

    def __init__(self, index: BucketIndex, blobs: BlobStore) -> None:
        self._index = index
        self._blobs = blobs
        self._heard: dict[int, tuple[int, float]] = {}
        self._own_last = -1

    def begin(self) -> None:
        """Begin, with a beat: the promise of this session moves on."""
        self._index.begin(self._beats(), "beat of the session with the buckets")
        self._index.begin(self._collections(), "collector of the buckets")
        self._index.begin(self._sweeps(), "sweep of the blobs")

    # -- sessions ----------------------------------------------------------------------------------

    async def _beats(self) -> None:
        while True:
            self._index.fold.save()
            self._index.session.end_old_reads(monotonic())
            self._index.give(self._index.session.beat(now_ms()))
            self.end_silent(monotonic())
            await asyncio.sleep(SESSION_BEAT_S)

    def end_silent(self, now_s: float) -> None:
        """End the sessions with a long silence: a wrong suspicion costs a session.

        While this session's own beats do not come back, the log is silent, and no session is.
        """
        index, sessions = self._index, self._index.state.sessions
        own = sessions[index.session.number].last if index.session.number in sessions else -1
        if own == self._own_last:
            self._heard = {number: (last, now_s) for number, (last, _) in self._heard.items()}
        self._own_last = own
        heard = {number: self._heard.get(number, (-1, now_s)) for number in sessions}
        for number, entry in sessions.items():
            last, since_s = heard[number]
            if entry.last != last:
                heard[number] = (entry.last, now_s)
            elif now_s - since_s > SESSION_SILENCE_S and number != index.session.number:
                index.give(index.session.upkeep(EndSession(number, entry.last), now_ms()))
        self._heard = heard

    # -- garbage -----------------------------------------------------------------------------------

    async def _collections(self) -> None:
        """Collect at once, for a process that lives shortly, and then from time to time."""
        while True:
            with tasks.supervised("collector of the buckets"):
                try:
                    await self.drop_unnamed()
                    while self._index.is_oldest and await self.collect():
                        continue
                except AresError as error:
                    log.info("garbage of buckets stays for now: %s", error)
            await asyncio.sleep(COLLECTION_S)

    async def collect(self) -> bool:
        """Drop the oldest garbage of which no process has a need, and tell the index.

        Return whether more parts of ended uploads, or of contents, can be dropped at once.
        """
        self._index.check()
        state = self._index.state
        found = self._droppable()
        if not found and not state.has_leftovers():
            return False
        await self._blobs.drop([name for blob in found for name in chunk_names(blob)], DROP_S)
        await self._index.keep_up(Collected(tuple(found)), DROP_S)
        return state.has_leftovers()

    def _droppable(self) -> list[Blob]:
        state, found, chunks = self._index.state, [], 0
        for _, blob in state.garbage(BLOBS_AT_ONCE):
            if may_forget(state, blob):
                found.append(blob)
                chunks += blob.chunks
            if chunks >= CHUNKS_DROPPED:
                break
        return found

    async def drop_unnamed(self) -> None:
        """Drop own chunks whose command was never given to the log."""
        unnamed = self._index.unnamed
        while unnamed:
            names = unnamed.popleft()
            try:
                await self._blobs.drop(names, DROP_S)
            except BaseException:  # the next life of the index has them, too
                unnamed.append(names)
                raise

    async def _sweeps(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            if self._index.is_oldest:
                with tasks.supervised("sweep of the blobs"):
                    await self.sweep()

    async def sweep(self) -> tuple[int, list[ServerId]]:
        """Drop the litter at each server: names which no command can name any more.

        Each server is asked separately: a quorum's listing misses names brought back by a late put
        or a move. A silent server has a turn in the next pass. Returns the number of names, and the
        silent servers.
        """
        dropped, silent = 0, []
        for server in await self._blobs.servers(DROP_S):
            try:
                dropped += await self._sweep_server(server)
            except AresError as error:
                self._index.check()
                log.info("the sweep passes over %s: %s", server, error)
                silent.append(server)
        return dropped, silent

    async def sweep_once(self, timeout_s: float) -> SweepReport:
        """Drop garbage and litter now, whichever session is the oldest.

        Sessions of ended processes, which keep garbage and litter from being dropped, end first.
        """
        sessions = await self._outlast_silence(timeout_s)
        blobs, goes_on = 0, True
        while goes_on:
            found = len(self._droppable())
            goes_on = await self.collect() or found > 0
            blobs += found
        names, silent = await self.sweep()
        return SweepReport(sessions, blobs, names, tuple(silent))

    async def _outlast_silence(self, timeout_s: float) -> int:
        """Wait until each present session has spoken or ended; return the number of ended ones."""
        index, ended = self._index, 0
        silent = {number: entry.last for number, entry in index.state.sessions.items()}
        while silent:
            await asyncio.sleep(SESSION_BEAT_S)
            await index.verified(timeout_s)
            now = index.state.sessions
            ended += sum(number not in now for number in silent)
            silent = {
                number: last
                for number, last in silent.items()
                if number in now and now[number].last == last
            }
        return ended

    async def _sweep_server(self, server: ServerId) -> int:
        after: str | None = ""
        dropped = 0
        while after is not None:
            page = await self._blobs.names(server, after, DROP_S)
            self._index.check()  # the rows may be wrong
            litter = [name for name in page.names if self._is_litter(name)]
            await self._blobs.drop(litter, DROP_S)
            dropped, after = dropped + len(litter), page.after
            await asyncio.sleep(PAGE_S)
        return dropped

    def _is_litter(self, name: ObjectName) -> bool:
        blob, state = blob_of_chunk(name), self._index.state
        return blob is not None and state.place(blob) is None and may_drop(state, blob)
