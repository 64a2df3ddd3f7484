"""Negative controls of the shared log.

Each breaks a sentence of docs/log.md, and the scenario `log` must notice the fault.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from msgspec import structs

from ares.engine.effects import Gather, Operation
from ares.model.configuration import latest
from ares.model.errors import Superseded
from ares.model.log_messages import (
    AppendOutcome,
    LogRecord,
    Look,
    LookDone,
    SealDone,
    seal_of,
)
from ares.reconfig.traversal import detour
from ares.sharedlog import chain_node, log_operations, node
from ares.sharedlog.appending import Appender
from ares.sharedlog.bound_ids import BoundAppend, bound_append
from ares.sharedlog.chain_segment import ChainSegment
from ares.sharedlog.earlier_chains import (
    EarlierLook,
    EarlierLooks,
    EarlierRow,
    Fetcher,
    joined_rows,
)
from ares.sharedlog.entries import ClientRows
from ares.sharedlog.log_facts import ChainPointed
from ares.sharedlog.log_operations import Evidence, LogOperations
from ares.sharedlog.log_reconfiguration import LogReconfiguration
from ares.sharedlog.log_state import LogState
from ares.sharedlog.node import LogNode
from ares.testing.sim.shared_log.log_server import unbound
from tests.simulation.patches import together

# -- seal and decide -------------------------------------------------------------------------------


def end_of_a_node_that_was_not_sealed() -> Any:
    """Make a reconfigurer ask for lengths without sealing, and take the first answer's length."""

    def seal(self: LogNode, sender: Any, request: Any) -> None:
        segment = self._segment(request)
        self._send(
            sender, SealDone(request.call, segment.length, segment.successor), self.fact_count
        )

    return together(
        patch.object(LogNode, "seal", seal),
        patch.object(
            LogReconfiguration, "_end_of", lambda self, chain, answers: next(iter(answers)).length
        ),
    )


def end_of_less_than_a_majority() -> Any:
    """Let a single sealed node decide."""
    return patch.object(LogReconfiguration, "_majority", lambda self, chain: 1)


def forwards_taken_after_the_seal() -> Any:
    """Make a sealed node without a known successor accept and pass on forwards."""
    live = property(lambda segment: segment.successor is None)

    def lively(method: Any) -> Any:
        def as_if_not_sealed(*arguments: Any) -> None:
            with patch.object(ChainSegment, "live", live):
                method(*arguments)

        return as_if_not_sealed

    names = ("forward", "stored", "take_committed")
    return together(
        *(patch.object(LogNode, name, lively(getattr(LogNode, name))) for name in names)
    )


def appends_before_the_chain_is_pointed_to() -> Any:
    """Keep reconfigurers and clients from telling a majority of c."""

    def put_config(configuration: Any, successor: Any) -> Operation[None]:
        return
        yield

    return together(
        patch("ares.reconfig.traversal.put_config", put_config),
        patch("ares.reconfig.reconfigure.put_config", put_config),
    )


def ends_inside_an_append() -> Any:
    """Forward the entries of an append separately: a seal may cut an append apart."""

    def take(self: LogNode, segment: Any, sender: Any, request: Any) -> None:
        first, records = segment.length, []
        for offset, entry in enumerate(request.entries):
            record = LogRecord(
                first + offset, request.client, request.number, request.lowest, (entry,)
            )
            records.append(structs.replace(record, seal=seal_of(*structs.astuple(record)[:5])))
        end = first + len(request.entries)
        segment.await_commit(first, end, request.number, sender, request.call)
        self._take_records(segment, tuple(records))

    return together(
        patch.object(LogNode, "_take", take), patch.object(chain_node, "RECORDS_MAX", 1)
    )


def a_later_start_taken_for_the_end() -> Any:
    """Take the start of any chain named to a node for the end of the node's own chain."""
    point = LogState._point

    def careless(self: LogState, segment: Any, fact: ChainPointed) -> None:
        if segment.end is None:
            segment.end = fact.successor.configuration.start
        point(self, segment, fact)

    return patch.object(LogState, "_point", careless)


