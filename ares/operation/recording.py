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
from ares.model.messages import Keyed

if TYPE_CHECKING:
    from ares.operation.jobs import Round, Task

Clock = Callable[[], float]
Computed = tuple[str, float, float]
"""What was computed (``encode``, ``decode``), and from when to when."""

PARTS_MAX = 20_000
"""Of one recording; what a long move does beyond that is counted, and not kept."""

OPERATION = 0
"""The place of the operation itself among the parts."""


class Heard(Struct, gc=False):
    """A server's reply: when it came, and what the server says of it: seconds from the request's arrival until it was handled, and durable."""

    server: ServerId
    at_s: float
    handled_s: float | None
    durable_s: float | None


class RecordedPart(Struct, eq=False):
    """Something that an operation did or waited for: a function of the protocol; or ``round``; ``settled``, finding out what the replies of a round
    mean; ``encode``, ``decode``, ``consensus``, ``pause``; or ``queue``, where it waited for another operation on the same object.

    ``parent``: the place of the part that it belongs to. ``ended_s`` is None while it is under way. Of a round: ``what`` it is, in which
    ``configuration``, the servers ``asked`` and how many had to answer, the replies ``heard`` until it ended, how often it was ``sent_again``, and
    why it ``failed``; ``id`` is what servers call it by, if they were told.
    """

    name: str
    parent: int
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


class Recording:
    """``name``: of the operation. ``contexts`` gives the context of a new round for the servers to see, None where they need not know.

    ``computed``: where the codings of this client write down what they computed; what is there from the moment when a task goes on was computed for
    that task, since nothing else runs until it waits again.
    """

    def __init__(self, name: str, clock: Clock, computed: deque[Computed], contexts: Callable[[], bytes] | None = None) -> None:
        self.parts = [RecordedPart(name, -1, clock())]
        self.dropped = 0
        self._clock = clock
        self._computed = computed
        self._contexts = contexts
        self._places: dict[Generator[Any, Any, Any], int] = {}
        self._standing: dict[Task, list[int]] = {}
        self._waiting: dict[Task, RecordedPart] = {}
        self._rounds: dict[int, RecordedPart] = {}
        self._resumed_s: float | None = None

    # -- what a session reports -----------------------------------------------------------------------------------------

    def resumed(self, task: "Task") -> None:
        """The task goes on."""
        now = self._clock()
        waited = self._waiting.pop(task, None)
        if waited is not None:
            waited.ended_s = waited.ended_s or now
        self._computed.clear()
        self._resumed_s = now

    def asked(self, round: "Round") -> None:
        """It waits for this round, whose requests are to carry its context from now on."""
        gather, now = round.gather, self._clock()
        part = self._wait(round.task, "round", now)
        part.what, part.configuration, part.asked, part.needed = gather.what, gather.configuration, tuple(round.asked), round.needed
        part.heard = []
        self._rounds[round.call] = part
        if self._contexts is not None:
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
            self._rounds[round.call].heard.append(Heard(server, self._clock(), handled_s, durable_s))

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
        self._stand(task, [], now)
        self._standing.pop(task, None)
        if task.fan is None:
            for part in self.parts:
                if part.ended_s is None:
                    part.ended_s = now

    # -- parts ----------------------------------------------------------------------------------------------------------

    def _wait(self, task: "Task", name: str, now: float) -> RecordedPart:
        places = self._walk(task)
        self._stand(task, places, now)
        part = self._waiting[task] = RecordedPart(name, places[-1] if places else OPERATION, now)
        self._add(part)
        return part

    def _walk(self, task: "Task") -> list[int]:
        """The places of the task's generators, the outermost first; those that are new begin when the task went on."""
        parent = OPERATION
        if task.fan is not None:
            above = self._walk(task.fan.parent)
            parent = above[-1] if above else OPERATION
        places: list[int] = []
        generator: object = task.generator
        while isinstance(generator, GeneratorType):
            place = self._places.get(generator)
            if place is None:
                began_s = self._clock() if self._resumed_s is None else self._resumed_s
                place = self._places[generator] = self._add(RecordedPart(generator.__name__, parent, began_s))
            places.append(place)
            parent, generator = place, generator.gi_yieldfrom
        return places

    def _stand(self, task: "Task", places: list[int], now: float) -> None:
        """The task's generators are those at ``places``: what it stood in before has ended. What was computed on the way belongs to one of both."""
        before = self._standing.get(task, [])
        self._standing[task] = places
        for what, began_s, ended_s in self._computed:
            inner = before if what == "decode" else places
            self._add(RecordedPart(what, inner[-1] if inner else OPERATION, began_s, ended_s))
        last_s = max((ended_s for what, _, ended_s in self._computed if what == "decode"), default=self._resumed_s)
        self._computed.clear()
        for place in before:
            if place not in places:
                self.parts[place].ended_s = last_s if last_s is not None else now

    def _add(self, part: RecordedPart) -> int:
        if len(self.parts) >= PARTS_MAX:
            self.dropped += 1
            return part.parent
        self.parts.append(part)
        return len(self.parts) - 1


def _with(request: Any, context: bytes) -> Any:
    return structs.replace(request, trace=context) if isinstance(request, Keyed) else request
