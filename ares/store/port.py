"""What a server needs of its journal. Both implementations, on disk and in memory, pass the same tests (tests/journal/test_contract.py)."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ares.chain.facts_of_log import BatchPlace, LogFact, LogStanding
from ares.model.codec import Encoded
from ares.model.identity import DomainName
from ares.model.messages import PutData
from ares.replica.facts import Fact
from ares.replica.facts import Key as Key

Stored = Fact | LogFact | LogStanding
"""What a journal keeps: a server has one for its objects, and one for each log."""


class Use(enum.IntEnum):
    """What room in a journal is asked for: how much must be left for others decides who is refused first when the disk fills up."""

    DATA = 0  # leaves the whole spare
    POINTERS = 1  # pointers, collections and deletions, by which space is freed in the end: leave half of it
    COMPACTION = 2  # may take the last of it


class Verdict(Struct, frozen=True):
    """What an examination found. ``whole``: all is there, as it was written.

    ``damaged``: the elements that are not, as far as it can be told whose they were. ``readable``: None, unless the disk failed to read something;
    then the large elements that it can read. To look at the data of others in memory might be to wait for the disk, and to fail with it.
    """

    whole: bool
    damaged: tuple[Key, ...] = ()
    readable: frozenset[Key] | None = None


class Examination(Protocol):
    """Reads a place from the disk and verifies it all, wherever waiting is allowed; whatever happens to the journal meanwhile."""

    def run(self, pace: Callable[[int], None]) -> Verdict:
        """``pace(bytes)`` is called before so many bytes are read; what it raises ends this. Raises OSError if it could not be done."""


class Journal(Protocol):
    """What a server must not forget: facts (ares/replica/facts.py), in places. All is called on one thread, the event loop's. ``keeps``: anything.

    First :meth:`recover`, to its end. Then facts are appended, each in room that was reserved for it, and committed. Space is given back place by
    place: copy what survives of a place's facts to the end, commit that, discard the place.
    """

    keeps: bool

    def recover(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Every fact that was committed, and perhaps some that were only appended, with its place; parts of large elements may be views.

        Raises :class:`ares.model.errors.StoreDamaged`, :class:`ares.model.errors.ForeignStore` or :class:`ares.BadInput`.
        """

    def reserve(self, bytes: int, use: Use) -> int | None:
        """The place for facts of so many bytes (ares/replica/facts.py, fact_bytes_max), to be appended now; None when the disk is full."""

    def append(self, fact: Stored, bytes: int) -> None:
        """Keep ``fact``, which takes so many bytes at most, where the last reserved room is; it is not durable yet."""

    def at_hand(self, bytes: int) -> int | None:
        """:meth:`reserve` for several facts of small data, if the room is there already; None: nothing is known, and nothing was done."""

    def extend(self, facts: Encoded, bytes: int) -> None:
        """:meth:`append`, of several without large elements, which take so many bytes together; a put as it was sent, for that is the fact."""

    def commit(self, done: Callable[[OSError | None, Sequence[PutData]], None]) -> None:
        """Make everything appended so far durable; several commits end in order. ``done(error, moved)`` is not called before this returns.

        ``moved``: the large elements appended, their parts views of the mapped journal, so that memory need not hold them too. After an error nothing
        more becomes durable.
        """

    def places(self) -> Mapping[int, int]:
        """Bytes of every place that no fact is appended to any more."""

    def read(self, place: int) -> Iterator[Any]:
        """The facts of such a place. Raises :class:`ares.model.errors.StoreDamaged`."""

    def durable(self) -> Mapping[int, int]:
        """Bytes of every place that are durable: those of :meth:`places`, and of one that facts are appended to."""

    def examination(self, place: int) -> Examination | None:
        """Of what is durable there now; None if there is no such place (any more)."""

    def seal(self, place: int) -> bool:
        """No fact is appended to ``place`` any more: it is among :meth:`places` after the next commit. False when there is no room for another."""

    def discard(self, place: int) -> None:
        """What survives of such a place was committed elsewhere: forget it with the next commit. Views into it stay valid."""

    @property
    def bytes_on_disk(self) -> int:
        """What it takes."""

    @property
    def free_bytes(self) -> int:
        """Room on its file system, for others, too; -1: not known."""

    def close(self) -> None:
        """Let go of files; commits under way are finished first, and not told; idempotent."""


class OrderedJournal(Journal, Protocol):
    """A journal whose facts are read again where they are. ``mark``: of the batch that was encoded last, or that :meth:`recover` gave out last."""

    mark: BatchPlace

    def scan(self, mark: BatchPlace) -> Iterator[Sequence[Any]]:
        """The facts of each batch from ``mark`` on to the end of its place, to which none is appended any more. Ends where one is damaged."""


class LogJournals(Protocol):
    """Where a server keeps its logs, each in a journal of its own."""

    def there(self) -> Iterable[Callable[[], OrderedJournal]]:
        """Return a function for each log that began, which opens its journal; recover it then.

        Raises :class:`ares.model.errors.StoreDamaged` if a log is gone, and :class:`ares.BadInput`.
        """

    def open(self, name: DomainName) -> OrderedJournal:
        """Return the journal of a log, made if it is not there. Raises :class:`ares.BadInput`, OSError."""


class NoJournal:
    """The journal of a server that keeps everything in memory: nothing is appended to it, and a restart finds nothing."""

    keeps = False
    bytes_on_disk = 0
    free_bytes = -1

    def recover(self) -> Iterator[tuple[int, Sequence[Any]]]:
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

    def seal(self, place: int) -> bool:
        return False

    def discard(self, place: int) -> None: ...

    def close(self) -> None: ...
