"""The process that moves a domain, with a separate connection, as an administrator has.

``moving_runs`` starts the process. It reads a :class:`Move`, opens the domain, says READY, moves
the domain at the next line and prints :class:`MoveRecord`. All are JSON, a line each.
"""

import sys
import time

from msgspec import Struct, structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.platform.loop import run
from ares.reconfig.mover import Progress
from experiments.bench.moving_load import DomainShape
from experiments.bench.worker_process import WORKER_IS_READY, answer, received, send_line


class Move(Struct, frozen=True):
    """A move of ``domain`` of the cluster ``file`` to ``target``.

    With ``batch``, many objects move at once; ``bytes_per_s`` limits the speed.
    """

    file: str
    domain: str
    target: DomainShape
    batch: bool = True
    bytes_per_s: float | None = None


class MoveRecord(Struct, frozen=True):
    """The record of a move. Times are by the machine's monotonic clock.

    ``stages`` are the begins of the stages. ``moved`` counts objects of ``bytes`` altogether;
    ``cpu_s`` is of this process.
    """

    began_s: float
    ended_s: float
    stages: list[tuple[str, float]]
    moved: int
    skipped: int
    bytes: int
    cpu_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


async def move(plan: Move) -> MoveRecord:
    """Wait for the signal, then move the domain."""
    settings = Settings.load(plan.file)
    async with connect(
        structs.replace(settings, client=structs.replace(settings.client, batch=plan.batch))
    ) as manager:
        domain = await manager.domain(plan.domain)
        await domain.current()
        send_line(WORKER_IS_READY)
        sys.stdin.buffer.readline()
        stages: dict[str, float] = {}

        def reached(progress: Progress) -> None:
            if progress.stage not in stages:
                stages[progress.stage] = time.perf_counter()

        began_s, cpu_s = time.perf_counter(), time.process_time()
        result = await domain.reconfigure(
            plan.target.configuration(), progress=reached, bytes_per_s=plan.bytes_per_s
        )
        ended_s, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    return MoveRecord(
        began_s, ended_s, list(stages.items()), result.moved, result.skipped, result.bytes, cpu_s
    )


if __name__ == "__main__":
    plan = received(Move)
    assert plan is not None
    answer(run(move(plan)))
