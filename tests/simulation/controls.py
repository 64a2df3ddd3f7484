"""Negative controls: deliberately broken variants of the protocol.

The simulator must catch each variant, which gives a meaning to a run without findings.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any
from unittest.mock import patch

import msgspec

from ares.dap.primitives import DataResult
from ares.engine.effects import Operation
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import Superseded
from ares.model.identity import CallId
from ares.model.messages import Ack, Decided, GetData, ListObjects, PullElement
from ares.model.tag import TAG_ZERO, TagSource
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import (
    Mover,
    ReconfigurationResult,
    add_config,
    announce_successor,
    gc_config,
    next_to,
)
from ares.reconfig.traversal import read_config
from ares.reconfig.view import View
from ares.registers import operations, survey
from ares.replica import replica
from ares.server.element_puller import ElementPuller
from ares.testing.published.ares2 import Ares2Switches
from ares.testing.published.ares_2022 import AresClient
from ares.testing.sim import published_client
from ares.testing.sim.plan import ARES_2, ARES_2022
from ares.testing.sim.run import drawn, run_plan
from ares.testing.sim.simulated_server import LateServer
from ares.testing.sim.world import SimConsensus
from tests.simulation.ahead_controls import AHEAD_CONTROLS
from tests.simulation.coverable_controls import (
    held_versions_that_hide_newer_ones,
    put_data_skipped_for_what_was_only_seen,
    versions_that_are_not_checked,
)
from tests.simulation.file_controls import FILE_CONTROLS
from tests.simulation.journal_controls import JOURNAL_CONTROLS
from tests.simulation.log_controls import LOG_CONTROLS
from tests.simulation.log_disk_controls import LOG_DISK_CONTROLS
from tests.simulation.log_rule_controls import LOG_RULE_CONTROLS
from tests.simulation.name_controls import NAME_CONTROLS
from tests.simulation.patches import together
from tests.simulation.watch_controls import WATCH_CONTROLS


def without_r1() -> Any:
    """Make servers ignore the successor in a mover's request, as in the published piggyback."""
    handle = replica.Replica.handle

    def published(self: Any, request: Any) -> Any:
        if isinstance(request, GetData | ListObjects):
            request = msgspec.structs.replace(request, successor=None)
        return handle(self, request)

    return patch.object(replica.Replica, "handle", published)


def without_r2() -> Any:
    """Make the consensus service decide twice for an index, and servers accept both."""

    def advance(own: Configuration, current: Successor | None, incoming: Successor) -> Successor:
        return incoming

    return together(
        consensus_that_decides_twice(), patch("ares.replica.configuration_state.advance", advance)
    )


def consensus_that_decides_twice() -> Any:
    """Make every proposal win."""

    def propose(
        self: SimConsensus, configuration: Configuration, proposer: Any, answer: Any, refuse: Any
    ) -> None:
        self._world.after(self._wait(), answer, Decided(CallId(0), configuration, proposer))

    return patch.object(SimConsensus, "propose", propose)


def without_r3() -> Any:
    """Follow a successor seen at a single server without telling a quorum."""

    def put_config(configuration: Configuration, successor: Successor) -> Operation[None]:
        return
        yield

    return patch("ares.reconfig.traversal.put_config", put_config)


def _quorums_of(size: Callable[[Configuration], int]) -> Any:
    broken = cached_property(size)
    broken.__set_name__(Configuration, "quorum_size")
    return patch.object(Configuration, "quorum_size", broken)


