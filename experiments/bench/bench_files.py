"""The frame of the commands of the bench: their options, and the files of a run."""

import argparse
from pathlib import Path

import msgspec
from msgspec import Struct

from experiments.bench.as_runs import make_page

BENCH_RESULTS = Path("results/bench")


def bench_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all benches."""
    parser = argparse.ArgumentParser(
        prog=module, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=BENCH_RESULTS,
        help=f"where the files go (default: {BENCH_RESULTS})",
    )
    return parser


def write_report(out: Path, name: str, report: Struct, text: str) -> str:
    """Write NAME.json and NAME.txt, and return the text."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (out / f"{name}.txt").write_text(text)
    return text


def finished(out: Path, name: str) -> str:
    """Make the page of all runs, and name the files."""
    return f"wrote {out}/{name}.json, {name}.txt and {make_page(out).name}"
