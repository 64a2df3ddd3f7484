"""A simulated client: the real session and operations, the steps of a plan, a recorded history.

Versioned writes are over the version that the client last saw of the key: t0 in the beginning,
``None`` after a read that found a tombstone.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import structs

from ares.compiled import fast_path, small_objects
from ares.dap.primitives import DataResult
from ares.engine.effects import Agree, Announce, Operation
from ares.engine.session import Session
from ares.fragment.block import genesis_name
from ares.model.codec import encode
from ares.model.configuration import Configuration
from ares.model.errors import ObjectNotFound, Unavailable, Undecodable
from ares.model.identity import ClientId, ObjectName, ServerId
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Answered, Value
from ares.reconfig.locating import locate
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import ReconfigurationResult, reconfigure
from ares.reconfig.view import View
from ares.registers.coverable import CoverableResult, read_versioned, write_versioned
from ares.registers.operations import delete, read, write
from ares.registers.survey import NamesPage, list_mentioned
from ares.registers.write_once import create, drop, fetch
from ares.testing.sim.files import FileChronicle, FileOperation, Files, pair
from ares.testing.sim.invariants import PromiseBroken, SingleValues
from ares.testing.sim.name_oracle import NameOperation, NameOracle, unnamed
from ares.testing.sim.plan import SimClientPlan, SimPlan, SimStep, member
from ares.testing.sim.simulated_server import SimServer
from ares.testing.sim.world import SimConsensus, SimWorld, name_configuration
from ares.testing.verify.history import Event

CLIENT_PATIENCE_S = 100_000.0
"""Time limit of operations: none gives up; an unfinished operation at the end is a finding."""

DISK_FULL_ERROR = "disk is full"
"""Errors with which an operation may fail."""

LIFE = 1 << 32
"""Distance between the ids of successive clients."""

PADDING = b"."
"""Padding that makes values longer than in the history."""


class CallerRun(Protocol):
    """The parts of a run that every client uses."""

    world: SimWorld
    consensus: SimConsensus

    def consult(
        self,
        client: Any,
        what: Agree | Announce,
        answer: Callable[[Any], None],
        refuse: Callable[[Exception], None],
    ) -> None: ...


class ClientRun(CallerRun, Protocol):
    """The parts of a run that a client of objects and files uses."""

    plan: SimPlan
    events: list[Event]
    chronicle: FileChronicle
    values: SingleValues
    names: NameOracle
    servers: list[SimServer]

    def post(self, client: str, server: str, frames: list[bytes]) -> None: ...


class SimCaller:
    """A client with a session, in a run.

    The session's messages are posted, its questions are put to the run, and time passes for the
    session while it is busy. ``dead``: the client crashed and gets no more calls. ``asking``: the
    session of the operations, the same or an inner session.
    """

    session: Any
    asking: Session
    tick_s = 0.1

    def __init__(self, run: CallerRun, name: str) -> None:
        self.name = name
        self.dead = False
        self._run = run
        self._world = run.world
        self._ticking = False

    def _post_all(self) -> None:
        """Post the session's messages."""
        raise NotImplementedError

    def flush(self) -> None:
        """Post the session's messages, and pass on the session's questions."""
        self._post_all()
        asking = self.asking
        asking.contacts.clear()
        asks, asking.asks = asking.asks, []
        for what, task in asks:
            self._run.consult(
                self, what, self._answer(asking.resume, task), self._answer(asking.fail, task)
            )
        hints, asking.hints = asking.hints, []
        for domain in hints:
            self._run.consensus.hint(domain, self._answer(asking.hinted, domain))
        if self.session.busy and not self._ticking:
            self._ticking = True
            self._world.after(self.tick_s, self._tick)

    def _answer(self, door: Callable[[Any, Any, float], None], about: Any) -> Callable[[Any], None]:
        def answer(value: Any) -> None:
            if not self.dead:
                door(about, value, self._world.now)
                self.flush()

        return answer

    def _tick(self) -> None:
        self._ticking = False
        if not self.dead:
            self.session.tick(self._world.now)
            self.flush()


