"""Mirrors: copies of a domain's objects at another site, for reads that accept stale data.

See rule R22. A mirror is a domain of its own. A copy has the tag of its original, as with a move.
Copiers therefore need no agreement: a copy gives way to newer copies only, by any copier, however
late, and a deletion is a tombstone under its tag. Tombstones are copied even of objects which the
mirror never had: the copy of an older version may still be on its way.

A *pass* looks at every object of the domain and copies the objects missing in the mirror. After a
complete copy, the pass leaves a record of its beginning. A reader that reads this record first, and
an object of the mirror after the record, finds the version which was the latest when the pass
began, or a later version.

A removed mirror is marked as removed, and afterwards emptied by deletions, whose tombstones hide
copies. The mark stays, and a mirror made later for the same domain and site is another domain: each
mirror has the number of its *life* in its name. A reader looks for the mark after the value: if the
mark is absent, no object had been deleted.

Only keys of users are copied. The blocks of a file have a meaning only together, and a mirror keeps
no order between objects.
"""

from collections.abc import Set

import msgspec
from msgspec import Struct

from ares.dap.primitives import DataResult
from ares.dap.reading import BRIEF
from ares.engine.effects import Now, Operation, Pause, Together
from ares.model.errors import AresError, DecodeFailed, ObjectNotFound, Unavailable, Undecodable
from ares.model.identity import MIRROR_DOMAINS, RESERVED, DomainName, ObjectName
from ares.model.messages import ListedObject
from ares.model.numbers import Seconds
from ares.model.value import WITHHELD
from ares.reconfig.throttle import Throttle
from ares.reconfig.view import View
from ares.registers.operations import (
    at_quorum,
    delete,
    newest,
    propagate,
    query,
    settle_read,
    write,
)
from ares.registers.survey import list_mentioned, list_objects

AS_OF = ObjectName(RESERVED + "mirror/as-of")
"""The object of a mirror with the time at which the last complete pass began."""

REMOVED = ObjectName(RESERVED + "mirror/removed")
"""The object that marks a removed mirror."""

BEFORE_KEYS = RESERVED + "\U0010ffff"
"""A name after the project's own names and before the keys of users."""

LARGE_COPY_BYTES = 1024 * 1024
"""Size above which values are copied one after the other."""

COPIES_AT_ONCE = 16
FAILED_COPIES_MAX = 64
"""Failed copies at which a pass ends: the cause is no longer the objects."""


class MirrorName(Struct, frozen=True):
    """The parts of the name of a mirror's domain.

    ``domain`` is the original, ``site`` the mirror's site, ``life`` the number of this mirror among
    the mirrors made for both (from 1).
    """

    domain: str
    site: str
    life: int

    @property
    def name(self) -> DomainName:
        return DomainName(f"{MIRROR_DOMAINS}{self.site}/{self.life}/{self.domain}")


def parse_mirror(name: str) -> MirrorName | None:
    """Return the parts of the name of a mirror's domain, or None for any other name."""
    start, *parts = name.split("/", 3)
    if (
        start + "/" != MIRROR_DOMAINS
        or len(parts) != 3
        or not all(parts)
        or not (parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < 10)
    ):
        return None
    found = MirrorName(parts[2], parts[0], int(parts[1]))
    return found if found.name == name else None


class _Record(Struct, frozen=True):
    """The content of AS_OF; ``began_s``: seconds since 1970, by the copier's clock."""

    began_s: Seconds


class UnreadableRecord(AresError):
    """The record of a mirror's age is not readable."""


def encode_as_of(began_s: float) -> bytes:
    return msgspec.msgpack.encode(_Record(began_s))


def decode_as_of(value: bytes) -> float:
    """Return the start of the last complete pass, in seconds since 1970.

    Raises :class:`UnreadableRecord`.
    """
    try:
        began_s = msgspec.msgpack.decode(value, type=_Record).began_s
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(
            f"the record of a mirror's last pass cannot be read: {error}; nothing was lost, the "
            "next pass replaces it"
        ) from error
    return began_s


class CopyReport(Struct):
    """The work of a pass; the mirror is complete if no copy failed.

    ``failed``: number of objects that could not be copied; ``why``: the reason for the last of
    them.
    """

    objects: int = 0
    bytes: int = 0
    failed: int = 0
    why: str = ""


