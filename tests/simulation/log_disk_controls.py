"""Negative controls of logs on disks.

Each breaks a sentence of docs/log.md, On a disk; the scenario `log` must notice the fault.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest.mock import patch

from ares.server.hosted_log import HostedLog
from ares.sharedlog.node import LogNode
from tests.simulation.patches import together


def standings_before_what_they_tell() -> Any:
    """Write a standing before the facts covered by the standing."""
    append = HostedLog._append

    def early(self: HostedLog, journal: Any, facts: Iterable[Any]) -> bool:
        if self.place and journal.seal(self.place):
            self._put(journal, self.node.state.standing())
            self.standings.append(self.place)
            self.stands = True
        return append(self, journal, facts)

    return patch.object(HostedLog, "_append", early)


def places_discarded_that_are_needed() -> Any:
    """Discard every place before the newest standing."""
    return patch.object(HostedLog, "_first_needed", lambda self: max(self.standings, default=0))


def standings_believed_over_facts() -> Any:
    """Make a start believe each standing, even after reading the facts."""
    return patch.object(HostedLog, "_stand", lambda self, standing: self.node.state.begin(standing))


def records_out_of_memory_before_they_are_durable() -> Any:
    """Drop records from memory that are in the place being filled and cannot be read yet."""
    settle, scan = HostedLog._settle, HostedLog.scan

    def readable(self: HostedLog, mark: Any, encoded: bool) -> Iterator[Any]:
        assert self.journal is not None
        return scan(self, mark, encoded) if mark.place in self.journal.places() else iter(())

    return together(
        patch.object(HostedLog, "_settle", lambda self, place: settle(self, self.place)),
        patch.object(HostedLog, "scan", readable),
    )


def repairs_with_empty_entries() -> Any:
    """Fill damaged places with empty entries, also in the place of records that are needed."""
    return patch.object(LogNode, "needed", lambda self, lost: (lost.upto, lost.upto))


DISK_FIRST_SEEDS: dict[Callable[[], Any], int] = {
    standings_before_what_they_tell: 7,
    places_discarded_that_are_needed: 7,
    standings_believed_over_facts: 64,
    records_out_of_memory_before_they_are_durable: 7,
    repairs_with_empty_entries: 7,
}

LOG_DISK_CONTROLS = {
    control.__name__.replace("_", " "): (control, "log") for control in DISK_FIRST_SEEDS
}
