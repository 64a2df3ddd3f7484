"""A simulated gateway's sessions with the log and with the blobs: the real ones, in a run.

A stopped gateway takes no message, and no time passes for it; all waits until it goes on.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ares.engine.session import Session
from ares.model.codec import decode_replies, encode
from ares.model.identity import ClientId, ServerId
from ares.model.log_messages import SECRET_BYTES
from ares.model.messages import AnyMessage
from ares.reconfig.view import Switches, View
from ares.sharedlog.log_session import LogSession
from ares.testing.sim.buckets.bucket_plan import BucketPlan
from ares.testing.sim.simulated_client import CallerRun, SimCaller

STOPPED_LOOK_S = 0.02


class PortRun(CallerRun, Protocol):
    """The parts of a run for the sessions of a gateway."""

    plan: BucketPlan

    def post_to_log(self, sender: str, receiver: str, messages: list[AnyMessage]) -> None: ...

    def post_to_blobs(self, sender: str, receiver: str, frames: list[bytes]) -> None: ...

    def new_client(self) -> ClientId: ...


class _Port(SimCaller):
    """A session of a gateway. ``stopped`` is told by the gateway."""

    _run: PortRun

    def __init__(self, run: PortRun, name: str, stopped: Callable[[], bool]) -> None:
        super().__init__(run, name)
        self._stopped = stopped

    def receive(self, server: str, frames: list[bytes]) -> None:
        if self.dead:
            return
        if self._stopped():
            self._world.after(STOPPED_LOOK_S, self.receive, server, frames)
        else:
            self.session.receive(ServerId(server), decode_replies(frames), self._world.now)
            self.flush()

    def _tick(self) -> None:
        if self._stopped() and not self.dead:
            self._world.after(STOPPED_LOOK_S, self._tick)
        else:
            super()._tick()

    def start(
        self, operation: Any, what: str, timeout_s: float, done: Callable[[Any, Any], None]
    ) -> None:
        self.asking.start(operation, what, self._world.now, timeout_s, done)
        self.flush()


class LogPort(_Port):
    """A session with the log."""

    session: LogSession
    tick_s = 0.05

    def __init__(self, run: PortRun, name: str, stopped: Callable[[], bool]) -> None:
        super().__init__(run, name, stopped)
        number = int(run.new_client())
        secret = number.to_bytes(SECRET_BYTES)
        self.session = LogSession(
            run.plan.of_log.first_chain, run.new_client, number, secret=secret
        )
        self.asking = self.session.session

    def append(self, entry: bytes, timeout_s: float, done: Callable[[Any, Any], None]) -> None:
        self.session.append(done, self._world.now, [entry], None, timeout_s)
        self.flush()

    def _post_all(self) -> None:
        for server, messages in self.session.take_letters().items():
            self._run.post_to_log(self.name, server, messages)


class BlobPort(_Port):
    """A session with the domain of blobs."""

    session: Session

    def __init__(self, run: PortRun, name: str, stopped: Callable[[], bool]) -> None:
        super().__init__(run, name, stopped)
        self.session = self.asking = Session()
        self.view = View(run.new_client(), run.plan.first_blobs, Switches(), self.session.readiness)

    def _post_all(self) -> None:
        for server, letter in self.session.take_letters().items():
            frames = [letter] if isinstance(letter, bytes) else encode(letter)
            self._run.post_to_blobs(self.name, server, frames)
