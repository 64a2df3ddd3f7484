"""Small reads and writes where there is a compiled core (core/src/client.rs): it runs them as ares/objects/operations.py would, in the one
configuration that there is to ask, and gives them to the session when anything is unusual."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ares.objects.operations import read, write
from ares.operation.session import Session
from ares.reconfig.view import View

if TYPE_CHECKING:
    from ares._core import Objects


class Shell(Protocol):
    """What is around the session on an event loop. ``schedule`` is called when there is something to send."""

    @property
    def create_future(self) -> Callable[[], Any]: ...

    def schedule(self) -> None: ...

    def settle(self, future: Any, result: Any, error: BaseException | None) -> None:
        """Of an operation that ended in the session."""


def small_objects(session: Session, view: View, shell: Shell | None = None) -> "Objects | None":
    """Where they begin; None: there is no core, or the client's switches ask for something else."""
    if session.core is None or not (view.switches.piggyback and view.switches.fast_read):
        return None
    view.sequence.changing = session.take_over_all
    return session.core.objects(
        session,
        view,
        lambda name, value: read(view, name) if value is None else write(view, name, value),
        shell,
    )
