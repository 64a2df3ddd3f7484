"""Measurements. A script of this package printed every claim of speed in the documents.

A page names the commit of a script that is gone, because its question was answered once.
"""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).parents[1]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Ticks a second of the counters of a process' time."""

ENVIRONMENT = os.environ | {"PYTHONPATH": str(CHECKOUT)}
"""Environment for a process that runs another script of this package.

The scripts are not installed, and Python starts without the usual search path.
"""


def module_at(name: str, path: Path) -> ModuleType:
    """Import a file outside of the search path."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
