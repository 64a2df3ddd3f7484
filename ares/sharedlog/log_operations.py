"""The operations of a client on a log's entries besides append: tail, read, follow, trim.

See docs/log.md, Read and Trim.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ares.engine.effects import Gather, Operation, Pause
from ares.engine.phases import READ_OBJECT, phase
from ares.model.configuration import Configuration, Successor, latest
from ares.model.errors import (
    BadInput,
    LogSealed,
    NotWritten,
    Superseded,
    Trimmed,
    Unavailable,
)
from ares.model.identity import ServerId
from ares.model.log_messages import (
    FOLLOW_S_MAX,
    LOG_PIECE_BYTES,
    RANGE_MAX,
    LogEntries,
    Look,
    LookDone,
    ReadLog,
    Trim,
    TrimDone,
)
from ares.model.numbers import POSITION_MAX, is_whole, shown_number
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View

CHAIN_ASK_S = 1.0
"""Time given to a server before another server is asked."""

CHAIN_RETRY_S = 0.02
LOOK_PATIENCE_S = 0.1
"""Time that a look waits for more answers than a majority, if the majority settles nothing."""

FOLLOW_S = 2.0
EMPTY_MAX = 3
"""Empty answers of a server before a follower asks another server."""


class Evidence(NamedTuple):
    """The result of looks at a majority of nodes, each without a seal and without a successor.

    ``length``: the smallest bound of the majority: nothing at this position or beyond was committed
    when the call began. ``committed``: the largest committed position.
    """

    length: int
    committed: int


def evidence(chain: Configuration, looks: Iterable[LookDone]) -> Evidence | None:
    """Return the evidence of the looks at a chain's nodes.

    A majority of nodes without a seal proves that the chain was the last chain; with fewer such
    nodes the result is None.
    """
    open_ones = [seen for seen in looks if not seen.sealed and seen.successor is None]
    if len(open_ones) < chain.quorum_size:
        return None
    return Evidence(
        min(seen.length for seen in open_ones), max(seen.committed for seen in open_ones)
    )


class LogOperations:
    """Operations on a log's entries. ``view``: the client's knowledge of the log's chains.

    ``turn`` selects the server asked first, which spreads clients over the nodes.
    """

    def __init__(self, view: View, turn: int = 0, reads_from_tail: bool = False) -> None:
        self.view = view
        self.reads_from_tail = reads_from_tail
        self._turn = turn
        self._sealed: Configuration | None = None
        self._missing: dict[ServerId, str] = {}

    # -- evidence ----------------------------------------------------------------------------------

    def tail(self) -> Operation[int]:
        """Return the next position.

        The bound of the first majority stays for its chain: a later bound would move on with the
        appends. Then any node's larger committed position ends the call.

        Raises :class:`LogSealed` at the deadline, if a seal is the reason.
        """
        bound: int | None = None
        chain = self.view.sequence.last_known
        while True:
            if self.view.sequence.last_known != chain:
                bound, chain = None, self.view.sequence.last_known
            found = yield from self._look(bound)
            if found is not None and found.length <= found.committed:
                return found.committed
            bound = found.length if found is not None else bound
            yield from self.pause()

    def _look(self, bound: int | None = None) -> Operation[Evidence | None]:
        """Look once at the last chain known, and enter the successors named by the nodes.

        ``bound``: of an earlier majority. Then the answer of any node adds to the evidence.
        """
        chain = self.view.sequence.last_known

        def judged(answers: Any) -> Evidence | None:
            if bound is None:
                return evidence(chain, answers.values())
            return Evidence(bound, max(seen.committed for seen in answers.values()))

        def settled(answers: Any) -> bool:
            found = judged(answers)
            named = any(seen.successor is not None for seen in answers.values())
            return named or (found is not None and found.length <= found.committed)

        try:
            answers = yield Gather(
                chain,
                Look,
                "look",
                needed=0 if bound is None else 1,
                settled=settled,
                patience_s=lambda *_: LOOK_PATIENCE_S,
                arguments=(chain.id,),
                reply=LookDone,
            )
        except Superseded as superseded:
            detour(self.view, superseded)
            return None
        except Unavailable as error:
            self._raise_known_reason(error)
            raise
        found = judged(answers)
        yield from self.learn(chain, latest([seen.successor for seen in answers.values()]))
        waits = found is None or (
            bound is not None and any(seen.sealed for seen in answers.values())
        )
        self._sealed = chain if waits and self.view.sequence.last_known == chain else None
        return found

    def pause(self) -> Operation[None]:
        """Wait before another look.

        From the seal until a successor is known, negative answers wait.
        """
        try:
            yield Pause(CHAIN_RETRY_S)
        except Unavailable as error:
            self._raise_known_reason(error)
            raise

    def _raise_known_reason(self, error: Unavailable) -> None:
        """Raise the error of the deadline, with the reason that is known.

        :class:`LogSealed` if the last look found a seal; otherwise with the names of silent
        servers.
        """
        if self._sealed is not None:
            raise LogSealed(self._sealed.domain, self._sealed.index) from error
        if self._missing:
            raise Unavailable(1, 0, dict(self._missing), error.story) from error

    def learn(self, chain: Configuration, successor: Successor | None) -> Operation[None]:
        """Enter a successor when a majority of ``chain`` knows the successor (R3)."""
        if successor is not None:
            yield from find_next_config(self.view, chain, successor)

    # -- reads -------------------------------------------------------------------------------------

    @phase(READ_OBJECT)
    def read(
        self, position: int, uncommitted: bool = False, from_tail: bool | None = None
    ) -> Operation[bytes]:
        """Return the entry at ``position``. ``from_tail``: CR; None: the default of this client.

        Raises :class:`NotWritten`, :class:`Trimmed`, and :class:`BadInput` if ``position`` is no
        position.
        """
        reply = yield from self._read(position, 1, uncommitted, from_tail)
        return reply.entries[0]

    def read_range(
        self, first: int, upto: int, from_tail: bool | None = None
    ) -> Operation[list[tuple[int, bytes]]]:
        """Return committed entries from ``first`` on, below ``upto``.

        Fewer are returned if the log ends, or if the entries are large. Raises the errors of
        :meth:`read`.
        """
        if upto <= first:
            return []
        reply = yield from self._read(first, min(upto - first, RANGE_MAX), False, from_tail)
        return list(enumerate(reply.entries, first))

    def _read(
        self, first: int, count: int, uncommitted: bool, from_tail: bool | None
    ) -> Operation[LogEntries]:
        check_position(first)
        tries = 0
        while True:
            chain, server = self.candidate(
                first, tries, self.reads_from_tail if from_tail is None else from_tail
            )
            reply: LogEntries | None = yield from self._ask(
                chain,
                server,
                ReadLog,
                LogEntries,
                CHAIN_ASK_S,
                first,
                count,
                LOG_PIECE_BYTES,
                uncommitted,
            )
            tries += 1
            if reply is None:
                continue
            if reply.entries:
                return reply
            if reply.trimmed > first:
                raise Trimmed(reply.trimmed)
            if not reply.elsewhere and reply.successor is None:
                found = yield from self._look()
                if self._proves_nothing_at(first, found):
                    raise NotWritten(
                        first, found.committed if found is not None else reply.committed
                    )
                yield from self.pause()
            elif tries % 4 == 0:
                yield Pause(CHAIN_RETRY_S)

    def _proves_nothing_at(self, position: int, found: Evidence | None) -> bool:
        return found is not None and found.length <= position

    def candidate(
        self, position: int, tries: int, from_tail: bool = False
    ) -> tuple[Configuration, ServerId]:
        """Return a server that may have the position, and the chain of this server.

        First come the servers of the chain in whose segment the position is, then the servers of
        later chains.
        """
        active = self.view.sequence.active
        holding = [chain for chain in active if chain.start <= position] or active[:1]
        place = active.index(holding[-1])
        last = active[-1]
        if from_tail and place == len(active) - 1 and tries == 0:
            return last, last.server_ids[-1]
        chain = active[place + (tries // holding[-1].n) % (len(active) - place)]
        ids, known = chain.server_ids, self.view.readiness
        turn = self._turn % len(ids)
        ids = ids[turn:] + ids[:turn]
        if known.suspects or known.remote:
            ids = tuple(sorted(ids, key=lambda id: (id in known.suspects, id in known.remote)))
        return chain, ids[tries % len(ids)]

    def _ask(
        self,
        chain: Configuration,
        server: ServerId,
        request: Any,
        reply: type,
        give_up_s: float,
        *arguments: Any,
    ) -> Operation[Any]:
        """Return the answer of a server, or None without an answer.

        Enter the successor in the answer.
        """
        try:
            answers = yield Gather(
                chain, request, request.__name__, to=(server,), needed=1, give_up_s=give_up_s,
                arguments=(chain.id, *arguments), reply=reply
            )  # fmt: skip
        except Superseded as superseded:
            detour(self.view, superseded)
            return None
        except Unavailable as error:
            if not error.needed:  # the time of the whole operation is over
                self._raise_known_reason(error)
                raise
            self._missing |= error.missing
            yield from self.pause()
            return None
        self._missing.pop(server, None)
        yield from self.learn(chain, answers[server].successor)
        return answers[server]

    # -- trim --------------------------------------------------------------------------------------

    def trim(self, upto: int) -> Operation[None]:
        """Trim the positions below ``upto`` at every node of the last chain.

        Raises :class:`BadInput` beyond the end of the log.
        """
        check_position(upto)
        while True:
            chain = self.view.sequence.last_known
            reply = yield from self._ask(
                chain, chain.server_ids[0], Trim, TrimDone, CHAIN_ASK_S, upto
            )
            if reply is None:
                yield from read_config(self.view)
            elif reply.done:
                return
            elif upto > reply.committed and reply.successor is None:
                tail = yield from self.tail()
                if upto > tail:
                    raise BadInput(
                        f"the log ends at {tail}: it cannot be trimmed up to {upto}; nothing was "
                        "trimmed"
                    )
                yield from self.pause()
            elif reply.successor is None:
                yield from self._look()
                yield from self.pause()


class Follower:
    """A reader of committed entries from ``position`` on, in order, without end.

    The reader follows the log across configurations, with one :meth:`take` at a time. ``heard``:
    the number of answers.
    """

    def __init__(self, operations: LogOperations, position: int) -> None:
        check_position(position)
        self.position = position
        self.heard = 0
        self._operations = operations
        self._turn = operations._turn
        self._empty = 0

    def take(self, count: int = RANGE_MAX) -> Operation[tuple[int, tuple[bytes, ...]]]:
        """Return the position of the next entry, and the next entries, at least one.

        Raises :class:`Trimmed`.
        """
        operations, view = self._operations, self._operations.view
        while True:
            chain, server = operations.candidate(self.position, self._turn)
            ask = operations._ask(
                chain,
                server,
                ReadLog,
                LogEntries,
                FOLLOW_S + CHAIN_ASK_S,
                self.position,
                count,
                LOG_PIECE_BYTES,
                False,
                FOLLOW_S,
            )
            reply: LogEntries | None = yield from ask
            self.heard += reply is not None
            if reply is not None and reply.entries:
                first, self._empty = self.position, 0
                self.position += len(reply.entries)
                return first, reply.entries
            if reply is not None and reply.trimmed > self.position:
                raise Trimmed(reply.trimmed)
            self._empty += 1
            if reply is None or reply.elsewhere or self._empty % EMPTY_MAX == 0:
                self._turn += 1
            if self._empty % (2 * EMPTY_MAX) == 0:
                # an empty answer proves nothing of the log: this node may be left behind
                yield from read_config(view)
            if reply is not None and (reply.elsewhere or reply.successor is not None):
                yield Pause(CHAIN_RETRY_S)


def check_position(position: int) -> None:
    """Check a position. Raises :class:`BadInput` if ``position`` is no position."""
    if not is_whole(position) or not 0 <= position <= POSITION_MAX:
        raise BadInput(
            f"a position is a whole number from 0 to {POSITION_MAX}, not "
            f"{shown_number(position)}; nothing was sent"
        )


assert FOLLOW_S <= FOLLOW_S_MAX
