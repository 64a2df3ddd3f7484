"""Errors about objects that cannot be read, written or moved as they are: no version of them can be decoded, or none can follow."""

from collections.abc import Mapping

from ares.model.errors import AresError, DecodeFailed, Uncertain
from ares.model.identity import ObjectName, shown
from ares.model.tag import Tag

NAMED_MAX = 5
"""How many objects an error names."""


class Undecodable(DecodeFailed):
    """So it is whenever one looks, as long as nobody writes the object.

    ``newest``: nothing that was completed has a higher tag. ``proven``: the servers that answered show that it stays so, whatever the silent ones
    hold.
    """

    def __init__(self, object: str, why: str, newest: Tag, proven: bool) -> None:
        super().__init__(object, why)
        self.newest = newest
        self.proven = proven


class LeftBehind(DecodeFailed):
    """The object could not be decoded when its domain was moved, and was left behind because somebody asked for that. ``tag``: of the mark."""

    def __init__(self, object: str, tag: Tag) -> None:
        super().__init__(object, f"it was left behind at {tag}")
        self.tag = tag

    def __str__(self) -> str:
        return (
            f"{shown(self.object)} could not be decoded when its domain was moved, and was left behind, since --skip-undecodable was given. "
            f"Its value is gone; writing or deleting it replaces what is left (version {self.tag})"
        )


class ObjectsStuck(Uncertain):
    """A move ended without these objects, so it is not final. ``objects``: why each of them cannot be moved, naming servers."""

    def __init__(self, domain: str, objects: Mapping[ObjectName, str]) -> None:
        super().__init__(domain, dict(objects))
        self.domain = domain
        self.objects = dict(objects)

    def __str__(self) -> str:
        named = [f"{shown(object)}: {why}" for object, why in list(self.objects.items())[:NAMED_MAX]]
        more = [f"and {len(self.objects) - len(named)} more"] if len(self.objects) > len(named) else []
        return (
            f"{len(self.objects)} objects of domain {self.domain!r} cannot be moved, and everything else was; nothing was lost. "
            f"{'; '.join(named + more)}. Write or delete them and reconfigure again, or reconfigure with --skip-undecodable, which leaves them "
            f"behind{self.outcome()}"
        )


class NoTagLeft(AresError):
    """A server answered with a tag that nothing can be above."""

    def __init__(self, object: str, number: int) -> None:
        super().__init__(object, number)
        self.object = object
        self.number = number

    def __str__(self) -> str:
        return (
            f"a server holds {shown(self.object)} under a tag with the number {self.number}, and none can be above it. No client gets there by "
            "writing: that server, or its store, is not what it should be. Nothing was sent and nothing was lost; reconfigure without it"
        )
