"""Objects of a cluster of processes under an algorithm as published, for rounds of experiments."""

import os
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct

from ares.client.connect import USER_SERVICE, connections_of, consensus_of
from ares.client.runner import Runner, unreported
from ares.cluster.settings import Settings
from ares.dap.coding import coding_for
from ares.engine.effects import Operation
from ares.engine.jobs import OperationLabel
from ares.fragment.divide import Sizes
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectNotFound
from ares.model.identity import DEFAULT_DOMAIN, ClientId, ObjectName
from ares.model.tag import Tag
from ares.registers.coverable import CoverableResult
from ares.testing.published.ares2 import Ares2Client, Ares2Switches
from ares.testing.published.ares_2022 import AresClient
from ares.testing.published.coares import CoAres2Client, CoAresClient
from ares.testing.published.cobfs import FragmentedObject, UnbatchedClient
from ares.testing.published.data_access import measure_into, unmeasured
from ares.testing.published.plain_abd import AbdClient
from ares.testing.published.published_files import BlockLog, PublishedFile
from ares.tracing.export import tracer_of
from ares.tracing.variables import tracing_of

Result = TypeVar("Result")
PublishedClient = AresClient | AbdClient | UnbatchedClient


class PublishedAlgorithm(Struct, frozen=True):
    """An algorithm as published: "ares" (of 2022), "ares2" with its switches, or "abd".

    ``coverable``: CoARES over "ares" or "ares2". ``fragmented``: CoARESF, whose objects are files.
    """

    name: str
    switches: Ares2Switches = Ares2Switches()
    coverable: bool = False
    fragmented: bool = False

    def client(self, id: ClientId, c0: Configuration, **parts: Any) -> PublishedClient:
        """Return a new client. ``parts``: its code and its measure of steps."""
        if self.coverable and self.name == "ares2":
            batching = self.switches.batching
            parts |= {"switches": self.switches, "fragmented": self.fragmented and batching}
            if self.fragmented and not batching:
                return UnbatchedClient(c0, lambda first: CoAres2Client(id, first, **parts))
            return CoAres2Client(id, c0, **parts)
        if self.coverable:
            return CoAresClient(id, c0, fragmented=self.fragmented, **parts)
        if self.name == "ares2":
            return Ares2Client(id, c0, self.switches, **parts)
        return (AresClient if self.name == "ares" else AbdClient)(id, c0, **parts)


def permitted_c0(settings: Settings) -> Configuration:
    """Return c0 of a cluster of processes, for clients as published.

    Raises :class:`BadInput` unless the cluster file permits them: a write of theirs may be lost.
    """
    if not settings.published:
        raise BadInput(
            f"{settings.path}: the algorithms as published are not atomic, ARES II can lose a "
            "completed write, and this cluster may have users. Only the cluster file of an "
            "experiment says published = true"
        )
    return settings.initial


