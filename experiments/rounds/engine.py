"""Carries rounds out, one after the other, on processes of this machine, and keeps what they logged.

A round is what the authors' six playbooks do: start the store empty; one writer makes the object and the others read it once; all readers,
writers and reconfigurers work, and faults befall servers; wait until they have ended; a last read, of which nothing is kept; keep the logs.
RESULTS/SCENARIO/ROUND has the logs, `run.json` (what the round was, and where it came from), `events.jsonl` and, when all is over, `outcome.json`.
What a round that failed has left goes under RESULTS/failed, and the round is done again by the next run with --resume.
"""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.cluster.home import held
from ares.machine.interpreter import python
from ares.model.errors import AresError, BadInput
from ares.model.version import VERSION
from experiments.bench.cassandra import CASSANDRA, NODES
from experiments.bench.etcd import Etcd
from experiments.bench.load import ENVIRONMENT
from experiments.bench.peers import Ares, Peer, Running
from experiments.bench.processes import BenchError, Slowed
from experiments.bench.redis import Redis
from experiments.rounds.correctness import checked
from experiments.rounds.load_faults import judge_load
from experiments.rounds.scenario import OF_ARES, Fault, Parameters, Round
from experiments.rounds.worker import Role, Work

CLIENTS_PER_PROCESS = 10
WORK_SPARE = 4.0
WORK_SPARE_S = 60.0
"""The work is given up after so many times as long as expected, and this long more."""

HEAD_START_S = 2.5
"""From the start of the processes of the clients until they begin."""

Tell = Callable[[str], None]


class RoundFailed(AresError):
    """A round did not come to its end; the others can."""


class Outcome(Struct):
    """Of a round: ``error`` is empty if it came to its end."""

    error: str
    seconds: float


def peer_of(protocol: str, parameters: Parameters) -> Peer:
    """The store of a protocol, with so many servers. A majority of Redis's has a write when WAIT ends. Cassandra always has the same."""
    n = parameters.servers
    if protocol in OF_ARES:
        return Ares("ares", durability=parameters.durability, n=n, consensus=3 if parameters.reconfigurers else 1)
    if protocol == "ETCD":
        return Etcd(n=n)
    if protocol == "CASSANDRA":
        return CASSANDRA[0]
    return Redis("redis", wait=n // 2 if protocol == "REDIS_W" else 0, n=n)


def why_not(round: Round, peer: Peer) -> str | None:
    """Why the round cannot be carried out here; None if it can."""
    servers, size, most = round.parameters.servers, round.parameters.object_size, peer.value_bytes_max
    if round.parameters.bad == "killed leader" and not peer.fails_over:
        return f"nobody takes over from the leader of {peer.name}"
    if round.protocol == "CASSANDRA" and servers != NODES:
        return f"Cassandra has {NODES} nodes here, and {servers} are asked for"
    if most is not None and size > most:
        return f"{peer.name} takes values of {most} bytes at most, and {size} are asked for"
    return peer.missing()


class Engine:
    """``results``: where the rounds go. One engine at a time works there. ``tell`` gets a line for each round."""

    def __init__(self, results: Path, seed: int, tell: Tell) -> None:
        self._results = results
        self._seed = seed
        self._tell = tell
        self._provenance = provenance(seed)

    def run(self, rounds: Sequence[Round], resume: bool) -> list[str]:
        """All of them; the names of those that failed. Raises :class:`BadInput` when some are there already, unless it is to ``resume``."""
        self._results.mkdir(parents=True, exist_ok=True)
        with held(self._results):
            done = [round for round in rounds if self._outcome(round) is not None]
            if done and not resume:
                raise BadInput(
                    f"{self._results} has {len(done)} of these {len(rounds)} rounds already: --resume goes on, or choose another --results"
                )
            todo = [round for round in rounds if round not in done]
            failed, told = [], set[str]()
            left_s = sum(round.expected_s for round in todo)
            for number, round in enumerate(todo, 1):
                left_s -= round.expected_s
                peer = peer_of(round.protocol, round.parameters)
                if (why := why_not(round, peer)) is not None:
                    if why not in told:
                        self._tell(f"left out: {why}")
                    told.add(why)
                    continue
                outcome = self._carry_out(round, peer)
                if outcome.error:
                    failed.append(f"{round.scenario}/{round.name}")
                said = f"FAILED: {outcome.error}" if outcome.error else f"{outcome.seconds:.1f} s"
                self._tell(f"[{number}/{len(todo)}] {round.scenario}/{round.name}: {said}; about {left_s / 60:.0f} min left")
            return failed

    def _outcome(self, round: Round) -> Outcome | None:
        """Of a round that came to its end earlier."""
        path = self._results / round.scenario / round.name / "outcome.json"
        return msgspec.json.decode(path.read_bytes(), type=Outcome) if path.exists() else None

    def _carry_out(self, round: Round, peer: Peer) -> Outcome:
        directory = self._results / round.scenario / round.name
        _make_way(directory)
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="ares-round-") as home:
                _Work(round, peer, directory, Path(home), self._seed).run(self._provenance)
        except (AresError, BenchError, OSError, subprocess.SubprocessError) as error:
            failed = Outcome(f"{type(error).__name__}: {error}", time.monotonic() - begin)
            (directory / "failure.json").write_bytes(msgspec.json.encode(failed))
            directory.rename(_free_name(directory))
            return failed
        outcome = Outcome("", time.monotonic() - begin)
        (directory / "outcome.json").write_bytes(msgspec.json.encode(outcome))
        return outcome


