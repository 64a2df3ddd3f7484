"""Where the facts of a replica are in its journal, so that what is no longer needed can be given back.

A *place* is a number that the journal chose (its segment). The account counts the bytes at each place that are still needed: about, which is all that
choosing what to compact takes; what is really needed is asked of the versions themselves (ares/dap/list.py), each of which knows its place.

An element that rotted is *hollow* (ares/model/element.py): its tag stays in the List, where it counts, its data is missing. It is quarantined until
somebody puts the same version again.
"""

from ares.dap.list import Versions
from ares.model.identity import CallId, ConfigurationId, ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.facts import trimmed_bytes

NO_CALL = CallId(0)
"""Of a put that nobody asked for: a fact that is journaled again."""

Key = tuple[ConfigurationId, ObjectName, Tag]
"""Names a version's element at this server."""


class Account:
    """``live``: bytes of the journal still needed, about, by place; ``died``: bytes no longer needed, ever counted up.

    ``hollows``: every element that is held hollow, and some that were; ``repaired``: how many were put again. ``suspects``: places whose elements
    were found damaged by looking at them; ``verified_bytes``: what was looked at for it.
    """

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.died = 0
        self.hollows: dict[Key, None] = {}
        self.repaired = 0
        self.suspects: dict[int, None] = {}
        self.verified_bytes = 0


class Share:
    """One configuration's part of the account: collecting it costs a step for each place and not for each object."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._live: dict[int, int] = {}

    def add(self, place: int, bytes: int) -> None:
        """More at a place; less when ``bytes`` is negative."""
        self._live[place] = self._live.get(place, 0) + bytes
        live = self.account.live
        live[place] = live.get(place, 0) + bytes
        if bytes < 0:
            self.account.died -= bytes

    def exchange(self, old_place: int, old_bytes: int, place: int, bytes: int) -> None:
        """What took ``old_bytes`` at ``old_place`` is no longer needed, and something at ``place`` is: mostly the same one."""
        if place != old_place:
            self.add(place, bytes)
            self.add(old_place, -old_bytes)
            return
        if bytes != old_bytes:
            self._live[place] += bytes - old_bytes
            self.account.live[place] += bytes - old_bytes
        self.account.died += old_bytes

    def clear(self) -> None:
        for place, bytes in self._live.items():
            self.account.live[place] -= bytes
            self.account.died += bytes
        self._live.clear()

    def tell_trimmed(self, object: ObjectName, versions: Versions, place: int, before: Tag) -> None:
        """The journal tells at ``place`` what ``versions`` of ``object`` dropped; until now it told ``before``."""
        bytes = trimmed_bytes(object)
        if before != TAG_ZERO:
            self.exchange(versions.trimmed_place, bytes, place, bytes)
        else:
            self.add(place, bytes)
        versions.trimmed_place = place
