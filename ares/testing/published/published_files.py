"""Files of a cluster of processes under CoARESF as published, for rounds of experiments."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from ares.client.chunking import CUTS
from ares.client.local_copy import content_of_bytes
from ares.client.runner import unreported
from ares.engine.effects import Operation
from ares.engine.jobs import OperationLabel
from ares.engine.phases import READ_OBJECT, WRITE_OBJECT
from ares.engine.recording import RecordedPart, Recording
from ares.fragment.divide import RABIN, Sizes
from ares.model.errors import AresError, ObjectNotFound
from ares.model.identity import ObjectName
from ares.testing.published.coares import CoAresClient
from ares.testing.published.cobfs import FileUpdate, FragmentedObject, UnbatchedClient
from ares.tracing.operation_log import OperationLog


class PublishedFile:
    """A file under CoARESF as published. The timeout of an operation bounds a standstill.

    ``run``: runs an operation of an idle client of the file's objects.
    """

    def __init__(self, run: Callable[..., Awaitable[Any]], name: ObjectName, sizes: Sizes) -> None:
        self._run, self._name, self._sizes = run, name, sizes
        self._seen: FragmentedObject | None = None

    async def read(self) -> bytes:
        """Return the whole file. Raises :class:`ObjectNotFound` for a file never written."""
        found: bytes = await self._operate("read", FragmentedObject.fm_read)
        return found

    async def write(self, value: bytes) -> bool:
        """Write the blocks that differ; return False if the write of a block became a read.

        A writer reads the file before its first write (the deliverable of 2022, playbook 2). The
        cuts are found before the operation begins.
        """
        if self._seen is None:
            with suppress(ObjectNotFound):
                await self._operate("stat", FragmentedObject.fm_read)

        def update(file: FragmentedObject) -> Operation[FileUpdate]:
            return file.fm_update(content_of_bytes(value, self._sizes, CUTS[RABIN]))

        done: FileUpdate = await self._operate("put", update)
        return done.changed

    async def _operate(self, what: str, begin: Callable[[FragmentedObject], Operation[Any]]) -> Any:
        def begun(client: CoAresClient | UnbatchedClient) -> Operation[Any]:
            if self._seen is None or self._seen.dsmm is not client:
                self._seen = FragmentedObject(client, self._name)
            return begin(self._seen)

        label = OperationLabel(what, self._name, "file ")
        try:
            return await self._run(begun, label, progress=unreported)
        except AresError:
            self._seen = None  # its client is never used again
            raise


class BlockLog(OperationLog):
    """An operation log that has lines of a file's blocks, too: reads and writes of the memory."""

    def write(
        self, recording: Recording, label: object, result: object, error: BaseException | None
    ) -> None:
        """Write the lines of the finished operations on blocks, and the operation's own."""
        if isinstance(label, OperationLabel) and label.kind and label.what in ("read", "put"):
            of_blocks = list(blocks_of(recording))
            for each in of_blocks:
                failed = error if each is of_blocks[-1] else None
                super().write(each, OperationLabel(each.operation.name, label.name), None, failed)
        super().write(recording, label, result, error)


def blocks_of(recording: Recording) -> Iterator[Recording]:
    """Yield a recording of each operation on a block in the recording of an operation on a file."""
    within: dict[RecordedPart | None, Recording] = {}
    for part in recording.parts[1:]:
        own = within.get(part.parent)
        if own is None and part.name in (READ_OBJECT, WRITE_OBJECT):
            op = "read" if part.name == READ_OBJECT else "write"
            own = Recording(op, partial(float, part.began_s), deque())
            own.operation.ended_s = part.ended_s
        if own is not None:
            own.parts.append(part)
            within[part] = own
    yield from dict.fromkeys(within.values())
