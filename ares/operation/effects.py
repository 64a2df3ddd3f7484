"""What an operation may ask of the world.

An operation is a generator that reads like the paper: it yields effects and is sent their results. A session (ares/operation/session.py) performs
them; nothing here does anything.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.operation.readiness import Order

Answers = Mapping[ServerId, Any]
"""What servers answer to a question; those that refuse are missing."""


class Gather(Struct, frozen=True):
    """One round: ask servers of ``configuration``, continue with ``{server: reply}`` of at least ``needed`` of them (0: a quorum).

    ``requests(call, *arguments)`` gives one request for all, or a list in the order of ``to`` (default: all servers of the configuration).
    With ``settled``, the round goes on beyond a quorum until ``settled(answers)`` is true, everybody has answered, or some time has passed since the
    quorum was there: ``patience_s(answers, waited_s)``, for a quorum that it waited ``waited_s`` for. ``give_up_s``: throw Unavailable into the
    operation after so long, instead of at its deadline. ``order`` (not with ``to``): ask only its first servers, and the spared ones when those are
    slow or do not settle it. ``reply``: the type of the answers, if the requests are not in the table of ares/model/messages.py. ``resend_s``: when a
    server is asked again that is silent, at first; None: as soon as is usual.
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
    order: Order | None = None
    reply: type | None = None
    resend_s: float | None = None


class Pause(Struct, frozen=True):
    """Wait; continue with None. ``retry``: to try something again, so that what follows is no progress; otherwise only to go slowly."""

    seconds: float
    retry: bool = True


class Now(Struct, frozen=True):
    """Continue with the time, in seconds of a clock that only goes forward."""


class Agree(Struct, frozen=True):
    """Propose ``configuration`` for its place (Alg. 5:17); continue with messages.Decided."""

    configuration: Configuration


class Announce(Struct, frozen=True):
    """Tell the consensus service that ``configuration`` is finalized (a hint); continue with True if it heard.

    ``must``: throw why it did not hear into the operation, if that is known.
    """

    configuration: Configuration
    must: bool = False


class Together(Struct, frozen=True):
    """Run operations side by side; continue with None when all are done. The first failure ends all and is thrown.

    At most ``window`` run at once; a function is asked each time. With ``ordered``, an operation begins only when less than ``window`` lies between
    it and the oldest that runs: who wants the results in order never has to keep more than so many.
    """

    operations: "Iterator[Operation[None]]"
    window: int | Callable[[], int]
    ordered: bool = False


class Report(Struct, frozen=True):
    """Pass progress on to the caller; continue with None."""

    progress: Any


Effect = Gather | Pause | Now | Agree | Announce | Together | Report

Result = TypeVar("Result")
Operation = Generator[Effect, Any, Result]
