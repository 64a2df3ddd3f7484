"""Domains as users hold them: the part common to objects and logs, and moves of objects."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from ares.client.runner import Runner, unreported
from ares.engine.effects import Operation
from ares.engine.jobs import Key
from ares.fragment.read import FileProgress
from ares.fragment.shared_memory import Blocks
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import DomainName, ObjectName
from ares.model.numbers import SECONDS_MAX, is_number, shown_number
from ares.reconfig.mover import MoveOptions, Progress, Transfer
from ares.reconfig.reconfigure import ReconfigurationResult, reconfigure
from ares.reconfig.throttle import Throttle
from ares.reconfig.traversal import read_config
from ares.reconfig.view import View

Result = TypeVar("Result")
Identify = Callable[[Configuration], Any]


class Domain:
    """A domain, of objects or a log: a sequence of configurations."""

    def __init__(self, runner: Runner, view: View, timeout_s: float, identify: Identify) -> None:
        self._runner = runner
        self._view = view
        self._timeout_s = timeout_s
        self._identify = identify

    @property
    def name(self) -> DomainName:
        return self._view.domain

    @property
    def configuration(self) -> Configuration:
        """The last finalized configuration known to this client."""
        return self._view.sequence.last_finalized

    @property
    def pending(self) -> Sequence[Configuration]:
        """The decided configurations after :attr:`configuration` that are not finalized.

        As far as this client knows.
        """
        return self._view.sequence.active[1:]

    async def current(self, *, timeout_s: float | None = None) -> Configuration:
        """Ask the servers for the last finalized configuration.

        A new connection knows only the first configuration.
        """
        await self._runner.run(
            read_config(self._view), f"read-config of {self.name!r}", self._timeout(timeout_s)
        )
        return self.configuration

    async def _run(
        self,
        operation: Operation[Result],
        label: object,
        progress: Callable[[Any], None] | None,
        timeout_s: float | None,
        key: Key | None = None,
        size: int = 0,
    ) -> Result:
        if progress is not None and not callable(progress):
            # checked now: the first call may come after a change was made
            raise BadInput(
                f"progress is a function to call, not {type(progress).__name__}; nothing was sent"
            )
        return await self._runner.run(
            operation,
            label,
            self._timeout(timeout_s),
            key=key,
            progress=progress or unreported,
            size=size,
        )

    def _timeout(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self._timeout_s
        return checked_timeout(timeout_s)


class ObjectDomain(Domain):
    """A domain of objects, whatever the objects are: values, or the blocks of files."""

    async def reconfigure(
        self,
        configuration: Configuration,
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
        bytes_per_s: float | None = None,
        skip_undecodable: bool = False,
        transfer: Transfer = "client",
    ) -> ReconfigurationResult:
        """Move the domain to ``configuration``; any client may call this at any time.

        Reads and writes continue during the move. From the decision until the move is final, they
        need a quorum of the old servers and a quorum of the new servers: while either quorum is cut
        off, they fail.

        ``bytes_per_s``: the rate at which data moves (default: as fast as possible). If another
        client's proposal was decided first, the call completes this proposal and the result says
        ``ours=False``. ``skip_undecodable``: leave behind the objects that provably cannot be
        decoded, or whose tag servers do not take; reading such an object fails until it is written
        or deleted; the result names the objects. ``transfer``: "servers" lets large values
        (elements of more than 8 KiB) travel from server to server, and not through this client.
        Raises :class:`ares.ObjectsStuck` if some objects cannot be moved, when all other objects
        were moved; :class:`ares.ConfigurationRefused` if a named server does not answer; and
        :class:`ares.ConsensusUnavailable`.
        """
        if isinstance(configuration, Configuration) and configuration.dap == "chain":
            why = (
                "a chain is for a log, which `store.log(NAME, create=...)` makes. Nothing was "
                "changed"
            )
            raise ConfigurationRefused(
                f"domain {self.name!r} holds objects, and its configurations are abd or ec: {why}"
            )
        throttle = None if bytes_per_s is None else Throttle(bytes_per_s)
        if transfer not in get_args(Transfer):
            raise BadInput(
                f"transfer is one of {', '.join(get_args(Transfer))}, not {transfer!r}; nothing "
                "was changed"
            )
        move = reconfigure(
            self._view,
            await self._identify(configuration),
            MoveOptions(throttle, skip_undecodable, transfer),
        )
        return await self._run(move, f"reconfiguration of {self.name!r}", progress, timeout_s)

    async def run(
        self,
        make: Callable[[View], Operation[Result]],
        what: str,
        *,
        progress: Callable[[Any], None] | None = None,
        timeout_s: float | None = None,
        size: int = 0,
    ) -> Result:
        """Run an operation on this client's view of the domain.

        ``timeout_s`` bounds a standstill. ``size``: bytes that the operation needs room for.
        """
        return await self._run(
            make(self._view), f"{what} of {self.name!r}", progress, timeout_s, size=size
        )

    async def run_on_blocks(
        self,
        make: Callable[[Blocks], Operation[Result]],
        label: object,
        queue: ObjectName | None = None,
        progress: Callable[[FileProgress], None] | None = None,
        timeout_s: float | None = None,
        size: int = 0,
    ) -> Result:
        """Run an operation on the blocks of files. Operations of the same ``queue`` run in turn.

        ``size``: bytes that the operation needs room for.
        """
        key = (self.name, queue) if queue is not None else None
        return await self._run(make(Blocks(self._view)), label, progress, timeout_s, key, size)


def checked_timeout(timeout_s: float) -> float:
    """Return ``timeout_s``.

    Raises :class:`BadInput` unless the timeout is more than 0 and at most SECONDS_MAX.
    """
    if not is_number(timeout_s, SECONDS_MAX) or timeout_s == 0:
        raise BadInput(
            f"a timeout is a number of seconds, more than 0 and at most {SECONDS_MAX:g}, "
            f"not {shown_number(timeout_s)}; nothing was sent"
        )
    return timeout_s
