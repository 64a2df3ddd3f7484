"""Small reads and writes in the compiled core, where present (core/src/client.rs).

The core runs them as ares/registers/operations.py would, in the single configuration to ask, and
gives them to the session in any unusual case.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ares.engine.session import Session
from ares.reconfig.view import View
from ares.registers.operations import read, write

if TYPE_CHECKING:
    from ares._core import Objects


class Shell(Protocol):
    """The session's surroundings on an event loop.

    ``schedule`` is called when messages wait to be sent.
    """

    @property
    def create_future(self) -> Callable[[], Any]: ...

    def schedule(self) -> None: ...

    def settle(self, future: Any, result: Any, error: BaseException | None) -> None:
        """Settle the future of an operation that ended in the session."""


def small_objects(session: Session, view: View, shell: Shell | None = None) -> "Objects | None":
    """Return the entry to the core, or None without a core or with other switches of the client."""
    if session.core is None or not (view.switches.piggyback and view.switches.fast_read):
        return None
    view.sequence.changing = session.take_over_all
    return session.core.objects(
        session,
        view,
        lambda name, value: read(view, name) if value is None else write(view, name, value),
        shell,
    )
