"""Growth of the cost of domains.

Creation takes the consensus service; use of an existing domain must not.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.platform.loop import run
from experiments.bench.growth_sample import MIB, GrowthSample, resident_mib
from experiments.bench.store_processes import cpu_of
from experiments.local_cluster import local_cluster

DOMAINS_AT_ONCE = 16
_COUNTS = (1, 10, 100)
_COUNTS_FULL = (*_COUNTS, 1_000, 10_000)
_USES = 400
"""Objects written and read for each count, domain by domain."""


def domains(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more domains in a cluster, with an object in each."""
    counts = _COUNTS_FULL if full else _COUNTS
    with local_cluster(5, "abd", consensus=3) as file:
        yield from run(_all(file, counts))


async def _all(file: Path, counts: tuple[int, ...]) -> list[GrowthSample]:
    pids = {path.stem: int(path.read_text()) for path in (file.parent / "run").glob("*.pid")}
    storage = [pid for name, pid in pids.items() if name.startswith("s")]
    deciding = [pid for name, pid in pids.items() if not name.startswith("s")]
    async with connect(file) as store:
        await store.write("first", b"0123456789")
        return [sample async for sample in _grown(store, storage, deciding, counts)]


async def _grown(
    store: Manager, storage: list[int], deciding: list[int], counts: tuple[int, ...]
) -> AsyncIterator[GrowthSample]:
    before_mib, before_deciding_mib, made = resident_mib(storage), resident_mib(deciding), 0
    for count in counts:
        began_s = time.perf_counter()
        await _in_turns([_make(store, number) for number in range(made, count)])
        making_s, fresh, made = time.perf_counter() - began_s, count - made, count
        began_s, begun = time.perf_counter(), sum(cpu_of(storage).values())
        await _in_turns([_use(store, number % count) for number in range(_USES)])
        using_s, used = time.perf_counter() - began_s, sum(cpu_of(storage).values()) - begun
        figures = {
            "ms to make one": making_s / fresh * 1e3,
            "ms to write and read": using_s / _USES * 1e3,
            "us server CPU to write and read": used / _USES * 1e6,
            "KiB per domain and server": (resident_mib(storage) - before_mib)
            * MIB
            / 1024
            / count
            / len(storage),
            "KiB per domain and consensus member": (resident_mib(deciding) - before_deciding_mib)
            * MIB
            / 1024
            / count
            / len(deciding),
        }
        yield GrowthSample("domains", "ABD n=5", "domains", count, figures)


async def _in_turns(work: Sequence[Coroutine[None, None, None]]) -> None:
    """Run the coroutines, DOMAINS_AT_ONCE at a time."""
    left = iter(work)

    async def worker() -> None:
        for one in left:
            await one

    await asyncio.gather(*(worker() for _ in range(DOMAINS_AT_ONCE)))


async def _make(store: Manager, number: int) -> None:
    await store.create_domain(f"d{number}")


async def _use(store: Manager, number: int) -> None:
    domain = await store.domain(f"d{number}")
    await domain.write("object", b"0123456789")
    assert await domain.read("object") == b"0123456789"
