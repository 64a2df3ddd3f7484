"""A torture run: a place of its own, the processes, clients, the nemesis, the verdict.

The place is a temporary directory with a cluster file, and a network if possible. Without a
network, runs with odd seeds go over Unix sockets. All of the place is removed afterwards.
"""

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Literal, NoReturn

import msgspec
from msgspec import Struct

from ares.client.connect import connect
from ares.cluster.new_cluster import Durability, InitPlan, create
from ares.cluster.settings import Settings
from ares.cluster.tables import TransportName
from ares.model.configuration import Configuration, Server
from ares.model.identity import DomainName
from ares.platform.loop import run
from ares.testing.socket_runs import has_sockets, make_room_for_sockets, not_over_sockets
from ares.testing.torture.clients import TrafficPlan
from ares.testing.torture.log_clients import TORTURED_LOG, first_chain
from ares.testing.torture.nemesis import Nemesis, NemesisLedger, TorturedLog
from ares.testing.torture.partition import TortureNetwork, obstacle
from ares.testing.torture.reconfigurer import Reconfigurers
from ares.testing.torture.records import (
    Counts,
    RecordedOperation,
    Seen,
    Timeline,
    encoder,
    load_log_records,
    load_records,
)
from ares.testing.torture.timeline import render
from ares.testing.torture.torture_cluster import (
    CLIENT_HOSTS,
    RECONFIGURERS_HOST,
    Helper,
    TortureCluster,
    etcd_ids,
    etcd_members,
)
from ares.testing.torture.verdict import (
    Findings,
    Summary,
    count_operations,
    judge,
    judge_log,
    latencies,
    longest_pause_s,
)
from ares.testing.verify.history import dump
from ares.testing.verify.log_history import dump_log

TORTURE_TIMEOUT_S = 20.0
OPERATIONS_PER_S = 160.0
"""Rate limit of all clients together."""

CALM_S = 1.0
OVER_SOCKETS = "servers and clients met at Unix sockets, as with every odd seed"
_PROGRESS_S = 0.5
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Workload = Literal["objects", "log"]
DIRECTORY_SERVERS = 3
LOG_STANDSTILL_S = 2.0
"""Patience and pauses of a log's moves.

A log takes appends when all servers of the chain are well, and a chain is finalized when all its
servers have all records. A move to a chain with a dead server gives up after the first time, and
the next chain is tried, as the autopilot does. The pause between faults leaves time for a move.
"""


class Options(Struct, frozen=True):
    """The options of a run. ``out``: the place for history.jsonl and timeline.html.

    ``etcd``: an etcd decides, with ``consensus`` members, instead of consensus members.
    ``durability``: whether killed servers return with their data, or with a new identity.
    ``workload``: the clients' operations. Names of logs are kept by additional servers that are
    never hurt.
    """

    seconds: float
    seed: int
    out: Path
    servers: int = 7
    consensus: int = 3
    partitions: bool = True
    etcd: bool = False
    durability: Durability = "fsync"
    workload: Workload = "objects"
    transport: TransportName = "native"


class TortureProgress(Struct, frozen=True):
    """The progress of a run, for its display."""

    seconds: float
    counts: Counts
    faults: int
    reconfigurations: dict[str, int]
    configuration: str


