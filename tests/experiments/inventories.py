"""A reader of the YAML that experiments/testbeds/inventory.py writes.

The YAML has nested keys, values as JSON, and a comment at the head.
"""

import json
from pathlib import Path
from typing import Any


def inventory_of(path: Path) -> dict[str, Any]:
    root: dict[str, Any] = {}
    stack = [(-1, root)]
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            indent = len(line) - len(line.lstrip())
            while stack[-1][0] >= indent:
                stack.pop()
            name, _, value = line.strip().partition(":")
            stack[-1][1][name] = json.loads(value) if value else {}
            if not value:
                stack.append((indent, stack[-1][1][name]))
    return root
