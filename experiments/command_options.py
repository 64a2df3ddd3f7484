"""Options that several commands have."""

import argparse
from collections.abc import Collection
from functools import partial
from pathlib import Path

RESULTS = Path("results/experiments")
POINTS = "points"
"""The scale whose rounds are the points that claims name."""


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the option for the directory of results."""
    words = f"of the results (default: {RESULTS})"
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help=words)


def add_choice(
    parser: argparse.ArgumentParser, flag: str, known: Collection[str], metavar: str = "PART,..."
) -> None:
    """Add an option for some of the ``known`` words, with commas between them; all by default."""
    words, kind = f"of {', '.join(known)}", partial(chosen, known)
    parser.add_argument(flag, type=kind, default=list(known), metavar=metavar, help=words)


def chosen(known: Collection[str], text: str) -> list[str]:
    """Return the words of a list with commas. Raises ArgumentTypeError for an unknown word."""
    words = [word.strip() for word in text.split(",")]
    if strange := [word for word in words if word not in known]:
        named = ", ".join(map(repr, strange))
        raise argparse.ArgumentTypeError(f"there is no {named}; there are {', '.join(known)}")
    return words
