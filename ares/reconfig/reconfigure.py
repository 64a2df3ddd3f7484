"""Reconfiguration of a domain: agree, move every object, finalize, collect (Alg. 5).

Rule R1 closes the hole of the published piggyback: every request that moves data out of a
configuration carries this configuration's successor, and a server installs the successor before the
answer. Consider each server where a write's quorum meets the mover's: either the value was stored
before the mover looked, or the writer is told of the successor.

A reconfigurer may die at any point. Its pending configurations stay in the sequence; the next
reconfigurer moves data from every configuration since the last finalized configuration, and thereby
finishes the work.

At the end retired configurations point to the last finalized configuration and drop their data:
gc-config (Alg. 2:37-46; ARES II section 5.2).
"""

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from ares.dap.coding import coding_for
from ares.engine.effects import Agree, Announce, Gather, Operation, Report
from ares.engine.phases import RECONFIGURE, phase
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import (
    ConfigurationRefused,
    NotAuthorized,
    ObjectsStuck,
    Superseded,
    Unavailable,
    Uncertain,
)
from ares.model.identity import ObjectName
from ares.model.messages import CollectConfig, Decided, Finalize
from ares.reconfig.copy_ahead import NOT_COPIED, Copied, adopters, copy_ahead
from ares.reconfig.mover import USUAL_MANNER, MoveOptions, Mover, Progress
from ares.reconfig.traversal import detour, put_config, read_config
from ares.reconfig.view import View

COLLECT_S = 3.0
"""Seconds gc-config waits for a retired configuration: a missing quorum must not delay other
clients.
"""


class ReconfigurationResult(Struct, frozen=True):
    """The result of a reconfiguration.

    ``configuration``: the decision, now finalized. ``ours``: whether the caller's proposal was
    decided. ``moved``/``skipped``: objects copied / already in the target. ``left``: undecodable
    objects left behind. ``uncollected``: retired configurations without an answering quorum.
    ``announced``: whether the consensus service heard; if not, a client with knowledge only of
    configurations with lost servers finds no way to this configuration until the next
    reconfiguration.
    """

    configuration: Configuration
    ours: bool
    moved: int
    skipped: int
    bytes: int
    uncollected: list[Configuration]
    announced: bool = True
    left: tuple[ObjectName, ...] = ()


@phase(RECONFIGURE)
def reconfigure(
    view: View, wished: Configuration, manner: MoveOptions = USUAL_MANNER
) -> Operation[ReconfigurationResult]:
    """Install ``wished``, or the decision for its place, as the next configuration (Alg. 5:6-13).

    If ``wished`` equals the pending configuration at the end of the sequence, this move is
    completed, and no configuration is proposed: otherwise a client which tries again and again
    while servers have no room would extend the sequence each time. Raises
    :class:`ares.ObjectsStuck`, and finalizes no configuration, if some objects can neither be moved
    nor left behind.
    """
    yield Report(Progress("read-config"))
    yield from read_config(view)
    last = view.sequence.last_known
    if last.same_content(wished) and last != view.sequence.last_finalized:
        return (yield from install(view, wished, last, manner))
    return (yield from advance(view, wished, manner))


def advance(
    view: View, wished: Configuration, manner: MoveOptions = USUAL_MANNER
) -> Operation[ReconfigurationResult]:
    """Run ``reconfigure`` from the sequence as known.

    If ``wished`` was made from the last entry, it becomes the direct successor of this entry, or is
    not decided. Most data is copied before the proposal (rule R24), and the place of the proposal
    is the place of the copies, even if the sequence has grown meanwhile.
    """
    proposal = next_to(view.sequence.last_known, wished)
    check_kind(view.sequence.last_known, proposal)
    coding_for(proposal)
    copied = yield from copy_ahead(view, proposal, manner)
    yield Report(Progress("add-config"))
    decided = (yield from add_config(proposal)).configuration
    ours = copied if decided.id == proposal.id else NOT_COPIED
    return (yield from install(view, wished, decided, manner, ours))