def finalized_when_one_node_has_everything() -> Any:
    return patch.object(LogReconfiguration, "_needed", lambda self, target: 1)


def a_collected_node_that_forgets_its_seal() -> Any:
    """Forget all facts of a collected chain at a restart; a client can reintroduce the chain."""
    restore = LogNode.restore

    def forgetful(self: LogNode, facts: Any) -> None:
        known = list(facts)
        gone = {
            fact.configuration
            for fact in known
            if isinstance(fact, ChainPointed) and fact.collected
        }
        restore(self, [fact for fact in known if getattr(fact, "configuration", None) not in gone])
        self.fact_count = self._stored = len(known)

    return patch.object(LogNode, "restore", forgetful)


# -- evidence --------------------------------------------------------------------------------------


def _evidence(rule: Any) -> Any:
    return patch.object(log_operations, "evidence", rule)


def evidence_of_one_node() -> Any:
    """Take the answer of any single node for evidence."""

    def one(chain: Any, looks: Any) -> Evidence | None:
        seen = next((seen for seen in looks if not seen.sealed and seen.successor is None), None)
        return None if seen is None else Evidence(seen.length, max(seen.committed, seen.length))

    return _evidence(one)


def evidence_of_the_tail_alone() -> Any:
    """Take the tail's answer alone for evidence.

    The tail knows all committed entries of the chain. A tail left behind knows no successor.
    """

    def look(self: LogOperations, bound: int | None = None) -> Operation[Any]:
        chain = self.view.sequence.last_known
        try:
            answers = yield Gather(
                chain,
                Look,
                "look",
                to=chain.server_ids[-1:],
                needed=1,
                arguments=(chain.id,),
                reply=LookDone,
            )
        except Superseded as superseded:
            detour(self.view, superseded)
            return None
        (seen,) = answers.values()
        yield from self.learn(chain, latest([seen.successor]))
        return (
            None
            if seen.sealed or seen.successor is not None
            else Evidence(seen.committed, seen.committed)
        )

    return patch.object(LogOperations, "_look", look)


def evidence_of_lengths_alone() -> Any:
    """Take entries held by a majority for committed."""

    def lengths(chain: Any, looks: Any) -> Evidence | None:
        found = [seen.length for seen in looks if not seen.sealed and seen.successor is None]
        return Evidence(min(found), min(found)) if len(found) >= chain.quorum_size else None

    return _evidence(lengths)


def evidence_of_sealed_nodes() -> Any:
    """Count sealed nodes without a known successor, too."""

    def careless(chain: Any, looks: Any) -> Evidence | None:
        found = [seen for seen in looks if seen.successor is None]
        if len(found) < chain.quorum_size:
            return None
        return Evidence(min(seen.length for seen in found), max(seen.committed for seen in found))

    return _evidence(careless)


# -- the chain -------------------------------------------------------------------------------------


def forwards_before_they_are_durable() -> Any:
    """Forward entries before they are durable in a chain of an earlier release.

    A restarted node of such a chain takes nothing back.
    """
    take_records = LogNode._take_records

    def hasty(self: LogNode, segment: Any, records: Any) -> None:
        take_records(self, segment, records)
        if not segment.side_by_side and not segment.is_tail:
            self._forward(segment)

    sendable = property(
        lambda segment: segment.length if not segment.side_by_side else find(segment)
    )
    find: Any = ChainSegment.__dict__["sendable"].fget
    return together(
        patch.object(ChainSegment, "sendable", sendable),
        patch.object(LogNode, "_take_records", hasty),
    )


def committed_before_the_tail_has_it() -> Any:
    """Make the node before the tail say which entries are committed."""
    send_on = LogNode._send_on

    def early(self: LogNode, segment: Any) -> None:
        if segment.live and segment.place == len(segment.servers) - 2:
            self._commit(segment, segment.durable)
        send_on(self, segment)

    return patch.object(LogNode, "_send_on", early)


