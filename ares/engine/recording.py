"""The recording of an operation's actions and times, for a trace or for a line of a log.

No I/O; the clock is given. A session reports to the recording of a job, if the job has a recording;
operations are not aware of recordings. While an operation waits, its generators are nested:
``gi_yieldfrom`` leads from the operation to the primitive that asks. A generator whose function has
a name in ares/engine/phases.py is a part of the recording; the contents of any other generator
belong to the part around it.
"""

from collections import deque
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from msgspec import Struct, structs

from ares.engine.jobs import Round, Task
from ares.engine.phases import CHAIN, JUDGED, PHASES, ROUND, SETTLED
from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.model.messages import DataReply, Keyed, ListEntry, ListReply, PutData, TagReply
from ares.model.tag import Tag

Clock = Callable[[], float]
Computed = tuple[str, float, float]
"""A computation (LOAD, ENCODE, DECODE), with its start and end."""

RECORDED_PARTS_MAX = 20_000
"""Most parts of a recording; further parts of a long move are counted, and not kept."""


class RecordedReply(Struct, gc=False):
    """A server's reply: its time, and the server's report of times.

    The server reports the seconds from the request's arrival until handled, and until durable.
    ``tag``: the newest tag in the reply. ``connected_s``: time of the connection with the server,
    if known.
    """

    server: ServerId
    at_s: float
    handled_s: float | None
    durable_s: float | None
    tag: Tag | None = None
    connected_s: float | None = None


class RecordedPart(Struct, eq=False):
    """An action or a wait of an operation.

    ``name``: the phase, or the kind of wait or computation, as in ares/engine/phases.py.
    ``parent``: the enclosing part, None for the operation itself. ``ended_s`` is None while the
    part is under way. For a round: ``what`` names the round, with ``configuration``, the servers
    ``asked`` and the number ``needed``, the replies ``heard`` until the end, the number of times
    ``sent_again``, and the reason in ``failed``; ``id`` is the round's name for servers, if they
    were told. For put-data: the ``tag``, and the ``size`` of the whole value.
    """

    name: str
    parent: "RecordedPart | None"
    began_s: float
    ended_s: float | None = None
    what: str = ""
    configuration: Configuration | None = None
    asked: tuple[ServerId, ...] = ()
    needed: int = 0
    heard: list[RecordedReply] = []
    sent_again: int = 0
    failed: str = ""
    id: bytes = b""
    tag: Tag | None = None
    size: int | None = None
    spared: tuple[ServerId, ...] = ()
    """Servers not asked at first by a round."""
    spared_asked_s: float | None = None
    """Time at which the round asked the spared servers, or None."""
    refused: tuple[ServerId, ...] = ()
    """Servers that refused."""
    silent_s: float | None = None
    """Time at which the round went on without its silent servers, or None."""


class _TaskPosition:
    """The position of a task: generators with their parts, the outermost first; and the wait.

    A generator without a name has no part.
    """

    __slots__ = ("stack", "waiting")

    def __init__(self) -> None:
        self.stack: list[tuple[object, RecordedPart | None]] = []
        self.waiting: RecordedPart | None = None


