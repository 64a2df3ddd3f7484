"""Many seeds on many processors. (Its own module, since worker processes cannot import from a package's ``__main__``.)"""

import itertools
import logging
import multiprocessing
import threading
import time
from collections.abc import Iterator

from ares.testing.sim.plan import draw
from ares.testing.sim.run import Verdict, run_plan

CHUNK = 25

Named = tuple[str, int]


def run_many(scenarios: list[str], first: int, runs: int | None, until: float | None, jobs: int) -> Iterator[tuple[Named, Verdict]]:
    """The verdicts of seeds from ``first`` on, in any order: ``runs`` of them, or as many as fit until the monotonic time ``until``."""
    ahead = threading.Semaphore(jobs * 2)
    with multiprocessing.get_context("spawn").Pool(jobs, quiet) as pool:
        for verdicts in pool.imap_unordered(_run_chunk, _chunks(scenarios, first, runs, until, ahead)):
            ahead.release()
            yield from verdicts


def quiet() -> None:
    """Servers whose disks fail log it; nobody wants to read that of thousands."""
    logging.getLogger("ares").addHandler(logging.NullHandler())


def _chunks(scenarios: list[str], first: int, runs: int | None, until: float | None, ahead: threading.Semaphore) -> Iterator[list[Named]]:
    """Work in small portions, never far ``ahead`` of what was done: the pool would take an endless supply at once."""
    names = itertools.islice(((scenario, seed) for seed in itertools.count(first) for scenario in scenarios), runs)
    while chunk := list(itertools.islice(names, CHUNK)):
        ahead.acquire()
        if until is not None and time.monotonic() > until:
            return
        yield chunk


def _run_chunk(chunk: list[Named]) -> list[tuple[Named, Verdict]]:
    return [((scenario, seed), run_plan(draw(seed, scenario))) for scenario, seed in chunk]
