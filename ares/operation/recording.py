"""What one operation did, and when: recorded while it runs, for a trace or for a line of a log. No I/O; the clock is given.

A session reports to the recording of a job, if that has one; operations know nothing of it. While an operation waits, its generators stand one in the
other: ``gi_yieldfrom`` leads from the operation to the primitive that asks. So the parts of a recording have the names of the functions of the
protocol (``query``, ``propagate``, ``get_data``), nested as those are. ares/tracing/spans.py knows the papers' names for them.
"""

from collections import deque
from collections.abc import Callable, Generator
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.model.messages import DataReply, Keyed, PutData, TagReply
from ares.model.tag import Tag

if TYPE_CHECKING:
    from ares.operation.jobs import Round, Task

Clock = Callable[[], float]
Running = Generator[Any, Any, Any]
Computed = tuple[str, float, float]
"""What was computed (``encode``, ``decode``), and from when to when."""

PARTS_MAX = 20_000
"""Of one recording; what a long move does beyond that is counted, and not kept."""


class Heard(Struct, gc=False):
    """A server's reply: when it came, and what the server says of it: seconds from the request's arrival until it was handled, and durable.

    ``tag``: the newest that it named.
    """

    server: ServerId
    at_s: float
    handled_s: float | None
    durable_s: float | None
    tag: Tag | None = None


class RecordedPart(Struct, eq=False):
    """Something that an operation did or waited for: a function of the protocol; or ``round``; ``settled``, finding out what the replies of a round
    mean; ``encode``, ``decode``, ``consensus``, ``pause``; or ``queue``, where it waited for another operation on the same object.

    ``parent``: the part that it belongs to, None of the operation itself. ``ended_s`` is None while it is under way. Of a round: ``what`` it is, in
    which ``configuration``, the servers ``asked`` and how many had to answer, the replies ``heard`` until it ended, how often it was ``sent_again``,
    and why it ``failed``; ``id`` is what servers call it by, if they were told. Of put-data: the ``tag``, and the ``size`` of the whole value.
    """

    name: str
    parent: "RecordedPart | None"
    began_s: float
    ended_s: float | None = None
    what: str = ""
    configuration: Configuration | None = None
    asked: tuple[ServerId, ...] = ()
    needed: int = 0
    heard: list[Heard] = []
    sent_again: int = 0
    failed: str = ""
    id: bytes = b""
    tag: Tag | None = None
    size: int | None = None


