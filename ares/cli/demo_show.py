"""How the demo tells its story: numbered steps with what they took, a live line while traffic runs, and a table at the end."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

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
        self._live: Status | None = None

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Tell of a step, and how it ended."""
        step, begin = Step(), time.perf_counter()
        number = len(self.steps) + 1
        ok = False
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
                self.console.print(f"      [dim]{line}[/]", soft_wrap=True)

    async def follow(self, line: Callable[[], str]) -> None:
        """Keep the live line of whatever step is under way up to date, until cancelled."""
        title = ""
        while True:
            if self._live is not None:
                title = f"{len(self.steps) + 1}"
                self._live.update(f"step {title}: {line()}")
            await asyncio.sleep(REFRESH_S)

    def table(self, phases: list[Data]) -> None:
        """Operations and latencies by phase."""
        table = Table(title="The reader and the writer that never paused", title_justify="left", title_style="bold")
        table.add_column("while")
        for name in ("reads", "p50 ms", "p99 ms", "writes", "p50 ms", "p99 ms"):
            table.add_column(name, justify="right")
        for phase in phases:
            cells = [str(phase[kind].get(field, "")) for kind in ("reads", "writes") for field in ("count", "p50_ms", "p99_ms")]
            table.add_row(phase["phase"], *cells)
        self.console.print()
        self.console.print(table)
