"""Negative controls of watches of objects (rule R26)."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from msgspec import structs

from ares.engine.effects import Operation
from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.model.messages import ChangedObjects, WatchObjects
from ares.registers import object_watch
from ares.registers.object_watch import ObjectWatch, OpenVersion
from ares.replica.configuration_state import ConfigurationState


def notices_at_the_first_report() -> Any:
    """Tell a version at the report of a single server."""
    report = ObjectWatch._report

    def hasty(self: ObjectWatch, configuration: Configuration, *rest: Any) -> None:
        report(self, configuration, *rest)
        for version in list(self._open.values()):
            self._settle(version)

    return patch.object(ObjectWatch, "_report", hasty)


def notices_that_go_back() -> Any:
    """Forget the told versions."""
    settle = ObjectWatch._settle

    def forgetful(self: ObjectWatch, version: OpenVersion) -> None:
        settle(self, version)
        self._told.pop(version.listed.name, None)

    return patch.object(ObjectWatch, "_settle", forgetful)


def gaps_that_are_not_told() -> Any:
    """Let a server without all changes go on with later changes, without a listing."""
    watch_objects = ConfigurationState.watch_objects

    def silent(self: ConfigurationState, request: WatchObjects) -> ChangedObjects:
        reply = watch_objects(self, request)
        if request.after is None and not (
            reply.epoch == request.epoch and reply.position >= request.position
        ):
            return structs.replace(reply, after=None, objects=(), more=False)
        return reply

    return patch.object(ConfigurationState, "watch_objects", silent)


def watches_that_forget_the_next_configuration() -> Any:
    """Stay at the first configuration."""

    def stay(*_: Any) -> Operation[None]:
        return
        yield

    return patch.object(object_watch, "find_next_config", stay)


def watches_that_leave_a_configuration_too_early() -> Any:
    """Watch the last configuration only, before the finalization."""
    take = ObjectWatch.take

    def hasty(
        self: ObjectWatch, configuration: Configuration, answers: Mapping[ServerId, ChangedObjects]
    ) -> None:
        if all(reply.successor is None for reply in answers.values()):
            take(self, configuration, answers)

    return patch.object(ObjectWatch, "take", hasty)


def resumed_watches_that_believe_listings() -> Any:
    """Take every listed version at a quorum for told before the point."""
    end = ObjectWatch._end_resuming

    def trusting(self: ObjectWatch, configuration: Configuration) -> None:
        for version in self._settled.values():
            version.changed = False
        end(self, configuration)

    return patch.object(ObjectWatch, "_end_resuming", trusting)


WATCH_CONTROLS = {
    control.__name__.replace("_", " "): (control, "watch")
    for control in (
        notices_at_the_first_report,
        notices_that_go_back,
        gaps_that_are_not_told,
        watches_that_forget_the_next_configuration,
        watches_that_leave_a_configuration_too_early,
        resumed_watches_that_believe_listings,
    )
}
