"""The compiled core (core/src), where present; see ares/platform/compiled.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ares.engine.effects import Operation
from ares.engine.readiness import ServerOrder
from ares.model.codec import Frame
from ares.model.configuration import Configuration
from ares.model.identity import CallId, ConfigurationId, DomainName, ObjectName, ServerId
from ares.model.messages import AnyMessage, Element
from ares.model.tag import Tag, TakenNumbers
from ares.net.port import Came
from ares.replica.configuration_state import ConfigurationState
from ares.replica.group_commit import GroupCommit

RELEASE: str

class Served:
    """The core's work on the arrived bytes of a client. ``reply``: the batch due at once.

    ``tags``, ``datas``, ``puts``: number of requests of each kind, and ``asked``, the number for
    each configuration. ``reads``, ``writes``: number of requests answered at once. ``facts``: their
    number and bytes for the journal, concatenated, of at most ``fact_bytes``. ``waiting``: commits,
    each with the replies that wait for the commit, the number of their rows, of tags or values, and
    of acknowledgements.
    """

    reply: bytes | None
    tags: int
    datas: int
    puts: int
    received_bytes: int
    reads: int
    writes: int
    facts: tuple[int, bytes] | None
    fact_bytes: int
    waiting: Sequence[tuple[GroupCommit, bytes, int, int, int]]
    asked: Sequence[tuple[ConfigurationId, int]]

class Entry(tuple[Tag, Element, int]):
    """A small entry of ``VersionList.entries``, made by the core; a tuple for Python."""

class Server:
    """The server of small reads and writes in ``hosted``.

    All unusual requests go to the Python path. ``at_hand``: for a server with a journal,
    :meth:`ares.store.port.Journal.at_hand`.
    """

    def __init__(
        self, hosted: Mapping[ConfigurationId, ConfigurationState], at_hand: Any = None
    ) -> None: ...
    def serve(
        self,
        came: Came,
        writes: bool,
        gathering: GroupCommit | None = None,
        syncing: GroupCommit | None = None,
        rows_max: int = 0,
    ) -> Served | None: ...

class Handed:
    """An operation handed over to the session: ``make(object, value)``, for the caller of ``done``.

    The operation's round has the number ``call`` and began at ``started``; 0: the operation has not
    begun, because another write of the object is under way. ``answers``: of the round so far.
    ``unasked``: the spared servers of ``order`` were not asked. For a write: ``taken``, the result
    of ``TagSource.begin``, with the number ``before``; ``highest``: the number found by the write's
    get-tag, once the write puts. ``settle(done, result, error)`` is called at the end; None:
    ``done`` is called.
    """

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
    order: ServerOrder | None
    unasked: bool
    started: float
    answers: dict[ServerId, Any]
    taken: TakenNumbers | None
    before: int
    highest: int | None

class Objects:
    """The entry of small reads and writes of a domain.

    ``read`` and ``write`` return None for an operation which the core does not run: the caller
    starts the operation in the session. Otherwise they return ``done``, or the future made for it,
    which identifies the operation from then on.
    """

    def read(self, key: str, done: Any, now: float, timeout_s: float, /) -> Any: ...
    def write(self, key: str, value: Any, done: Any, now: float, timeout_s: float, /) -> Any: ...

class Client:
    """The small operations of a session, and the messages to be sent for them.

    ``under_way``: number of operations begun and not ended. ``feed`` takes a batch of replies.
    ``take`` puts the messages into an outbox, encoded where the session has no message for the
    server, and records the last call ``sent`` to each server; ``precede`` puts the core's messages
    for a server behind the session's ``messages``, before more are added. ``age`` lets time pass
    for the round of a call. Operations given by ``hand_over`` and its kin go to
    ``Session.take_over``: the operation of a call, the write of an object, operations past their
    deadline, the operation of ``done``.
    """

    under_way: int
    def objects(
        self,
        session: Any,
        view: Any,
        make: Callable[[ObjectName, bytes | None], Operation[Any]],
        shell: Any,
        /,
    ) -> Objects: ...
    def feed(
        self, session: Any, server: ServerId, frames: Sequence[Frame], now: float, /
    ) -> None: ...
    def take(self, outbox: dict[ServerId, Any], sent: dict[ServerId, CallId], /) -> None: ...
    def precede(self, server: ServerId, messages: list[AnyMessage], /) -> None: ...
    def calls(self) -> list[int]: ...
    def age(self, session: Any, call: int, now: float, hedge_after_s: float, /) -> None: ...
    def hand_over(self, session: Any, call: int, /) -> None: ...
    def hand_over_writes(self, session: Any, domain: DomainName, object: ObjectName, /) -> None: ...
    def hand_over_overdue(self, session: Any, now: float, /) -> None: ...
    def hand_over_for(self, session: Any, done: object, /) -> None: ...
    def close(self) -> None: ...
