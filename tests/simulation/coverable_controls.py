"""Negative controls for coverable objects (CoARES).

These are broken variants of ares/registers/coverable.py and of the optimised DAPs.
"""

from typing import Any
from unittest.mock import patch

from ares.dap.cache import ClientCache
from ares.dap.primitives import DataAccess, DataResult
from ares.dap.reading import DataReplies, Reading
from ares.engine.effects import Operation
from ares.model.identity import ConfigurationId
from ares.reconfig.view import View
from ares.registers.coverable import CoverableResult
from ares.registers.operations import newest, query, write_above


def versions_that_are_not_checked() -> Any:
    """Let a versioned write take place over any latest version."""
    return patch("ares.registers.coverable.cvr_write", unchecked_write)


def unchecked_write(
    view: View, object: Any, value: Any, version: Any
) -> Operation[CoverableResult]:
    """Write a coverable object over any version."""
    taken = view.tags.begin(object)
    try:
        answers = yield from query(view, DataAccess.get_data, object)
        latest = newest(answers).tag
        tag, _ = yield from write_above(view, object, value, latest.number, taken)
    finally:
        view.tags.end(object, taken)
    return CoverableResult(True, tag, value, latest)


def held_versions_that_hide_newer_ones() -> Any:
    """Take a held version for the latest as soon as a server lists it.

    The reader ignores newer versions at other servers.
    """
    judge = Reading.settled

    def settled(self: Reading, answers: DataReplies) -> bool:
        done = judge(self, answers)
        listing = next((reply for reply in answers.values() if self.held in reply.tags), None)
        if listing is None or self.withheld:
            return done
        self.tag, self.length = self.held, listing.length
        return True

    return patch.object(Reading, "settled", settled)


def put_data_skipped_for_what_was_only_seen() -> Any:
    """Skip the write-back of a versioned read.

    The reader acts as if each version found were known to be at a quorum.
    """

    def settle_read(
        view: View, object: Any, answers: list[DataResult]
    ) -> Operation[tuple[DataResult, ConfigurationId]]:
        return newest(answers), answers[-1].configuration
        yield

    return patch("ares.registers.coverable.settle_read", settle_read)


def puts_remembered_for_every_configuration() -> Any:
    """Take a version at a quorum of a configuration for a version at a quorum of every other.

    This is *not* a broken variant. A read skips put-data in this case, too, and no harm is done:
    the version was completed, and every later operation finds this or a newer version, in any later
    configuration. Only the published rule is stricter.
    """

    def at_quorum(self: ClientCache, object: Any, configuration: ConfigurationId, tag: Any) -> bool:
        known = self._settled.get(object)
        return known is not None and known[1] == tag

    return patch.object(ClientCache, "at_quorum", at_quorum)
