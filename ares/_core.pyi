"""The compiled core (core/src)."""

from collections.abc import Callable, Sequence
from typing import Any

from ares.model.codec import Frame
from ares.model.configuration import Configuration
from ares.model.identity import CallId, DomainName, ObjectName, ServerId
from ares.model.messages import AnyMessage
from ares.model.tag import Taken
from ares.operation.effects import Operation
from ares.operation.readiness import Order

RELEASE: str

class Handed:
    make: Callable[[ObjectName, bytes | None], Operation[Any]]
    settle: Callable[[Any, Any, BaseException | None], None] | None
    domain: DomainName
    object: ObjectName
    value: bytes | None
    done: Any
    timeout_s: float
    deadline: float
    call: int
    configuration: Configuration
    order: Order | None
    unasked: bool
    started: float
    answers: dict[ServerId, Any]
    taken: Taken | None
    before: int
    highest: int | None

class Objects:
    def read(self, key: str, done: Any, now: float, timeout_s: float, /) -> Any: ...
    def write(self, key: str, value: Any, done: Any, now: float, timeout_s: float, /) -> Any: ...

class Client:
    busy: bool
    def objects(self, session: Any, view: Any, make: Callable[[ObjectName, bytes | None], Operation[Any]], shell: Any, /) -> Objects: ...
    def feed(self, session: Any, server: ServerId, frames: Sequence[Frame], now: float, /) -> None: ...
    def take(self, outbox: dict[ServerId, Any], sent: dict[ServerId, CallId], /) -> None: ...
    def precede(self, server: ServerId, messages: list[AnyMessage], /) -> None: ...
    def calls(self) -> list[int]: ...
    def age(self, session: Any, call: int, now: float, hedge_after_s: float, /) -> None: ...
    def surrender(self, session: Any, call: int, /) -> None: ...
    def surrender_writes(self, session: Any, domain: DomainName, object: ObjectName, /) -> None: ...
    def surrender_overdue(self, session: Any, now: float, /) -> None: ...
    def surrender_for(self, session: Any, done: object, /) -> None: ...
    def close(self) -> None: ...