def quorums_of_half() -> Any:
    """Take floor(n/2) servers for a quorum."""
    return _quorums_of(lambda configuration: max(configuration.n // 2, 1))


def ec_quorums_of_k() -> Any:
    """Take k servers for a quorum of an erasure-coded configuration."""
    return _quorums_of(
        lambda configuration: (
            configuration.k if configuration.dap == "ec" else configuration.n // 2 + 1
        )
    )


def restart_that_forgets() -> Any:
    """Make a restarted server answer as the old member without its state."""
    restart = LateServer.restart

    def forgetful(self: LateServer) -> None:
        if not self.up:
            self._synced = 0
        restart(self)

    return patch.object(LateServer, "restart", forgetful)


def gc_before_finalize() -> Any:
    """Collect retired configurations before their objects have moved."""

    def reconfigure(
        view: View, wished: Configuration, _: MoveOptions
    ) -> Operation[ReconfigurationResult]:
        yield from read_config(view)
        decided = yield from add_config(next_to(view.sequence.last_known, wished))
        target = decided.configuration
        yield from announce_successor(view, target)
        mover = Mover(view, target)
        view.sequence.adopt(Successor(target, Status.FINALIZED))
        yield from gc_config(view)
        yield from mover.update_config()
        return ReconfigurationResult(target, True, 0, 0, 0, [])

    return patch("ares.testing.sim.simulated_client.reconfigure", reconfigure)


def fast_read_past_a_successor() -> Any:
    """Return a version confirmed by a quorum at once although the quorum names a successor."""

    def read(view: View, object: Any) -> Operation[DataResult]:
        configuration = view.sequence.last_finalized
        found = yield from view.dap(configuration).get_data(object)
        if found.confirmed and isinstance(found.value, bytes):
            return found
        found = yield from operations.read(view, object)
        return found

    return patch("ares.testing.sim.simulated_client.read", read)


def early_answers_that_count() -> Any:
    """Ask all configurations at the same time, and accept too early answers.

    Such an answer is from a later configuration, before the data came to it.
    """
    return patch.object(operations, "withheld", lambda answer: False)


def newest_source_first() -> Any:
    """Make a mover ask its sources from the newest to the oldest."""

    def ask_newest_first(self: Mover, ask: Any) -> Operation[DataResult]:
        answers = []
        for source, carry in reversed(self._sources):
            found = yield from ask(self._view.dap(source), carry)
            self._notice(found.successor)
            answers.append(found)
        return max(answers, key=lambda found: found.tag)

    return patch.object(Mover, "_ask_sources", ask_newest_first)


def listings_that_believe_any_quorum() -> Any:
    """Make a listing accept the first quorum's agreement, though it knows a successor."""
    list_mentioned = survey.list_mentioned

    def believe(view: View, after: str, prefix: str) -> Operation[survey.NamesPage]:
        try:
            page = yield from survey.list_page(view.sequence.last_finalized, after, prefix)
        except Superseded:
            names = yield from list_mentioned(view, after, prefix)
            return names
        names = yield from list_mentioned(view, after, prefix)
        for name, listed in page.objects.items():
            if (
                name in names.newest
                and names.newest[name] is None
                and len(listed) == page.answered
                and len(set(listed)) == 1
            ):
                names.newest[name] = listed[0]
        return names

    return patch("ares.testing.sim.simulated_client.list_mentioned", believe)


def numbers_forgotten_by_the_first_to_end() -> Any:
    """Forget the numbers of two operations of a client on an object when the first ends."""

    def end(self: TagSource, object: Any, taken: Any) -> None:
        self._taken.pop(object, None)

    return patch.object(TagSource, "end", end)


@contextlib.contextmanager
def lists_of_one() -> Iterator[None]:
    """Make EC servers keep a single version instead of delta + 1."""
    with (
        patch("ares.replica.configuration_state.capacity", lambda configuration: 1),
        patch("ares.replica.replica.capacity", lambda configuration: 1),
    ):
        yield


def lists_that_forget_what_they_trimmed() -> Any:
    """Return the highest tag of k Lists, as in the published EC-DAP.

    The reader ignores that other servers may have dropped tags.
    """

    def highest_of_k(lists: Any, k: int) -> Any:
        counts: dict[Any, int] = {}
        for reply in lists:
            for tag in reply.tags:
                counts[tag] = counts.get(tag, 0) + 1
        return max((tag for tag, count in counts.items() if count >= k), default=TAG_ZERO)

    return patch("ares.dap.reading.newest_decodable", highest_of_k)


def servers_that_acknowledge_what_was_not_brought_yet() -> Any:
    def at_once(self: ElementPuller, sender: Any, request: PullElement) -> Any:
        return bring(self, sender, request) or Ack(request.call, None)

    bring = ElementPuller.answer
    return together(
        patch.object(ElementPuller, "answer", at_once),
        patch.object(ElementPuller, "begin", lambda self: None),
    )


def configurations_named_before_they_are_final() -> Any:
    """Make servers name any known configuration to clients that look for the domain (no R21)."""
    introduce = replica.Replica.introduce

    def named(self: Any, configuration: Configuration) -> Any:
        refused = introduce(self, configuration)
        if refused is None:
            self._note_final(configuration)
        return refused

    return patch.object(replica.Replica, "introduce", named)


def ares_2_as_printed() -> Any:
    """Run ARES II without rule R1."""
    return patch.object(published_client, "switches_as_published", lambda *_: Ares2Switches())


def collections_beside_readers_without_piggyback() -> Any:
    """Let clients of ARES II collect while others read as in ARES of 2022."""
    return patch.object(
        published_client,
        "switches_as_published",
        lambda seed, switches: Ares2Switches(switches.piggyback, switches.gc, r1=True),
    )


def lists_of_ares_2_for_readers_of_ares_2022() -> Any:
    """Let servers withhold elements from readers that do not go on to the successor."""
    return patch.object(AresClient, "piggyback", True)


def line_2_3_as_printed() -> Any:
    """Take the last entry of cseq for the configuration whose servers named nextC."""
    return patch.object(AresClient, "printed_line_3", True)


CONTROLS: dict[str, tuple[Callable[[], Any], str]] = {
    "published piggyback (no R1)": (without_r1, "duel"),
    "second successor accepted (no R2)": (without_r2, "reconfigure"),
    "no put-config before moving on (no R3)": (without_r3, "deaths"),
    "quorums of half": (quorums_of_half, "general"),
    "EC quorums of k": (ec_quorums_of_k, "wide"),
    "restart that forgets": (restart_that_forgets, "crash"),
    "GC before finalize": (gc_before_finalize, "reconfigure"),
    "fast read past a successor": (fast_read_past_a_successor, "deaths"),
    "early answers that count": (early_answers_that_count, "moving"),
    "a mover that asks the newest source first": (newest_source_first, "moving"),
    "listings that believe any quorum": (listings_that_believe_any_quorum, "listing"),
    "Lists of one": (lists_of_one, "graves"),
    "Lists that forget what they trimmed": (lists_that_forget_what_they_trimmed, "overload"),
    "versions that are not checked": (versions_that_are_not_checked, "coverable"),
    "held versions that hide newer ones": (held_versions_that_hide_newer_ones, "coverable"),
    "put-data skipped for what was only seen": (
        put_data_skipped_for_what_was_only_seen,
        "coverable",
    ),
    "servers that acknowledge what was not brought yet": (
        servers_that_acknowledge_what_was_not_brought_yet,
        "transfer",
    ),
    "configurations named before they are final": (
        configurations_named_before_they_are_final,
        "sites",
    ),
    "ARES II as printed": (ares_2_as_printed, "ares-2-duel"),
    "collections beside readers without piggyback": (
        collections_beside_readers_without_piggyback,
        ARES_2,
    ),
    "Lists of ARES II for readers of ARES of 2022": (
        lists_of_ares_2_for_readers_of_ares_2022,
        ARES_2022,
    ),
    "line 2:3 as printed": (line_2_3_as_printed, ARES_2022),
    **AHEAD_CONTROLS,
    **FILE_CONTROLS,
    **JOURNAL_CONTROLS,
    **LOG_CONTROLS,
    **LOG_DISK_CONTROLS,
    **LOG_RULE_CONTROLS,
    **NAME_CONTROLS,
    **WATCH_CONTROLS,
}
"""Controls by name: the change, and the scenario that shows it best."""


def hunt(name: str, first: int, runs: int) -> Iterator[tuple[int, str]]:
    """Yield the seeds that catch a control, with the findings."""
    broken, scenario = CONTROLS[name]
    with broken():
        for seed in range(first, first + runs):
            violation = run_plan(drawn(seed, scenario)).violation
            if violation is not None:
                yield seed, violation
