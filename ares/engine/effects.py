"""The effects which an operation may ask for.

An operation is a generator that reads like the paper: it yields effects and receives their results.
A session (ares/engine/session.py) performs them; this module only declares them.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from ares.engine.readiness import ServerOrder
from ares.model.configuration import Configuration
from ares.model.identity import ServerId

Answers = Mapping[ServerId, Any]
"""The servers' answers to a question, without servers that refuse."""


class Gather(Struct, frozen=True):
    """A round: ask servers of ``configuration``, continue with ``{server: reply}``.

    The round needs replies of at least ``needed`` servers (0: a quorum). ``requests(call,
    *arguments)`` returns a single request for all servers, or a list in the order of ``to``
    (default: all servers of the configuration). With ``settled``, the round goes on beyond a quorum
    until ``settled(answers)`` is true, every server has answered, or some time has passed since the
    quorum: ``patience_s(answers, waited_s)``, after a wait of ``waited_s`` for the quorum.
    ``give_up_s``: throw Unavailable into the operation after this time, instead of at its deadline;
    earlier if one server is asked, and no connection to it comes about.
    ``order`` (not with ``to``): ask only its first servers, and the spared servers when the first
    are slow or do not settle the round. ``reply``: the type of the answers, if the requests are not
    in the table (ares/model/messages.py). ``resend_s``: the first wait until a silent server
    is asked again; None: the usual wait.
    """

    configuration: Configuration
    requests: Callable[..., Any]
    what: str
    to: tuple[ServerId, ...] | None = None
    needed: int = 0
    settled: Callable[[Answers], bool] | None = None
    patience_s: Callable[[Answers, float], float] | None = None
    give_up_s: float | None = None
    arguments: tuple[Any, ...] = ()
    order: ServerOrder | None = None
    reply: type | None = None
    resend_s: float | None = None


class Pause(Struct, frozen=True):
    """A wait; the operation continues with None.

    ``retry``: the wait precedes another try, and the next step is no progress; otherwise the wait
    only limits the speed.
    """

    seconds: float
    retry: bool = True


class Now(Struct, frozen=True):
    """A request for the time, in seconds of a clock that only goes forward."""


class Agree(Struct, frozen=True):
    """A proposal of ``configuration`` for its place (Alg. 5:17).

    The operation continues with messages.Decided.
    """

    configuration: Configuration


class Announce(Struct, frozen=True):
    """A report to the consensus service: ``configuration`` is finalized (a hint).

    Continues with True if the service heard. ``must``: throw the known reason of a failure into the
    operation, and continue with True if the service understands chains that commit side by side.
    """

    configuration: Configuration
    must: bool = False


class Together(Struct, frozen=True):
    """Operations run side by side; continues with None when all are done.

    The first failure ends all and is thrown. At most ``window`` run at once; a function is called
    each time. With ``ordered``, an operation begins only when less than ``window`` lies between it
    and the oldest running operation: a consumer of results in order never has to keep more than
    ``window`` of them.
    """

    operations: "Iterator[Operation[None]]"
    window: int | Callable[[], int]
    ordered: bool = False


class Report(Struct, frozen=True):
    """A report of progress to the caller; continues with None."""

    progress: Any


Effect = Gather | Pause | Now | Agree | Announce | Together | Report

Result = TypeVar("Result")
Operation = Generator[Effect, Any, Result]