class Recording:
    """``parts``: what there was, in the order in which it began, ``operation`` first. ``name``: of the operation.

    ``contexts`` gives the context of a new round for the servers to see, None where they need not know. ``computed``: where the codings of this
    client write down what they computed; what is there when a task waits again was computed for that task, since nothing else runs in between.
    """

    def __init__(self, name: str, clock: Clock, computed: deque[Computed], contexts: Callable[[], bytes] | None = None) -> None:
        self.operation = RecordedPart(name, None, clock())
        self.parts = [self.operation]
        self.dropped = 0
        self._clock = clock
        self._computed = computed
        self._contexts = contexts
        self._of: dict[Running, RecordedPart] = {}
        self._standing: dict[Task, list[Running]] = {}
        self._waiting: dict[Task, RecordedPart] = {}
        self._rounds: dict[int, RecordedPart] = {}
        self._resumed_s = self.operation.began_s

    # -- what a session reports -----------------------------------------------------------------------------------------

    def resumed(self, task: "Task") -> None:
        """The task goes on."""
        now = self._clock()
        waited = self._waiting.pop(task, None)
        if waited is not None and waited.ended_s is None:
            waited.ended_s = now
        self._computed.clear()
        self._resumed_s = now

    def asked(self, round: "Round") -> None:
        """It waits for this round, whose requests are to carry its context from now on."""
        gather, now = round.gather, self._clock()
        part = self._wait(round.task, "round", now)
        part.what, part.configuration, part.asked, part.needed = gather.what, gather.configuration, tuple(round.asked), round.needed
        part.heard = []
        request = round.request_for(round.asked[0])
        if isinstance(request, PutData):
            part.tag, part.size = request.tag, request.element.length
        self._rounds[round.call] = part
        if self._contexts is not None and self.parts[-1] is part:
            context = self._contexts()
            part.id = context
            if isinstance(round.requests, list):
                round.requests = [_with(request, context) for request in round.requests]
            else:
                round.requests = _with(round.requests, context)

    def heard(self, round: "Round", server: ServerId, reply: Any) -> None:
        """A reply to a round that has not ended."""
        if server not in round.answers:
            handled_s, durable_s = getattr(reply, "spent", None) or (None, None)
            self._rounds[round.call].heard.append(Heard(server, self._clock(), handled_s, durable_s, _tag_in(reply)))

    def sent_again(self, round: "Round") -> None:
        """To those that have not answered."""
        self._rounds[round.call].sent_again += 1

    def concluded(self, round: "Round", error: Exception | None = None) -> None:
        """It has what it waited for, or failed. After the last reply, what the replies mean was found out."""
        part = self._rounds.pop(round.call)
        part.failed = "" if error is None else type(error).__name__
        if error is None and round.gather.settled is not None and part.heard:
            part.ended_s = part.heard[-1].at_s
            self._add(RecordedPart("settled", part.parent, part.ended_s, self._clock()))

    def waits(self, task: "Task", what: str) -> None:
        """It waits for something else: ``consensus``, a ``pause``, or its turn in a ``queue``."""
        self._wait(task, what, self._clock())

    def ended(self, task: "Task") -> None:
        """The task has ended, or was given up. With the first one, the operation."""
        now = self._clock()
        waited = self._waiting.pop(task, None)
        if waited is not None:  # it was given up
            waited.ended_s = self._resumed_s = now
        self._attribute(task, [])
        self._stand(task, [])
        del self._standing[task]
        if task.fan is None:
            for part in self.parts:
                if part.ended_s is None:
                    part.ended_s = now

    # -- parts ----------------------------------------------------------------------------------------------------------

    def _wait(self, task: "Task", name: str, now: float) -> RecordedPart:
        running = self._running(task)
        self._attribute(task, running)
        self._stand(task, running)
        part = self._waiting[task] = self._add(RecordedPart(name, self._innermost(running), now))
        return part

    def _running(self, task: "Task") -> list[Running]:
        """The task's generators, the outermost first. Those that are new began when the task went on."""
        parent = self.operation
        if task.fan is not None:
            above = self._running(task.fan.parent)
            self._stand(task.fan.parent, above)
            parent = self._innermost(above)
        running: list[Running] = []
        generator: object = task.generator
        while isinstance(generator, GeneratorType):
            part = self._of.get(generator)
            if part is None:
                part = self._of[generator] = self._add(RecordedPart(generator.__name__, parent, self._resumed_s))
            running.append(generator)
            parent, generator = part, generator.gi_yieldfrom
        return running

    def _attribute(self, task: "Task", running: list[Running]) -> None:
        """What was computed since the task went on belongs to what it stood in before, or to what it stands in now."""
        for what, began_s, ended_s in self._computed:
            inner = self._innermost(self._standing.get(task, [])) if what == "decode" else self._innermost(running)
            self._add(RecordedPart(what, inner, began_s, ended_s))
            if what == "decode":
                self._resumed_s = ended_s
        self._computed.clear()

    def _stand(self, task: "Task", running: list[Running]) -> None:
        """The task stands in these: the others, in which it stood before, have ended."""
        for generator in self._standing.get(task, ()):
            if generator not in running:
                self._of.pop(generator).ended_s = self._resumed_s
        self._standing[task] = running

    def _innermost(self, running: list[Running]) -> RecordedPart:
        return self._of[running[-1]] if running else self.operation

    def _add(self, part: RecordedPart) -> RecordedPart:
        if len(self.parts) < PARTS_MAX:
            self.parts.append(part)
        else:
            self.dropped += 1
        return part


def _tag_in(reply: Any) -> Tag | None:
    if isinstance(reply, DataReply):
        return reply.tags[0] if reply.tags else None
    return reply.tag if isinstance(reply, TagReply) else None


def _with(request: Any, context: bytes) -> Any:
    return structs.replace(request, trace=context) if isinstance(request, Keyed) else request