class TortureRun:
    """A run on a cluster that is set up and not started."""

    def __init__(
        self,
        options: Options,
        cluster: TortureCluster,
        notes: list[str],
        show: Callable[[TortureProgress], None],
    ) -> None:
        self._options = options
        self._home = cluster.settings.path.parent
        self._notes = notes
        self._show = show
        self._timeline = Timeline()
        self._cluster = cluster
        self._of_log = options.workload == "log"
        self._reconfigurers = Reconfigurers(
            self._cluster, LOG_STANDSTILL_S if self._of_log else TORTURE_TIMEOUT_S
        )
        self._clients: dict[str, Helper] = {}
        self._counts: dict[str, Counts] = {}
        self._problems: list[str] = []

    async def perform(self) -> Summary:
        """Perform the run, without making the place. An ending signal cancels the run, once."""
        self._listen_for_endings()
        try:
            await self._cluster.start()
            for process in self._cluster.processes():
                self._timeline.state(process, "up", new_life=True)
            nemesis = await self._nemesis()
            await self._traffic(nemesis)
            for helper in self._clients.values():
                helper.ask_to_end()
            for name in list(self._clients):
                await self._end(name)
            everybody = "".join(CLIENT_HOSTS)
            await self._start("final-log" if self._of_log else "final", everybody)
            await self._end(everybody)
            await self._ask_over_sockets()
        finally:
            for helper in self._clients.values():
                await helper.kill()
            await self._reconfigurers.close()
            self._cluster.stop()
        self._timeline.close()
        return self._report(nemesis)

    async def _ask_over_sockets(self) -> None:
        """Check that a new client reaches all servers over Unix sockets, if the run has sockets."""
        settings = self._cluster.settings
        if has_sockets(settings):
            async with connect(settings) as store:
                reached = (await store.status()).over_sockets
            self._problems += not_over_sockets(settings, settings.servers, reached)

    async def _nemesis(self) -> Nemesis:
        """Make the nemesis for the workload; the log, if any, exists on return."""
        settings = self._cluster.settings
        first, log = settings.initial, None
        identities = {server: self._cluster.identity(server) for server in settings.servers}
        if self._of_log:
            log = TorturedLog(TORTURED_LOG, spared=first.server_ids)
            first = Configuration.chain(
                Server(server, identity=identities[server]) for server in first_chain(settings)
            ).at(DomainName(TORTURED_LOG), 0)
            await self._start("make-log", CLIENT_HOSTS[0])
            await self._end(CLIENT_HOSTS[0])
        self._timeline.reigns_now(first, None)
        ledger, chance = (
            NemesisLedger(first, identities, self._cluster.deciders),
            Random(f"{self._options.seed} nemesis"),
        )
        return Nemesis(
            self._cluster,
            self._reconfigurers.reconfigure,
            ledger,
            self._timeline,
            chance,
            log,
        )

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
        watchers = [
            asyncio.create_task(
                self._watch(
                    host, await self._start("log-clients" if self._of_log else "clients", host)
                )
            )
            for host in CLIENT_HOSTS
        ]
        progress = asyncio.create_task(self._show_progress(nemesis))
        try:
            await nemesis.rage(self._options.seconds)
            await asyncio.sleep(CALM_S)
        finally:
            for task in (progress, *watchers):
                task.cancel()
            await asyncio.gather(progress, *watchers, return_exceptions=True)

    async def _start(self, role: str, name: str) -> Helper:
        cluster, records = (
            str(self._cluster.settings.path),
            str(self._home / f"{role}-{name}.jsonl"),
        )
        plan = TrafficPlan(
            cluster,
            name,
            self._options.seed,
            OPERATIONS_PER_S / len(CLIENT_HOSTS),
            TORTURE_TIMEOUT_S,
            records,
        )
        host = name if name in CLIENT_HOSTS else CLIENT_HOSTS[0]
        helper = await Helper.start(
            self._cluster.inside(host),
            role,
            encoder.encode(plan),
            self._home / "logs" / f"{role}-{name}.log",
        )
        self._clients[name] = helper
        return helper

    async def _watch(self, host: str, helper: Helper) -> None:
        while line := await helper.hear():
            self._counts[host] = msgspec.json.decode(line, type=Counts)
        self._problems.append(
            f"the clients of host {host} ended by themselves: {helper.last_words()}"
        )

    async def _show_progress(self, nemesis: Nemesis) -> None:
        while True:
            counts = Counts(
                sum(each.operations for each in self._counts.values()),
                sum(each.errors for each in self._counts.values()),
            )
            timeline = self._timeline
            reign = timeline.reigns[-1]
            configuration = f"{reign.index}: {reign.text}"
            self._show(
                TortureProgress(
                    timeline.now(),
                    counts,
                    timeline.faults.total(),
                    nemesis.reconfigurations,
                    configuration,
                )
            )
            await asyncio.sleep(_PROGRESS_S)

    async def _end(self, name: str) -> None:
        helper = self._clients.pop(name)
        try:
            async with asyncio.timeout(2 * TORTURE_TIMEOUT_S):
                while await helper.hear():
                    pass
                status = await helper.end()
        except TimeoutError:
            await helper.kill()
            self._problems.append(
                f"the clients of host {name} did not end, although nothing was wrong any more"
            )
            return
        if status:
            self._problems.append(
                f"the clients of host {name} ended with status {status}: {helper.last_words()}"
            )

    def _report(self, nemesis: Nemesis) -> Summary:
        options, timeline = self._options, self._timeline
        files = sorted(self._home.glob("*.jsonl"))
        if self._of_log:
            appended = load_log_records(files, timeline.origin)
            (options.out / "history.jsonl").write_bytes(
                dump_log(record.event for record in appended)
            )
            return self._written(appended, judge_log(appended), nemesis)
        records = load_records(files, timeline.origin)
        (options.out / "history.jsonl").write_bytes(dump(record.event for record in records))
        return self._written(records, judge(records), nemesis)

    def _written(
        self, records: list[RecordedOperation[Seen]], findings: Findings, nemesis: Nemesis
    ) -> Summary:
        summary = self._summary(records, findings, nemesis)
        (self._options.out / "timeline.html").write_text(
            render(records, self._timeline, summary), encoding="utf-8"
        )
        return summary

    def _summary(
        self, records: list[RecordedOperation[Seen]], findings: Findings, nemesis: Nemesis
    ) -> Summary:
        options, timeline = self._options, self._timeline
        overall, during_faults = latencies(records, timeline)
        problems: list[str] = [*self._problems, *nemesis.problems]
        return Summary(
            seed=options.seed,
            seconds=round(timeline.end, 1),
            servers=options.servers,
            consensus=options.consensus,
            partitions=self._cluster.has_network,
            operations=count_operations(records),
            faults=dict(sorted(timeline.faults.items())),
            reconfigurations=nemesis.reconfigurations,
            configurations=timeline.reigns[-1].index + 1,
            latency=overall,
            latency_during_faults=during_faults,
            longest_pause_s=round(longest_pause_s(records), 3),
            violations=findings.violations,
            undecided=findings.undecided,
            liveness_failures=findings.liveness_failures,
            problems=problems if records else [*problems, "no client did anything"],
            notes=self._notes,
            transport=options.transport,
        )


