"""Measurements. A script of this package printed every claim of speed in the documents.

A page names the commit of a script that is gone, because its question was answered once.
"""

import os
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Ticks a second of the counters of a process' time."""

ENVIRONMENT = os.environ | {"PYTHONPATH": str(CHECKOUT)}
"""Environment for a process that runs another script of this package.

The scripts are not installed, and Python starts without the usual search path.
"""