class MirrorPass:
    """A pass over the domain of the view ``source`` into ``mirror``, limited by ``throttle``."""

    def __init__(self, source: View, mirror: View, throttle: Throttle) -> None:
        self._source = source
        self._mirror = mirror
        self._throttle = throttle
        self._large: list[ObjectName] = []
        self._copied = CopyReport()

    def run(self, began_s: float) -> Operation[CopyReport]:
        """Copy the changed objects.

        ``began_s``: a time not later than now, in seconds since 1970; the mirror's record after a
        complete pass. An object that cannot be copied, because it cannot be decoded or servers
        refuse the copy, does not stop the pass. Raises :class:`ares.Unavailable`.
        """
        after: str | None = BEFORE_KEYS
        while after is not None:
            page = yield from list_mentioned(self._source, after, "")
            originals = {
                name: listed
                for name, listed in page.newest.items()
                if not name.startswith(RESERVED)
            }
            held = yield from self._held(after, page.after, originals.keys())
            lacking = (
                name for name, listed in originals.items() if not _has(held.get(name), listed)
            )
            yield Together((self._copy(name, name in held) for name in lacking), COPIES_AT_ONCE)
            large, self._large = self._large, []
            yield Together((self._copy(name, True, True) for name in large), 1)
            after = page.after
        if not self._copied.failed:
            yield from write(self._mirror, AS_OF, encode_as_of(began_s))
        return self._copied

    def _held(
        self, after: str, last: str | None, names: Set[ObjectName]
    ) -> Operation[dict[ObjectName, ListedObject | None]]:
        """Return the mirror's entries for ``names``, a page of the domain's listing.

        The page follows ``after`` and ends with ``last`` (None: the last page).
        """
        held: dict[ObjectName, ListedObject | None] = {}
        cursor: str | None = after
        while cursor is not None and (last is None or cursor < last):
            page = yield from list_mentioned(self._mirror, cursor, "")
            held.update((name, listed) for name, listed in page.newest.items() if name in names)
            cursor = page.after
        return held

    def _copy(self, object: ObjectName, may_be_there: bool, large: bool = False) -> Operation[None]:
        """Copy the newest version, unless the mirror has this version.

        A large value is put on the list of large values, unless ``large``.
        """
        try:
            found = yield from self._look(object)
            if may_be_there and (yield from self._is_there(object, found)):
                return
            if found.length > LARGE_COPY_BYTES and not large:
                self._large.append(object)
                return
            yield from self._wait_for_turn(found.length)
            if found.value is WITHHELD:
                found = yield from self._fetch(object)
            assert found.value is not WITHHELD, "a read that is settled has a value"
            yield from propagate(self._mirror, object, found.tag, found.value)
        except (DecodeFailed, Unavailable) as error:
            self._copied.failed += 1
            self._copied.why = str(error)
            if self._copied.failed > FAILED_COPIES_MAX:
                raise
            return
        self._copied.objects += 1
        self._copied.bytes += max(found.length, 0)

    def _look(self, object: ObjectName) -> Operation[DataResult]:
        """Return the newest version, at a quorum; its value is WITHHELD if none came along."""
        answers = yield from query(
            self._source, lambda dap, object: dap.get_version(object, effort=BRIEF), object
        )
        found = newest(answers)
        return found if at_quorum(answers, found) is not None else (yield from self._fetch(object))

    def _fetch(self, object: ObjectName) -> Operation[DataResult]:
        """Return the newest version with its value, as for a reader."""
        answers = yield from query(
            self._source, lambda dap, object: dap.get_data(object, effort=BRIEF), object
        )
        found, _ = yield from settle_read(self._source, object, answers)
        return found

    def _is_there(self, object: ObjectName, original: DataResult) -> Operation[bool]:
        try:
            answers = yield from query(
                self._mirror, lambda dap, object: dap.get_version(object, effort=BRIEF), object
            )
        except Undecodable:  # a copy whose copier died half way
            return False
        found = newest(answers)
        return found.tag >= original.tag and at_quorum(answers, found) is not None

    def _wait_for_turn(self, length: int) -> Operation[None]:
        while (wait_s := self._throttle.wait_s((yield Now()), length)) > 0:
            yield Pause(wait_s, retry=False)


def _has(copy: ListedObject | None, original: ListedObject | None) -> bool:
    """Return whether listings alone show that the mirror has the version."""
    return copy is not None and original is not None and copy.tag >= original.tag


def empty(view: View) -> Operation[None]:
    """Delete all objects of a mirror, except the mark of its removal."""

    def remove(object: ObjectName) -> Operation[None]:
        try:
            yield from delete(view, object)
        except ObjectNotFound:  # another client was faster
            return

    after: str | None = ""
    while after is not None:
        names, after = yield from list_objects(view, after, "")
        yield Together((remove(name) for name in names if name != REMOVED), COPIES_AT_ONCE)
