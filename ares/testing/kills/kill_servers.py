"""Storage servers under load, killed by the thousand.

After a restart, a server must still have all data acknowledged or shown before.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

from msgspec import Struct

from ares.client.connect import connections_of, consensus_of, manager_of
from ares.client.manager import Manager
from ares.cluster.addresses import split_address
from ares.cluster.settings import Settings
from ares.model.errors import AresError, ConfigurationRefused
from ares.model.identity import CallId, ServerId
from ares.model.messages import AnyMessage, Describe, Description, GetData
from ares.reconfig.view import Switches
from ares.testing.kills.storm import ForkedProcesses, Storm, StormCounts, StormLimits, end
from ares.testing.promises import Promises, PromiseWitness
from ares.testing.socket_runs import not_over_sockets
from ares.testing.torture.clients import RecordedClient
from ares.testing.torture.nemesis import random_wish
from ares.testing.torture.records import Record
from ares.testing.torture.verdict import judge

KEEPERS = 6
ALONE_S = (0.0, 0.25)
"""Seconds without kills between two rounds of kills."""

KILL_RECONFIGURATIONS_EVERY_S = (0.5, 2.5)
RECONFIGURATION_S = 20.0
KNOCK_S = 0.005
ASK_AGAIN_S = 1.0
KILL_SILENCE_S = 60.0
SMALL_KEYS = 12
LARGE_KEYS = 1
SMALL_WRITE_BYTES = (1, 3000)
LARGE_WRITE_BYTES = 2**20
LARGE_SHARE = 0.04
OPERATION_WEIGHTS = {"read": 5, "write": 14, "delete": 1}
KEEPER_TIMEOUT_S = 30.0


class KeeperTally(Struct):
    """Counts of all keepers together.

    ``unanswered``: abandoned operations; each may have taken effect or not.
    """

    writes: int = 0
    deletes: int = 0
    reads: int = 0
    large: int = 0
    unanswered: int = 0


class ServersReport(Struct, frozen=True):
    """The outcome of a run.

    ``replies``: replies of servers, each of which is a promise. ``checked``: questions asked after
    restarts. ``findings``: lost data, in words.
    """

    seconds: float
    toll: StormCounts
    operations: KeeperTally
    replies: int
    checked: int
    reconfigurations: int
    findings: list[str]


class ServersRun:
    """A run on the cluster of ``settings``, not yet started; the consensus members live on."""

    def __init__(self, settings: Settings, limits: StormLimits, seed: int) -> None:
        self._settings = settings
        self._limits = limits
        self._chance = Random(f"{seed} kills")
        self._promises = {server: Promises() for server in settings.servers}
        self._processes = ForkedProcesses(settings)
        self._clients: list[RecordedClient] = []
        self._records: list[Record] = []
        self._unanswered = 0
        self._reconfigurations = 0
        self._checked = 0
        self._over_sockets = set[ServerId]()

    async def perform(self) -> ServersReport:
        """Perform the whole run. An interruption leaves no process running."""
        begin = time.monotonic()
        try:
            for process in self._settings.processes():
                self._processes.start(process.id)
            servers = list(self._settings.servers)
            storm = Storm(
                self._processes,
                servers,
                self._chance,
                lambda: asyncio.sleep(self._chance.uniform(*ALONE_S)),
                self._audit,
            )
            findings = await self._under_load(storm)
            findings += [f"{id}: {finding}" for id in servers for finding in await self._audit(id)]
            findings += not_over_sockets(self._settings, servers, self._over_sockets)
        finally:
            await self._processes.close()
        replies = sum(promises.count for promises in self._promises.values())
        seconds = round(time.monotonic() - begin, 1)
        return ServersReport(
            seconds,
            storm.toll,
            self._tally(),
            replies,
            self._checked,
            self._reconfigurations,
            findings,
        )

    async def _under_load(self, storm: Storm) -> list[str]:
        """Return the findings of the storm and of the keepers: clients with disjoint keys."""
        stores = [self._client() for _ in range(KEEPERS + 2)]
        over = asyncio.Event()
        keeping = [
            asyncio.create_task(self._keep(f"keeper{number}", store, over))
            for number, store in enumerate(stores[:KEEPERS])
        ]
        reconfiguring = asyncio.create_task(self._keep_reconfiguring(stores[-1]))
        try:
            await storm.rage(self._limits)
            over.set()
            await asyncio.gather(*keeping)
        finally:
            await end([*keeping, reconfiguring])
        final = self._recorded("final", stores[-2])
        for key in sorted({record.event.key for record in self._records}):
            await final.operate("read", key)
        for store in stores:
            await store.close()
        verdict = judge(self._records)
        faults = [fault for client in self._clients for fault in client.faults]
        return [*storm.findings, *verdict.violations, *verdict.undecided, *faults]

    def _recorded(self, name: str, store: Manager) -> RecordedClient:
        client = RecordedClient(
            name, store, Random(f"{self._chance.random()}"), self._records.append, KEEPER_TIMEOUT_S
        )
        self._clients.append(client)
        return client

    async def _keep(self, name: str, store: Manager, over: asyncio.Event) -> None:
        """Run operations in turn until ``over`` is set."""
        chance, client = Random(f"{self._chance.random()}"), self._recorded(name, store)
        while not over.is_set():
            large = chance.random() < LARGE_SHARE
            key = (
                f"{name}/large/{chance.randrange(LARGE_KEYS)}"
                if large
                else f"{name}/{chance.randrange(SMALL_KEYS)}"
            )
            kind: Any = chance.choices(list(OPERATION_WEIGHTS), list(OPERATION_WEIGHTS.values()))[0]
            await client.operate(
                kind,
                key,
                size_bytes=LARGE_WRITE_BYTES if large else chance.randint(*SMALL_WRITE_BYTES),
            )

    def _tally(self) -> KeeperTally:
        done = Counter(
            record.event.operation for record in self._records if record.event.outcome == "ok"
        )
        large = sum(
            record.event.operation == "write" and "/large/" in record.event.key
            for record in self._records
            if not record.error
        )
        errors = sum(bool(record.error) for record in self._records)
        return KeeperTally(
            done["write"], done["delete"], done["read"], large, errors + self._unanswered
        )

    def _client(self) -> Manager:
        def connect() -> PromiseWitness:
            return PromiseWitness(connections_of(self._settings), self._promises)

        return manager_of(self._settings, connect, consensus_of(self._settings), Switches())

    async def _keep_reconfiguring(self, store: Manager) -> None:
        """Reconfigure again and again; the collection after each is a promise too."""
        chance, servers = Random(f"{self._chance.random()}"), list(self._settings.servers)
        for number in itertools.count(1):
            await asyncio.sleep(chance.uniform(*KILL_RECONFIGURATIONS_EVERY_S))
            wish = random_wish(number, servers, False, chance)
            try:
                await store.reconfigure(wish.configuration(), timeout_s=RECONFIGURATION_S)
            except ConfigurationRefused:
                continue  # a server of the new configuration was dead when it was asked
            except AresError:
                self._unanswered += 1
                continue
            self._reconfigurations += 1

    # -- asking restarted servers whether their promises are still true ----------------------------

    async def _audit(self, server: ServerId) -> list[str]:
        """Return the broken promises of the server, in words."""
        promises = self._promises[server]
        pointers, versions = promises.pointers(), promises.versions()
        data = [
            GetData(CallId(call), each.configuration, each.object, element=True)
            for call, each in enumerate(versions, 2)
        ]
        try:
            async with asyncio.timeout(KILL_SILENCE_S):
                replies = await self._ask(server, [Describe(CallId(1)), *data])
        except TimeoutError:
            return [f"it does not serve again: {self._processes.last_words(server)}"]
        self._checked += len(replies)
        description, *answers = replies
        if not isinstance(description, Description):
            return [f"it does not describe itself: {description}"]
        findings = promises.broken_by(description, *pointers)
        for each, reply in zip(versions, answers, strict=True):
            if wrong := promises.broken_by_data(each, reply):
                findings.append(wrong)
        return findings

    async def _ask(self, server: ServerId, questions: list[Describe | GetData]) -> list[AnyMessage]:
        """Return the reply to each question, as soon as the server listens.

        Raises TimeoutError if the server ended by itself.
        """
        host, port = split_address(self._settings.servers[server].address)
        while True:
            with suppress(OSError):
                _, knocking = await asyncio.open_connection(host, port)
                knocking.close()
                break
            if self._processes.ended(server):
                raise TimeoutError
            await asyncio.sleep(KNOCK_S)
        replies: dict[CallId, AnyMessage] = {}
        complete = asyncio.Event()

        def deliver(_: ServerId, heard: Sequence[AnyMessage]) -> None:
            replies.update((reply.call, reply) for reply in heard)
            if len(replies) == len(questions):
                complete.set()

        connections = connections_of(self._settings)
        connections.open(deliver)
        connections.learn(server, self._settings.servers[server].address)
        while not complete.is_set() and not self._processes.ended(server):
            connections.post(
                server, [question for question in questions if question.call not in replies]
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(complete.wait(), ASK_AGAIN_S)
        self._over_sockets |= connections.over_sockets
        await connections.close()
        if not complete.is_set():
            raise TimeoutError
        return [replies[question.call] for question in questions]
