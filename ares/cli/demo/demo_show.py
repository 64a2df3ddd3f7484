"""How the demo tells its story: numbered steps with what they took, a live line while traffic runs, and a table at the end."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from ares.cli.command_connection import size

REFRESH_S = 0.1

Data = dict[str, Any]


class Step:
    """One step under way. ``note``: what a person should know of it. ``data``: the same for programs."""

    def __init__(self) -> None:
        self.note = ""
        self.data: Data = {}


class Narrator:
    """``console`` may be a quiet one; ``steps`` holds what was told."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.steps: list[Data] = []
        self._marks = ("✓", "✗") if console.encoding.startswith("utf") else ("ok", "FAILED")
        self._title = ""
        self._live: Status | None = None

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Tell of a step, and how it ended."""
        step, begin = Step(), time.perf_counter()
        number = len(self.steps) + 1
        ok = False
        self._title = title
        self._live = self.console.status(title)
        try:
            with self._live:
                yield step
            ok = True
        finally:
            self._live = None
            ms = round(1000 * (time.perf_counter() - begin))
            self.steps.append({"step": title, "ok": ok, "ms": ms} | step.data)
            mark = f"[bold green]{self._marks[0]}[/]" if ok else f"[bold red]{self._marks[1]}[/]"
            self.console.print(f"{mark} [bold]{number:2}  {title}[/]  [cyan]{ms} ms[/]", soft_wrap=True)
            for line in step.note.splitlines():
                self.console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)

    async def follow(self, line: Callable[[], str]) -> None:
        """Keep the live line of whatever step is under way up to date, until cancelled."""
        while True:
            if self._live is not None:
                self._live.update(f"{self._title}\n      {line()}")
            await asyncio.sleep(REFRESH_S)

    def close(self, summary: Data) -> None:
        """Operations and latencies by phase, and what came of it all."""
        table = Table(title="The reader and the writer that never paused", title_justify="left", title_style="bold")
        table.add_column("while")
        for name in ("reads", "p50 ms", "p99 ms", "writes", "p50 ms", "p99 ms"):
            table.add_column(name, justify="right")
        for phase in summary["phases"]:
            cells = [cell for kind in ("reads", "writes") for cell in _cells(phase[kind])]
            table.add_row(phase["phase"], *cells)
        self.console.print()
        self.console.print(table)
        lines = {
            "operations": f"{summary['operations']} reads and writes, {summary['failures']} of them failed or wrong",
            "digests": f"{summary['objects_compared']} objects read and compared by SHA-256, all equal",
            "bytes": size(summary["bytes"]),
            "crashes": f"kill -9 of {' and of '.join(summary['crashes_survived'])}: survived",
            "in all": f"{summary['seconds']} s; nothing is left running",
        }
        for name, text in lines.items():
            self.console.print(f"[bold]{name:12}[/]{text}", soft_wrap=True)


def _cells(latencies: Data) -> list[str]:
    if not latencies["count"]:
        return ["0", "", ""]
    return [str(latencies["count"]), f"{latencies['p50_ms']:.2f}", f"{latencies['p99_ms']:.2f}"]
