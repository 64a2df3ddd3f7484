"""A move of a domain, with working clients or without: the processes and their reports."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from ares.reconfig.throttle import OBJECT_BYTES_MIN
from experiments.bench.moving_load import DomainShape, MovingOutcome, MovingPlan
from experiments.bench.moving_mover import Move, MoveRecord
from experiments.bench.store_processes import busy_s, cpu_of
from experiments.bench.worker_process import WorkerProcess, workers
from experiments.bench.workload import Workload
from experiments.local_cluster import local_cluster

MOVING_SERVERS, MOVING_K = 5, 3
OLD, NEW = (
    tuple(f"s{number}" for number in range(MOVING_SERVERS)),
    tuple(f"s{number}" for number in range(MOVING_SERVERS, 2 * MOVING_SERVERS)),
)


class MoveCase(Struct, frozen=True):
    """The source and the target of a move: always five other servers."""

    name: str
    source: DomainShape
    target: DomainShape


MOVING_CASES = (
    MoveCase("ABD to ABD", DomainShape(OLD), DomainShape(NEW)),
    MoveCase("ABD to EC", DomainShape(OLD), DomainShape(NEW, MOVING_K)),
    MoveCase("EC to EC", DomainShape(OLD, MOVING_K), DomainShape(NEW, MOVING_K)),
)


class MoveLoad(Struct, frozen=True):
    """The load by clients during a move; see :class:`MovingPlan`. ``slow`` limits the move."""

    name: str
    clients: int
    per_s: float | None = None
    slow: bool = False


class MoveRun(Struct, frozen=True):
    """A move under load.

    ``quiet_s`` has the times without a move, (begin, end) before and after. ``cpu`` is in
    processors, of old servers, new servers, clients and mover during the move; ``quiet_cpu`` is
    before it. ``others_cpu`` is the machine's other work during the move.
    """

    case: str
    load: str
    moved: MoveRecord
    outcome: MovingOutcome
    quiet_s: tuple[tuple[float, float], tuple[float, float]]
    cpu: dict[str, float]
    quiet_cpu: dict[str, float]
    others_cpu: float


@contextlib.contextmanager
def cluster() -> Iterator[Path]:
    """Run ten servers, of which a domain has five, and a consensus member."""
    with local_cluster(2 * MOVING_SERVERS, "abd", consensus=1) as file:
        yield file


def under_load(
    file: Path,
    case: MoveCase,
    load: MoveLoad,
    workload: Workload,
    quiet_s: float,
    objects_per_s: float | None = None,
) -> MoveRun:
    """Fill a domain, watch the clients for ``quiet_s``, move the domain, and watch again.

    At most ``objects_per_s`` small objects move in a second.
    """
    bytes_per_s = objects_per_s and objects_per_s * OBJECT_BYTES_MIN
    with _prepared(file, case, workload, load.per_s, bytes_per_s=bytes_per_s) as (clients, mover):
        pids = _pids(file) | {"clients": [clients.pid], "mover": [mover.pid]}
        clients.send()
        time.sleep(quiet_s / 4)
        before_s, used = time.perf_counter(), _used(pids)
        time.sleep(quiet_s)
        quiet_cpu = _shares(used, _used(pids), time.perf_counter() - before_s)
        used, busy = _used(pids), busy_s()
        mover.send()
        moved = mover.receive(MoveRecord)
        cpu, busy = _shares(used, _used(pids), moved.seconds), busy_s() - busy
        others_cpu = max(0.0, busy / moved.seconds - sum(cpu.values()))
        cpu["mover"] = moved.cpu_s / moved.seconds
        time.sleep(quiet_s / 4)
        after_s = time.perf_counter()
        time.sleep(quiet_s)
        end_s = time.perf_counter()
        clients.send()
        outcome = clients.receive(MovingOutcome)
    return MoveRun(
        case.name,
        load.name,
        moved,
        outcome,
        ((before_s, moved.began_s), (after_s, end_s)),
        cpu,
        quiet_cpu,
        others_cpu,
    )


def alone(
    file: Path, case: MoveCase, objects: int, value_bytes: int, batch: bool
) -> tuple[MoveRecord, dict[str, float]]:
    """Move an unused domain, and return the processors used."""
    with _prepared(file, case, Workload(1, value_bytes, objects), None, batch) as (clients, mover):
        pids = _pids(file) | {"clients": [clients.pid], "mover": [mover.pid]}
        used = _used(pids)
        mover.send()
        moved = mover.receive(MoveRecord)
        cpu = _shares(used, _used(pids), moved.seconds)
        cpu["mover"] = moved.cpu_s / moved.seconds
    return moved, cpu


@contextlib.contextmanager
def _prepared(
    file: Path,
    case: MoveCase,
    workload: Workload,
    per_s: float | None,
    batch: bool = True,
    bytes_per_s: float | None = None,
) -> Iterator[tuple[WorkerProcess, WorkerProcess]]:
    """Start the process of the clients of a new, filled domain, and the mover, both ready."""
    name = f"moving-{os.urandom(8).hex()}"
    plan, move = (
        MovingPlan(str(file), name, case.source, workload, per_s),
        Move(str(file), name, case.target, batch, bytes_per_s),
    )
    package = "experiments.bench"
    with workers(f"{package}.moving_load", f"{package}.moving_mover") as (clients, mover):
        clients.send(plan)
        clients.await_ready()
        mover.send(move)
        mover.await_ready()
        yield clients, mover


def _pids(file: Path) -> dict[str, list[int]]:
    pids = {path.stem: int(path.read_text()) for path in (file.parent / "run").glob("*.pid")}
    return {
        "old servers": [pids[name] for name in OLD],
        "new servers": [pids[name] for name in NEW],
    }


def _used(pids: Mapping[str, list[int]]) -> dict[str, float]:
    return {name: sum(cpu_of(group).values()) for name, group in pids.items()}


def _shares(
    begun: Mapping[str, float], ended: Mapping[str, float], seconds: float
) -> dict[str, float]:
    return {name: (ended[name] - begun[name]) / seconds for name in begun}
