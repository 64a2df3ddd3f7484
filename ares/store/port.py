"""A server's requirements of its journal.

Both implementations, on disk and in memory, pass the same tests
(tests/journal/test_journal_contract.py).
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ares.model.codec import Encoded
from ares.model.errors import AresError
from ares.model.identity import DomainName
from ares.model.log_messages import LogRecord
from ares.model.messages import PutData
from ares.replica.facts import Fact
from ares.replica.facts import Key as Key
from ares.sharedlog.log_facts import BatchPlace, FilledGap, LogFact, LogSnapshot, LostRecords

Stored = Fact | LogFact | LogSnapshot
"""A fact in a journal: a server has a journal for its objects, and another for each log."""


PLACE_NUMBER_BYTES = 9
"""Most bytes of a place's number in a batch."""


class Join(Protocol):
    """The join of encoded batches, by a replica which is restored."""

    def restore_batch(self, body: memoryview, place: int, /) -> bool:
        """Join the facts of a batch at ``place``, or return False without effect."""

    def restore_run(
        self, frames: memoryview, salt: int, sequence: int, place: int, /
    ) -> tuple[int, int]:
        """Join the batches at the begin of ``frames``, up to a batch for :meth:`restore_batch`.

        ``sequence``: number of the first. Returns the bytes and the number of the joined batches.
        """


class Use(enum.IntEnum):
    """The use of room in a journal, which decides the order of refusals as the disk fills up.

    Each use leaves a part of the room to the next.
    """

    DATA = 0  # leaves the whole spare
    POINTERS = 1  # pointers, collections and deletions, which free space later: leave half of it
    COMPACTION = 2  # may take the last of the spare


class ExaminationResult(Struct, frozen=True):
    """The result of an examination. ``whole``: every byte is as written.

    ``damaged``: the damaged elements, as far as their names can be told. ``readable``: None, unless
    the disk failed to read some bytes; in this case the readable large elements. Reading the data
    of further elements in memory might wait for the disk, and fail with the disk.
    """

    whole: bool
    damaged: tuple[Key, ...] = ()
    readable: frozenset[Key] | None = None


class Examination(Protocol):
    """A verification of a place, read from the disk, wherever waiting is allowed.

    The journal may change in any way during the examination.
    """

    def run(self, pace: Callable[[int], None]) -> ExaminationResult:
        """Examine; ``pace(bytes)`` is called before each read of so many bytes.

        An exception of ``pace`` ends the examination. Raises OSError if the examination failed.
        """


class NotRepaired(AresError):
    """A damaged place of a log stays as it is; the text is the reason."""


class LogRepair(Protocol):
    """A repair of a damaged place of a log: :meth:`look`, :meth:`fill`, :meth:`write`, in order.

    Each runs wherever waiting is allowed, and the journal may change in any way meanwhile. Methods
    raise :class:`NotRepaired` and OSError. ``replaced``: the place has its repaired file, which
    :meth:`OrderedJournal.renew` reads. An OSError afterwards is a failed sync of the file's name: a
    crash may bring back the old file.
    """

    replaced: bool

    def look(self, pace: Callable[[int], None]) -> Sequence[LostRecords] | None:
        """Return the records that the damage lost, or None if the place is whole.

        ``pace``: as of :meth:`Examination.run`.
        """

    def fill(self, found: Sequence[Sequence[LogRecord]]) -> Sequence[FilledGap]:
        """Return the batches to be written.

        ``found``: for each result of :meth:`look`, the records whose content is needed.
        """

    def write(self, pace: Callable[[int], None]) -> None:
        """Write the place with the batches into a new file, durably, unless it was given back."""


