"""Negative controls of the rule by which a chain commits side by side.

Each breaks a sentence of docs/log.md, Append or Taking back, and the scenario `log` must notice the
fault.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from ares.model.log_messages import LookDone, SealDone
from ares.sharedlog.chain_node import ChainNode
from ares.sharedlog.chain_segment import ChainSegment
from ares.sharedlog.entries import ClientRows
from ares.sharedlog.log_facts import ChainSealed, RecordsTaken
from ares.sharedlog.node import LogNode
from tests.simulation.patches import together


def _reached(rule: Callable[[ChainSegment], int]) -> Any:
    """Change the end of the records that count as durable at a node and before."""

    def commit(self: ChainNode, segment: ChainSegment, upto: int) -> None:
        if min(upto, segment.length) > segment.committed:
            segment.settled(min(upto, segment.length))
            self._answer_committed(segment)
            if segment.live and not segment.is_head:
                self._report(segment)

    return together(
        patch.object(ChainSegment, "reached", property(rule)),
        patch.object(ChainNode, "_commit", commit),
    )


def committed_from_lengths_in_memory() -> Any:
    """Count records in memory in the place of durable records."""
    return _reached(lambda each: each.length if each.is_head else min(each.length, each.ahead))


def committed_by_the_disk_of_the_tail() -> Any:
    """Commit all that is durable at the tail."""
    return _reached(
        lambda each: each.durable if each.is_tail or each.is_head else min(each.durable, each.ahead)
    )


def committed_by_the_tail_and_the_node_before() -> Any:
    """Let each node tell only of its own disk."""
    return _reached(
        lambda each: min(each.durable, each.ahead) if each.is_tail and each.place else each.durable
    )


def committed_by_the_memory_of_the_tail() -> Any:
    """Count the tail's copy in memory."""
    return _reached(
        lambda each: (
            each.durable
            if each.is_head
            else min(each.length if each.is_tail else each.durable, each.ahead)
        )
    )


def committed_by_the_disk_of_the_head() -> Any:
    """Count only the disk of the head, and the memory of all nodes behind."""
    return _reached(lambda each: each.durable if each.is_head else min(each.length, each.ahead))


def seals_answered_from_memory() -> Any:
    """Answer a seal before the seal and the records are durable."""
    seal = LogNode.seal

    def hasty(self: LogNode, sender: Any, request: Any) -> None:
        send = self._send

        def at_once(to: Any, message: Any, after: int = 0) -> None:
            send(to, message, 0 if isinstance(message, SealDone) else after)

        with patch.object(self, "_send", at_once):
            seal(self, sender, request)

    return patch.object(LogNode, "seal", hasty)


def seals_forgotten() -> Any:
    """Forget a seal in a restart."""
    restore = LogNode.restore

    def forgetful(self: LogNode, facts: Any) -> None:
        known = list(facts)
        restore(self, [fact for fact in known if not isinstance(fact, ChainSealed)])
        self.fact_count = self._stored = len(known)

    return patch.object(LogNode, "restore", forgetful)


def durable_records_forgotten() -> Any:
    """Forget the last durable records in a restart."""
    restore = LogNode.restore

    def careless(self: LogNode, facts: Any) -> None:
        known = list(facts)
        lost = bool(known) and isinstance(known[-1], RecordsTaken)
        restore(self, known[:-1] if lost else known)
        self.fact_count = self._stored = len(known)

    return patch.object(LogNode, "restore", careless)


def going_on_without_taking_back() -> Any:
    """Take appends and forwards after a restart at once."""
    restore = LogNode.restore

    def hasty(self: LogNode, facts: Any) -> None:
        restore(self, facts)
        for segment in self.state.segments.values():
            segment.took_back = True

    return patch.object(LogNode, "restore", hasty)


def giving_back_before_one_has_taken_back() -> Any:
    """Give back records while the node behind may have more."""
    take_back = ChainNode.take_back

    def hasty(self: ChainNode, sender: Any, request: Any) -> None:
        with patch.object(ChainSegment, "returning", False):
            take_back(self, sender, request)

    return patch.object(ChainNode, "take_back", hasty)


def taking_back_without_rows() -> Any:
    """Take records back, and not their numbers."""
    given_back = ChainNode.given_back

    def rowless(self: ChainNode, sender: Any, request: Any) -> None:
        with patch.object(ClientRows, "take", lambda *arguments: None):
            given_back(self, sender, request)

    return patch.object(ChainNode, "given_back", rowless)


