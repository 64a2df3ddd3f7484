"""FastCDC beside Rabin fingerprints: the speed of cutting, and the blocks moved by an edit.

    .venv/bin/python -m experiments.chunkings --mib 32 --rounds 5

No cluster takes part: a put moves the blocks that the match of both divisions does not keep. The
first of the rounds warms up, and does not count.
"""

import argparse
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import mean

from ares.client.chunking import CUTS
from ares.client.local_copy import content_of_bytes
from ares.fragment.divide import CHUNKINGS, FASTCDC, RABIN, Cuts, Sizes, rabin_cuts
from ares.fragment.match import match
from ares.fragment.rabin import rabin_ends
from ares.model.units import KIB, MIB
from experiments.measuring import Table, ratios

SMALL_SIZES = Sizes(4 * KIB, 4 * KIB, 8 * KIB)
EDITS = 10
PYTHON_SHARE = 64
"""Part of the data cut by Python alone; speeds are compared by the byte."""

EDIT_KINDS: dict[str, Callable[[bytes, int], bytes]] = {
    "1 byte inserted": lambda data, at: b"".join((data[:at], b"!", data[at:])),
    "1 byte overwritten": lambda data, at: b"".join((data[:at], b"!", data[at + 1 :])),
}

Division = list[tuple[int, bytes]]
"""Length and digest of each block."""


def chunkings(table: Table, size: int, rounds: int) -> None:
    """Print the comparison for small and for the usual sizes of blocks."""
    for sizes, label in ((SMALL_SIZES, "4 to 8 KiB"), (Sizes(), "the default sizes")):
        table.section(f"Cutting {size / MIB:,.0f} MiB into blocks of {label}")
        _speeds(table, sizes, size, rounds)
        _edits(table, sizes, size, rounds)


def _speeds(table: Table, sizes: Sizes, size: int, rounds: int) -> None:
    seconds = defaultdict[str, list[float]](list)
    pure = partial(rabin_cuts, rabin_ends)
    for number in range(rounds + 1):
        data = os.urandom(size)
        measured = {name: _seconds(cuts, data, sizes) for name, cuts in CUTS.items()}
        part = data[: max(size // PYTHON_SHARE, 2 * sizes.max)]
        measured["pure"] = _seconds(pure, part, sizes) * size / len(part)
        for name, cuts in CUTS.items():
            begin = time.perf_counter()
            content_of_bytes(data, sizes, cuts)
            measured[f"{name} with digests"] = time.perf_counter() - begin
        if number:
            for name, value in measured.items():
                seconds[name].append(value)
    table.line("cuts by FastCDC", [size / 1e6 / value for value in seconds[FASTCDC]], "MB/s")
    table.line("time of the cuts, Rabin : FastCDC", ratios(seconds[RABIN], seconds[FASTCDC]))
    table.line("  Rabin by Python alone : FastCDC", ratios(seconds["pure"], seconds[FASTCDC]))
    digested = (seconds[f"{name} with digests"] for name in (RABIN, FASTCDC))
    table.line(
        "time of the cuts with the digests of the blocks, Rabin : FastCDC", ratios(*digested)
    )


def _seconds(cuts: Cuts, data: bytes, sizes: Sizes) -> float:
    begin = time.perf_counter()
    for _ in cuts(data, sizes, True):
        pass
    return time.perf_counter() - begin


def _edits(table: Table, sizes: Sizes, size: int, rounds: int) -> None:
    blocks, moved = (defaultdict[tuple[str, str], list[float]](list) for _ in range(2))
    lengths = defaultdict[str, list[float]](list)
    rng = random.Random(size)
    for _ in range(rounds):
        data = os.urandom(size)
        before = {name: _divided(data, sizes, name) for name in CHUNKINGS}
        places = [rng.randrange(size) for _ in range(EDITS)]
        for kind, name in product(EDIT_KINDS, CHUNKINGS):
            edited = (EDIT_KINDS[kind](data, at) for at in places)
            found = [_moved(before[name], _divided(each, sizes, name)) for each in edited]
            blocks[kind, name].append(mean(len(each) for each in found))
            moved[kind, name].append(mean(map(sum, found)))
        for name, division in before.items():
            lengths[name].append(size / len(division) / 1024)
    for name in CHUNKINGS:
        table.line(f"size of a block, {name}", lengths[name], "KiB")
        for kind in EDIT_KINDS:
            table.line(f"{kind}: blocks moved, {name}", blocks[kind, name], "")
    for kind in EDIT_KINDS:
        bytes_ratios = ratios(moved[kind, RABIN], moved[kind, FASTCDC])
        table.line(f"{kind}: bytes moved, Rabin : FastCDC", bytes_ratios)


def _divided(data: bytes, sizes: Sizes, name: str) -> Division:
    chunks = content_of_bytes(data, sizes, CUTS[name]).chunks
    return [(chunk.length, chunk.digest) for chunk in chunks]


def _moved(old: Division, new: Division) -> list[int]:
    """Return the lengths of the blocks moved by a put."""
    kept = {chunk for _, chunk in match(old, new).kept}
    return [length for chunk, (length, _) in enumerate(new) if chunk not in kept]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=float, default=32, help="MiB of the data (default 32)")
    parser.add_argument("--rounds", type=int, default=5, help="that count (default 5)")
    given = parser.parse_args()
    chunkings(Table(), round(given.mib * MIB), given.rounds)


if __name__ == "__main__":
    main()
