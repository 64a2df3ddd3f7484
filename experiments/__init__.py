"""Measurements. A script of this package printed every claim of speed in the documents."""

import os
from pathlib import Path

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
"""Environment for a process that runs another script of this package.

The scripts are not installed, and Python starts without the usual search path.
"""
