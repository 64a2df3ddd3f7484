"""The bar that shows a person how far a long command is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str, int, int, str], None]


@contextmanager
def progress_bar(stage: str) -> Iterator[Show]:
    """On stderr, and only if that is a terminal. What it yields shows a stage, how much of how much is done (0: not known yet), and a text."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("  {task.description:15}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(stage, total=None, text="")
        yield lambda stage, done, total, text: bar.update(task, description=stage, completed=done, total=total or None, text=text)
