"""A reader of the inventories that experiments/testbeds/inventory.py writes."""

from pathlib import Path
from typing import Any

import yaml


def inventory_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found
