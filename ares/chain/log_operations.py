"""What a client does with a log besides appending, as operations: tail, read, follow, trim, reconfigure (docs/log.md, Read to Reconfiguration)."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ares.model.configuration import POSITION_MAX, Configuration, Status, Successor, latest
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    ConsensusUnavailable,
    LogSealed,
    NotWritten,
    Superseded,
    Trimmed,
    Unavailable,
    Uncertain,
)
from ares.model.identity import NO_DOMAIN, ServerId
from ares.model.log_messages import (
    FOLLOW_S_MAX,
    PIECE_BYTES,
    RANGE_MAX,
    LogEntries,
    Look,
    LookDone,
    ReadLog,
    Seal,
    SealDone,
    Stand,
    Stood,
    Trim,
    TrimDone,
)
from ares.model.messages import Describe, Description
from ares.model.numbers import is_whole, shown_number
from ares.operation.effects import Announce, Gather, Operation, Pause, Report
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import agree, announce_successor, gc_config, mark_finalized
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View

ASK_S = 1.0
"""How long one server is given before another is asked."""

AGAIN_S = 0.02
PATIENCE_S = 0.1
"""How long a look waits for more than a majority, when that settles nothing."""

SEAL_PATIENCE_S = 0.05
"""How long a seal waits for more than a majority: the more, the fewer appends have to be sent again."""

FOLLOW_S = 2.0
EMPTY_MAX = 3
"""Empty answers of one server, before a follower asks others."""

INSPECT_S = 0.3
"""How long an inspection waits for nodes beyond a majority."""

FULL_DISK = "its disk is full, and entries have to pass it: give it space, or `ares-cli reconfig` without it"

STAND_AGAIN_S = 0.1
PREPARE_S = 3.0
"""How long the servers of a new chain have to say that they are up, before anything is sealed."""


class Evidence(NamedTuple):
    """``length``: the smallest of a majority that is neither sealed nor knows a successor. ``committed``: the largest."""

    length: int
    committed: int


def evidence(chain: Configuration, looks: Iterable[LookDone]) -> Evidence | None:
    """What the looks of a chain's nodes prove, or None: a majority that is not sealed proves that the chain was the last one."""
    open_ones = [seen for seen in looks if not seen.sealed and seen.successor is None]
    if len(open_ones) < chain.quorum_size:
        return None
    return Evidence(
        min(seen.length for seen in open_ones), max(seen.committed for seen in open_ones)
    )


def decided_end(lengths: Sequence[int], quorum: int) -> int:
    """`end`: the smallest length in a majority of sealed nodes, the one of several that gives the largest."""
    return sorted(lengths, reverse=True)[quorum - 1]