class PublishedObjects:
    """The objects of a cluster, read, written and moved by clients as published.

    A client as published runs a single operation at a time: each operation takes an idle client, or
    a new client. After a failed operation a client is never used again, as after a crash: no client
    of the papers lives on, and the next write could have the tag of the failed write.

    ``make``: makes a client under a new id.
    """

    def __init__(
        self, runner: Runner, make: Callable[[ClientId], PublishedClient], timeout_s: float
    ) -> None:
        self._runner, self._make, self._timeout_s = runner, make, timeout_s
        self._idle: list[PublishedClient] = []

    async def write(self, key: str, value: bytes) -> Tag:
        """Write ``value`` and return its tag."""
        name = ObjectName(key)
        label = OperationLabel("write", name)
        return await self._run(lambda client: cast(AresClient, client).write(name, value), label)

    async def read(self, key: str) -> bytes:
        """Return the value of an object. Raises :class:`ObjectNotFound` for v0."""
        name = ObjectName(key)
        label = OperationLabel("read", name)
        _, value = await self._run(lambda client: cast(AresClient, client).read(name), label)
        if not isinstance(value, bytes):
            raise ObjectNotFound(name, DEFAULT_DOMAIN)
        return value

    async def cvr_write(self, key: str, value: bytes) -> bool:
        """Write over the client's version; return False if the write became a read."""
        name = ObjectName(key)
        label = OperationLabel("write", name)
        covered: CoverableResult = await self._run(
            lambda client: cast(CoAresClient, client).cvr_write(name, value), label
        )
        return covered.changed

    def file(self, key: str, sizes: Sizes) -> PublishedFile:
        """Return a file, whose blocks have these sizes."""
        return PublishedFile(self._run, ObjectName(key), sizes)

    async def blocks(self, key: str) -> list[ObjectName]:
        """Return the names of a file's blocks, found by a client that does nothing else.

        A reconfigurer that had read the blocks itself would move values without asking for them.
        """
        client = self._make(_new_id())
        assert isinstance(client, UnbatchedClient)
        file = FragmentedObject(client, ObjectName(key))
        label = OperationLabel("stat", key, "file ")
        await self._runner.run(file.fm_read(), label, self._timeout_s, progress=unreported)
        return file.objects

    async def reconfigure(
        self, c: Configuration, keys: Sequence[str], timeout_s: float
    ) -> Configuration:
        """Install c, whose servers have identities, or the decision for its place.

        Without batching ``keys`` are all blocks of a file (:meth:`blocks`).
        """
        objects = [ObjectName(key) for key in keys]

        def reconfig(client: PublishedClient) -> Operation[Configuration]:
            if isinstance(client, AbdClient):
                raise BadInput("plain ABD has no reconfigurations; nothing was changed")
            return client.reconfig(c, objects)

        return await self._run(reconfig, f"reconfiguration of {DEFAULT_DOMAIN!r}", timeout_s)

    async def begin_move(self, c: Configuration, timeout_s: float) -> None:
        """Propose c as a reconfigurer that crashes between put-config and transfer (Alg. 5:8-9)."""
        client = self._make(_new_id())
        assert isinstance(client, AresClient)

        def begun() -> Operation[None]:
            yield from client.read_config()
            yield from client.add_config(c)

        await self._runner.run(begun(), f"add-config of {DEFAULT_DOMAIN!r}", timeout_s)

    async def close(self) -> None:
        """End all operations and close every connection."""
        await self._runner.close()

    async def _run(
        self,
        begin: Callable[[PublishedClient], Operation[Result]],
        label: object,
        timeout_s: float | None = None,
        **more: Any,
    ) -> Result:
        client = self._idle.pop() if self._idle else self._make(_new_id())
        timeout_s = timeout_s or self._timeout_s
        result = await self._runner.run(begin(client), label, timeout_s, **more)
        self._idle.append(client)
        return result


async def connect_published(
    settings: Settings, algorithm: PublishedAlgorithm, operation_log: Path | None = None
) -> PublishedObjects:
    """Connect to a cluster for clients as published. Raises :class:`BadInput` if it has users.

    Spans and the lines of ``operation_log`` are those of any client (docs/tracing.md).
    """
    c0, id, client = permitted_c0(settings), _new_id(), settings.client
    log = None if operation_log is None else BlockLog(operation_log, id)
    tracer = tracer_of(tracing_of(settings.tracing, os.environ), USER_SERVICE, log, client.site)
    parts: dict[str, Any] = {
        "coding": coding_for if tracer is None else tracer.coding_for,
        "measure": unmeasured
        if tracer is None
        else measure_into(tracer.computed, time.perf_counter),
    }
    runner = Runner(id, connections_of(settings), consensus_of(settings), tracer)
    runner.learn(list(settings.book().values()))
    return PublishedObjects(runner, partial(algorithm.client, c0=c0, **parts), client.timeout_s)


def _new_id() -> ClientId:
    return ClientId(secrets.randbits(64))
