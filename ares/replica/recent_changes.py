"""The recent changes of a server, for watches (rule R26): a bounded list in memory.

The list begins with the first request of any watch, and costs nothing before. The list ends when
more changes came without a request than the list holds: no watch can need the changes any more. The
list also ends after it kept a server without a journal from the compiled core for many turns. The
epoch of a list is different from the epochs of all lists of all server processes: a watch with
another epoch, or with a position before the list, has missed changes, and reads the listing again.
"""

from collections.abc import Callable

from ares.model.identity import ConfigurationId
from ares.model.messages import DELETED_LENGTH, PAGE_OBJECTS_MAX, ListedObject, PutData

CHANGES_KEPT = 32_768
"""Changes in the list."""

TURNS_UNASKED_MAX = 1_000_000
"""Turns without the compiled core, after the last request, on a server without a journal."""

CHANGE_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters of the names in the list."""


class RecentChanges:
    """The last changes of all configurations of a server.

    ``new_epoch`` returns a new number at each call, in all processes. ``kept``: most changes in the
    list. ``recording``: the list exists, and every change is to be noted.
    ``newest``: the position of the newest change; the first change has position 1.
    """

    def __init__(self, new_epoch: Callable[[], int], kept: int = CHANGES_KEPT) -> None:
        self.recording = False
        self.epoch = 0
        self.newest = 0
        self._new_epoch = new_epoch
        self._kept = kept
        self._changes: dict[int, tuple[ConfigurationId, ListedObject]] = {}
        self._characters = 0
        self._unasked = 0
        """Changes since the last request."""
        self._turns = 0
        """Turns without the core since the last request."""

    def ask(self) -> None:
        """Note a request of a watch: begin the list, or keep it for longer."""
        self._unasked = self._turns = 0
        if not self.recording:
            self.recording = True
            self.epoch, self.newest = self._new_epoch(), 0

    def note(self, put: PutData) -> None:
        """Append a version stored just now, and drop the oldest changes beyond the bounds."""
        if not self.recording:
            return
        if self._unasked == self._kept:
            self._end()
            return
        self._unasked += 1
        self.newest += 1
        version = ListedObject(put.object, put.tag, put.element.length == DELETED_LENGTH)
        self._changes[self.newest] = (put.configuration, version)
        self._characters += len(version.name)
        while len(self._changes) > self._kept or self._characters > CHANGE_CHARACTERS_MAX:
            _, dropped = self._changes.pop(self.newest + 1 - len(self._changes))
            self._characters -= len(dropped.name)

    def keeps_from_core(self) -> bool:
        """Return whether a turn has to pass by the core, and count the turn.

        Without the count, one request would slow the reads of a server without writes for ever.
        """
        if self.recording:
            self._turns += 1
            if self._turns > TURNS_UNASKED_MAX:
                self._end()
        return self.recording

    def _end(self) -> None:
        self.recording = False
        self._changes.clear()
        self._characters = 0

    def covers(self, epoch: int, position: int) -> bool:
        """Return whether every change after ``position`` of the list ``epoch`` is here."""
        oldest = self.newest + 1 - len(self._changes)
        return self.recording and epoch == self.epoch and oldest - 1 <= position <= self.newest

    def since(
        self, position: int, configuration: ConfigurationId, prefix: str
    ) -> tuple[int, tuple[ListedObject, ...]]:
        """Look at the next PAGE_OBJECTS_MAX changes after ``position``, all of which are here.

        Returns the position of the last change, and the versions of ``configuration`` with names
        that begin with ``prefix``.
        """
        last = min(position + PAGE_OBJECTS_MAX, self.newest)
        looked_at = [self._changes[at] for at in range(position + 1, last + 1)]
        return last, tuple(
            version
            for changed_in, version in looked_at
            if changed_in == configuration and version.name.startswith(prefix)
        )
