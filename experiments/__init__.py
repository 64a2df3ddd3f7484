"""Measurements. Every claim of speed in the documents is a number that one of these scripts printed."""

import os
from pathlib import Path

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
"""Of a process that runs another script of these: they are not installed, and Python is started so that it does not look around for them."""
