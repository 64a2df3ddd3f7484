"""Reads at a node: answered at once, or after the tail's report of a position.

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
from ares.sharedlog.log_state import LogState, is_answer


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

    def read(self, segment: ChainSegment, sender: Sender, request: ReadLog, now: float) -> None:
        """Answer a read, or make the read wait.

        A dirty read asks the tail; a following read waits for entries.
        """
        reply = self._answer(segment, request)
        if is_answer(reply):
            self._show(segment, sender, reply)
        elif request.wait_s > 0 and len(self._held) < WAITING_REQUESTS_MAX:
            self._held.append(WaitingRead(sender, request, now + request.wait_s))
        elif _is_dirty(segment, request.first):
            self._ask_tail(segment, WaitingRead(sender, request, now + DIRTY_S), now)
        else:
            self._show(segment, sender, reply)

    def read_each(self, segment: ChainSegment, sender: Sender, request: ReadEach) -> None:
        """Answer with the entries at this node that may be shown.

        No read waits: the client asks once more for each dirty entry.
        """
        full = self.outbox_bytes > OUTBOX_BYTES_MAX
        entries = (
            (None,) * len(request.positions)
            if full
            else self._state.each(request.positions, request.uncommitted)
        )
        reply = EachRead(request.call, entries, segment.successor)
        self.outbox_bytes += reply.bulk
        self._send(sender, reply, segment.pointed)

    def _answer(self, segment: ChainSegment, request: ReadLog) -> LogEntries:
        """Return the answer to a read. If no entry may leave now, look for at most one entry."""
        if self.outbox_bytes > OUTBOX_BYTES_MAX and request.count > 1:
            request = replace(request, count=1)
        return self._state.answer(segment, request)

    def _is_ahead(self, segment: ChainSegment, request: ReadLog) -> bool:
        """Return whether a read is ahead of all entries; a search would find no entry.

        The check matters because each commit asks, and a thousand reads may wait.
        """
        here = segment.durable if request.uncommitted else segment.committed
        return request.first >= max(here, self._state.trimmed) and segment.successor is None

    def _show(self, segment: ChainSegment, to: Sender, reply: LogEntries) -> None:
        """Answer a read, without entries if too many bytes wait to leave.

        A single append may end a thousand waiting reads.
        """
        if self.outbox_bytes > OUTBOX_BYTES_MAX and reply.entries:
            reply = replace(reply, entries=())
        self.outbox_bytes += reply.bulk
        self._send(to, reply, segment.pointed)

    def _ask_tail(self, segment: ChainSegment, held: WaitingRead, now: float) -> None:
        segment.asking.append(held)
        if segment.asked_tail is None or now > segment.ask_tail_again_at:
            segment.asked_tail, segment.ask_tail_again_at = self._next_call(), now + SEND_AGAIN_S
            self._send(segment.servers[-1], Look(segment.asked_tail, segment.configuration.id))

    def tail_answered(self, segment: ChainSegment) -> None:
        """Show the entries to the reads waiting for the tail."""
        asking, segment.asking = segment.asking, []
        self._show_all(segment, asking)

    def go_on(self, segment: ChainSegment) -> None:
        """Answer the reads waiting for this commit, or for the successor."""
        held, self._held = self._held, []
        for one in held:
            reply = (
                self._answer(segment, one.request)
                if one.request.configuration == segment.configuration.id
                and not self._is_ahead(segment, one.request)
                else None
            )
            if reply is not None and is_answer(reply):
                self._show(segment, one.sender, reply)
            else:
                self._held.append(one)

    def tick(self, now: float) -> None:
        """End the reads after their longest wait."""
        for segment in self._state.segments.values():
            if segment.asking:
                late = [held for held in segment.asking if now >= held.until]
                segment.asking = [held for held in segment.asking if now < held.until]
                self._show_all(segment, late)
        late, self._held = (
            [held for held in self._held if now >= held.until],
            [held for held in self._held if now < held.until],
        )
        for held in late:
            self._show_all(self._state.segments[held.request.configuration], [held])

    def _show_all(self, segment: ChainSegment, waited: Sequence[WaitingRead]) -> None:
        for held in waited:
            self._show(segment, held.sender, self._answer(segment, held.request))


def _is_dirty(segment: ChainSegment, position: int) -> bool:
    """Return whether the tail must be asked first."""
    return (
        segment.committed <= position < segment.durable
        and not segment.is_tail
        and len(segment.asking) < WAITING_REQUESTS_MAX
    )
