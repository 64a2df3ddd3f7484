"""The narration of the demo: steps with their results, and a table of the traffic at the end."""

import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from ares.cli.terminal import size

DEMO_REFRESH_S = 0.1


class DemoStep(Struct):
    """A step under way. ``note``: text for a person. ``data``: the same for programs."""

    note: str = ""
    data: dict[str, Any] = {}


class Narrator:
    """The narration of the story, on ``console``, which may be quiet.

    ``steps`` holds the ended steps.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.steps: list[dict[str, Any]] = []
        self._marks = ("✓", "✗") if console.encoding.startswith("utf") else ("ok", "FAILED")
        self._title = ""
        self._live: Status | None = None

    @contextmanager
    def step(self, title: str) -> Iterator[DemoStep]:
        """Show a step under way, and print the step at the end."""
        step, begin = DemoStep(), time.perf_counter()
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
            self.console.print(
                f"{mark} [bold]{number:2}  {title}[/]  [cyan]{ms} ms[/]", soft_wrap=True
            )
            for line in step.note.splitlines():
                self.console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)

    async def follow(self, line: Callable[[], str]) -> None:
        """Update the live line of the present step, until cancelled."""
        while True:
            if self._live is not None:
                self._live.update(f"{self._title}\n      {line()}")
            await asyncio.sleep(DEMO_REFRESH_S)

    def close(self, summary: dict[str, Any]) -> None:
        """Print operations and latencies by phase, and the result."""
        table = Table(
            title="The reader and the writer that never paused",
            title_justify="left",
            title_style="bold",
        )
        table.add_column("while")
        for name in ("reads", "p50 ms", "p99 ms", "writes", "p50 ms", "p99 ms"):
            table.add_column(name, justify="right")
        for phase in summary["phases"]:
            cells = [cell for kind in ("reads", "writes") for cell in _cells(phase[kind])]
            table.add_row(phase["phase"], *cells)
        self.console.print()
        self.console.print(table)
        lines = {
            "operations": (
                f"{summary['operations']} reads and writes, {summary['failures']} of them failed "
                "or wrong"
            ),
            "digests": (
                f"{summary['objects_compared']} objects read and compared by SHA-256, all equal"
            ),
            "bytes": size(summary["bytes"]),
            "crashes": f"kill -9 of {' and of '.join(summary['crashes_survived'])}: survived",
            "in all": f"{summary['seconds']} s; nothing is left running",
        }
        if summary["trace"]:
            command = sys.argv[0] if sys.argv[0].endswith("ares-cli") else "ares-cli"
            lines["next"] = (
                "where the time of the last read went:  "
                f"{shlex.join([command, 'trace', summary['trace']])}"
            )
        for name, text in lines.items():
            self.console.print(f"[bold]{name:12}[/]{text}", soft_wrap=True)


def _cells(latencies: dict[str, Any]) -> list[str]:
    if not latencies["count"]:
        return ["0", "", ""]
    return [str(latencies["count"]), f"{latencies['p50_ms']:.2f}", f"{latencies['p99_ms']:.2f}"]
