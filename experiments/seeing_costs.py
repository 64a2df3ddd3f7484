"""Cost of being observed: small operations with no, 1 % and all traces, and with an operation log.

    python -m experiments.seeing_costs [--rounds 9] [--window 1.5] [--at-once 1 32] [--rate 200]

Clients and servers export to files. A cost is the shortfall beside a window of the same round: in
operations a second, or in operations for a second of processors' work (of all processes, and of the
exports that follow, too). The variant without traces (`off`) is compared with itself, which shows
the noise. With `--rate`, operations start one after another at this rate a second, and no trace
should be left out.
"""

import argparse
import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

from ares.client.connect import PendingConnection
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.cluster.tables import TracingSettings
from ares.model.identity import ClientId
from ares.tracing.export import tracer_of
from ares.tracing.operation_log import OperationLog
from ares.tracing.spans import SERVER_KIND, Span
from ares.tracing.tracer import EXPORT_S, Tracer
from ares.tracing.tree import read_spans
from experiments.local_cluster import ClusterOptions, local_cluster, processor_s
from experiments.measuring import Goal, Table

SEEN_SERVERS = 5
SEEN_VALUE = b"0123456789"
SEEN_KEYS = 64

GOALS = {"off again": None, "1 % traced": Goal(5.0), "all traced": Goal(35.0), "all logged": None}


class WindowFigures(Struct):
    """Figures of a window.

    An operation took `took_s` seconds of time and `worked_s` seconds of processors. The window had
    `count` operations; `left_out` of the traces asked for were dropped.
    """

    took_s: float
    worked_s: float
    count: int
    left_out: int


class Variant:
    """A client, observed or not."""

    def __init__(self, name: str, file: Path) -> None:
        self.file, directory = file, file.parent
        self._spans = f"{directory}/client.spans"
        share = {"1 % traced": 0.01, "all traced": 1.0}.get(name)
        settings = (
            TracingSettings()
            if share is None
            else TracingSettings(exporter=f"file:{self._spans}", share=share)
        )
        log = (
            OperationLog(f"{directory}/operations.log", ClientId(1))
            if name == "all logged"
            else None
        )
        self.tracer: Tracer | None = tracer_of(settings, "ares-client", log)

    async def window(
        self, store: Manager, at_once: int, window_s: float, pause_s: float = 0.0
    ) -> WindowFigures:
        """Run operations for a window, half of them reads; count later exports as work."""
        self.forget()
        count, left_out, worked_s = 0, self._left_out, self._processors_s()
        begin = time.perf_counter()

        async def work(number: int) -> None:
            nonlocal count
            while time.perf_counter() < begin + window_s:
                await store.write(f"k{number % SEEN_KEYS}", SEEN_VALUE)
                await asyncio.sleep(pause_s)
                await store.read(f"k{number % SEEN_KEYS}")
                await asyncio.sleep(pause_s)
                count += 2

        await asyncio.gather(*(work(number) for number in range(at_once)))
        took_s = time.perf_counter() - begin
        await self._exported()
        return WindowFigures(
            took_s / count - pause_s,
            (self._processors_s() - worked_s) / count,
            count,
            self._left_out - left_out,
        )

    @property
    def _left_out(self) -> int:
        return 0 if self.tracer is None else self.tracer.backlog.left_out

    def _processors_s(self) -> float:
        return time.process_time() + processor_s(self.file)

    async def _exported(self) -> None:
        """Wait until clients and servers have exported: their threads look every EXPORT_S.

        The variant without traces waits as long, because waiting is work, too.
        """
        for waited in range(20):
            if waited >= 2 and (self.tracer is None or not self.tracer.backlog.waiting):
                break
            await asyncio.sleep(EXPORT_S)

    def forget(self) -> None:
        for path in self.file.parent.glob("*.spans"):
            os.truncate(path, 0)

    def whole(self) -> tuple[int, int]:
        """Return the number of traces, and the number of complete traces.

        A complete trace has the work of every server of each quorum.
        """
        roots: set[bytes] = set()
        quorums: Counter[bytes] = Counter()
        for path in self.file.parent.glob("*.spans"):
            with path.open("rb") as lines:
                for span in read_spans(lines, []):
                    quorums[span.trace] += _missing(span)
                    roots |= {span.trace} if span.name in ("read", "write") else set()
        return len(roots), sum(quorums[trace] <= 0 for trace in roots)


def _missing(span: Span) -> int:
    """Return the number of servers that a round names, or -1 for a span of a server."""
    quorum = span.attributes.get("ares.quorum", ())
    return -1 if span.kind == SERVER_KIND else len(quorum)


def costs(of: Sequence[float], beside: Sequence[float]) -> list[float]:
    """Return the costs in percent, round by round."""
    return [100 * (1 - off / seen) for seen, off in zip(of, beside, strict=True)]


async def measure(
    table: Table, file: Path, at_once: int, rounds: int, window_s: float, pause_s: float = 0.0
) -> None:
    taken: defaultdict[str, list[WindowFigures]] = defaultdict(list)
    async with AsyncExitStack() as closing:
        variants = {name: Variant(name, file) for name in ("off", *GOALS)}
        settings = Settings.load(file)
        stores = {
            name: await closing.enter_async_context(PendingConnection(settings, variant.tracer))
            for name, variant in variants.items()
        }
        for number in range(rounds + 1):
            for name in list(stores) if number % 2 else list(reversed(stores)):
                window = await variants[name].window(stores[name], at_once, window_s, pause_s)
                if number:  # the first window warms up
                    taken[name].append(window)
        await variants["all traced"].window(stores["all traced"], at_once, window_s, pause_s)
        traces, whole = variants["all traced"].whole()
    table.section(
        f"{SEEN_SERVERS} servers in memory, ABD, {len(SEEN_VALUE)} bytes, {at_once} at once"
        + (f", {1 / pause_s:g} a second" if pause_s else "")
    )
    off = taken["off"]
    table.line("off: an operation", [1e6 * window.took_s for window in off], "us")
    for name, goal in GOALS.items():
        took = costs([window.took_s for window in taken[name]], [window.took_s for window in off])
        worked = costs(
            [window.worked_s for window in taken[name]], [window.worked_s for window in off]
        )
        table.line(
            f"{name}: costs of the operations a second", took, "%", goal=None if pause_s else goal
        )
        table.line(
            f"{name}: costs of the operations that a processor does in a second", worked, "%"
        )
    done, left_out = (
        sum(counts)
        for counts in zip(
            *((window.count, window.left_out) for window in taken["all traced"]), strict=True
        )
    )
    table.note(
        f"all traced: of {done} operations {done - left_out} were traced "
        f"({100 * (1 - left_out / done):.1f} %), {left_out} were left out"
    )
    table.note(
        f"all traced, a last window: {traces} traces, {whole} of them whole: with the work of "
        "every server that made a quorum"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--window", type=float, default=1.5, metavar="S")
    parser.add_argument("--at-once", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--rate", type=float, nargs="*", default=[200.0], metavar="PER_S")
    given = parser.parse_args()
    table = Table()
    with local_cluster(SEEN_SERVERS, "abd", options=ClusterOptions(traced=True)) as file:
        for at_once in given.at_once:
            asyncio.run(measure(table, file, at_once, given.rounds, given.window))
        for rate in given.rate:
            asyncio.run(measure(table, file, 1, given.rounds, given.window, 1 / rate))
    table.close()


if __name__ == "__main__":
    main()