class Journal(Protocol):
    """The durable facts of a server (ares/replica/facts.py), in places. ``keeps``: facts survive.

    All methods are called on a single thread, the event loop's. First :meth:`recover`, to its end.
    Afterwards facts are appended, each in room reserved for it, and committed. Space is given back
    place by place: copy the surviving facts of a place to the end, commit them, discard the place.

    ``read_bytes`` of ``to_read_bytes``: the progress of :meth:`recover`, for any thread;
    ``to_read_bytes`` is 0 until it is known.
    """

    keeps: bool
    read_bytes: int
    to_read_bytes: int

    def recover(self, join: Join | None = None) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield every committed fact, and perhaps some facts only appended, with their places.

        ``join`` takes some batches, whose facts are not yielded. Parts of large elements may be
        views. Raises :class:`ares.model.errors.StoreDamaged`,
        :class:`ares.model.errors.ForeignStore` or :class:`ares.BadInput`.
        """

    def reserve(self, bytes: int, use: Use) -> int | None:
        """Return the place for facts of so many bytes, appended next; None when the disk is full.

        ``bytes``: see ares/replica/facts.py, fact_bytes_max.
        """

    def append(self, fact: Stored, bytes: int) -> None:
        """Keep ``fact``, of at most ``bytes``, in the room reserved last; it is not durable yet."""

    def at_hand(self, bytes: int) -> int | None:
        """Run :meth:`reserve` for several facts of small data, if the room is present already.

        Returns None without any effect if the room is unknown.
        """

    def extend(self, facts: Encoded, bytes: int) -> None:
        """Run :meth:`append` for several facts without large elements, ``bytes`` in all.

        A put is the fact as sent.
        """

    def commit(self, done: Callable[[OSError | None, Sequence[PutData]], None]) -> None:
        """Make every appended fact durable; several commits end in order.

        ``done(error, moved)`` is not called before this returns. ``moved``: the large elements
        appended, their parts views of the mapped journal, to free the memory of the originals.
        After an error no further fact becomes durable.
        """

    def places(self) -> Mapping[int, int]:
        """Return the bytes of every place which takes no more facts."""

    def read(self, place: int) -> Iterator[Any]:
        """Yield the facts of such a place. Raises :class:`ares.model.errors.StoreDamaged`."""

    def durable(self) -> Mapping[int, int]:
        """Return the durable bytes of every place.

        These are the places of :meth:`places`, and the place of new facts.
        """

    def examination(self, place: int) -> Examination | None:
        """Return an examination of the bytes durable now; None without such a place (any more)."""

    def seal(self, place: int, room: int = 0) -> bool:
        """Close ``place`` to further facts; it is among :meth:`places` after the next commit.

        Returns False when the disk lacks room for another place, with ``room`` bytes of facts. With
        ``room`` the place has more for facts that free space, if the disk has it.
        """

    def discard(self, place: int) -> None:
        """Forget such a place with the next commit; its surviving facts are committed elsewhere.

        All places forgotten with a commit are gone together. Their numbers take room: reserve
        PLACE_NUMBER_BYTES for each before, unless the places are few. Views into the place stay
        valid.
        """

    @property
    def bytes_on_disk(self) -> int:
        """Return the bytes of the journal on the disk."""

    @property
    def free_bytes(self) -> int:
        """Return the room on its file system, shared with other programs; -1: unknown."""

    def close(self) -> None:
        """Close the files after the commits under way, without calling ``done``; idempotent."""


class OrderedJournal(Journal, Protocol):
    """A journal whose facts are read again at their places.

    ``mark``: of the batch encoded last, or given out last by :meth:`recover`.
    """

    mark: BatchPlace

    def scan(self, mark: BatchPlace, encoded: bool = False) -> Iterator[Sequence[Any]]:
        """Yield the facts of each batch from ``mark`` to the end of its place, or to damage.

        The place takes no more facts. ``encoded``: as EncodedFact, with undecoded records.
        """

    def repair(self, place: int, stands: bool) -> LogRepair | None:
        """Return a repair of the place; None without such a place (any more).

        ``stands``: the place begins with a standing.
        """

    @property
    def has_discarded(self) -> bool:
        """Return whether files of discarded places are left for the next commits to remove."""

    def renew(self, place: int) -> None:
        """Read the place in its new file from now on, if it is still here. Raises OSError."""


class SharedLogJournals(Protocol):
    """The journals of a server's logs, a journal for each log."""

    def begin_life(self) -> int:
        """Return the number of this start of the server, durable from now on: 1, 2, 3, ...

        Raises :class:`ares.BadInput`.
        """

    def there(self) -> Iterable[Callable[[], OrderedJournal]]:
        """Return a function for each log that began, which opens its journal for recovery.

        Raises :class:`ares.model.errors.StoreDamaged` if a log is gone, and :class:`ares.BadInput`.
        """

    def open(self, name: DomainName) -> OrderedJournal:
        """Return the journal of a log, made if missing. Raises :class:`ares.BadInput`, OSError."""


class NoJournal:
    """The journal of a server that keeps all data in memory.

    The journal takes no fact, and a restart finds none.
    """

    keeps = False
    read_bytes = to_read_bytes = 0
    bytes_on_disk = 0
    free_bytes = -1

    def recover(self, join: Join | None = None) -> Iterator[tuple[int, Sequence[Any]]]:
        return iter(())

    def reserve(self, bytes: int, use: Use) -> int:
        return 0

    def append(self, fact: Stored, bytes: int) -> None: ...

    def at_hand(self, bytes: int) -> int:
        return 0

    def extend(self, facts: Encoded, bytes: int) -> None: ...

    def commit(self, done: Callable[[OSError | None, Sequence[PutData]], None]) -> None: ...

    def places(self) -> Mapping[int, int]:
        return {}

    def read(self, place: int) -> Iterator[Any]:
        return iter(())

    durable = places

    def examination(self, place: int) -> None: ...

    def seal(self, place: int, room: int = 0) -> bool:
        return False

    def discard(self, place: int) -> None: ...

    def close(self) -> None: ...
