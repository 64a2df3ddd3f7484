"""NATS JetStream: three servers, a stream of three replicas, and a client.

Every replica syncs a message to disk before the acknowledgement. Debian has no package of NATS;
`experiments/build_nats.sh` builds it with Go, once, into a cache. The client speaks the text
protocol over a single connection, and every message has a future; no other library is in between.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from ares.cluster.addresses import split_address
from experiments.bench.redis_client import CRLF
from experiments.bench.store_clients import Coroutines
from experiments.bench.store_processes import ProgramNotStarted, free_ports, programs

NATS_VERSION = "v2.15.2"
NATS_SERVERS = 3
NATS_START_S = NATS_READY_S = 20.0
STREAM, SUBJECT = "measured", "entries"


def binary() -> Path:
    """Return the path of the program."""
    return Path.home() / ".cache" / "ares" / f"nats-server-{NATS_VERSION}"


def missing() -> str | None:
    """Return the missing software, and how to get it."""
    if binary().is_file():
        return None
    return "NATS is not here: experiments/build_nats.sh builds it (Go, two minutes)"


@contextlib.contextmanager
def running(directory: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Run three servers; yield the address of a server, and the pids of all."""
    ports, names = free_ports(2 * NATS_SERVERS), [f"n{number}" for number in range(NATS_SERVERS)]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[NATS_SERVERS:])
    for name, port, route in zip(names, ports[:NATS_SERVERS], ports[NATS_SERVERS:], strict=True):
        cluster = f'cluster {{ name: measured, listen: "127.0.0.1:{route}", routes: [{routes}] }}'
        store = f'jetstream {{ store_dir: "{directory / name}", sync_interval: always }}'
        (directory / f"{name}.conf").write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{port}"\n{store}\n{cluster}\n'
        )
    commands = {name: [str(binary()), "-c", str(directory / f"{name}.conf")] for name in names}
    with programs(directory, commands, ready=(b"Server is ready", NATS_START_S)) as servers:
        yield f"127.0.0.1:{ports[0]}", servers


class NatsError(Exception):
    """A refusal by a server."""


class NatsConnection(asyncio.Protocol):
    """Requests by number; an answer's subject ends in the number."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(
            b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\nSUB answers.* 1\r\n'
        )

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        while (end := data.find(CRLF, at)) >= 0:
            line, begin = data[at:end], end + 2
            if line.startswith(b"MSG "):
                _, subject, _, size = line.split()
                if len(data) < (begin := begin + int(size) + 2):
                    break
                self._answered(int(subject[8:]), data[end + 2 : begin - 2])
            elif line == b"PING":
                self._transport.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                self.connection_lost(NatsError(line.decode()))
            at = begin
        self._rest = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(NatsError(f"the connection ended: {error}"))

    def ask(self, subject: str, content: bytes) -> "asyncio.Future[Any]":
        """Return a future of the answer, or of :class:`NatsError` for a refusal."""
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._transport.writelines(
            (b"PUB %b answers.%d %d\r\n" % (subject.encode(), number, len(content)), content, CRLF)
        )
        return future

    async def read(self, key: str) -> bytes | None:
        """Refuse reads, which this measurement does not use."""
        raise NatsError(f"{key} is not read")

    async def write(self, _key: str, value: bytes) -> object:
        """Append to the stream, and return the entry's number."""
        return (await self.ask(SUBJECT, value))["seq"]

    async def close(self) -> None:
        self._transport.close()

    def _answered(self, number: int, content: bytes) -> None:
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        answer = json.loads(content) if content else {"error": "no server answers"}
        if "error" in answer:
            future.set_exception(NatsError(str(answer["error"])))
        else:
            future.set_result(answer)


async def nats_clients(address: str) -> Coroutines:
    """Return clients that share a connection, once the stream has all replicas.

    Raises :class:`ProgramNotStarted`.
    """
    _, connection = await asyncio.get_running_loop().create_connection(
        NatsConnection, *split_address(address)
    )
    wished = {
        "name": STREAM,
        "subjects": [SUBJECT],
        "num_replicas": NATS_SERVERS,
        "storage": "file",
    }
    try:
        async with asyncio.timeout(NATS_READY_S):
            await _until(connection, f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(wished).encode())
            await _until(connection, SUBJECT, b"first")
    except TimeoutError as error:
        raise ProgramNotStarted("NATS made no stream of three replicas in time") from error
    return Coroutines(connection, (NatsError,), connection.close)


async def _until(connection: NatsConnection, subject: str, content: bytes) -> None:
    """Repeat a request until it succeeds: new servers have no leader at first."""
    while True:
        try:
            await asyncio.wait_for(connection.ask(subject, content), 2.0)
        except (NatsError, TimeoutError):
            await asyncio.sleep(0.2)
        else:
            return
