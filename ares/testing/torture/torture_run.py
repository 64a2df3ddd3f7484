"""A torture run on a cluster that is set up: its processes, clients, the nemesis, the verdict. place.py makes the place for it."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from ares.cluster.cluster_file import Durability
from ares.testing.torture.clients import ClientPlan
from ares.testing.torture.cluster import Cluster, Helper
from ares.testing.torture.events import Chronicle
from ares.testing.torture.ledger import Ledger
from ares.testing.torture.nemesis import Nemesis
from ares.testing.torture.partition import Network
from ares.testing.torture.records import Counts, Record, encoder, load_records
from ares.testing.torture.timeline import render
from ares.testing.torture.verdict import Summary, count_operations, judge, latencies, longest_pause_s
from ares.testing.torture.victims import CLIENTS, Processes, Reconfigurers
from ares.testing.verify.history import dump

TIMEOUT_S = 20.0
CALM_S = 1.0
_PROGRESS_S = 0.5
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Options(Struct, frozen=True):
    """``out``: where history.jsonl and timeline.html go. ``operations_per_s``: of all clients together, at most.

    ``etcd``: it decides, with so many members, instead of consensus members. ``durability``: whether servers that were killed come back with what
    they had, or as somebody new.
    """

    seconds: float
    seed: int
    out: Path
    servers: int = 7
    consensus: int = 3
    partitions: bool = True
    etcd: bool = False
    operations_per_s: float = 160.0
    durability: Durability = "fsync"


class Progress(Struct, frozen=True):
    """How it goes."""

    seconds: float
    counts: Counts
    faults: int
    reconfigurations: dict[str, int]
    configuration: str


class Run:
    """One run on a cluster that is set up and not started."""

    def __init__(self, options: Options, cluster: Cluster, network: Network | None, notes: list[str], show: Callable[[Progress], None]) -> None:
        self._options = options
        self._home = cluster.settings.path.parent
        self._network = network
        self._notes = notes
        self._show = show
        self._chronicle = Chronicle()
        self._cluster = cluster
        self._reconfigurers = Reconfigurers(self._cluster, TIMEOUT_S)
        self._victims = Processes(self._cluster, network, self._reconfigurers)
        self._clients: dict[str, Helper] = {}
        self._counts: dict[str, Counts] = {}
        self._problems: list[str] = []

    async def perform(self) -> Summary:
        """Everything but the place. An ending signal cancels it, once."""
        self._listen_for_endings()
        try:
            await self._cluster.start()
            for process in self._cluster.processes():
                self._chronicle.state(process, "up", new_life=True)
            settings = self._cluster.settings
            self._chronicle.reigns_now(settings.initial, None)
            identities = {server: self._cluster.identity(server) for server in settings.servers}
            ledger = Ledger(settings.initial, identities, self._cluster.deciders)
            nemesis = Nemesis(self._victims, ledger, self._chronicle, Random(f"{self._options.seed} nemesis"))
            await self._traffic(nemesis)
            await self._end_clients()
            await self._read_everything()
        finally:
            for helper in self._clients.values():
                await helper.kill()
            await self._reconfigurers.close()
            self._cluster.stop()
        self._chronicle.close()
        return self._report(nemesis)

    def _listen_for_endings(self) -> None:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None

        def end() -> None:
            for number in ENDINGS:
                loop.add_signal_handler(number, lambda: None)
            this.cancel()

        for number in ENDINGS:
            loop.add_signal_handler(number, end)

    async def _traffic(self, nemesis: Nemesis) -> None:
        watchers = [asyncio.create_task(self._watch(host, await self._start("clients", host))) for host in CLIENTS]
        progress = asyncio.create_task(self._tell(nemesis))
        try:
            await nemesis.rage(self._options.seconds)
            await asyncio.sleep(CALM_S)
        finally:
            for task in (progress, *watchers):
                task.cancel()
            await asyncio.gather(progress, *watchers, return_exceptions=True)

    async def _start(self, role: str, name: str) -> Helper:
        plan = ClientPlan(
            str(self._cluster.settings.path),
            name,
            self._options.seed,
            self._options.operations_per_s / len(CLIENTS),
            TIMEOUT_S,
            str(self._records(role, name)),
        )
        host = name if name in CLIENTS else CLIENTS[0]
        helper = await Helper.start(self._cluster.inside(host), role, encoder.encode(plan), self._home / "logs" / f"{role}-{name}.log")
        self._clients[name] = helper
        return helper

    async def _watch(self, host: str, helper: Helper) -> None:
        while line := await helper.hear():
            self._counts[host] = msgspec.json.decode(line, type=Counts)
        self._problems.append(f"the clients of host {host} ended by themselves: {helper.last_words()}")

    async def _tell(self, nemesis: Nemesis) -> None:
        while True:
            counts = Counts(sum(each.operations for each in self._counts.values()), sum(each.errors for each in self._counts.values()))
            chronicle = self._chronicle
            reign = chronicle.reigns[-1]
            configuration = f"{reign.index}: {reign.text}"
            self._show(Progress(chronicle.now(), counts, chronicle.faults.total(), nemesis.reconfigurations, configuration))
            await asyncio.sleep(_PROGRESS_S)

    async def _end_clients(self) -> None:
        for helper in self._clients.values():
            helper.ask_to_end()
        for name in list(self._clients):
            await self._end(name)

    async def _end(self, name: str) -> None:
        helper = self._clients.pop(name)
        try:
            async with asyncio.timeout(2 * TIMEOUT_S):
                while await helper.hear():
                    pass
                status = await helper.end()
        except TimeoutError:
            await helper.kill()
            self._problems.append(f"the clients of host {name} did not end, although nothing was wrong any more")
            return
        if status:
            self._problems.append(f"the clients of host {name} ended with status {status}: {helper.last_words()}")

    async def _read_everything(self) -> None:
        await self._start("final", "".join(CLIENTS))
        await self._end("".join(CLIENTS))

    def _records(self, role: str, name: str) -> Path:
        return self._home / f"{role}-{name}.jsonl"

    def _report(self, nemesis: Nemesis) -> Summary:
        options, chronicle = self._options, self._chronicle
        records = load_records(sorted(self._home.glob("*.jsonl")), chronicle.origin)
        summary = self._summary(records, nemesis)
        (options.out / "history.jsonl").write_bytes(dump(record.event for record in records))
        (options.out / "timeline.html").write_text(render(records, chronicle, summary), encoding="utf-8")
        return summary

    def _summary(self, records: list[Record], nemesis: Nemesis) -> Summary:
        options, chronicle = self._options, self._chronicle
        findings = judge(records)
        overall, during_faults = latencies(records, chronicle)
        problems = [*self._problems, *nemesis.problems]
        return Summary(
            seed=options.seed,
            seconds=round(chronicle.end, 1),
            servers=options.servers,
            consensus=options.consensus,
            partitions=self._network is not None,
            operations=count_operations(records),
            faults=dict(sorted(chronicle.faults.items())),
            reconfigurations=nemesis.reconfigurations,
            configurations=chronicle.reigns[-1].index + 1,
            latency=overall,
            latency_during_faults=during_faults,
            longest_pause_s=round(longest_pause_s(records), 3),
            violations=findings.violations,
            undecided=findings.undecided,
            liveness_failures=findings.liveness_failures,
            problems=problems if records else [*problems, "no client did anything"],
            notes=self._notes,
        )
