"""The build of the compiled core (core/): only with a Rust compiler that is new enough."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools_rust import RustExtension

CRATE = Path("core/Cargo.toml")


def can_compile() -> bool:
    """Return whether the crate is here, and a cargo that is new enough for it.

    ``ARES_PURE=1`` asks for a package without the core.
    """
    if os.environ.get("ARES_PURE", "0") not in ("", "0") or not CRATE.exists():
        return False
    try:
        ended = subprocess.run(
            ["cargo", "--version"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.search(r"(\d+)\.(\d+)", ended)
    wanted = tomllib.loads(CRATE.read_text(encoding="utf-8"))["package"]["rust-version"].split(".")
    return found is not None and [int(number) for number in found.groups()] >= [
        int(number) for number in wanted
    ]


core = RustExtension(
    "ares._core",
    str(CRATE),
    args=["--locked"],
    features=["extension-module"],
    debug=False,
    optional=True,
)
setup(rust_extensions=[core] if can_compile() else [])
