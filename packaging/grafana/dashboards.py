"""The two dashboards for Grafana, live.json and experiments.json, written into this directory.

`make dashboards` or `python packaging/grafana/dashboards.py` writes them. Both can be imported
unchanged: data sources are variables, and no query names a machine.
"""

import json
from pathlib import Path

from experiment_panels import experiments
from live_panels import live

DASHBOARDS = {"live.json": live, "experiments.json": experiments}

if __name__ == "__main__":
    for name, dashboard in DASHBOARDS.items():
        text = json.dumps(dashboard(), indent=1) + "\n"
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
