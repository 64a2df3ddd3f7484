"""The event loop that the processes run on: uvloop's where it is installed (measurably faster), else asyncio's own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to its end on a new loop; what it raises is raised here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
