"""The six algorithms of the papers behind a common interface.

An experiment reads and writes without knowledge of the measured algorithm.
"""

from typing import Protocol

from msgspec import Struct

from ares.client.file import File
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.fragment.divide import Sizes
from ares.model.configuration import Algorithm, Configuration
from ares.model.errors import BadInput
from ares.model.tag import Tag
from ares.testing.published.published_objects import PublishedObjects


class PaperAlgorithm(Struct, frozen=True):
    """An algorithm that the papers evaluate, with the name in their figures (ARES II, section 4).

    ``dap`` names the primitives required of the objects' configuration. With ``coverable``
    (CoARES), a write names the version to replace, and the optimised primitives send no value that
    the client holds. With ``fragmented`` (CoARESF), the object is a file of coverable blocks.
    """

    name: str
    dap: Algorithm
    coverable: bool = False
    fragmented: bool = False


class Register(Protocol):
    """An object as seen by a single client."""

    async def write(self, value: bytes) -> bool:
        """Write `value` and return whether the whole write took place.

        A coverable write fails if another client wrote since this client last read or wrote the
        object. The failed write then acts as a read, and the next write covers the version found.
        """

    async def read(self) -> bytes:
        """Return the newest value. Raises :class:`ares.ObjectNotFound`."""


class Plain:
    """ARES: the last writer prevails; ``store`` may be of an algorithm as published."""

    def __init__(self, store: ObjectStore | PublishedObjects, name: str) -> None:
        self._store = store
        self._name = name

    async def write(self, value: bytes) -> bool:
        await self._store.write(self._name, value)
        return True

    async def read(self) -> bytes:
        return await self._store.read(self._name)


class PublishedCoverable:
    """CoARES as published: a write replaces the version known to the client, or becomes a read."""

    def __init__(self, objects: PublishedObjects, name: str) -> None:
        self._objects = objects
        self._name = name

    async def write(self, value: bytes) -> bool:
        return await self._objects.cvr_write(self._name, value)

    async def read(self) -> bytes:
        return await self._objects.read(self._name)


class Coverable:
    """CoARES: a write replaces the version known to this client, or has no effect."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name
        self._version: Tag | None = None

    async def write(self, value: bytes) -> bool:
        result = await self._store.write_versioned(self._name, value, self._version)
        self._version = result.version
        return result.changed

    async def read(self) -> bytes:
        self._version, value = await self._store.read_versioned(self._name)
        return value


class Fragmented:
    """CoARESF: a write replaces the blocks different from the blocks known to this client."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def write(self, value: bytes) -> bool:
        report = await self._file.write(value)
        if not report.conflicts:
            return True
        await self._file.snapshot()
        return False

    async def read(self) -> bytes:
        return await self._file.read()


async def open_register(
    manager: Manager,
    algorithm: PaperAlgorithm,
    name: str,
    domain: str,
    create: Configuration | None = None,
    sizes: Sizes | None = None,
) -> Register:
    """Return the object ``name`` of ``domain`` as ``algorithm`` treats objects.

    ``create`` is the configuration with which a missing domain is made. ``sizes`` are the sizes of
    a file's blocks. Raises :class:`BadInput` if the primitives of the domain and of the algorithm
    differ.
    """
    store = await manager.domain(domain, create=create)
    configuration = await store.current()
    if configuration.dap != algorithm.dap:
        raise BadInput(
            f"{algorithm.name} needs a domain over {algorithm.dap.upper()}, and {domain!r} has "
            f"{configuration.describe()}"
        )
    return register_of(store, algorithm, name, sizes)


def register_of(
    store: ObjectStore, algorithm: PaperAlgorithm, name: str, sizes: Sizes | None = None
) -> Register:
    """Return the object ``name`` of the domain ``store``, whatever its primitives."""
    if algorithm.fragmented:
        return Fragmented(store.file(name, sizes=sizes))
    return Coverable(store, name) if algorithm.coverable else Plain(store, name)


def published_register(
    objects: PublishedObjects, algorithm: PaperAlgorithm, name: str, sizes: Sizes
) -> Register:
    """Return the object ``name`` as the published form of ``algorithm`` treats objects."""
    if algorithm.fragmented:
        return objects.file(name, sizes)
    kind = PublishedCoverable if algorithm.coverable else Plain
    return kind(objects, name)
