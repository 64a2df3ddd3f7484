"""A process of a round with some of its clients, each with separate connections and a log.

The process reads a :class:`WorkerTask`. A client of ares writes ares's log (docs/tracing.md); a
client of another store gets a line of the same names for each operation.
"""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.fragment.divide import Sizes
from ares.model.configuration import Algorithm, Configuration
from ares.model.errors import AresError, ObjectNotFound
from ares.platform.loop import run
from ares.testing.published.published_objects import PublishedObjects, connect_published
from ares.tracing.operation_log import MORE_FIELDS
from experiments.algorithms import Register, open_register, published_register, register_of
from experiments.bench.generator import connected
from experiments.bench.redis_client import RedisConnections
from experiments.bench.store_clients import (
    AresStore,
    CassandraStore,
    RedisStore,
    Store,
    StoreClients,
)
from experiments.rounds.ares_protocols import (
    ALGORITHM_OF,
    configuration_of,
    is_mixed,
    published_algorithm,
    servers_of_some,
)
from experiments.rounds.correctness import NOT_JUDGED, History, content, value_of
from experiments.rounds.load_work import make_load, prepare_load
from experiments.rounds.scenario import Parameters
from experiments.rounds.server_bytes import note_servers

KEY = "object"
ROUND_DOMAIN = "round"
MOVE_TIMEOUT_S = 120.0
HEAD_START_MAX_S = 60.0
COUNTED_LATE = "the work began before the bytes of servers were counted; the round has none"

Role = Literal["create", "read", "write", "reconfigure", "load"]


class WorkerTask(Struct, frozen=True):
    """The work of a process: the numbers of its ``clients``, and the directory of its ``logs``.

    Before the work the process counts the servers' bytes into the file ``count_into``, if given;
    there is no file if the others' work may have begun.
    """

    store: Store
    protocol: str
    parameters: Parameters
    role: Role
    clients: tuple[int, ...]
    seed: int
    logs: str = "logs"
    count_into: str = ""


def until_the_beginning_s() -> float:
    """Return the seconds until the work of the round begins; below 0 after the beginning.

    ROUND_BEGIN has the time in seconds since 1970. The work begins at once without ROUND_BEGIN, or
    if the clocks of hosts differ.
    """
    wait_s = float(os.environ.get("ROUND_BEGIN") or 0) - time.time()
    return wait_s if wait_s < HEAD_START_MAX_S else 0.0


async def the_beginning() -> None:
    """Wait until the work of the round begins."""
    wait_s = until_the_beginning_s()
    print(f"ready {wait_s:.1f} s before the work begins", file=sys.stderr)
    await asyncio.sleep(max(wait_s, 0.0))


_MESSAGES = {"read": "READ", "write": "WRITE", "reconfigure": "RECONFIG"}