class Recording:
    """The recording of an operation.

    ``parts``: in the order of their start, ``operation`` first. ``name``: of the operation.
    ``contexts`` returns the context of a new round for the servers, or None. ``computed``: the
    computations of this client's codings; entries present when a task waits again were computed for
    this task, because no second task runs in between.
    """

    __slots__ = (
        "_clock",
        "_computed",
        "_contexts",
        "_resumed_s",
        "_rounds",
        "_standing",
        "dropped",
        "operation",
        "parts",
    )

    def __init__(
        self,
        name: str,
        clock: Clock,
        computed: deque[Computed],
        contexts: Callable[[], bytes] | None = None,
    ) -> None:
        self._resumed_s = clock()
        self.operation = RecordedPart(name, None, self._resumed_s)
        self.parts = [self.operation]
        self.dropped = 0
        self._clock = clock
        self._computed = computed
        self._contexts = contexts
        self._standing: dict[Task, _TaskPosition] = {}
        self._rounds: dict[int, RecordedPart] = {}

    # -- what a session reports --------------------------------------------------------------------

    def resumed(self, task: Task) -> None:
        """Record that the task goes on."""
        now = self._resumed_s = self._clock()
        self._computed.clear()
        standing = self._standing.get(task)
        if standing is None:
            self._standing[task] = _TaskPosition()
        elif (waited := standing.waiting) is not None:
            standing.waiting = None
            if waited.ended_s is None:
                waited.ended_s = now

    def asked(self, round: Round) -> None:
        """Record a task's wait for this round, and give the round's requests their context."""
        gather, requests = round.gather, round.requests
        part = self._rounds[round.call] = self._wait(round.task, ROUND)
        part.what, part.configuration, part.asked, part.needed = (
            gather.what,
            gather.configuration,
            tuple(round.asked),
            round.needed,
        )
        part.heard = []
        part.spared = round.unasked
        request = requests[0] if isinstance(requests, list) else requests
        if type(request) is PutData:
            part.tag, part.size = request.tag, request.element.length
        if self._contexts is not None and self.parts[-1] is part:
            context = part.id = self._contexts()
            if isinstance(requests, list):
                round.requests = [_with(request, context) for request in requests]
            else:
                round.requests = _with(requests, context)

    def heard(self, round: Round, server: ServerId, reply: Any, connected_s: float | None) -> None:
        """Record a reply to a round that has not ended."""
        if server not in round.answers:
            handled_s, durable_s = getattr(reply, "spent", None) or (None, None)
            self._rounds[round.call].heard.append(
                RecordedReply(
                    server, self._clock(), handled_s, durable_s, _newest(reply), connected_s
                )
            )

    def asked_rest(self, round: Round) -> None:
        """Record that the servers spared by the round are asked now."""
        self._rounds[round.call].spared_asked_s = self._clock()

    def refused(self, round: Round, server: ServerId) -> None:
        """Record that the server refuses."""
        self._rounds[round.call].refused += (server,)

    def sent_again(self, round: Round) -> None:
        """Record that the silent servers are asked again."""
        part = self._rounds[round.call]
        part.sent_again += 1
        if part.spared and part.spared_asked_s is None:
            part.spared_asked_s = self._clock()

    def waited_long_enough(self, round: Round) -> None:
        """Record that the round goes on without its silent servers."""
        self._rounds[round.call].silent_s = self._clock()

    def concluded(self, round: Round, error: Exception | None = None) -> None:
        """Record the end of a round, or its failure.

        The time after the last reply, or after the wait for silent servers, was spent on judging
        the replies.
        """
        part = self._rounds.pop(round.call)
        if error is not None:
            part.failed = type(error).__name__
        elif round.gather.settled is not None and part.heard:
            part.ended_s = part.heard[-1].at_s if part.silent_s is None else part.silent_s
            self._add(RecordedPart(SETTLED, part.parent, part.ended_s, self._clock()))

    def waits(self, task: Task, what: str) -> None:
        """Record another wait: CONSENSUS, PAUSE or QUEUE."""
        self._wait(task, what)

    def ended(self, task: Task) -> None:
        """Record the end of a task, or its abort; the end of the first task ends the operation."""
        now, standing = self._clock(), self._standing.pop(task, None)
        if standing is not None:
            if standing.waiting is not None:  # it was aborted
                standing.waiting.ended_s = self._resumed_s = now
            for what, began_s, ended_s in self._decoded(standing):
                self._add(RecordedPart(what, self.operation, began_s, ended_s))
            self._leave(standing.stack, 0)
        if task.fan is None:
            self.close()

    def waits_for_chain(self, what: str, chain: Configuration) -> None:
        """Record a wait for the servers of a log's chain, from the operation's beginning on."""
        part = self._add(RecordedPart(CHAIN, self.operation, self.operation.began_s))
        part.what, part.configuration, part.asked = what, chain, chain.server_ids

    def close(self) -> None:
        """End all parts still under way."""
        now = self._clock()
        for part in self.parts:
            if part.ended_s is None:
                part.ended_s = now

    # -- parts -------------------------------------------------------------------------------------

    def _wait(self, task: Task, name: str) -> RecordedPart:
        now, standing = self._clock(), self._standing.get(task)
        if standing is None:
            standing = self._standing[task] = _TaskPosition()
        others = self._decoded(standing) if self._computed else ()
        within = self._stand(task, standing.stack)
        for what, began_s, ended_s in others:
            self._add(RecordedPart(what, within, began_s, ended_s))
        part = standing.waiting = self._add(RecordedPart(name, within, now))
        return part

    def _stand(self, task: Task, stack: list[tuple[object, RecordedPart | None]]) -> RecordedPart:
        """Return the part of the innermost generator in which the task is now.

        New generators began when the task went on; generators left since ended at the same time.
        """
        fan = task.fan
        above = (
            self.operation
            if fan is None
            else self._stand(fan.parent, self._standing[fan.parent].stack)
        )
        generator: Any = task.generator
        depth = 0
        while type(generator) is GeneratorType:
            if depth == len(stack) or stack[depth][0] is not generator:
                self._leave(stack, depth)
                name = PHASES.get(generator.gi_code)
                new = None if name is None else RecordedPart(name, above, self._resumed_s)
                stack.append((generator, new if new is None else self._add(new)))
            above = stack[depth][1] or above
            generator = generator.gi_yieldfrom
            depth += 1
        self._leave(stack, depth)
        return above

    def _leave(self, stack: list[tuple[object, RecordedPart | None]], depth: int) -> None:
        """End the parts of deeper generators."""
        for _, part in stack[depth:]:
            if part is not None:
                part.ended_s = self._resumed_s
        del stack[depth:]

    def _decoded(self, standing: _TaskPosition) -> list[Computed]:
        """Record decodings in the task's earlier part; return the other computations.

        The decodings took place since the task went on. The other computations belong to the task's
        present part.
        """
        others = []
        parts = (part for _, part in reversed(standing.stack) if part is not None)
        within = next(parts, self.operation)
        for what, began_s, ended_s in self._computed:
            if what in JUDGED:
                self._add(RecordedPart(what, within, began_s, ended_s))
                self._resumed_s = ended_s
            else:
                others.append((what, began_s, ended_s))
        self._computed.clear()
        return others

    def _add(self, part: RecordedPart) -> RecordedPart:
        if len(self.parts) < RECORDED_PARTS_MAX:
            self.parts.append(part)
        else:
            self.dropped += 1
        return part


def _with(request: Any, context: bytes) -> Any:
    return structs.replace(request, trace=context) if isinstance(request, Keyed) else request


def _newest(reply: object) -> Tag | None:
    """Return the newest tag in the reply, if any."""
    match reply:
        case TagReply():
            return reply.tag
        case DataReply(tags=(tag, *_)) | ListReply(entries=(ListEntry(tag=tag), *_)):
            return tag
    return None
