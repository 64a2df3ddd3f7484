"""What the ratios were when somebody last said that they were good: kept in this package, shown beside today's. Nothing fails because of it."""

from pathlib import Path

import msgspec

from experiments.bench.figures import Report

FILE = Path(__file__).with_name("baseline.json")


def key(workload: str, peer: str, yardstick: str) -> str:
    """How a ratio is called in the file."""
    return f"{workload} | {yardstick} : {peer}"


def load(path: Path = FILE) -> dict[str, float]:
    """The ratios by :func:`key`; none if there is no file yet."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float]) if path.exists() else {}


def save(report: Report, path: Path = FILE) -> None:
    """Take the medians of this report; those of points that it does not have stay."""
    known = load(path)
    for point in report.points:
        for yardstick, figure in point.ratios.items():
            known[key(point.workload, point.peer, yardstick)] = round(figure.median, 3)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
