"""The last ratios that a person approved, shown beside today's ratios.

The file is kept in this package. No test fails because of the baseline.
"""

from pathlib import Path

import msgspec

from experiments.bench.figures import BenchReport

BASELINE_FILE = Path(__file__).with_name("baseline.json")


def key(workload: str, peer: str, yardstick: str) -> str:
    """Return the name of a ratio in the file."""
    return f"{workload} | {yardstick} : {peer}"


def load(path: Path = BASELINE_FILE) -> dict[str, float]:
    """Return the ratios by :func:`key`; without a file the result is empty."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float]) if path.exists() else {}


def save(report: BenchReport, path: Path = BASELINE_FILE) -> None:
    """Store the medians of this report; points that the report lacks keep their ratio."""
    known = load(path)
    for point in report.points:
        for yardstick, figure in point.ratios.items():
            known[key(point.workload, point.peer, yardstick)] = round(figure.median, 3)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
