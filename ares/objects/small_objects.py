"""Small reads and writes where there is a compiled core (core/src/client.rs): it runs them as ares/objects/operations.py would, in the one
configuration that there is to ask, and gives them to the session when anything is unusual."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ares.objects.operations import read, write
from ares.operation.session import Session
from ares.reconfig.view import View

if TYPE_CHECKING:
    from ares._core import Objects


def small_objects(session: Session, view: View, settle: Callable[[Any, Any, BaseException | None], None] | None = None) -> "Objects | None":
    """Where they begin; None: there is no core, or the client's switches ask for something else.

    Each is given what to call when it is done; with ``settle`` that is a future, which gets a read's value, and ``settle(future, result, error)`` is
    called for what ended in the session.
    """
    if session.core is None or not (view.switches.piggyback and view.switches.fast_read):
        return None
    view.sequence.changing = session.take_over_all
    return session.core.objects(session, view, lambda name, value: read(view, name) if value is None else write(view, name, value), settle)