class LogOperations:
    """``view``: what the client knows of the log's chains. ``turn``: which server is asked first, so that clients spread over the nodes."""

    def __init__(self, view: View, turn: int = 0, reads_from_tail: bool = False) -> None:
        self.view = view
        self.reads_from_tail = reads_from_tail
        self._turn = turn
        self._sealed: Configuration | None = None
        self._missing: dict[ServerId, str] = {}

    # -- evidence -------------------------------------------------------------------------------------------------------

    def tail(self) -> Operation[int]:
        """The position that comes next. Raises :class:`LogSealed` at the deadline, if that is why."""
        while True:
            found = yield from self._look()
            if found is not None and found.length <= found.committed:
                return found.committed
            yield from self._pause()

    def _look(self) -> Operation[Evidence | None]:
        """One round of looks at the last chain known; what they name is entered."""
        chain = self.view.sequence.last_known

        def settled(answers: Any) -> bool:
            found = evidence(chain, answers.values())
            named = any(seen.successor is not None for seen in answers.values())
            return named or (found is not None and found.length <= found.committed)

        try:
            answers = yield Gather(
                chain,
                Look,
                "look",
                settled=settled,
                patience_s=lambda *_: PATIENCE_S,
                arguments=(chain.id,),
                reply=LookDone,
            )
        except Superseded as superseded:
            detour(self.view, superseded)
            return None
        except Unavailable as error:
            self._say_sealed(error)
            raise
        found = evidence(chain, answers.values())
        yield from self._learn(chain, latest([seen.successor for seen in answers.values()]))
        self._sealed = chain if found is None and self.view.sequence.last_known == chain else None
        return found

    def _pause(self) -> Operation[None]:
        """Before another look. From the seal until a successor is known, negative answers wait."""
        try:
            yield Pause(AGAIN_S)
        except Unavailable as error:
            self._say_sealed(error)
            raise

    def _say_sealed(self, error: Unavailable) -> None:
        """At the deadline: raises :class:`LogSealed` if the last look found that, and names the servers that said nothing."""
        if self._sealed is not None:
            raise LogSealed(self._sealed.domain, self._sealed.index) from error
        if self._missing:
            raise Unavailable(1, 0, dict(self._missing), error.story) from error

    def _learn(self, chain: Configuration, successor: Successor | None) -> Operation[None]:
        """A successor is entered when a majority of ``chain`` knows it (R3)."""
        if successor is not None:
            yield from find_next_config(self.view, chain, successor)

    # -- reads ----------------------------------------------------------------------------------------------------------

    def read(
        self, position: int, uncommitted: bool = False, from_tail: bool | None = None
    ) -> Operation[bytes]:
        """Raises :class:`NotWritten`, :class:`Trimmed`; :class:`BadInput` for what is no position. ``from_tail``: CR; None: as this client reads."""
        reply = yield from self._read(position, 1, uncommitted, from_tail)
        return reply.entries[0]

    def read_range(
        self, first: int, upto: int, from_tail: bool | None = None
    ) -> Operation[list[tuple[int, bytes]]]:
        """Committed entries from ``first`` on, below ``upto``; fewer if there are no more, or if they are large. Raises what :meth:`read` does."""
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
            chain, server = self.whom(
                first, tries, self.reads_from_tail if from_tail is None else from_tail
            )
            reply: LogEntries | None = yield from self._ask(
                chain, server, ReadLog, LogEntries, ASK_S, first, count, PIECE_BYTES, uncommitted
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
                yield from self._pause()
            elif tries % 4 == 0:
                yield Pause(AGAIN_S)

    def _proves_nothing_at(self, position: int, found: Evidence | None) -> bool:
        return found is not None and found.length <= position

    def whom(
        self, position: int, tries: int, from_tail: bool = False
    ) -> tuple[Configuration, ServerId]:
        """A server that may have the position: of the chain in whose stretch it is first, then of those after it."""
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
        """The answer of one server, or None if it does not answer; what it names is entered."""
        try:
            answers = yield Gather(
                chain, request, request.__name__, to=(server,), needed=1, give_up_s=give_up_s, arguments=(chain.id, *arguments), reply=reply
            )  # fmt: skip
        except Superseded as superseded:
            detour(self.view, superseded)
            return None
        except Unavailable as error:
            if not error.needed:  # the time of the whole operation is over
                self._say_sealed(error)
                raise
            self._missing |= error.missing
            yield from self._pause()
            return None
        self._missing.pop(server, None)
        yield from self._learn(chain, answers[server].successor)
        return answers[server]

    # -- trim -----------------------------------------------------------------------------------------------------------

    def trim(self, upto: int) -> Operation[None]:
        """Positions below ``upto`` are gone at every node of the last chain. Raises :class:`BadInput` beyond the end of the log."""
        check_position(upto)
        while True:
            chain = self.view.sequence.last_known
            reply = yield from self._ask(chain, chain.server_ids[0], Trim, TrimDone, ASK_S, upto)
            if reply is None:
                yield from read_config(self.view)
            elif reply.done:
                return
            elif upto > reply.committed and reply.successor is None:
                tail = yield from self.tail()
                if upto > tail:
                    raise BadInput(
                        f"the log ends at {tail}: it cannot be trimmed up to {upto}; nothing was trimmed"
                    )
            elif reply.successor is None:
                yield from self._look()
                yield from self._pause()

    # -- reconfigure ----------------------------------------------------------------------------------------------------

    def reconfigure(self, wished: Configuration) -> Operation[Configuration]:
        """Seal the last chain, decide the next one, point, and finalize it when all of its nodes have everything (docs/log.md, Reconfiguration).

        Returns the chain of these servers that was decided. Where another's proposal was, the chain after that one is tried for: the other one may
        name a dead server, and never be finalized. One with these servers that somebody left pending is finished.
        """
        check_chain(wished)
        view = self.view
        yield Report(Progress("read-config"))
        yield from read_config(view)
        target = view.sequence.last_known
        if target == view.sequence.last_finalized:
            target = yield from self._replace(wished)
        while target.servers != wished.servers:
            target = yield from self._replace(wished)
        try:
            yield from self.finish_move(target)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = (
                f"chain {target.index} is decided: nothing is lost, appends go to "
                f"{', '.join(target.server_ids)} and wait while one of them does not answer; older "
                "entries still move there: reconfigure again to see the end"
            )
            raise
        return target

    def inspect(self) -> Operation[bool]:
        """Learn of chains that followed; whether a node of the last one says that it is sealed, and none what comes next: appends stand still."""
        chain = self.view.sequence.last_known
        try:
            answers = yield Gather(
                chain, Look, "inspect", settled=lambda _: False, patience_s=lambda *_: INSPECT_S, arguments=(chain.id,), reply=LookDone
            )  # fmt: skip
        except Superseded as superseded:
            detour(self.view, superseded)
            return False
        yield from self._learn(chain, latest([seen.successor for seen in answers.values()]))
        return self.view.sequence.last_known == chain and any(
            seen.sealed for seen in answers.values()
        )

    def full_servers(self) -> Operation[dict[ServerId, str]]:
        """Return the servers of the last chain whose disks are full: their head does not tell of them."""
        roster = self.view.sequence.last_known.at(NO_DOMAIN, 0)
        try:
            answers = yield Gather(
                roster, Describe, "whose disk is full", needed=1, settled=lambda _: False, patience_s=lambda *_: INSPECT_S, arguments=(True,), reply=Description
            )  # fmt: skip
        except Unavailable:
            return {}
        return {server: FULL_DISK for server, described in answers.items() if _is_full(described)}

    def replace_chain(
        self, last: Configuration, wished: Configuration
    ) -> Operation[Configuration | None]:
        """What comes after ``last``; appends go on there, and what is older has not moved yet. None if ``last`` is not the last chain any more: a
        change that somebody else made is never undone. Raises what :meth:`reconfigure` does.
        """
        yield from read_config(self.view)
        return (yield from self._replace(wished)) if self.view.sequence.last_known == last else None

    def finish_move(self, target: Configuration) -> Operation[None]:
        """See to it that ``target``, which was decided, is finalized."""
        yield from announce_successor(self.view, target)
        yield from self._finalize(target)

    def _replace(self, wished: Configuration) -> Operation[Configuration]:
        """What comes after the last chain known, and a majority of that one knows it."""
        yield from self._prepare(wished)
        try:
            target = yield from self._decide(wished)
        except Superseded as superseded:
            return detour(self.view, superseded)
        yield from announce_successor(self.view, target)
        return target

    def _prepare(self, wished: Configuration) -> Operation[None]:
        """There is no way back from a seal: first see that consensus answers, and every server of the new chain."""
        yield Report(Progress("prepare"))
        why = "it does not answer"
        try:
            heard: bool = yield Announce(self.view.sequence.last_finalized, must=True)
        except ConsensusUnavailable as error:
            heard, why = False, error.why
        if not heard:
            raise ConsensusUnavailable(f"{why}, so the log was not sealed")
        roster = wished.at(NO_DOMAIN, 0)
        answers = yield Gather(
            roster,
            Describe,
            "are you up",
            needed=roster.n,
            give_up_s=PREPARE_S,
            arguments=(True,),
            reply=Description,
        )
        wrong = [
            server.id
            for server in wished.servers
            if answers[server.id].identity != server.identity or _is_full(answers[server.id])
        ]
        if wrong:
            raise ConfigurationRefused(
                f"{', '.join(wrong)}: another identity, or no room; the log was not sealed, and the chain stays as it is"
            )

    def _decide(self, wished: Configuration) -> Operation[Configuration]:
        """Seal, and propose for the index after the one that was sealed, and no other. What a node that knows the successor names counts, too."""
        last = self.view.sequence.last_known

        def settled(answers: Any) -> bool:
            return any(done.successor is not None for done in answers.values())

        needed = self._majority(last)
        yield Report(Progress("seal"))
        answers = yield Gather(
            last,
            Seal,
            "seal",
            needed=needed,
            settled=settled,
            patience_s=lambda *_: SEAL_PATIENCE_S,
            arguments=(last.id,),
            reply=SealDone,
        )
        named = latest([done.successor for done in answers.values()])
        if named is not None:
            yield from self._learn(last, named)
            return self.view.sequence.last_known
        end = self._end_of(last, answers.values())
        proposal = Configuration("chain", wished.servers, start=end).at(
            last.domain, last.index + 1, last.cluster_id
        )
        return (yield from agree(proposal, check_chain)).configuration

    def _end_of(self, chain: Configuration, answers: Iterable[SealDone]) -> int:
        return decided_end([done.length for done in answers], self._majority(chain))

    def _majority(self, chain: Configuration) -> int:
        """How many nodes must be sealed before the next chain is proposed."""
        return chain.quorum_size

    def _finalize(self, target: Configuration) -> Operation[None]:
        """When all nodes have everything, or a later chain is finalized, in which case nothing is left to do here."""
        sequence, before = self.view.sequence, -1
        while sequence.last_finalized.index < target.index:
            try:
                answers = yield Gather(
                    target,
                    Stand,
                    "wait for the move",
                    needed=self._needed(target),
                    give_up_s=ASK_S,
                    arguments=(target.id,),
                    reply=Stood,
                )
            except Superseded as superseded:
                detour(self.view, superseded)
                continue
            except Unavailable as error:
                if not error.needed:
                    raise
                yield from read_config(self.view)
                yield from self._pause()  # and no progress
                continue
            yield from self._learn(target, latest([stood.successor for stood in answers.values()]))
            reached = [stood.upto for stood in answers.values()]
            yield Report(Progress("fetch", min(reached), 0, target.start))
            if all(stood.complete for stood in list(answers.values())[: self._needed(target)]):
                yield from announce_successor(self.view, target, Status.FINALIZED)
                yield from mark_finalized(sequence.last_finalized)
                yield Announce(sequence.last_finalized)
                yield from gc_config(self.view)
            else:
                yield Pause(STAND_AGAIN_S, retry=sum(reached) <= before)
            before = sum(reached)

    def _needed(self, target: Configuration) -> int:
        """All nodes."""
        return target.n


class Follower:
    """Committed entries from ``position`` on, in order, for ever, across configurations. ``heard``: how many answers there were."""

    def __init__(self, operations: LogOperations, position: int) -> None:
        check_position(position)
        self.position = position
        self.heard = 0
        self._operations = operations
        self._turn = operations._turn
        self._empty = 0

    def take(self, count: int = RANGE_MAX) -> Operation[tuple[int, tuple[bytes, ...]]]:
        """The next entries, one at least, and the position of the first. Raises :class:`Trimmed`."""
        operations, view = self._operations, self._operations.view
        while True:
            chain, server = operations.whom(self.position, self._turn)
            ask = operations._ask(
                chain,
                server,
                ReadLog,
                LogEntries,
                FOLLOW_S + ASK_S,
                self.position,
                count,
                PIECE_BYTES,
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
                yield from read_config(
                    view
                )  # an empty answer says nothing about the log: this node may have been left behind
            if reply is not None and (reply.elsewhere or reply.successor is not None):
                yield Pause(AGAIN_S)


def check_position(position: int) -> None:
    """Raises :class:`BadInput` for what is no position."""
    if not is_whole(position) or not 0 <= position <= POSITION_MAX:
        raise BadInput(
            f"a position is a whole number from 0 to {POSITION_MAX}, not {shown_number(position)}; nothing was sent"
        )


def check_chain(configuration: Configuration) -> None:
    """Raises :class:`ConfigurationRefused` for what is no chain."""
    if configuration.dap != "chain":
        raise ConfigurationRefused(
            f"{configuration.describe()}: the configurations of a log are chains; nothing was changed"
        )


def _is_full(description: Description) -> bool:
    return description.stored is not None and description.stored.full


assert FOLLOW_S <= FOLLOW_S_MAX