def commits_asked_for_while_records_are_lacking() -> Any:
    """Make a node stop asking the next node once the next node has all records."""
    unconfirmed = property(
        lambda segment: max(segment.confirmed, segment.committed) < segment.length
    )
    return patch.object(ChainSegment, "uncommitted", unconfirmed)


# -- each append once ------------------------------------------------------------------------------


def numbers_forgotten_by_a_new_head() -> Any:
    """Make a head know only the numbers of a client in the head's own chain."""

    def append(self: LogNode, sender: Any, request: Any) -> None:
        segment = self._segment(request)
        self._append_found(segment, sender, request, EarlierRow(0, {}, True, False, 0, 0))

    return patch.object(LogNode, "append", append)


def rows_looked_up_one_segment_back() -> Any:
    """Make a head ask the chain before, and no earlier chain."""
    return patch.object(
        EarlierLook, "done", lambda self: self.found.joined(joined_rows(self.rows.values()), True)
    )


def rows_of_a_node_that_lacks_entries() -> Any:
    """Let any node of the chain before answer for this chain, even a node without the entries."""
    holds_row = LogState.holds_row

    def careless(self: LogState, chain: Any) -> Any:
        held = holds_row(self, chain)
        segment = self.segments.get(chain.id)
        if held is not None or segment is None or segment.end is None:
            return held
        return (self.base_rows, True) if segment.merged else (segment.rows, False)

    return patch.object(LogState, "holds_row", careless)


def rows_of_a_node_that_does_not_know_the_successor() -> Any:
    """Make a node ignore the successor in the request, and answer with all held rows."""
    look_row, holds_row = LogNode.look_row, LogState.holds_row

    def uncut(self: LogState, chain: Any) -> Any:
        segment = self.segments.get(chain.id)
        return (
            (segment.rows, False)
            if segment is not None
            and segment.end is None
            and segment.length >= self.__dict__["asked"]
            else holds_row(self, chain)
        )

    def ignorant(self: LogNode, sender: Any, request: Any) -> None:
        self.state.__dict__["asked"] = request.successor.configuration.start
        with (
            patch.object(LogNode, "_point", lambda *arguments, **named: None),
            patch.object(LogState, "holds_row", uncut),
        ):
            look_row(self, sender, request)

    return patch.object(LogNode, "look_row", ignorant)


def rows_of_cut_entries_kept() -> Any:
    return patch.object(ClientRows, "cut", lambda self, end: None)


def rows_trimmed_without_a_word() -> Any:
    """Take a client without a row for new, also if the row was trimmed."""
    return patch.object(LogState, "may_have_been_trimmed", lambda self, since, first: False)


def older_rows_believed() -> Any:
    """Make a head ask for a trimmed row at nodes that still have the row."""
    judge, ask = LogState.may_have_been_trimmed, EarlierLooks._ask

    def elsewhere(self: EarlierLooks, key: Any, look: Any, now: float) -> None:
        self._here = lambda *arguments: None
        ask(self, key, look, now)

    believing = patch.object(
        LogState,
        "may_have_been_trimmed",
        lambda self, since, first: since >= first and judge(self, since, first),
    )
    return together(believing, patch.object(EarlierLooks, "_ask", elsewhere))


def numbers_taken_over_a_gap() -> Any:
    return patch.object(LogNode, "_due", lambda self, request, last: max(last + 1, request.number))


def ids_bound_to_no_key() -> Any:
    """Ignore the key at a head: a thief with another key continues under an id."""
    return patch.object(node, "bound_append", lambda sender, append: bound_append(None, append))


def ids_bound_to_no_secret() -> Any:
    """Ignore the secret at a head: a thief without the secret continues under an id."""

    def unproved(sender: Any, append: Any) -> Any:
        return bound_append(sender, structs.replace(append, secret=b""))

    return patch.object(node, "bound_append", unproved)


def digests_taken_for_ids() -> Any:
    """Keep the id of an append without a secret: a thief sends another client's digest."""

    def believed(sender: Any, append: Any) -> Any:
        return bound_append(sender, append) if append.secret else unbound(append)

    return patch.object(node, "bound_append", believed)