class SimClient(SimCaller):
    """A client. ``done``: the plan is finished. ``running``: the operation of each lane."""

    _run: ClientRun

    def __init__(self, run: ClientRun, plan: SimClientPlan, number: int, c0: Configuration) -> None:
        super().__init__(run, plan.name)
        self.running: dict[int, Event] = {}
        self.failures: list[Exception] = []
        self.litter: list[str] = []
        """The names that the last listing found and the index lacks."""
        self._steps = list(plan.steps)
        self._lanes = plan.lanes
        self._pausing = 0
        self._written = 0
        self._versions: dict[str, Tag | None] = {}
        self.session = self.asking = Session(fast_path=fast_path())
        switches = structs.replace(plan.switches, ahead=run.plan.ahead)
        self._see_with(View(ClientId(number), c0, switches, self.session.readiness))
        self._files = Files(plan.name, number, self.view, run.world, run.chronicle)

    def _see_with(self, view: View) -> None:
        self.view = view
        self._small = small_objects(self.session, view)

    @property
    def last_finalized(self) -> Configuration:
        return self.view.sequence.last_finalized

    @property
    def done(self) -> bool:
        return not self._steps and not self.running and not self._pausing

    def begin(self) -> None:
        for lane in range(self._lanes):
            self._next(lane)

    def _next(self, lane: int) -> None:
        """Take the next step of the plan, after a pause."""
        if self._steps and not self.dead:
            self._pausing += 1
            step = self._steps.pop(0)
            self._world.after(step.pause_s, self._start, lane, step)

    def _start(self, lane: int, step: SimStep) -> None:
        self._pausing -= 1
        if self.dead:
            return
        kind: Any = step.operation.removesuffix("-versioned")
        if kind not in ("write", "delete"):
            kind = "read"
        value = None
        if kind == "write":
            self._written += 1
            value = f"{self.name}-{self._written}"
        base = (
            self._versions.get(step.key, TAG_ZERO)
            if step.operation in ("write-versioned", "delete-versioned")
            else None
        )
        operation = self._operation(step, value, base)
        client = f"{self.name}.{lane}" if self._lanes > 1 else self.name
        event = Event(
            client, kind, step.key, value, self._world.now, None, "unknown", base=pair(base)
        )
        self.running[lane] = event
        if self._world.story is not None:
            over = (
                f"over {_result_text(base)}"
                if step.operation in ("write-versioned", "delete-versioned")
                else ""
            )
            self._world.narrate(
                f"{event.client} BEGINS {step.operation} {step.key} {value or ''} {over}".rstrip()
            )
        queue = (self.view.domain, ObjectName(step.key)) if kind in ("write", "delete") else None
        if step.operation in ("put-file", "remove-file"):
            queue = (self.view.domain, genesis_name(step.key))
        on_name = None
        if step.operation in ("create", "fetch", "drop"):
            on_name = self._run.names.begin(step.operation, step.key, self._world.now)

        def done(result: Any, error: BaseException | None) -> None:
            if on_name is not None:
                error = self._named(on_name, result, error)
            self._ended(lane, step, event, result, error)

        if not self._starts_small(step, value, done):
            self.session.start(
                operation, step.operation, self._world.now, CLIENT_PATIENCE_S, done, key=queue
            )
        self.flush()

    def _starts_small(
        self, step: SimStep, value: str | None, done: Callable[[Any, BaseException | None], None]
    ) -> bool:
        """Return whether the compiled core runs the step, as in a real client."""
        small, now = self._small, self._world.now
        if small is not None and step.operation == "read":
            return small.read(step.key, done, now, CLIENT_PATIENCE_S) is not None
        if small is not None and step.operation == "write" and value is not None:
            return (
                small.write(step.key, data_of(step, value), done, now, CLIENT_PATIENCE_S)
                is not None
            )
        return False

    def _operation(self, step: SimStep, value: str | None, base: Tag | None) -> Operation[Any]:
        key = ObjectName(step.key)
        data: Value = TOMBSTONE if value is None else data_of(step, value)
        match step.operation:
            case "write":
                return write(self.view, key, data)
            case "read":
                return read(self.view, key)
            case "delete":
                return delete(self.view, key)
            case "list":
                return list_mentioned(self.view, "", step.key)
            case "read-versioned":
                return read_versioned(self.view, key)
            case "write-versioned" | "delete-versioned":
                return write_versioned(self.view, key, data, base)
            case "reconfigure":
                options = MoveOptions(transfer=self._run.plan.transfer)
                return reconfigure(self.view, self._wished(step), options)
            case "locate":
                return locate(self.view.domain, [member(number) for number in step.asked])
            case "create":
                return create(self.view, key, step.key.encode().ljust(step.value_bytes, PADDING))
            case "fetch":
                return fetch(self.view, key)
            case "drop":
                return drop(self.view, [key])
            case "list-names":
                return unnamed(self.view, self._run.names.kept())
            case "drop-names":
                return drop(self.view, [ObjectName(name) for name in step.names])
            case "get-file" | "put-file" | "remove-file" | "collect-files":
                return self._files.operation(step)

    def _wished(self, step: SimStep) -> Configuration:
        assert step.wish is not None
        return step.wish.configuration(lambda number: self._run.servers[number].life)

    def _ended(
        self, lane: int, step: SimStep, event: Event, result: Any, error: BaseException | None
    ) -> None:
        del self.running[lane]
        if self._world.story is not None:
            self._world.narrate(
                f"{event.client} ENDS {step.operation} {step.key} with "
                f"{error if error is not None else _result_text(result)}"
            )
        now = self._world.now
        if isinstance(error, ObjectNotFound):
            self._run.events.append(
                Event(event.client, "read", event.key, None, event.invoked, now)
            )
        elif isinstance(error, Unavailable) and any(
            DISK_FULL_ERROR in why for why in error.missing.values()
        ):
            if error.may_have_taken_effect:
                self._run.events.append(event)
        elif error is not None:
            if step.operation != "reconfigure":
                raise PromiseBroken(
                    f"{self.name}: {step.operation} of {step.key} failed with "
                    f"{type(error).__name__}: {error}"
                )
            assert isinstance(error, Exception)
            self.failures.append(error)
        elif isinstance(result, Configuration):
            self._begin_at(result)
        elif isinstance(result, NamesPage):
            self._judge_listing(event, result)
        elif isinstance(result, list):
            self.litter = result
        elif isinstance(result, Tag | DataResult | CoverableResult):
            self._run.events.append(_event(event, result, now))
            self._see(step.key, result)
        self._next(lane)

    def _named(
        self, operation: NameOperation, result: Any, error: BaseException | None
    ) -> BaseException | None:
        """Note the end of an operation on a name; return the error unless it is an answer."""
        operation.ended = self._world.now
        if isinstance(error, ObjectNotFound):
            return None
        operation.found = result if isinstance(result, bytes) else None
        operation.failed = error is not None
        if isinstance(error, Undecodable) and self._run.names.may_be_gone(operation.name):
            return None
        return error

    def _begin_at(self, named: Configuration) -> None:
        """Continue as a new client that knows only the ``named`` configuration of the domain."""
        self._see_with(
            View(
                ClientId(int(self.view.client) + LIFE),
                named,
                self.view.switches,
                self.session.readiness,
            )
        )

    def _judge_listing(self, event: Event, names: NamesPage) -> None:
        """Count a listing's statement about a key as a read of the key, an absent key included."""
        name = ObjectName(event.key)
        settled = names.newest.get(name)
        if settled is None and name in names.newest:
            return
        tag = settled.tag if settled is not None else TAG_ZERO
        value = self._run.values.of(self.view.domain, name, tag)
        content = (
            None
            if value is TOMBSTONE
            else _text(value)
            if isinstance(value, bytes)
            else "a value that no write stored"
        )
        self._run.events.append(
            Event(
                event.client,
                "read",
                event.key,
                content,
                event.invoked,
                self._world.now,
                tag=pair(tag),
            )
        )

    def _see(self, key: str, result: Any) -> None:
        """Keep the version for the next write; for users an absent value has no version."""
        if isinstance(result, DataResult):
            self._versions[key] = (
                None if result.value is TOMBSTONE and result.tag != TAG_ZERO else result.tag
            )
        elif isinstance(result, CoverableResult):
            self._versions[key] = result.tag

    def extend(self, steps: list[SimStep]) -> None:
        """Add steps after the plan is done."""
        assert self.done
        self._steps.extend(steps)
        self.begin()

    def die(self) -> None:
        """Stop in the middle of any work; a write under way may take effect or not."""
        if not self.dead:
            self.dead = True
            self._run.chronicle.dead.add(self.name)
            self._world.narrate(f"{self.name} DIES")
            self._run.events.extend(self.running.values())
            self.running.clear()
            self._steps.clear()

    def receive(self, server: str, frames: list[bytes]) -> None:
        if not self.dead:
            self.session.receive_frames(ServerId(server), frames, self._world.now)
            self.flush()

    def _post_all(self) -> None:
        for server, letter in self.session.take_letters().items():
            self._run.post(
                self.name, server, [letter] if isinstance(letter, bytes) else encode(letter)
            )