def _make_way(directory: Path) -> None:
    """Nothing that was measured is overwritten: what an engine that was killed left here goes aside."""
    if directory.exists():
        directory.rename(_free_name(directory))
    directory.mkdir(parents=True)


def _free_name(directory: Path) -> Path:
    """Under the directory of what failed: an import of the results does not look there."""
    aside = directory.parent.parent / "failed" / directory.parent.name
    aside.mkdir(parents=True, exist_ok=True)
    return next(path for number in range(1, 10_000) if not (path := aside / f"{directory.name}.{number}").exists())


class _Work:
    """One round. ``home``: for the store; ``directory``: what is kept."""

    def __init__(self, round: Round, peer: Peer, directory: Path, home: Path, seed: int) -> None:
        self._round = round
        self._peer = peer
        self._directory = directory
        self._home = home
        self._seed = seed
        self._clients: list[subprocess.Popen[bytes]] = []

    def run(self, provenance: dict[str, object]) -> None:
        parameters = self._round.parameters
        description = {
            "scenario": self._round.scenario,
            "algorithm": self._round.protocol,
            **{name: getattr(parameters, name) for name in ("servers", "writers", "readers", "reconfigurers", "object_size")},
            "iteration": self._round.iteration,
            "parameters": msgspec.to_builtins(parameters),
            "provenance": provenance | {"began": datetime.now(UTC).isoformat()},
        }
        if self._round.protocol.endswith(("_EC", "_EC_F")):
            description |= {"k": parameters.k, "m": parameters.parity}
        (self._directory / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(description), indent=1))
        (self._home / "store").mkdir()
        with self._peer.running(self._home / "store") as running:
            try:
                self._create(running)
                self._work(running)
                if parameters.load is None:
                    self._await([self._spawn(running, "read", (1,), 0.0, self._home, _once(parameters))], 60.0)
            finally:
                for process in self._clients:
                    if process.poll() is None:
                        process.kill()
                        process.wait()
        wrong = checked(self._directory) if parameters.load is None else judge_load(self._directory, parameters)
        if wrong is not None:
            raise RoundFailed(wrong)

    def _create(self, running: Running) -> None:
        """Client 1 makes the object; then the others read it, each over connections of its own that end with this."""
        parameters = self._round.parameters
        self._await([self._spawn(running, "create", (1,), 0.0, self._home)], 60.0 + WORK_SPARE * parameters.preparing_s)
        if parameters.load is not None:
            return
        others = tuple(range(2, parameters.writers + parameters.readers + 1))
        groups = [self._spawn(running, "read", group, 0.0, self._home, _once(parameters)) for group in _groups(others)]
        self._await(groups, 120.0)

    def _work(self, running: Running) -> None:
        parameters = self._round.parameters
        begin_s = time.monotonic() + HEAD_START_S * (1 if parameters.load is None else 4 if self._round.faults else 0)
        first = 1
        processes = []
        roles: tuple[tuple[Role, int], ...] = (("write", parameters.writers), ("read", parameters.readers), ("reconfigure", parameters.reconfigurers))
        if parameters.load is not None:
            roles = (("load", 1),)
        for role, count in roles:
            for group in _groups(tuple(range(first, first + count))):
                processes.append(self._spawn(running, role, group, begin_s, self._directory))
            first += count
        with _befalling(self._round, running, begin_s, self._directory / "events.jsonl"):
            self._await(processes, 4 * HEAD_START_S + WORK_SPARE * parameters.expected_s + WORK_SPARE_S)

    def _spawn(
        self, running: Running, role: Role, clients: tuple[int, ...], begin_s: float, logs: Path, parameters: Parameters | None = None
    ) -> subprocess.Popen[bytes]:
        work = Work(running.store, self._round.protocol, parameters or self._round.parameters, role, clients, self._seed, str(logs), begin_s)
        log = (self._home / f"worker-{role}-{clients[0]}.log").open("ab")
        with log:
            process = subprocess.Popen(python("-m", "experiments.rounds.worker"), stdin=subprocess.PIPE, stdout=log, stderr=log, env=ENVIRONMENT)
        self._clients.append(process)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(work))
        process.stdin.close()
        return process

    def _await(self, processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
        """Until all have ended. Raises :class:`RoundFailed` with the end of what one of them said."""
        deadline = time.monotonic() + timeout_s
        try:
            for process in processes:
                if process.wait(max(0.1, deadline - time.monotonic())):
                    raise RoundFailed(f"clients ended with status {process.returncode}: {self._said()}")
        except subprocess.TimeoutExpired as error:
            raise RoundFailed(f"clients still worked after {timeout_s:.0f} s: {self._said()}") from error

    def _said(self) -> str:
        logs = sorted(self._home.glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
        return next((text[-600:] for log in reversed(logs) if (text := log.read_text(errors="replace").strip())), "they said nothing")


def _once(parameters: Parameters) -> Parameters:
    """Of clients that do one operation, at once."""
    return msgspec.structs.replace(parameters, operations=1, interval_s=0.0)


def _groups(clients: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(clients), CLIENTS_PER_PROCESS):
        yield clients[first : first + CLIENTS_PER_PROCESS]


@contextlib.contextmanager
def _befalling(round: Round, running: Running, begin_s: float, events: Path) -> Iterator[None]:
    """The faults of the round at their times, and each in ``events``."""
    over = threading.Event()

    def note(event: str, server: str | None, detail: str = "") -> None:
        line = {"time": datetime.now(UTC).isoformat(), "event": event, "server": server, "detail": detail}
        with events.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def befall(slowed: contextlib.ExitStack) -> None:
        for fault in sorted(round.faults, key=lambda fault: fault.at_share):
            if over.wait(begin_s + fault.at_share * round.parameters.expected_s - time.monotonic()):
                return
            name = _victim(fault, running)
            if fault.event == "crash":
                note("crash", name, "kill -9")
                with contextlib.suppress(ProcessLookupError):  # it is gone already
                    os.kill(running.servers[name], signal.SIGKILL)
            else:
                note("slow", name, f"{fault.percent} % of a processor")
                slowed.enter_context(Slowed(running.servers[name], fault.percent / 100))

    with contextlib.ExitStack() as slowed:
        thread = threading.Thread(target=befall, args=(slowed,))
        note("phase", None, "work begins")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            note("phase", None, "work has ended")


def _victim(fault: Fault, running: Running) -> str:
    if fault.server == "leader":
        return running.leader or running.replica
    if fault.server == "replica":
        return running.replica
    names = list(running.servers)
    return names[fault.server % len(names)]


def provenance(seed: int) -> dict[str, object]:
    """Where figures come from: commit, machine, versions, seed."""
    root = Path(__file__).parents[2]
    asked = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "commit": asked.stdout.strip() or None,
        "machine": f"{len(models)} x {models[0] if models else 'processor'}, {platform.platform()}",
        "load_average": os.getloadavg()[0],
        "versions": {"ares": VERSION, "cpython": sys.version.split()[0]},
        "seed": seed,
        "testbed": "processes",
    }
