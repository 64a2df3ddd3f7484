"""The compiled core (core/), if present: small reads and writes without Python.

See docs/performance.md. Without the core, or where the environment says ``ARES_PURE=1``, all work
is done in Python, which is complete and the reference.
"""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ares.platform.environment import PURE_VARIABLE

if TYPE_CHECKING:
    from ares._core import Client

CRATE = "0.1.0"
"""Number of the crate that this state of ares works with, as in core/Cargo.toml."""

_MANIFEST = Path(__file__).parents[2] / "core/Cargo.toml"


def _asked_for_python() -> bool:
    return os.environ.get(PURE_VARIABLE, "0") not in ("", "0")


def _loaded() -> ModuleType | None:
    if _asked_for_python():
        return None
    try:
        core = import_module("ares._core")
    except ImportError:
        return None
    return (
        core if core.RELEASE == CRATE else None
    )  # a checkout may have a core built from another release


CORE = _loaded()
"""The module ``ares._core``; None: Python does all the work."""

PYTHON_CORE, RUST_CORE = "python", "rust"

CORE_NAME = PYTHON_CORE if CORE is None else RUST_CORE
"""Name for people, shown by ``ares-cli --version``, ``status`` and ``/metrics``."""


def advice() -> str:
    """Return a line of advice where the slower core runs without having been asked for."""
    if CORE is not None or _asked_for_python():
        return ""
    how = (
        f"`make core` in {_MANIFEST.parents[1]} builds the compiled one, or says why it cannot"
        if _MANIFEST.exists()
        else "install ares again where Rust 1.85 or newer is (`cargo`), or from a wheel that has "
        "the compiled one"
    )
    return f"the slower core runs here, which is Python's: {how}"


def client_core() -> "Client | None":
    """Return a core for a session, or None."""
    return None if CORE is None else CORE.Client()