def data_of(step: SimStep, value: str) -> bytes:
    """Return the bytes that are stored for ``value``."""
    return value.encode().ljust(step.value_bytes, PADDING)


def _event(event: Event, result: Tag | DataResult | CoverableResult, now: float) -> Event:
    if isinstance(result, Tag):
        return Event(
            event.client,
            event.operation,
            event.key,
            event.value,
            event.invoked,
            now,
            tag=pair(result),
        )
    tag = pair(result.tag)
    if isinstance(result, CoverableResult) and result.changed:
        assert result.base is not None, "a changed write has a base"
        base = event.base or pair(result.base)
        return Event(
            event.client,
            event.operation,
            event.key,
            event.value,
            event.invoked,
            now,
            tag=tag,
            base=base,
        )
    value = (
        None
        if result.value is TOMBSTONE
        else _text(result.value)
        if isinstance(result.value, bytes)
        else "WITHHELD"
    )
    return Event(
        event.client, "read", event.key, value, event.invoked, now, tag=tag, base=event.base
    )


def _text(value: bytes) -> str:
    """Return a value in the form of histories."""
    return value.rstrip(PADDING).decode()


def _shown(value: Answered) -> str:
    return _text(value) if isinstance(value, bytes) else repr(value)


def _result_text(result: Any) -> str:
    if isinstance(result, DataResult):
        return f"{_shown(result.value)} {result.tag.number}.{result.tag.writer}"
    if isinstance(result, CoverableResult):
        return (
            f"{'changed' if result.changed else 'unchanged'}: {_shown(result.value)} "
            f"{result.tag.number}.{result.tag.writer}"
        )
    if isinstance(result, ReconfigurationResult):
        return (
            f"{name_configuration(result.configuration)}, "
            f"{'its own' if result.ours else 'decided by another'}"
        )
    if isinstance(result, FileOperation):
        return result.describe()
    return f"{result.number}.{result.writer}" if isinstance(result, Tag) else str(result)
