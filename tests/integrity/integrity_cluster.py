"""A cluster of durable servers in an event loop that scrub their disks.

The transport is in-process.
"""

import asyncio
from pathlib import Path

from ares.client.domain_directory import ClientParts
from ares.client.manager import Manager
from ares.client.runner import Runner
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.model.messages import Scrub, ScrubReply
from ares.model.units import KIB
from ares.reconfig.view import Switches
from ares.registers.repair import rebuild_element
from ares.server.scrub import ScrubPlan
from ares.server.storage_process import ServingParts, run_server
from ares.store.journal.segment_journal import open_journal
from ares.store.journal.segments import Owner
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork

WAIT_S_MAX = 60.0


class IntegrityCluster:
    """Five servers of the same configuration, EC with k = 3 or ABD.

    ``hosts`` gives access to the hosts.
    """

    def __init__(self, directory: Path, dap: str, every_s: float = 0) -> None:
        self.every_s = every_s
        self.directory, self.network, self.consensus = directory, InprocNetwork(), LocalConsensus()
        self.book = {
            server.id: server
            for server in (
                Server(f"s{number}", f"host{number}:1", f"{number:032x}") for number in range(5)
            )
        }
        members = self.book.values()
        self.initial = (
            Configuration.abd(members) if dap == "abd" else Configuration.ec(members, 3, 2)
        ).at(DEFAULT_DOMAIN, 0)
        self.hosts, self.running, self.open = {}, {}, []

    async def start(self, *names):
        for name in names or self.book:
            server = self.book[name]
            journal = open_journal(
                self.store(name), Owner(self.initial.id, name, server.identity), 256 * KIB
            )
            runner = self._runner(100 + int(name[1:]))
            plan = ScrubPlan(
                self.every_s, 1 << 30, self.directory / f"{name}.scrubbed", self._pull(name, runner)
            )
            stop, listener, began = (
                asyncio.Event(),
                InprocListener(self.network, server.address),
                asyncio.Event(),
            )

            def serving(host, name=name, began=began):
                self.hosts[name] = host
                began.set()

            server = run_server(
                ServingParts(
                    server.id,
                    server.identity,
                    self.initial,
                    listener,
                    stop,
                    journal,
                    serving=serving,
                    plan=plan,
                )
            )
            self.running[name] = (asyncio.create_task(server), stop, runner)
            await asyncio.wait_for(began.wait(), WAIT_S_MAX)

    async def stop(self, *names):
        for name in names or list(self.running):
            task, stop, runner = self.running.pop(name)
            del self.hosts[name]
            stop.set()
            await task
            await runner.close()

    async def settled(self):
        """Wait until all sent elements are on disks."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                await asyncio.sleep(0.01)
                if not any(
                    host._syncing or host._gathering.appended for host in self.hosts.values()
                ):
                    return

    def store(self, name):
        return self.directory / name

    def manager(self, timeout_s=10.0):
        number = len(self.open) + 1
        manager = Manager(
            ClientParts(
                lambda: InprocConnections(self.network),
                self.consensus,
                self.initial,
                self.book,
                ClientId(number),
                Switches(),
                timeout_s,
            )
        )
        self.open.append(manager)
        return manager

    async def scrubbed(self, name) -> ScrubReply:
        """Return the end of a server's scrub."""
        reply = self.hosts[name].scrub(Scrub(1, True))
        async with asyncio.timeout(WAIT_S_MAX):
            while reply.running:
                await asyncio.sleep(0.01)
                reply = self.hosts[name].scrub(Scrub(1, False))
        return reply

    async def close(self):
        for manager in self.open:
            await manager.close()
        await self.stop()

    def _runner(self, number):
        runner = Runner(ClientId(number), InprocConnections(self.network), LocalConsensus())
        runner.learn(list(self.book.values()))
        return runner

    def _pull(self, name, runner):
        async def pull(configuration, object, tag, length):
            suspects = runner.session.readiness.suspects
            return await runner.run(
                rebuild_element(configuration, object, tag, length, name, suspects),
                "repair",
                WAIT_S_MAX,
            )

        return pull