class ForeignLog:
    """The log of a client of another store, and of requests refused by ares.

    A refused request never became an operation. ``wait`` is the number of replicas for Redis's
    WAIT.
    """

    def __init__(self, path: Path, client: int, wait: int = 0) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._client = str(client)
        self._wait = wait
        self._count = 0

    def write(
        self,
        operation: str,
        began_s: float,
        ended_s: float,
        size: int,
        error: str | None,
        acknowledged: int | None = None,
    ) -> None:
        """Write a line. ``acknowledged`` is the number of replicas with the write.

        A write with fewer replicas than WAIT asked for is no success; the names are from published
        logs.
        """
        self._count += 1
        line = {
            "asctime": datetime.now(UTC).isoformat(),
            "levelname": "INFO",
            "name": "experiments.rounds",
            "message": f"{_MESSAGES[operation]}-COMPLETE",
            "status": "SUCCESS" if error is None else "UNSUCCESS",
            "outcome": "ok" if error is None else "unknown" if operation == "write" else "failed",
            "error": error,
            "op": operation,
            "clientID": self._client,
            "opID": f"{operation}-{self._client}-{self._count}",
            "objectID": KEY,
            "file_size": size if error is None else 0,
            "op_latency_start": began_s,
            "op_latency_end": ended_s,
            "op_latency": ended_s - began_s,
            **MORE_FIELDS.get(),
        }
        if self._wait and operation == "write":
            line |= {"wait": "Yes", "wait_acks": acknowledged, "majority": self._wait}
        self._file.write(msgspec.json.encode(line).decode() + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Once:
    """A loop of a single operation (experiments/bench/closed_loop.py).

    The loop holds the request and the result.
    """

    def __init__(self, value: bytes | None) -> None:
        self._value = value
        self._asked = False
        self.began_s = self.ended_s = 0.0
        self.size = 0 if value is None else len(value)
        self.found: bytes | None = None
        self.error: str | None = None

    def ask(self) -> tuple[str, bytes | None] | None:
        if self._asked:
            return None
        self._asked = True
        self.began_s = time.perf_counter()
        return KEY, self._value

    def answered(self, value: bytes | None = None) -> None:
        self.ended_s, self.found = time.perf_counter(), value
        self.size = len(value) if value is not None else self.size

    def failed(self, why: str) -> None:
        self.ended_s, self.error = time.perf_counter(), why


class ForeignClient:
    """A client of another store, as :class:`experiments.algorithms.Register`."""

    def __init__(self, clients: StoreClients, log: ForeignLog) -> None:
        self._clients, self._log = clients, log
        self.last = _Once(None)

    async def write(self, value: bytes) -> bool:
        return await self._operate("write", _Once(value))

    async def read(self) -> bytes:
        await self._operate("read", _Once(None))
        return self.last.found or b""

    async def _operate(self, operation: str, once: _Once) -> bool:
        self.last, clients = once, self._clients
        await clients.run([once])
        acknowledged = clients.acknowledged if isinstance(clients, RedisConnections) else None
        self._log.write(operation, once.began_s, once.ended_s, once.size, once.error, acknowledged)
        return once.error is None


class WitnessedRegister:
    """A register, and the history of the client's operations.

    A write that a newer version forestalled, which can happen to coverable writes, is not in the
    history.
    """

    def __init__(self, register: Register, history: History) -> None:
        self._register, self._history = register, history

    async def write(self, value: bytes) -> bool:
        invoked_s, name = time.perf_counter(), value_of(value)
        try:
            done = await self._register.write(value)
        except AresError:
            self._history.add("write", name, invoked_s, None)
            raise
        if done or isinstance(self._register, ForeignClient):
            self._history.add("write", name, invoked_s, time.perf_counter() if done else None)
        return done

    async def read(self) -> bytes:
        invoked_s = time.perf_counter()
        try:
            value: bytes | None = await self._register.read()
        except ObjectNotFound:
            self._history.add("read", None, invoked_s, time.perf_counter())
            raise
        last = self._register.last if isinstance(self._register, ForeignClient) else None
        if last is None or last.error is None:
            seen = value if last is None else last.found
            self._history.add("read", value_of(seen), invoked_s, time.perf_counter())
        return value


class RoundWorker:
    """The work of the process."""

    def __init__(self, work: WorkerTask) -> None:
        self.work = work
        self._written: Counter[Register] = Counter()
        self._closing: list[Manager | PublishedObjects | StoreClients | ForeignLog | History] = []

    async def run(self) -> None:
        """Run all clients side by side to their ends.

        A client that fails to begin ends the process; a failed operation is in the log.
        """
        if self.work.role == "create" and isinstance(store := self.work.store, CassandraStore):
            # the driver is installed only for measurements of Cassandra
            from experiments.bench.cassandra_client import make_table

            await asyncio.to_thread(make_table, store.nodes, store.keyspace, len(store.nodes))
        if self.work.count_into:
            async with connect(self._settings()) as manager:
                servers = (await manager.status()).servers
            if os.environ.get("ROUND_BEGIN") and until_the_beginning_s() <= 0:
                print(COUNTED_LATE, file=sys.stderr)
            else:
                note_servers(Path(self.work.count_into), servers.values())
        try:
            await asyncio.gather(*(self._live(client) for client in self.work.clients))
        finally:
            for each in self._closing:
                closed = each.close()
                if closed is not None:
                    await closed

    async def _live(self, client: int) -> None:
        work, chance = self.work, random.Random(f"{self.work.seed} {client}")
        if work.role == "reconfigure":
            return await self._reconfigure(client, chance)
        if work.role == "read" and work.parameters.fresh_after_s:
            return await self._read_afresh(client, chance)
        register = await self._register(client)
        if work.role == "create":
            return await self._once(register, client == work.clients[0], chance)
        await the_beginning()
        if work.parameters.check and work.protocol not in NOT_JUDGED:
            history = History(Path(work.logs), client, KEY)
            self._closing.append(history)
            register = WitnessedRegister(register, history)
        due_s = time.perf_counter()
        for _ in range(work.parameters.operations):
            if work.parameters.arrivals == "closed":
                await asyncio.sleep(chance.uniform(0, work.parameters.interval_s))
            else:
                due_s += chance.expovariate(2 / work.parameters.interval_s)
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                MORE_FIELDS.set({"waited": max(0.0, time.perf_counter() - due_s)})
            await self._once(register, work.role == "write", chance)
        return None

    async def _read_afresh(self, client: int, chance: random.Random) -> None:
        """Read repeatedly, each time with a new client that has no knowledge of the domain."""
        algorithm, own = ALGORITHM_OF[self.work.protocol], self.work.parameters
        await the_beginning()
        await asyncio.sleep(own.fresh_after_s)
        for _ in range(own.operations):
            await asyncio.sleep(chance.uniform(0, own.interval_s))
            opened: Manager | PublishedObjects
            if own.published:
                opened = objects = await self._published(client)
                register = published_register(objects, algorithm, KEY, self._block_sizes())
            else:
                opened = manager = await self._manager(client)
                register = register_of(await manager.domain(ROUND_DOMAIN), algorithm, KEY)
            await self._once(register, False, chance)
            self._closing.remove(opened)
            await opened.close()

    async def _once(self, register: Register, writes: bool, chance: random.Random) -> None:
        with suppress(AresError):  # the log has the error
            if writes:
                await register.write(content(chance, self._size(register)))
            else:
                await register.read()

    def _size(self, register: Register) -> int:
        """Return the size of the client's next write."""
        own = self.work.parameters
        self._written[register] += 1
        if own.load_policy == "fixedsize" or self.work.role == "create":
            return own.object_size
        written = min(self._written[register], own.operations)
        return max(1, own.object_size * written // own.operations)

    async def _register(self, client: int) -> Register:
        work, own, sizes = self.work, self.work.parameters, self._block_sizes()
        if own.published:
            algorithm, objects = ALGORITHM_OF[work.protocol], await self._published(client)
            return published_register(objects, algorithm, KEY, sizes)
        if isinstance(work.store, AresStore):
            algorithm = ALGORITHM_OF[work.protocol]
            servers = [str(server) for server in Settings.load(work.store.file).servers]
            create = configuration_of(algorithm.dap, servers, own.parity)
            manager = await self._manager(client)
            if is_mixed(work.protocol):  # the primitives change under the operation
                store = await manager.domain(ROUND_DOMAIN, create=create)
                return register_of(store, algorithm, KEY, sizes)
            return await open_register(manager, algorithm, KEY, ROUND_DOMAIN, create, sizes)
        wait = work.store.wait if isinstance(work.store, RedisStore) else 0
        log = ForeignLog(self._log_path(client), client, wait)
        clients = await connected(work.store, 1)
        self._closing += [clients, log]
        return ForeignClient(clients, log)

    def _block_sizes(self) -> Sizes:
        least, most = self.work.parameters.block_min, self.work.parameters.block_max
        return Sizes(least, (least + most) // 2, most)

    async def _published(self, client: int) -> PublishedObjects:
        own = self.work.parameters
        algorithm = published_algorithm(self.work.protocol, own.published, own.switches)
        objects = await connect_published(self._settings(), algorithm, self._log_path(client))
        self._closing.append(objects)
        return objects

    async def _manager(self, client: int) -> Manager:
        logged = None if self.work.parameters.published else self._log_path(client)
        manager = await connect(self._settings(), operation_log=logged)
        self._closing.append(manager)
        return manager

    def _settings(self) -> Settings:
        work = self.work
        assert isinstance(work.store, AresStore)
        settings = Settings.load(work.store.file)
        on = ("piggyback",) if work.protocol == "ABD" else work.parameters.switches
        names = ("piggyback", "gc", "batch", "fast_read", "optimised", "ahead")
        switches = {name: name in on for name in names}
        client = structs.replace(settings.client, timeout_s=work.parameters.timeout_s, **switches)
        return structs.replace(settings, client=client)

    def _log_path(self, client: int) -> Path:
        return Path(self.work.logs) / f"client-{client}.log"

    async def _move_published(self, objects: PublishedObjects, wished: Configuration) -> None:
        """Move the object; without batching block by block, as the file is before the move."""
        own, keys = self.work.parameters, [KEY]
        fragmented = ALGORITHM_OF[self.work.protocol].fragmented
        if fragmented and own.published == "ares2" and "batch" not in own.switches:
            keys = [*(await objects.blocks(KEY))]
        await objects.reconfigure(wished, keys, MOVE_TIMEOUT_S)

    async def _reconfigure(self, client: int, chance: random.Random) -> None:
        """Reconfigure at intervals after the end of the last move, onto servers that answer.

        A manager of today's ares finds these servers, also where an algorithm as published moves.
        """
        work, own, manager = self.work, self.work.parameters, await self._manager(client)
        dap, mixed = ALGORITHM_OF[work.protocol].dap, is_mixed(work.protocol)
        move: Callable[[Configuration], Awaitable[object]]
        if own.published:
            objects = await self._published(client)
            move = partial(self._move_published, objects)
        else:
            store = await manager.domain(ROUND_DOMAIN)
            move = partial(store.reconfigure, timeout_s=MOVE_TIMEOUT_S)
        refusals = ForeignLog(Path(work.logs) / f"client-{client}-refused.log", client)
        self._closing.append(refusals)
        await the_beginning()
        if own.fresh_after_s:  # they take turns
            every_s, among = own.reconfigure_every_s, own.reconfigurers
            await asyncio.sleep(every_s * (client % among) / among)
        for number in range(own.reconfigurations):
            await asyncio.sleep(own.reconfigure_every_s)
            began_s = time.perf_counter()
            answers = (await manager.status()).servers  # a move begins with servers that run
            servers = [str(server) for server, answer in answers.items() if answer is not None]
            if mixed and own.fresh_after_s:
                dap = dap_of_turn(number, client, own.reconfigurers)
            elif mixed:
                dap = "ec" if dap == "abd" else "abd"
            if own.onto == "some":
                servers = chance.sample(servers, chance.choice(servers_of_some(len(servers))))
            try:
                onto = configuration_of(dap, servers, own.parity, own.delta)
                wished = await manager.identified(onto)
            except AresError as error:
                refusals.write("reconfigure", began_s, time.perf_counter(), 0, str(error))
                continue
            with suppress(AresError):  # the log has the error
                if turn_of(number, client, own.reconfigurers) < own.pending:
                    await objects.begin_move(wished, MOVE_TIMEOUT_S)
                else:
                    await move(wished)


def turn_of(number: int, client: int, reconfigurers: int) -> int:
    """Return the number of a move among the moves of reconfigurers in turn."""
    return number * reconfigurers + client % reconfigurers


def dap_of_turn(number: int, client: int, reconfigurers: int) -> Algorithm:
    """Return the primitives of a move of reconfigurers in turn.

    The primitives alternate from move to move, whichever reconfigurer moves, and begin with the
    erasure code.
    """
    return "ec" if turn_of(number, client, reconfigurers) % 2 == 0 else "abd"


def main() -> None:
    """Do the work given on standard input."""
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerTask)
    what = (work.store, work.protocol, work.parameters)
    if work.role == "create" and work.parameters.load is not None:
        prepare_load(*what)
    elif work.role == "load":
        make_load(*what, lambda: run(the_beginning()), Path(work.logs))
    else:
        run(RoundWorker(work).run())


if __name__ == "__main__":
    main()
