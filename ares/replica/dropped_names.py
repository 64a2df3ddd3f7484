"""The records of dropped names in a server's journal, and the time of their need (rule R25).

A server leaves no tombstone of a dropped name, but the journal has the name's earlier records until
their places are given back: a start would find the name in these places. The record of the drop is
needed until the last of these places is given back, and goes like any record afterwards. Memory is
needed for each pair of places, whatever the number of names.
"""

from ares.replica.facts import ConfigurationUsage, NamesDropped, dropped_bytes


class DropRecords:
    """The records of names dropped from a configuration; ``share``: its part of the account."""

    def __init__(self, share: ConfigurationUsage) -> None:
        self._share = share
        self._awaited: dict[int, dict[int, int]] = {}
        """For each place with records of dropped names: the places of the drops' records.

        Each with the bytes of the records which are needed as long as the first place exists.
        """

    def add(self, fact: NamesDropped, place: int) -> None:
        """Count the record ``fact`` at ``place``; the names' records at ``place`` go with it.

        The bytes are counted for the newest of the places, which mostly stays longest.
        """
        others = [other for other in fact.places if other != place]
        for other in others:
            self._awaited.setdefault(other, {}).setdefault(place, 0)
        if others:
            size = dropped_bytes(fact.names)
            self._awaited[max(others)][place] += size
            self._share.add(place, size)

    def surviving(self, fact: NamesDropped, place: int) -> NamesDropped | None:
        """Return the part to keep of the record at ``place`` when this place goes."""
        left = tuple(other for other in fact.places if other != place and other in self._awaited)
        return NamesDropped(fact.configuration, fact.names, left) if left else None

    def give_back(self, place: int) -> None:
        """Note the end of ``place``."""
        for other, size in self._awaited.pop(place, {}).items():
            self._end(other, size)
        for sizes in self._awaited.values():
            self._end(place, sizes.pop(place, 0))

    def keep_only(self, places: set[int]) -> None:
        """Note the end of all places except ``places``."""
        for place in self._awaited.keys() - places:
            self.give_back(place)

    def clear(self) -> None:
        """Forget all records of a collected configuration, whose share is cleared, too."""
        self._awaited.clear()

    def _end(self, place: int, size: int) -> None:
        if size:
            self._share.add(place, -size)
