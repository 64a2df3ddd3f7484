"""Writes the dashboards for Grafana, live.json and experiments.json, beside itself: `python packaging/grafana/dashboards.py`.

Both can be imported as they are: data sources are variables, and nothing names a machine.
"""

import json
import re
from pathlib import Path
from typing import Any

from experiment_panels import experiments
from live_panels import live

HERE = Path(__file__).parent

DASHBOARDS = {"live.json": live, "experiments.json": experiments}


def rendered(made: dict[str, Any]) -> str:
    """The file's content: what belongs to one panel or variable stays within a few lines."""
    text = json.dumps(made, indent=1)
    short = re.compile(r"[\[{]\n[^\[\]{}]{1,200}[\]}]")  # innermost lists and objects
    for _ in range(2):
        text = short.sub(lambda found: re.sub(r"\n\s*", " ", found[0]), text)
    return text + "\n"


if __name__ == "__main__":
    for name, make in DASHBOARDS.items():
        (HERE / name).write_text(rendered(make()), encoding="utf-8")
