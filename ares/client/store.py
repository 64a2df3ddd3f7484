"""The objects of a domain, as users hold them.

Users' arguments are checked before a message is sent, and refused by name.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from time import monotonic
from typing import Any, TypeVar

from msgspec import Struct

from ares.client.domain import Identify, ObjectDomain
from ares.client.file import File
from ares.client.runner import Runner, unreported
from ares.compiled import SmallObjects, small_objects
from ares.dap.primitives import DataResult
from ares.engine.jobs import OperationLabel
from ares.engine.room import OBJECT_OPERATION_BYTES, SMALL_REPLY_BYTES, UNKNOWN_REPLY_BYTES
from ares.fragment.block import GENESIS_NAMES
from ares.fragment.divide import FASTCDC, Sizes
from ares.fragment.shared_memory import list_files
from ares.model.errors import BadInput, ObjectNotFound
from ares.model.identity import (
    DIRECTORY_PREFIX,
    KEY_BYTES_MAX,
    RESERVED,
    ObjectName,
    fits,
)
from ares.model.numbers import is_whole
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE, Answered
from ares.reconfig.throttle import Throttle
from ares.reconfig.view import View
from ares.registers.coverable import read_versioned, write_versioned
from ares.registers.mirroring import CopyReport, MirrorPass
from ares.registers.object_watch import ObjectNotice, ObjectWatch, point_of, watch_round
from ares.registers.operations import delete, read, stat, write
from ares.registers.survey import list_objects

WATCH_PAUSE_S = 0.1
"""Pause of a watch after a round that brought everything."""

Result = TypeVar("Result")


class ObjectStat(Struct, frozen=True):
    """Version and size of an object. ``size_bytes``: of the whole value. ``tag``: the version."""

    key: str
    domain: str
    tag: Tag
    size_bytes: int


class VersionedResult(Struct, frozen=True):
    """The result of a versioned write. ``changed``: the write took place, as ``version``.

    Otherwise ``version`` and ``value`` are the latest (None: the object is absent).
    """

    changed: bool
    version: Tag
    value: bytes | None


class ObjectStore(ObjectDomain):
    """The objects of a domain, with linearizable reads and writes. Many calls may run at once.

    Writes of an object by a client run one after the other. ``timeout_s`` (default: the cluster
    file's) bounds each call; for ``list`` and ``reconfigure`` it bounds a standstill. All methods
    raise :class:`ares.Unavailable` when too few servers answer in time, and :class:`ares.BadInput`
    before a message is sent.

    A write that is cancelled, also by ``asyncio.timeout`` or ``asyncio.wait_for``, may or may not
    take effect: now, later or never, like a write that fails with ``may_have_taken_effect``. Read
    the object to learn the outcome. Write again only over the version that this read returned
    (``write_versioned``), or write the same value. ``timeout_s`` has the same effect, with an error
    that tells more.
    """

    def __init__(self, runner: Runner, view: View, timeout_s: float, identify: Identify) -> None:
        super().__init__(runner, view, timeout_s, identify)
        self._small = None if runner.traces else small_objects(runner.session, view, runner)
        self._room = runner.room
        self._small_reads: SmallObjects | None = None
        self._reply_bytes = UNKNOWN_REPLY_BYTES

    async def write(
        self,
        key: str,
        value: bytes | bytearray | memoryview,
        *,
        timeout_s: float | None = None,
        raw: bool = False,
    ) -> Tag:
        """Store ``value`` (0 bytes to 256 MiB, or as the cluster file says) and return its tag.

        A cancelled write may or may not take effect (see the class). ``raw``: see :meth:`delete`.
        """
        room = self._room
        if self._small is not None and not room.waiting:
            self._runner.check_loop()
            future: asyncio.Future[Tag] | None
            future = self._small.write(
                key,
                value,
                None,
                monotonic(),
                self._timeout_s if timeout_s is None else self._timeout(timeout_s),
            )
            if future is not None:
                try:
                    return await future
                except asyncio.CancelledError:
                    self._runner.session.cancel_small(future)
                    raise
        name, given = checked_key(key, raw), checked_value(value, self._runner.value_bytes)
        size = OBJECT_OPERATION_BYTES + len(given)
        left_s = await self._runner.enter(
            size, OperationLabel("write", name), self._timeout(timeout_s)
        )
        try:
            if self._small is not None:
                future = self._small.write(name, given, None, monotonic(), left_s)
                if future is not None:
                    return await self._result(future)
            return await self.write_named(name, given, left_s)
        finally:
            room.leave(size)

    async def _result(self, future: asyncio.Future[Result]) -> Result:
        """Return the result of an operation of the compiled core."""
        try:
            return await future
        except asyncio.CancelledError:
            self._runner.session.cancel_small(future)
            raise

    def write_named(
        self, name: ObjectName, value: bytes, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, Tag]:
        """Write without checks; reserved keys are taken."""
        view = self._view
        return self._runner.run(
            write(view, name, value),
            OperationLabel("write", name),
            self._timeout(timeout_s),
            key=(view.domain, name),
        )

    async def read(self, key: str, *, timeout_s: float | None = None) -> bytes:
        """Return the value of an object.

        Raises :class:`ObjectNotFound`, or :class:`ares.DecodeFailed` when too many writers are at
        work.
        """
        value: Answered | None = None
        if self._small_reads is not None and not self._room.waiting:
            self._runner.check_loop()
            future = self._small_reads.read(
                key,
                None,
                monotonic(),
                self._timeout_s if timeout_s is None else self._timeout(timeout_s),
            )
            if future is not None:
                try:
                    value = await future
                except asyncio.CancelledError:
                    self._runner.session.cancel_small(future)
                    raise
        if value is None:
            value = await self._counted_read(key, timeout_s)
        if value is TOMBSTONE:
            raise ObjectNotFound(key, self.name)
        assert isinstance(value, bytes)
        if len(value) > SMALL_REPLY_BYTES:
            self._reply_bytes, self._small_reads = len(value), None
        return value

    async def _counted_read(self, key: str, timeout_s: float | None) -> Answered:
        """Read with room for as many bytes as the last reply had."""
        name = checked_key(key)
        size = OBJECT_OPERATION_BYTES + self._reply_bytes
        left_s = await self._runner.enter(
            size, OperationLabel("read", name), self._timeout(timeout_s)
        )
        try:
            future: asyncio.Future[Answered] | None = None
            if self._small is not None:
                future = self._small.read(name, None, monotonic(), left_s)
            if future is not None:
                value = await self._result(future)
            else:
                value = (await self.read_named(name, left_s)).value
        finally:
            self._room.leave(size)
        if isinstance(value, bytes):
            self._reply_bytes = len(value)
            self._small_reads = self._small if len(value) <= SMALL_REPLY_BYTES else None
        return value

    def read_named(
        self, name: ObjectName, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, DataResult]:
        """Read without checks; reserved keys are taken. Return TOMBSTONE for an absent object."""
        return self._runner.run(
            read(self._view, name), OperationLabel("read", name), self._timeout(timeout_s)
        )

    async def read_versioned(
        self, key: str, *, timeout_s: float | None = None
    ) -> tuple[Tag, bytes]:
        """Return the latest version and its value (CoARES). Raises :class:`ObjectNotFound`.

        A value remembered by this client does not travel again.
        """
        name = checked_key(key)
        found = await self._runner.run(
            read_versioned(self._view, name),
            OperationLabel("read", name),
            self._timeout(timeout_s),
            size=OBJECT_OPERATION_BYTES + self._reply_bytes,
        )
        if found.value is TOMBSTONE:
            raise ObjectNotFound(key, self.name)
        assert isinstance(found.value, bytes)
        return found.tag, found.value

    async def write_versioned(
        self,
        key: str,
        value: bytes | bytearray | memoryview,
        version: Tag | None,
        *,
        timeout_s: float | None = None,
    ) -> "VersionedResult":
        """Store ``value`` if ``version`` is still the latest (None: if the object is absent).

        Otherwise change nothing and return the latest version. Weakly coverable, not
        compare-and-swap: of two concurrent writes over the same version both may report
        ``changed``, and the write with the higher tag stands. A write that begins after another
        write ended never misses it (CoARES; ARES II section 3).
        """
        name = checked_key(key)
        if version is not None and not is_tag(version):
            raise BadInput(
                "a version is a Tag as read_versioned returns it, or None for an object that is "
                f"absent, not {version!r}"
            )
        given = checked_value(value, self._runner.value_bytes)
        covered = await self._runner.run(
            write_versioned(self._view, name, given, version),
            OperationLabel("write", name),
            self._timeout(timeout_s),
            key=(self.name, name),
            size=OBJECT_OPERATION_BYTES + len(given),
        )
        latest = covered.value if isinstance(covered.value, bytes) else None
        return VersionedResult(covered.changed, covered.tag, latest)

    async def delete(self, key: str, *, timeout_s: float | None = None, raw: bool = False) -> Tag:
        """Make the object absent and return the tombstone's tag.

        Raises :class:`ObjectNotFound` if the object was absent already. ``raw``: take a reserved
        name as well, which begins with a NUL character. Reserved names are for an object that stops
        a move: deleting one of the project's own objects loses data.
        """
        name = checked_key(key, raw)
        return await self._runner.run(
            delete(self._view, name),
            OperationLabel("delete", name),
            self._timeout(timeout_s),
            key=(self.name, name),
            size=OBJECT_OPERATION_BYTES,
        )

    async def stat(self, key: str, *, timeout_s: float | None = None) -> ObjectStat:
        """Return the version and size of an object without the value.

        Raises :class:`ObjectNotFound`.
        """
        name = checked_key(key)
        found = await self._runner.run(
            stat(self._view, name),
            OperationLabel("stat", name),
            self._timeout(timeout_s),
            size=OBJECT_OPERATION_BYTES,
        )
        if found.value is TOMBSTONE:
            raise ObjectNotFound(key, self.name)
        return ObjectStat(key, self.name, found.tag, found.length)

    async def list(self, prefix: str = "", *, timeout_s: float | None = None) -> AsyncIterator[str]:
        """Yield the names that start with ``prefix``, in order.

        An object present during the whole listing is listed. An object that comes or goes during
        the listing may be listed or not.
        """
        checked_prefix(prefix)
        if prefix:
            checked_key(prefix)
        async for name in self.list_named(prefix, timeout_s):
            if not name.startswith(RESERVED):
                yield name

    async def list_named(
        self, prefix: str, timeout_s: float | None = None
    ) -> AsyncIterator[ObjectName]:
        """List names as ``list`` does, with reserved keys."""
        after: str | None = ""
        what = (
            "listing of the domains"
            if prefix.startswith(DIRECTORY_PREFIX)
            else f"listing of {self.name!r}"
        )
        while after is not None:
            operation = list_objects(self._view, after, prefix)
            names, after = await self._runner.run(
                operation, what, self._timeout(timeout_s), progress=unreported
            )
            for name in names:
                yield name

    async def watch(
        self, prefix: str = "", *, since: str | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[ObjectNotice]:
        """Yield notices of the versions of the objects whose names begin with ``prefix``, for ever.

        The watch begins with a notice of every such object, deleted ones included, and tells of
        changes from then on. After the last write of an object a notice of it comes; notices of an
        object never go back; versions in between may be left out. A notice comes once every read
        finds its version, or a newer one. ``since``: of a notice; tell the later changes, some of
        them again. ``timeout_s`` bounds a standstill. Raises :class:`ares.ObjectWatchGap` if the
        changes since then are not known any more, :class:`ares.ConfigurationRefused` for servers of
        an earlier release, and :class:`ares.BadInput` in a write-once domain.
        """
        checked_prefix(prefix)
        if prefix:
            checked_key(prefix)
        watch = ObjectWatch(prefix, None if since is None else point_of(since))
        while True:
            if self._view.sequence.last_known.write_once:
                raise BadInput(f"domain {self.name!r} is write-once: its names never change")
            notices = await self._runner.run(
                watch_round(self._view, watch),
                f"watch of {prefix!r}",
                self._timeout(timeout_s),
                progress=unreported,
            )
            for notice in notices:
                yield notice
            if not watch.more:
                await asyncio.sleep(WATCH_PAUSE_S)

    async def copy_into(
        self,
        mirror: "ObjectStore",
        began_s: float,
        throttle: Throttle,
        *,
        timeout_s: float | None = None,
    ) -> CopyReport:
        """Copy into ``mirror``, in a single pass, the changes that the mirror lacks.

        ``began_s``: now, in seconds since 1970. ``timeout_s`` bounds a standstill.
        """
        return await self._run(
            MirrorPass(self._view, mirror._view, throttle).run(began_s),
            f"copying of {self.name!r}",
            None,
            timeout_s,
        )

    def file(
        self,
        name: str,
        *,
        atomic: bool = False,
        sizes: Sizes | None = None,
        chunking: str = FASTCDC,
    ) -> File:
        """Return the file ``name``, whose blocks are objects of this domain.

        See :class:`ares.File`. ``atomic``, ``sizes`` (of blocks) and ``chunking`` ("fastcdc" or
        "rabin") apply when the file is first written, and stay.
        """

        async def here(create: bool) -> ObjectStore:
            return self

        return File(name, here, atomic, sizes or Sizes(), chunking)

    async def files(self, prefix: str = "", *, timeout_s: float | None = None) -> Sequence[str]:
        """Return the names of the files of this domain that start with ``prefix``, in order."""
        checked_prefix(prefix, GENESIS_NAMES)
        return await self.run_on_blocks(
            lambda blocks: list_files(blocks, prefix),
            f"listing of {self.name!r}",
            timeout_s=timeout_s,
        )


def checked_value(value: bytes | bytearray | memoryview, bytes_max: int) -> bytes:
    """Return ``value`` as bytes. Raises :class:`BadInput` if it cannot be stored in one piece."""
    if isinstance(value, (bytes, bytearray)):
        size = len(value)
    elif isinstance(value, memoryview):
        size = value.nbytes
    else:
        raise BadInput(f"a value is bytes, not {type(value).__name__}; nothing was sent")
    if size > bytes_max:
        raise BadInput(
            f"a value may have at most {bytes_max} bytes (value_bytes under [limits] of the "
            "cluster file); nothing was sent. Store larger data as a file"
        )
    return bytes(value)


def is_tag(version: object) -> bool:
    """Return whether ``version`` is a tag that can be sent.

    A tag without an encoding would take the whole batch with it.
    """
    if not isinstance(version, Tag):
        return False
    return all(is_whole(part) and 0 <= part < 2**64 for part in (version.number, version.writer))


def checked_prefix(prefix: str, before: str = "") -> None:
    """Refuse with :class:`BadInput` a prefix with which no name can begin, behind ``before``."""
    if not isinstance(prefix, str):
        raise BadInput(f"names begin with text (str), not with {type(prefix).__name__}")
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"names begin with valid text (UTF-8): {error}") from error
    bytes_max = KEY_BYTES_MAX - len(before)
    if not fits(prefix, bytes_max):
        raise BadInput(f"names begin with at most {bytes_max} bytes of UTF-8: no name is that long")


def checked_key(key: str, raw: bool = False) -> ObjectName:
    """Return ``key`` if it can be a key, or with ``raw`` a reserved name.

    Raises :class:`BadInput`.
    """
    if not isinstance(key, str):
        raise BadInput(f"a key is text (str), not {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise BadInput(f"a key must be valid text (UTF-8): {error}") from error
    if not 1 <= size <= KEY_BYTES_MAX:
        raise BadInput(f"a key has 1 to {KEY_BYTES_MAX} bytes of UTF-8, not {size}")
    if key.startswith(RESERVED) and not raw:
        raise BadInput("keys that begin with a NUL character are reserved")
    return ObjectName(str.__str__(key))  # a subclass, such as an enumeration's, cannot be encoded
