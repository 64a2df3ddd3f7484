"""A simulated client of a log: the real session, a plan's steps in turn, a recorded history."""

from typing import Any, Protocol

from ares.engine.effects import Operation
from ares.model.codec import decode_replies
from ares.model.errors import (
    AppendUncertain,
    BadInput,
    NotWritten,
    PositionTaken,
    Trimmed,
    Unavailable,
)
from ares.model.identity import ClientId, ServerId
from ares.model.log_messages import SECRET_BYTES
from ares.model.messages import AnyMessage
from ares.sharedlog.log_operations import Follower
from ares.sharedlog.log_session import LogSession
from ares.sharedlog.quick_reads import ReadOptions
from ares.testing.sim.invariants import PromiseBroken
from ares.testing.sim.shared_log.log_plan import (
    SIMULATED_LOG,
    LogClientPlan,
    LogPlan,
    LogStep,
    chain_of,
)
from ares.testing.sim.simulated_client import DISK_FULL_ERROR, CallerRun, SimCaller
from ares.testing.verify.history import Outcome
from ares.testing.verify.log_history import LogEvent, LogOperation

LOG_CLIENT_PATIENCE_S = 100_000.0

LOG_OPERATION_KINDS: dict[str, LogOperation] = {
    "append": "append", "append-at": "append", "read": "read", "read-range": "read", "tail": "tail",
    "follow": "follow", "trim": "trim",
}  # fmt: skip


LOG_READS = ("read", "read-range", "read-uncommitted")


class LogClientRun(CallerRun, Protocol):
    """The parts of a run that a client of a log uses."""

    plan: LogPlan
    events: list[LogEvent]
    uncommitted: list[str]

    def post(self, sender: str, receiver: str, messages: list[AnyMessage]) -> None: ...


