"""Reads at a node: answered at once, or when the tail has told its position.

See docs/log.md, Read.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ares.model.identity import CallId
from ares.model.log_messages import EachRead, LogEntries, Look, ReadEach, ReadLog
from ares.sharedlog.chain_segment import (
    DIRTY_S,
    OUTBOX_BYTES_MAX,
    SEND_AGAIN_S,
    WAITING_REQUESTS_MAX,
    ChainSegment,
    Sender,
    WaitingRead,
)
from ares.sharedlog.log_state import LogState, tells


class NodeReads:
    """The reads of a node. ``send`` and ``next_call`` are methods of the node.

    ``outbox_bytes``: bytes of entries and records in the node's unsent answers.
    """

    def __init__(
        self, state: LogState, send: Callable[..., None], next_call: Callable[[], CallId]
    ) -> None:
        self.outbox_bytes = 0
        self._state = state
        self._send = send
        self._next_call = next_call
        self._held: list[WaitingRead] = []

    def read(self, stretch: ChainSegment, sender: Sender, request: ReadLog, now: float) -> None:
        """Answer a read, or make it wait.

        A dirty read asks the tail; a read that follows waits for entries.
        """
        reply = self._answer(stretch, request)
        if tells(reply):
            self._show(stretch, sender, reply)
        elif request.wait_s > 0 and len(self._held) < WAITING_REQUESTS_MAX:
            self._held.append(WaitingRead(sender, request, now + request.wait_s))
        elif _is_dirty(stretch, request.first):
            self._ask_tail(stretch, WaitingRead(sender, request, now + DIRTY_S), now)
        else:
            self._show(stretch, sender, reply)

    def read_each(self, stretch: ChainSegment, sender: Sender, request: ReadEach) -> None:
        """Answer with the entries that are at this node and may be shown.

        No read waits: the client asks once more for each dirty entry.
        """
        full = self.outbox_bytes > OUTBOX_BYTES_MAX
        entries = (
            (None,) * len(request.positions)
            if full
            else self._state.each(request.positions, request.uncommitted)
        )
        reply = EachRead(request.call, entries, stretch.successor)
        self.outbox_bytes += reply.bulk
        self._send(sender, reply, stretch.pointed)

    def _answer(self, stretch: ChainSegment, request: ReadLog) -> LogEntries:
        """Return the answer to a read. If no entry may leave now, look for at most one entry."""
        if self.outbox_bytes > OUTBOX_BYTES_MAX and request.count > 1:
            request = replace(request, count=1)
        return self._state.answer(stretch, request)

    def _is_ahead(self, stretch: ChainSegment, request: ReadLog) -> bool:
        """Return whether a read is ahead of all entries, where a search would find nothing.

        The check matters because each commit asks, and a thousand reads may wait.
        """
        here = stretch.length if request.uncommitted else stretch.committed
        return request.first >= max(here, self._state.trimmed) and stretch.successor is None

    def _show(self, stretch: ChainSegment, to: Sender, reply: LogEntries) -> None:
        """Answer a read, without entries if too many bytes wait to leave.

        A single append may end a thousand waiting reads.
        """
        if self.outbox_bytes > OUTBOX_BYTES_MAX and reply.entries:
            reply = replace(reply, entries=())
        self.outbox_bytes += reply.bulk
        self._send(to, reply, stretch.pointed)

    def _ask_tail(self, stretch: ChainSegment, held: WaitingRead, now: float) -> None:
        stretch.asking.append(held)
        if stretch.asked_tail is None or now > stretch.ask_tail_again_at:
            stretch.asked_tail, stretch.ask_tail_again_at = self._next_call(), now + SEND_AGAIN_S
            self._send(stretch.servers[-1], Look(stretch.asked_tail, stretch.configuration.id))

    def tail_answered(self, stretch: ChainSegment) -> None:
        """Show the entries to the reads that waited for the tail."""
        asking, stretch.asking = stretch.asking, []
        self._show_all(stretch, asking)

    def go_on(self, stretch: ChainSegment) -> None:
        """Answer the reads that waited for this commit, or for the successor."""
        held, self._held = self._held, []
        for one in held:
            reply = (
                self._answer(stretch, one.request)
                if one.request.configuration == stretch.configuration.id
                and not self._is_ahead(stretch, one.request)
                else None
            )
            if reply is not None and tells(reply):
                self._show(stretch, one.sender, reply)
            else:
                self._held.append(one)

    def tick(self, now: float) -> None:
        """End the reads whose wait is over."""
        for stretch in self._state.stretches.values():
            if stretch.asking:
                late = [held for held in stretch.asking if now >= held.until]
                stretch.asking = [held for held in stretch.asking if now < held.until]
                self._show_all(stretch, late)
        late, self._held = (
            [held for held in self._held if now >= held.until],
            [held for held in self._held if now < held.until],
        )
        for held in late:
            self._show_all(self._state.stretches[held.request.configuration], [held])

    def _show_all(self, stretch: ChainSegment, waited: Sequence[WaitingRead]) -> None:
        for held in waited:
            self._show(stretch, held.sender, self._answer(stretch, held.request))


def _is_dirty(stretch: ChainSegment, position: int) -> bool:
    """Return whether the tail must be asked first."""
    return (
        stretch.committed <= position < stretch.length
        and not stretch.is_tail
        and len(stretch.asking) < WAITING_REQUESTS_MAX
    )