def install(
    view: View,
    wished: Configuration,
    target: Configuration,
    manner: MoveOptions = USUAL_MANNER,
    copied: Copied = NOT_COPIED,
) -> Operation[ReconfigurationResult]:
    """Finish a reconfiguration after the decision of ``target``, by any client (Alg. 5:8-12).

    ``copied``: this client's copies ahead for the target. Without any, another client may have made
    some.
    """
    mover = Mover(view, target, manner)
    uncollected: list[Configuration] = []
    try:
        yield from announce_successor(view, target)
        mover.adopters = copied.servers
        if not copied.servers and view.switches.ahead and len(view.sequence.active) == 2:
            mover.adopters = yield from adopters(target)
        yield from mover.update_config()
        if mover.stuck:
            raise ObjectsStuck(view.domain, mover.stuck)
        yield Report(mover.progress("finalize-config"))
        yield from announce_successor(view, target, Status.FINALIZED)
        yield from mark_finalized(view.sequence.last_finalized)
        announced: bool = yield Announce(target)
        if view.switches.gc:
            yield Report(mover.progress("gc-config"))
            uncollected = yield from gc_config(view)
    except Uncertain as error:
        error.may_have_taken_effect = True
        error.advice = (
            f"configuration {target.index} is decided and pending: nothing is lost, reads and "
            f"writes need a quorum of the old servers and one of {', '.join(target.server_ids)} "
            "until the move is final, and fail while either does not answer; the next reconfig "
            "finishes it"
        )
        raise
    return ReconfigurationResult(
        target,
        target.same_content(wished),
        mover.moved,
        mover.skipped,
        mover.bytes + copied.bytes,
        uncollected,
        announced,
        tuple(mover.left),
    )


def check_kind(last: Configuration, wished: Configuration) -> None:
    """Raise :class:`ConfigurationRefused` unless both are write-once, or none is (rule R25)."""
    if wished.write_once != last.write_once:
        now = "" if last.write_once else "not "
        raise ConfigurationRefused(
            f"domain {last.domain!r} is {now}write-once, and stays so: move it to a configuration "
            f"with write_once={last.write_once}. Nothing was changed"
        )


def next_to(last: Configuration, wished: Configuration) -> Configuration:
    """Return ``wished`` at the place after ``last``."""
    return wished.at(last.domain, last.index + 1, last.cluster_id)


@phase("AddConfig")
def add_config(proposal: Configuration) -> Operation[Decided]:
    """Agree on the configuration for the proposal's place (Alg. 5:14-22)."""
    return (yield from agree(proposal))


def agree(
    proposal: Configuration, check: Callable[[Configuration], object] = coding_for
) -> Operation[Decided]:
    """Return the decision for the proposal's place (Alg. 5:17).

    ``check`` raises :class:`ConfigurationRefused` if this proposal, or the decision, is of no use.
    """
    check(proposal)
    try:
        decided: Decided = yield Agree(proposal)
    except Uncertain as error:
        error.may_have_taken_effect = True
        error.advice = (
            "the proposal may still be decided: look at the present configuration before you try "
            "again"
        )
        raise
    made = decided.configuration
    if (made.domain, made.index) != (
        proposal.domain,
        proposal.index,
    ) or made.cluster_id != proposal.cluster_id:
        raise ConfigurationRefused(
            f"the consensus service answers for index {made.index} of {made.domain!r} of another "
            "cluster: its members, or their journals, belong to another cluster file. Nothing "
            "was changed"
        )
    check(made)
    return decided


@phase("FinalizeConfig")
def announce_successor(
    view: View, target: Configuration, status: Status = Status.PENDING
) -> Operation[None]:
    """Tell a quorum of the predecessor that ``target`` was decided as successor (Alg. 5:19-20).

    With status FINALIZED: ``target`` holds all data (Alg. 5:37-42).
    """
    if view.sequence.last_finalized.index >= target.index:
        return
    before, successor = view.sequence.before(target), Successor(target, status)
    try:
        yield from put_config(before, successor)
    except Superseded as superseded:
        detour(view, superseded)
    else:
        view.sequence.add(before, successor)


def mark_finalized(configuration: Configuration) -> Operation[None]:
    """Tell the servers of ``configuration`` of its finalization.

    They name the configuration to clients in search of the domain (rule R21). Servers which do not
    hear of the finalization name an older configuration, or no configuration: the only cost is
    time.
    """
    with suppress(Unavailable, NotAuthorized, Superseded):
        yield Gather(
            configuration,
            Finalize,
            "mark-finalized",
            give_up_s=COLLECT_S,
            arguments=(configuration.id,),
        )


@phase("GCConfig")
def gc_config(view: View) -> Operation[list[Configuration]]:
    """Collect every retired entry and forget it; return the entries without an answering quorum.

    See Alg. 2:37-46. The published gc-config waits for a quorum of each, for ever.

    The servers of these entries keep unneeded data.
    """
    uncollected = []
    successor = Successor(view.sequence.last_finalized, Status.FINALIZED)
    for configuration in view.sequence.retired:
        try:
            yield Gather(
                configuration,
                CollectConfig,
                "gc-config",
                give_up_s=COLLECT_S,
                arguments=(configuration.id, successor),
            )
        except (Unavailable, NotAuthorized, Superseded):
            uncollected.append(configuration)
        view.sequence.forget(configuration)
    return uncollected