def rows_of_an_earlier_release_forgotten() -> Any:
    """Know a client by the digest only, also for an id stored by an earlier release."""
    return patch.object(BoundAppend, "names", property(lambda self: (self.client,)))


def since_of_the_last_copy() -> Any:
    """Make a client report the committed position at this copy's sending.

    The right position is from the first sending of the lowest number.
    """
    return patch.object(Appender, "_since", lambda self, flight, lowest: self.known)


def position_taken_by_a_dirty_entry() -> Any:
    """Count an uncommitted entry as the holder of a position; a seal may still cut this entry."""

    def answer(
        self: LogNode, segment: Any, sender: Any, request: Any, outcome: Any, position: int = 0
    ) -> None:
        original(
            self,
            segment,
            sender,
            request,
            outcome,
            segment.length if outcome is AppendOutcome.TAKEN else position,
        )

    original = LogNode._answer
    return together(
        patch.object(
            LogNode, "_is_taken", lambda self, segment, position: segment.length > position
        ),
        patch.object(LogNode, "_answer", answer),
    )


def position_taken_before_the_look() -> Any:
    """Check the position before looking for an earlier copy of the append."""
    found = LogNode._append_found

    def hasty(self: LogNode, segment: Any, sender: Any, request: Any, what: Any) -> None:
        if segment.live and request.at is not None and segment.committed > request.at:
            self._answer(segment, sender, request, AppendOutcome.TAKEN, segment.committed)
        else:
            found(self, segment, sender, request, what)

    return patch.object(LogNode, "_append_found", hasty)


def trims_not_taken_over() -> Any:
    """Make a node fetch trimmed entries again and again."""
    return patch.object(Fetcher, "take_over", lambda self, upto: None)


def reads_together_show_what_is_not_committed() -> Any:
    """Answer a request for several entries with uncommitted entries, too."""
    each = LogState.each
    return patch.object(
        LogState, "each", lambda self, positions, uncommitted=False: each(self, positions, True)
    )


BY_HAND = (
    a_later_start_taken_for_the_end,
    commits_asked_for_while_records_are_lacking,
    evidence_of_sealed_nodes,
    evidence_of_the_tail_alone,
    older_rows_believed,
    rows_of_a_node_that_does_not_know_the_successor,
    rows_of_a_node_that_lacks_entries,
)
"""Controls rarely noticed under random schedules.

See tests/sharedlog/test_node_controls.py and test_chain_rule.py.
"""

FIRST_SEEDS: dict[Callable[[], Any], int] = {
    end_of_a_node_that_was_not_sealed: 0,
    end_of_less_than_a_majority: 88,
    forwards_taken_after_the_seal: 0,
    appends_before_the_chain_is_pointed_to: 48,
    ends_inside_an_append: 0,
    finalized_when_one_node_has_everything: 0,
    a_collected_node_that_forgets_its_seal: 68,
    evidence_of_one_node: 19,
    evidence_of_lengths_alone: 158,
    forwards_before_they_are_durable: 0,
    committed_before_the_tail_has_it: 0,
    numbers_forgotten_by_a_new_head: 27,
    rows_looked_up_one_segment_back: 159,
    rows_of_cut_entries_kept: 140,
    rows_trimmed_without_a_word: 203,
    numbers_taken_over_a_gap: 19,
    ids_bound_to_no_key: 71,
    ids_bound_to_no_secret: 434,
    digests_taken_for_ids: 82,
    rows_of_an_earlier_release_forgotten: 116,
    since_of_the_last_copy: 3,
    position_taken_by_a_dirty_entry: 24,
    position_taken_before_the_look: 165,
    trims_not_taken_over: 20,
    reads_together_show_what_is_not_committed: 20,
}
"""Remaining controls, each with the first seed known to notice the control."""

LOG_CONTROLS = {control.__name__.replace("_", " "): (control, "log") for control in FIRST_SEEDS}
