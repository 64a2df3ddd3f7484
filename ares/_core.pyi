"""The compiled core (core/src), where there is one: ares/machine/compiled.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ares.model.codec import Frame
from ares.model.configuration import Configuration
from ares.model.identity import CallId, ConfigurationId, DomainName, ObjectName, ServerId
from ares.model.messages import AnyMessage, Element
from ares.model.tag import Tag, Taken
from ares.net.port import Came
from ares.operation.effects import Operation
from ares.operation.readiness import Order
from ares.replica.hosting import Hosting
from ares.replica.unsynced import Unsynced

RELEASE: str

class Served:
    """What became of what came from one client at a time. ``reply``: the batch that is due at once.

    ``tags``, ``datas``, ``puts``: how many requests of each kind there were, and ``asked`` about each configuration. ``reads``, ``writes``: how
    many were answered at once. ``facts``: so many for the journal, one after another, of at most ``fact_bytes``. ``waiting``: commits, the replies
    that wait for each, of how many rows, and how many of them are tags or values, and acknowledgements.
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
    waiting: Sequence[tuple[Unsynced, bytes, int, int, int]]
    asked: Sequence[tuple[ConfigurationId, int]]

class Entry(tuple[Tag, Element, int]):
    """What the core puts into ``Versions.entries``, and makes of small tuples there: to Python the same."""

class Server:
    """Answers small reads and writes of what is in ``hosted``, and leaves everything unusual to the Python path.

    ``at_hand``: of a server with a journal, :meth:`ares.store.port.Journal.at_hand`.
    """

    def __init__(self, hosted: Mapping[ConfigurationId, Hosting], at_hand: Any = None) -> None: ...
    def serve(
        self,
        came: Came,
        writes: bool,
        gathering: Unsynced | None = None,
        syncing: Unsynced | None = None,
        rows_max: int = 0,
    ) -> Served | None: ...

class Handed:
    """An operation that the session is to go on with: what ``make(object, value)`` gives, of whoever waits for ``done``.

    Its round has the number ``call`` and began at ``started``; 0: it has not begun, another write of the object is under way. ``answers``: of the
    round so far. ``unasked``: the spared servers of ``order`` were not asked. Of a write: ``taken``, as ``TagSource.begin`` gave it, with the number
    ``before``; ``highest``: the number that its get-tag found, once it puts. ``settle(done, result, error)`` is called at its end; None: ``done`` is.
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
    order: Order | None
    unasked: bool
    started: float
    answers: dict[ServerId, Any]
    taken: Taken | None
    before: int
    highest: int | None

class Objects:
    """Where small reads and writes of one domain begin.

    ``read`` and ``write`` return None for what the core does not run: the caller starts it in the session. Otherwise ``done``, or the future that was
    made for it, by which it is known from then on.
    """

    def read(self, key: str, done: Any, now: float, timeout_s: float, /) -> Any: ...
    def write(self, key: str, value: Any, done: Any, now: float, timeout_s: float, /) -> Any: ...

class Client:
    """The small operations of one session, and what is to be sent for them. ``under_way``: how many have begun and have not ended.

    ``feed`` takes a batch of replies. ``take`` puts what is to be sent into an outbox, encoded where the session has nothing for that server, and
    says which call each server is ``sent`` last; ``precede`` puts what is here for a server behind the session's ``messages``, before more is added.
    ``age`` lets time pass for the round of a call. What ``hand_over`` and its kin give goes to ``Session.take_over``: the operation of a call, the
    write of an object, those past their deadline, what ``done`` names.
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