def the_length_of_the_tail_counted_as_committed() -> Any:
    """Make the tail answer a look with all that is durable there as committed."""
    look = LogNode.look

    def careless(self: LogNode, sender: Any, request: Any) -> None:
        send, segment = self._send, self._segment(request)

        def more(to: Any, message: Any, after: int = 0) -> None:
            if isinstance(message, LookDone) and segment.is_tail:
                message = replace(message, committed=segment.length, length=segment.length)
            send(to, message, after)

        with patch.object(self, "_send", more):
            look(self, sender, request)

    return patch.object(LogNode, "look", careless)


def _careless_of_lives(**changes: Callable[[ChainNode, ChainSegment, Any], Any]) -> Any:
    """Make a node see other lives in the forwards that it gets."""
    judge = ChainNode._is_of_present_lives

    def careless(self: ChainNode, segment: ChainSegment, request: Any) -> bool:
        seen = {name: change(self, segment, request) for name, change in changes.items()}
        return judge(self, segment, replace(request, **seen))

    return patch.object(ChainNode, "_is_of_present_lives", careless)


def earlier_lives_not_shut_out() -> Any:
    """Take forwards of earlier lives of the node before."""
    return _careless_of_lives(life=lambda node, segment, seen: max(seen.life, segment.life_before))


def forwards_to_an_earlier_life_taken() -> Any:
    """Take forwards sent to an earlier life of the node itself."""
    return _careless_of_lives(to_life=lambda node, segment, seen: seen.to_life and node.life)


def records_given_to_an_earlier_life_taken() -> Any:
    """Take back the records that were given to an earlier life."""
    given_back = ChainNode.given_back

    def careless(self: ChainNode, sender: Any, request: Any) -> None:
        given_back(self, sender, replace(request, to_life=self.life))

    return patch.object(ChainNode, "given_back", careless)


def records_given_back_late_taken() -> Any:
    """Take records that are given back when the node is not returning any more."""
    given_back = ChainNode.given_back

    def careless(self: ChainNode, sender: Any, request: Any) -> None:
        with patch.object(ChainSegment, "returning", property(lambda segment: segment.live)):
            given_back(self, sender, request)

    return patch.object(ChainNode, "given_back", careless)


def forwards_before_the_introduction_is_durable() -> Any:
    """Forward records of a chain that a crash would make the node forget."""
    sendable = property(
        lambda self: (
            (self.length if self.life_after and not self.returning else self.sent)
            if self.side_by_side
            else self.durable
        )
    )
    return patch.object(ChainSegment, "sendable", sendable)


def bounds_of_a_tail_that_is_not_informed() -> Any:
    """Make every tail bound the log by its committed position."""
    bound = property(lambda self: self.committed if self.is_tail else self.durable)
    return patch.object(ChainSegment, "bound", bound)


def informed_by_a_node_that_is_not() -> Any:
    """Count a node as informed after any forward."""
    take_news = ChainNode._take_news

    def careless(self: ChainNode, segment: ChainSegment, request: Any) -> bool:
        return take_news(self, segment, replace(request, informed=True))

    return patch.object(ChainNode, "_take_news", careless)


def answers_of_the_tail_before_the_commit() -> Any:
    """Make the tail answer for the records that it has in memory."""
    take_records = ChainNode._take_records

    def hasty(self: ChainNode, segment: ChainSegment, records: Any) -> None:
        take_records(self, segment, records)
        if segment.is_tail:
            for sender, answer in segment.answers_pending():
                self._send(sender, answer)

    return patch.object(ChainNode, "_take_records", hasty)


RULE_BY_HAND = (
    bounds_of_a_tail_that_is_not_informed,
    earlier_lives_not_shut_out,
    forwards_before_the_introduction_is_durable,
    forwards_to_an_earlier_life_taken,
    giving_back_before_one_has_taken_back,
    informed_by_a_node_that_is_not,
    records_given_back_late_taken,
    records_given_to_an_earlier_life_taken,
    taking_back_without_rows,
)
"""Controls rarely noticed under random schedules: see tests/sharedlog/test_chain_rule.py."""

RULE_FIRST_SEEDS: dict[Callable[[], Any], int] = {
    committed_from_lengths_in_memory: 0,
    committed_by_the_disk_of_the_tail: 0,
    committed_by_the_tail_and_the_node_before: 4,
    committed_by_the_memory_of_the_tail: 0,
    committed_by_the_disk_of_the_head: 0,
    seals_answered_from_memory: 29,
    seals_forgotten: 7,
    durable_records_forgotten: 3,
    going_on_without_taking_back: 7,
    the_length_of_the_tail_counted_as_committed: 93,
    answers_of_the_tail_before_the_commit: 4,
}
"""Remaining controls, each with the first seed known to notice the control."""

LOG_RULE_CONTROLS = {
    control.__name__.replace("_", " "): (control, "log") for control in RULE_FIRST_SEEDS
}