class LogClient(SimCaller):
    """A client of a log. ``running``: operations under way. ``tail``: the known end of the log."""

    session: LogSession
    _run: LogClientRun
    tick_s = 0.05

    def __init__(self, run: LogClientRun, plan: LogClientPlan, number: int) -> None:
        super().__init__(run, plan.name)
        self.tail = 0
        self.running: dict[int, LogEvent | None] = {}
        self.failures: list[BaseException] = []
        self._steps = list(plan.steps)
        self._number = number
        self._ids = self._count = 0
        self._pausing = False
        self.session = LogSession(
            run.plan.first_chain,
            self._new_client,
            number,
            plan.from_tail,
            secret=bytes([number]) * SECRET_BYTES,
        )
        self.asking = self.session.session
        self._awaited = 0  # calls under way of the step whose end begins the next step
        self._follower: Follower | None = None
        self._followers = 0

    def _new_client(self) -> ClientId:
        self._ids += 1
        return ClientId(self._number * 1000 + self._ids)

    @property
    def done(self) -> bool:
        return not self._steps and not self.running and not self._pausing

    @property
    def has_all(self) -> bool:
        """Return whether the client followed the log to the known end."""
        return self._follower is None or self._follower.position >= self.tail

    def extend(self, steps: list[LogStep]) -> None:
        self._steps.extend(steps)
        self.next()

    def next(self) -> None:
        """Take the next step of the plan, after a pause."""
        if self._steps and not self.dead and not self._pausing:
            self._pausing = True
            step = self._steps.pop(0)
            self._world.after(step.pause_s, self._start, step)

    def _start(self, step: LogStep) -> None:
        self._pausing = False
        if self.dead:
            return
        if not step.ahead:
            self._awaited = step.calls
        for place in range(step.calls):
            self._call(step, place)
        if step.ahead:
            self.next()
        self.flush()

    def _call(self, step: LogStep, place: int) -> None:
        """Make a call of a joint step: reads are of neighbouring positions, the last first."""
        self._count += 1
        number, now, position = self._count, self._world.now, int(self.tail * step.where)
        position = max(position - place, 0) if step.operation in LOG_READS else position
        self._world.narrate(f"{self.name} BEGINS {step.operation} {number} near {position}")
        kind = LOG_OPERATION_KINDS.get(step.operation)
        entries = (
            tuple(f"{self.name}-{number}-{index}" for index in range(step.entries))
            if kind == "append"
            else ()
        )
        at = position if step.operation == "append-at" else None
        event = None
        if kind is not None:
            event = LogEvent(
                f"{self.name}?{number}",
                kind,
                SIMULATED_LOG,
                position if kind == "trim" else None,
                now,
                None,
                entries,
                "unknown",
                at,
            )
        self.running[number] = event

        def done(result: Any, error: BaseException | None) -> None:
            self._ended(number, step, position, result, error)

        if kind == "append":
            self.session.append(
                done, now, [entry.encode() for entry in entries], at, self._run.plan.timeout_s
            )
        elif step.operation in LOG_READS:
            upto = position + 10 if step.operation == "read-range" else None
            manner = ReadOptions(
                self.session.operations.reads_from_tail, step.operation == "read-uncommitted"
            )
            self.session.reads.ask(done, now, position, upto, LOG_CLIENT_PATIENCE_S, manner)
        else:
            self.session.session.start(
                self._operation(step, position), step.operation, now, LOG_CLIENT_PATIENCE_S, done
            )

    def _operation(self, step: LogStep, position: int) -> Operation[Any]:
        operations = self.session.operations
        match step.operation:
            case "follow":
                return self._follow(position)
            case "trim":
                return operations.trim(position)
            case "reconfigure":
                return self.session.reconfiguration.reconfigure(chain_of(step.servers))
            case _:
                return operations.tail()

    def _follow(self, position: int) -> Operation[Any]:
        """Follow for a single piece; an empty piece where a follower would wait."""
        if self._follower is None:
            self._follower = Follower(self.session.operations, position)
            self._followers += 1
        first = self._follower.position
        if first >= self.tail:
            tail = yield from self.session.operations.tail()
            if tail <= first:
                return first, ()
        return (yield from self._follower.take())

    def _ended(
        self, number: int, step: LogStep, position: int, result: Any, error: BaseException | None
    ) -> None:
        if number not in self.running:
            return
        event = self.running.pop(number)
        self._world.narrate(
            f"{self.name} ENDS {step.operation} {number} with "
            f"{result if error is None else repr(error)}"
        )
        unsent = (
            step.operation.startswith("append")
            and isinstance(error, Unavailable)
            and not error.may_have_taken_effect
        )
        unsent |= isinstance(error, Unavailable) and DISK_FULL_ERROR in str(error)
        if (
            error is not None
            and not unsent
            and not isinstance(
                error, NotWritten | Trimmed | PositionTaken | AppendUncertain | BadInput
            )
        ):
            self.failures.append(error)
            if step.operation != "reconfigure":
                raise PromiseBroken(
                    f"{self.name}: {step.operation} failed with {type(error).__name__}: {error}"
                )
        if event is not None:
            self._record(event, step, position, result, error)
        elif step.operation == "read-uncommitted" and isinstance(result, bytes):
            self._run.uncommitted.append(result.decode())
        if not step.ahead:
            self._awaited -= 1
            if self._awaited == 0:
                self.next()

    def _record(
        self,
        event: LogEvent,
        step: LogStep,
        position: int,
        result: Any,
        error: BaseException | None,
    ) -> None:
        now, entries, trimmed = self._world.now, event.entries, None
        outcome: Outcome = "ok"
        client = (
            self.name
            if step.operation != "append"
            else f"{self.name}.{self.session.appender.client}"
        )
        match error:
            case AppendUncertain() | Unavailable() if event.operation in (
                "append",
                "trim",
            ) and getattr(error, "may_have_taken_effect", False):
                self._run.events.append(event)
                return
            case PositionTaken():
                outcome, self.tail = "failed", max(self.tail, error.tail)
            case BadInput() | Unavailable():
                return
            case NotWritten():
                entries, self.tail = (), max(self.tail, error.tail)
            case Trimmed():
                trimmed = error.upto
                self._follower = None
            case _:
                position, entries = self._position_and_entries(step, position, entries, result)
        at, place = event.at, position if outcome == "ok" else None
        if isinstance(error, PositionTaken) and error.tail <= error.position:
            at = None  # the log was shorter: no reply says that the position is taken
        if event.operation == "follow":
            client = f"{self.name} follows {self._followers}"
        if event.operation != "follow" or entries:
            ended = LogEvent(
                client,
                event.operation,
                SIMULATED_LOG,
                place,
                event.invoked,
                now,
                entries,
                outcome,
                at,
                trimmed,
            )
            self._run.events.append(ended)

    def _position_and_entries(
        self, step: LogStep, position: int, entries: tuple[str, ...], result: Any
    ) -> tuple[int, tuple[str, ...]]:
        match step.operation:
            case "append" | "append-at":
                position = result
                self.tail = max(self.tail, position + len(entries))
            case "tail":
                position = self.tail = result
            case "read":
                entries = (result.decode(),)
            case "read-range":
                entries = tuple(entry.decode() for _, entry in result)
            case "follow":
                position, entries = result[0], tuple(entry.decode() for entry in result[1])
                self.tail = max(self.tail, position + len(entries))
        return position, entries

    def die(self) -> None:
        """Stop in the middle of any work."""
        if not self.dead:
            self.dead = True
            self._world.narrate(f"{self.name} DIES")
            self._run.events.extend(
                event
                for event in self.running.values()
                if event is not None and event.operation in ("append", "trim")
            )
            self.running.clear()
            self._steps.clear()

    def receive(self, server: str, frames: list[bytes]) -> None:
        if not self.dead:
            self.session.receive(ServerId(server), decode_replies(frames), self._world.now)
            self.flush()

    def _post_all(self) -> None:
        for server, messages in self.session.take_letters().items():
            self._run.post(self.name, server, messages)
