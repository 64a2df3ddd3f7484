"""Mirrors: the objects of a domain, copied into another domain at another site, which answers reads that accept stale data (rule R22).

A copy has the tag of its original, as with a move. So nothing has to be agreed on by those that copy: a copy gives way to newer ones only, whoever
puts it, however late, and a deletion is a tombstone under its tag. Tombstones are copied of objects, too, that the mirror never had: the copy of an
older version may still be on its way.

A *pass* looks at every object of the domain and copies what the mirror lacks. When all of it is there, the pass leaves a record of when it began. So
whoever reads that record first, and an object of the mirror after it, finds the version that was the latest when that pass began, or a later one.

A mirror that is removed is marked so, and then emptied by deletions, whose tombstones hide copies. So the mark stays, and a mirror that is made later
for the same domain and site is another domain: each has the number of its *life* in its name. A reader looks for the mark when it has the value: if
it is not there, nothing had been deleted.

Only what users name is copied. The blocks of a file say something together only, and a mirror keeps no order between objects.
"""

from collections.abc import Set

import msgspec
from msgspec import Struct

from ares.dap.primitives import Found
from ares.dap.reading import BRIEF
from ares.model.errors import AresError, DecodeFailed, ObjectNotFound, Unavailable, Undecodable
from ares.model.identity import MIRROR_DOMAINS, RESERVED, DomainName, ObjectName
from ares.model.messages import Listed
from ares.model.numbers import Seconds
from ares.model.value import WITHHELD
from ares.objects.operations import at_quorum, delete, newest, propagate, query, settle_read, write
from ares.objects.survey import list_mentioned, list_objects
from ares.operation.effects import Now, Operation, Pause, Together
from ares.reconfig.throttle import Throttle
from ares.reconfig.view import View

AS_OF = ObjectName(RESERVED + "mirror/as-of")
"""The object of a mirror that says when the last complete pass began."""

REMOVED = ObjectName(RESERVED + "mirror/removed")
"""The object of a mirror that is there when the mirror was removed."""

BEFORE_KEYS = RESERVED + "\U0010ffff"
"""Keys of users come after this, names of the project's own before."""

LARGE_BYTES = 1024 * 1024
"""Values of more bytes are copied one after the other."""

AT_ONCE = 16
FAILURES_MAX = 64
"""A pass ends when so many objects could not be copied: it is not for their sake, then."""


class MirrorName(Struct, frozen=True):
    """What the name of a mirror's domain says: of which ``domain`` it is, at which ``site``, and how many were made there before (from 1)."""

    domain: str
    site: str
    life: int

    @property
    def name(self) -> DomainName:
        return DomainName(f"{MIRROR_DOMAINS}{self.site}/{self.life}/{self.domain}")


def parse_mirror(name: str) -> MirrorName | None:
    """None if it is not the name of a mirror's domain."""
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
    """What AS_OF holds. ``began_s``: seconds since 1970, by the clock of whoever copied."""

    began_s: Seconds


class UnreadableRecord(AresError):
    """What a mirror says of its age is not readable."""


def encode_as_of(began_s: float) -> bytes:
    return msgspec.msgpack.encode(_Record(began_s))


def decode_as_of(value: bytes) -> float:
    """When the last complete pass began, in seconds since 1970. Raises :class:`UnreadableRecord`."""
    try:
        began_s = msgspec.msgpack.decode(value, type=_Record).began_s
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(
            f"the record of a mirror's last pass cannot be read: {error}; nothing was lost, the next pass replaces it"
        ) from error
    return began_s


class Copied(Struct):
    """What a pass did. ``failed``: how many objects could not be copied; ``why``: for one of them. Without any the mirror is complete."""

    objects: int = 0
    bytes: int = 0
    failed: int = 0
    why: str = ""


class Pass:
    """One pass over the domain of the view ``source`` into that of ``mirror``, at most as fast as ``throttle`` allows."""

    def __init__(self, source: View, mirror: View, throttle: Throttle) -> None:
        self._source = source
        self._mirror = mirror
        self._throttle = throttle
        self._large: list[ObjectName] = []
        self._copied = Copied()

    def run(self, began_s: float) -> Operation[Copied]:
        """Copy what changed. ``began_s``: a time not later than now, in seconds since 1970; the mirror's record, if it is complete at the end.

        What cannot be copied, since it cannot be decoded or servers refuse it, does not stop the others. Raises :class:`ares.Unavailable`.
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
            yield Together((self._copy(name, name in held) for name in lacking), AT_ONCE)
            large, self._large = self._large, []
            yield Together((self._copy(name, True, True) for name in large), 1)
            after = page.after
        if not self._copied.failed:
            yield from write(self._mirror, AS_OF, encode_as_of(began_s))
        return self._copied

    def _held(
        self, after: str, last: str | None, names: Set[ObjectName]
    ) -> Operation[dict[ObjectName, Listed | None]]:
        """What the mirror has of the page of ``names`` that follows ``after`` and ends with ``last`` (None: with the listing)."""
        held: dict[ObjectName, Listed | None] = {}
        cursor: str | None = after
        while cursor is not None and (last is None or cursor < last):
            page = yield from list_mentioned(self._mirror, cursor, "")
            held.update((name, listed) for name, listed in page.newest.items() if name in names)
            cursor = page.after
        return held

    def _copy(self, object: ObjectName, may_be_there: bool, large: bool = False) -> Operation[None]:
        """The newest version of it, unless the mirror has that. A large value is put on the list of those, unless ``large``."""
        try:
            found = yield from self._look(object)
            if may_be_there and (yield from self._is_there(object, found)):
                return
            if found.length > LARGE_BYTES and not large:
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
            if self._copied.failed > FAILURES_MAX:
                raise
            return
        self._copied.objects += 1
        self._copied.bytes += max(found.length, 0)

    def _look(self, object: ObjectName) -> Operation[Found]:
        """The newest version, which is at a quorum; WITHHELD in place of a value that did not come along."""
        answers = yield from query(
            self._source, lambda dap, object: dap.get_version(object, effort=BRIEF), object
        )
        found = newest(answers)
        return found if at_quorum(answers, found) is not None else (yield from self._fetch(object))

    def _fetch(self, object: ObjectName) -> Operation[Found]:
        """The newest version with its value, as a reader has it."""
        answers = yield from query(
            self._source, lambda dap, object: dap.get_data(object, effort=BRIEF), object
        )
        found, _ = yield from settle_read(self._source, object, answers)
        return found

    def _is_there(self, object: ObjectName, original: Found) -> Operation[bool]:
        try:
            answers = yield from query(
                self._mirror, lambda dap, object: dap.get_version(object, effort=BRIEF), object
            )
        except Undecodable:  # a copy that died half way
            return False
        found = newest(answers)
        return found.tag >= original.tag and at_quorum(answers, found) is not None

    def _wait_for_turn(self, length: int) -> Operation[None]:
        while (wait_s := self._throttle.wait_s((yield Now()), length)) > 0:
            yield Pause(wait_s, retry=False)


def _has(copy: Listed | None, original: Listed | None) -> bool:
    """Whether listings alone show that the mirror has the version."""
    return copy is not None and original is not None and copy.tag >= original.tag


def empty(view: View) -> Operation[None]:
    """Delete all that a mirror holds, but the mark that it was removed."""

    def remove(object: ObjectName) -> Operation[None]:
        try:
            yield from delete(view, object)
        except ObjectNotFound:  # somebody else was faster
            return

    after: str | None = ""
    while after is not None:
        names, after = yield from list_objects(view, after, "")
        yield Together((remove(name) for name in names if name != REMOVED), AT_ONCE)
