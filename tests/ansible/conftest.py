"""A copy of the playbooks for tests which write beside them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from .ansible_runs import CHECKOUT, PYTHON


@pytest.fixture
def playbooks(tmp_path: Path) -> Path:
    """Copy the playbooks of the checkout, and write the dashboards beside the copy."""
    copied = tmp_path / "checkout"
    for part in ("ansible", "playbooks", "packaging"):
        shutil.copytree(CHECKOUT / part, copied / part, symlinks=True)
    subprocess.run([PYTHON, copied / "packaging/grafana/dashboards.py"], check=True)
    return copied / "playbooks"
