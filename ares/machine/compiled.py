"""The compiled core (core/), if there is one: what small reads and writes do most, without Python in between (docs/performance.md).

Without it, or where the environment says ``ARES_PURE=1``, everything runs in Python, which is complete and the reference.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ares.model.version import VERSION

if TYPE_CHECKING:
    from ares._core import Client

PURE = "ARES_PURE"


def _loaded() -> ModuleType | None:
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None
    try:
        core = import_module("ares._core")
    except ImportError:
        return None
    return (
        core if core.RELEASE == VERSION else None
    )  # a checkout may have one that was built of another release


CORE = _loaded()
"""The module ``ares._core``; None: Python does it all."""

PYTHON, RUST = "python", "rust"

NAME = PYTHON if CORE is None else RUST
"""For people: ``ares-cli --version``, ``status`` and ``/metrics`` say it."""


def client_core() -> "Client | None":
    """For one session."""
    return None if CORE is None else CORE.Client()
