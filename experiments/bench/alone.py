"""Measurements in processes of their own, each with its own memory and garbage of Python.

python -m experiments.bench.alone MODULE FUNCTION DIRECTORY COUNT      # run by `alone`
"""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.json import decode, encode

from ares.platform.interpreter import python
from experiments import ENVIRONMENT

Figures = dict[str, float]
"""Figures by their names, which include the unit."""

Measure = Callable[[Path, int], Figures] | Callable[[Path, int], Coroutine[Any, Any, Figures]]
"""A measurement with files in a directory, of so many objects."""

PEAK = "MiB of the process at most"


def alone(measure: Measure, directory: str | Path, count: int) -> Figures:
    """Call the function of a module in a new process; return its figures and the memory."""
    words = [measure.__module__, measure.__name__, str(directory), str(count)]
    command = python("-m", "experiments.bench.alone", *words)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=ENVIRONMENT)
    return decode(done.stdout, type=Figures)


def main() -> None:
    module, name, directory, count = sys.argv[1:]
    found = getattr(import_module(module), name)(Path(directory), int(count))
    figures = asyncio.run(found) if asyncio.iscoroutine(found) else found
    figures[PEAK] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.buffer.write(encode(figures))
    sys.stdout.flush()
    os._exit(0)  # the end of large objects in memory is no part of a measurement


if __name__ == "__main__":
    main()