def torture(
    options: Options, show: Callable[[TortureProgress], None], show_line: Callable[[str], None]
) -> Summary:
    """Make a place for the run, carry it out, write the results, and clear up.

    ``show`` is called with the progress twice a second, ``show_line`` with urgent messages for a
    person. SIGINT, SIGTERM and SIGHUP end the run with KeyboardInterrupt, after all processes are
    stopped and removed. Raises :class:`ares.testing.torture.records.TortureFailed`.
    """
    notes: list[str] = []
    options.out.mkdir(parents=True, exist_ok=True)
    with _signals(_interrupt), contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ares-torture-")))
        network = None
        if options.partitions and (why := obstacle()):
            notes.append(why)
            show_line(why)
        elif options.partitions:
            network = stack.enter_context(TortureNetwork(_hosts(options)))
        cluster = _cluster(home, options, network)
        if network is None and make_room_for_sockets(cluster.settings, options.seed):
            notes.append(OVER_SOCKETS)
        try:
            summary = run(TortureRun(options, cluster, notes, show).perform())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            stack.enter_context(_signals(signal.SIG_IGN))
        if not summary.ok:
            shutil.copytree(home / "logs", options.out / "logs", dirs_exist_ok=True)
        return summary


@contextlib.contextmanager
def _signals(handler: signal.Handlers | Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM and the end of the terminal by ``handler`` inside the context."""
    before = {number: signal.signal(number, handler) for number in ENDINGS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _hosts(options: Options) -> list[str]:
    """Return the names of all hosts with an address of their own."""
    deciders = (
        etcd_ids(options.consensus)
        if options.etcd
        else [f"r{index}" for index in range(options.consensus)]
    )
    servers = options.servers + (DIRECTORY_SERVERS if options.workload == "log" else 0)
    return [
        *CLIENT_HOSTS,
        RECONFIGURERS_HOST,
        *(f"s{index}" for index in range(servers)),
        *deciders,
    ]


def _cluster(home: Path, options: Options, network: TortureNetwork | None) -> TortureCluster:
    """Return the cluster, not yet started."""
    endpoints, etcd = (
        etcd_members(home / "etcd", options.consensus, network) if options.etcd else ((), {})
    )
    members = 0 if options.etcd else options.consensus
    first, spares = (
        (DIRECTORY_SERVERS, options.servers) if options.workload == "log" else (options.servers, 0)
    )
    settings = create(
        home,
        InitPlan(
            first,
            members,
            base_port=0,
            security="none",
            durability=options.durability,
            etcd=endpoints,
            spares=spares,
            transport=options.transport,
        ),
    )
    if network is not None:
        settings = _moved(settings, network)
    return TortureCluster(settings, network, etcd)


def _moved(settings: Settings, network: TortureNetwork) -> Settings:
    """Return the same cluster with every process at the address of its host."""
    text = settings.path.read_text(encoding="utf-8")
    for server in settings.servers.values():
        text = text.replace(f'"{server.address}"', f'"{network.address(server.id)}:7400"')
    for member in settings.members.values():
        text = text.replace(f'"{member.address}"', f'"{network.address(member.id)}:7400"')
        text = text.replace(f'"{member.raft}"', f'"{network.address(member.id)}:7401"')
    settings.path.write_text(text, encoding="utf-8")
    return Settings.load(settings.path)
