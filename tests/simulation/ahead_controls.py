"""Negative controls of copies ahead (rule R24)."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

from msgspec import structs

from ares.engine.effects import Operation
from ares.model.configuration import Configuration
from ares.model.identity import ConfigurationId, ObjectName, ServerId
from ares.model.messages import Description, ListedObject
from ares.model.tag import Tag
from ares.reconfig import copy_ahead
from ares.reconfig.copy_ahead import AheadCopier, _is_member
from ares.reconfig.mover import Mover
from ares.replica.ahead_copies import AheadCopies
from ares.replica.configuration_state import ConfigurationState
from tests.simulation.patches import together

_Copied = defaultdict[ConfigurationId, dict[ObjectName, Tag]]


def _noting(copied: _Copied) -> Any:
    """Note the versions with copies at a quorum."""
    put = AheadCopier._put

    def noted(self: AheadCopier, object: ObjectName, found: Any) -> Operation[None]:
        yield from put(self, object, found)
        copied[self._target.id][object] = found.tag

    return patch.object(AheadCopier, "_put", noted)


def copied_elements_that_count() -> Any:
    """Take an object for moved if its elements were copied ahead: no server adopts them."""
    copied: _Copied = defaultdict(dict)

    def believe(self: Mover, page: Any, names: list[ObjectName]) -> Operation[set[ObjectName]]:
        return {name for name in names if name in copied[self._target.id]}
        yield

    return together(_noting(copied), patch.object(Mover, "_adopt", believe))


def listings_before_the_decision() -> Any:
    """Adopt the versions that were the newest before the decision, without a listing afterwards."""
    copied: _Copied = defaultdict(dict)
    adopt = Mover._adopt

    def believe(self: Mover, page: Any, names: list[ObjectName]) -> Operation[set[ObjectName]]:
        early = copied[self._target.id]
        objects = {
            name: [ListedObject(name, early[name], False)] if name in early else listed
            for name, listed in page.objects.items()
        }
        return (yield from adopt(self, structs.replace(page, objects=objects), names))

    return together(_noting(copied), patch.object(Mover, "_adopt", believe))


def unchecked(take: Callable[..., Any]) -> Any:
    """Take copies by ``take``, and store them without the checks of a put."""
    put = ConfigurationState.put

    def unchecked(self: ConfigurationState, copy: Any, place: int = 0, checked: bool = True) -> Any:
        return put(self, copy, place, checked=True)

    return together(
        patch.object(AheadCopies, "take", take), patch.object(ConfigurationState, "put", unchecked)
    )


def copies_of_the_loser() -> Any:
    """Keep the copies of a losing proposal, and give these for the copies of the winner."""

    def take_any(self: AheadCopies, id: ConfigurationId, object: ObjectName, tag: Tag) -> Any:
        for other in sorted(self._of, key=lambda other: (other == id, other)):
            held = self._of[other].elements.get(object)
            if held is not None and held[0] == tag:
                return held[1]
        return None

    return together(unchecked(take_any), patch.object(AheadCopies, "keep_only", lambda *_: None))


def copies_under_any_tag() -> Any:
    """Adopt the copy of an object, of any version."""

    def take_any(self: AheadCopies, id: ConfigurationId, object: ObjectName, tag: Tag) -> Any:
        copies = self._of.get(id)
        held = None if copies is None else copies.elements.get(object)
        return None if held is None else held[1]

    return unchecked(take_any)


def copies_for_servers_of_an_earlier_release() -> Any:
    """Take every answering member for a server of a release with copies ahead."""

    def all_members(target: Configuration, answers: Mapping[ServerId, Description]) -> Any:
        members = (server for server in target.servers if server.id in answers)
        return tuple(server.id for server in members if _is_member(server, answers[server.id]))

    return patch.object(copy_ahead, "_takers", all_members)


AHEAD_CONTROLS: dict[str, tuple[Callable[[], Any], str]] = {
    "copied elements that count": (copied_elements_that_count, "ahead"),
    "listings before the decision": (listings_before_the_decision, "ahead"),
    "copies of the loser": (copies_of_the_loser, "ahead"),
    "copies under any tag": (copies_under_any_tag, "ahead"),
    "copies for servers of an earlier release": (copies_for_servers_of_an_earlier_release, "ahead"),
}
