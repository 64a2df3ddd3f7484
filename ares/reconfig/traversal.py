"""Sequence traversal: the way of an operation from a configuration to the next (Alg. 2)."""

from ares.engine.effects import Gather, Operation
from ares.engine.phases import READ_CONFIG, phase
from ares.model.configuration import Configuration, Status, Successor, latest
from ares.model.errors import Superseded, Unavailable
from ares.model.messages import ReadConfig, WriteConfig
from ares.reconfig.view import View


def get_next_config(configuration: Configuration) -> Operation[Successor | None]:
    """Run READ-CONFIG at a quorum and return the latest successor (Alg. 2:27-32)."""
    answers = yield Gather(
        configuration, ReadConfig, "get-next-config", arguments=(configuration.id,)
    )
    return latest([reply.successor for reply in answers.values()])


@phase("PutConfig")
def put_config(configuration: Configuration, successor: Successor) -> Operation[None]:
    """Run WRITE-CONFIG at a quorum (Alg. 2:33-36)."""
    yield Gather(configuration, WriteConfig, "put-config", arguments=(configuration.id, successor))


def find_next_config(
    view: View, configuration: Configuration, found: Successor | None
) -> Operation[Configuration | None]:
    """Return the configuration after ``configuration``, whose quorum named ``found`` (Alg. 2:1-17).

    None at the end of the sequence. Rule R3: a quorum of ``configuration`` knows the successor
    before any operation uses the successor. The round is left out in two cases: the client knows of
    an earlier such round; or another operation of this client has reached a later finalized
    configuration, to which this operation may jump. The round may fail if the successor is
    finalized: the pending successor was at a quorum before the data were moved, and servers gone
    since do not count.
    """
    if found is None:
        return None
    sequence = view.sequence
    if sequence.last_finalized.index >= found.configuration.index > configuration.index:
        return sequence.last_finalized
    if not sequence.knows(configuration, found):
        try:
            yield from put_config(configuration, found)
        except Superseded as superseded:
            return detour(view, superseded)
        except Unavailable:
            if found.status is not Status.FINALIZED:
                raise
    sequence.add(configuration, found)
    return found.configuration


@phase(READ_CONFIG)
def read_config(view: View) -> Operation[None]:
    """Learn the rest of the sequence, from the last finalized entry (Alg. 2:18-26)."""
    configuration: Configuration | None = view.sequence.last_finalized
    while configuration is not None:
        try:
            found = yield from get_next_config(configuration)
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        configuration = yield from find_next_config(view, configuration, found)


def detour(view: View, superseded: Superseded) -> Configuration:
    """Return the configuration to continue with after a superseded one.

    The superseded configuration has no quorum any more, and the consensus service named a later
    finalized configuration.
    """
    newer = superseded.newer
    assert isinstance(newer, Configuration)
    view.sequence.adopt(Successor(newer, Status.FINALIZED))
    return view.sequence.last_finalized
