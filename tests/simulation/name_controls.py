"""Negative controls of write-once domains (rule R25)."""

from typing import Any
from unittest.mock import patch

from ares.dap.primitives import DataResult
from ares.engine.effects import Gather, Operation, Pause
from ares.model.errors import ObjectNotFound, Superseded
from ares.model.identity import ObjectName
from ares.model.messages import Drop, GetData
from ares.model.tag import TAG_ZERO, WRITE_ONCE_TAG
from ares.reconfig.mover import Mover
from ares.reconfig.traversal import detour
from ares.reconfig.view import View
from ares.registers.write_once import fetch
from ares.replica.dropped_names import DropRecords
from ares.replica.replica import Replica

CLIENT = "ares.testing.sim.simulated_client"


def fetches_that_believe_a_server() -> Any:
    """Take a name for absent if the first server to answer lacks it."""

    def hasty(view: View, name: ObjectName) -> Operation[bytes]:
        configuration = view.sequence.last_finalized
        answers = yield Gather(
            configuration, GetData, "get-data", None, 1, arguments=(configuration.id, name, True)
        )
        if not any(reply.tags for reply in answers.values()):
            raise ObjectNotFound(name, view.domain)
        return (yield from fetch(view, name))

    return patch(f"{CLIENT}.fetch", hasty)


def creates_that_ignore_successors() -> Any:
    """Put a value into the last known configuration only (no R3)."""

    def alone(view: View, name: ObjectName, value: bytes) -> Operation[None]:
        try:
            yield from view.dap(view.sequence.last_known).put_data(name, WRITE_ONCE_TAG, value)
        except Superseded as superseded:
            detour(view, superseded)
            yield from alone(view, name, value)

    return patch(f"{CLIENT}.create", alone)


def drops_that_ignore_successors() -> Any:
    """Drop names from the last configuration known to be finalized only."""

    def alone(view: View, names: tuple[ObjectName, ...]) -> Operation[None]:
        configuration = view.sequence.last_finalized
        try:
            yield Gather(configuration, Drop, "drop", arguments=(configuration.id, names))
        except Superseded as superseded:
            detour(view, superseded)
            yield from alone(view, names)

    return patch("ares.registers.write_once._drop_some", alone)


def drops_that_are_not_durable() -> Any:
    """Acknowledge a drop that the journal does not have."""
    drop = Replica.drop
    return patch.object(Replica, "drop", lambda *request: (drop(*request)[0], None))


def records_of_drops_that_go_too_early() -> Any:
    """Give back the record of a drop while the journal has the name's own record."""
    return patch.object(DropRecords, "surviving", lambda *_: None)


def movers_that_wait_for_dropped_names() -> Any:
    """Wait until a listed name can be decoded."""
    ask = Mover._ask_sources

    def waiting(self: Mover, question: Any) -> Operation[DataResult]:
        while True:
            found = yield from ask(self, question)
            if found.tag != TAG_ZERO or self._done_by_others:
                return found
            yield Pause(0.05)

    return patch.object(Mover, "_ask_sources", waiting)


NAME_CONTROLS = {
    **{
        control.__name__.replace("_", " "): (control, "names")
        for control in (
            fetches_that_believe_a_server,
            creates_that_ignore_successors,
            drops_that_ignore_successors,
            movers_that_wait_for_dropped_names,
        )
    },
    **{
        control.__name__.replace("_", " "): (control, "names-journal")
        for control in (drops_that_are_not_durable, records_of_drops_that_go_too_early)
    },
}
