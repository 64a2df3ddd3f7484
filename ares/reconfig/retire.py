"""gc-config: retired configurations point to the last finalized one and let go of their data (Alg. 2:37-46; ARES II section 5.2)."""

from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import NotAuthorized, Superseded, Unavailable
from ares.model.messages import CollectConfig
from ares.operation.effects import Gather, Operation
from ares.reconfig.view import View

COLLECT_S = 3.0
"""A retired configuration without a quorum must not hold up anybody: so long it is waited for."""


def gc_config(view: View) -> Operation[list[Configuration]]:
    """Collect every retired entry and forget it; returns those of which no quorum answered (their servers keep data that nobody needs)."""
    uncollected = []
    successor = Successor(view.sequence.last_finalized, Status.FINALIZED)
    for configuration in view.sequence.retired:
        try:
            yield from _collect(configuration, successor)
        except (Unavailable, NotAuthorized, Superseded):
            uncollected.append(configuration)
        view.sequence.forget(configuration)
    return uncollected


def _collect(configuration: Configuration, successor: Successor) -> Operation[None]:
    yield Gather(configuration, lambda call: CollectConfig(call, configuration.id, successor), "gc-config", give_up_s=COLLECT_S)
