"""The event loop of the processes: uvloop's where installed (measurably faster), else asyncio's.

Exceptions of the loop's callbacks are reported like exceptions of tasks (ares/platform/tasks.py).
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from ares.platform.tasks import report_escaped

Result = TypeVar("Result")

_DESCRIPTORS = 16
"""Descriptors required before a loop begins, more than the loop takes.

A loop with only a part of them prints messages of its own.
"""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to the end on a new loop, with its result and exceptions.

    Raises OSError where no loop can begin.
    """
    try:
        _require_descriptors()
    except OSError:
        main.close()
        raise

    results: list[Result] = []

    async def reported() -> None:
        asyncio.get_running_loop().set_exception_handler(report_escaped)
        # As the task's result it would be printed by CPython 3.11, whose signal module makes and
        # drops a text of the handler for SIGINT: seconds for a value of 200 MB.
        results.append(await main)

    try:
        import uvloop
    except ImportError:
        asyncio.run(reported())
    else:
        uvloop.run(reported())
    return results[0]


def _require_descriptors() -> None:
    """Raise OSError if this process may not open _DESCRIPTORS more descriptors."""
    held: list[int] = []
    try:
        held.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(_DESCRIPTORS))
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror}: this process may not open enough of them; raise `ulimit -n`",
        ) from error
    finally:
        for descriptor in held:
            os.close(descriptor)
