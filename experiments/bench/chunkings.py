"""FastCDC beside Rabin fingerprints: the speed of cutting, and the blocks moved by an edit.

No cluster takes part: a put moves the blocks that the match of both divisions does not keep. A
figure is the median of the rounds, on other data in each. The first of the rounds warms up, and
does not count.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean, median

from ares.client.chunking import CUTS
from ares.client.local_copy import content_of_bytes
from ares.fragment.divide import FASTCDC, RABIN, Cuts, Sizes, rabin_cuts
from ares.fragment.match import match
from ares.fragment.rabin import rabin_ends
from ares.model.units import KIB
from experiments.bench.alone import Figures

SMALL_SIZES = Sizes(4 * KIB, 4 * KIB, 8 * KIB)
CHUNKING_ROUNDS, EDITS = 5, 10
PYTHON_SHARE = 64
"""Part of the data cut by Python alone; speeds are compared by the byte."""

EDIT_KINDS: dict[str, Callable[[bytes, int], bytes]] = {
    "1 byte inserted": lambda data, at: b"".join((data[:at], b"!", data[at:])),
    "1 byte overwritten": lambda data, at: b"".join((data[:at], b"!", data[at + 1 :])),
}

Division = list[tuple[int, bytes]]
"""Length and digest of each block."""


def compared(sizes: Sizes, size: int) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each chunking of ``size`` bytes into blocks of these sizes, by name."""
    rng, rounds = random.Random(size), list[dict[str, Figures]]()
    small = max(size // PYTHON_SHARE, 2 * sizes.max)
    for _ in range(CHUNKING_ROUNDS + 1):
        data, places = os.urandom(size), [rng.randrange(size) for _ in range(EDITS)]
        found = {name: _measured(CUTS[name], data, sizes, places) for name in (FASTCDC, RABIN)}
        pure = partial(rabin_cuts, rabin_ends)
        found[f"{RABIN} by Python"] = _measured(pure, data[:small], sizes, [small // 2])
        for figures in found.values():
            figures["time : FastCDC"] = found[FASTCDC]["MB/s"] / figures["MB/s"]
        rounds.append(found)
    for name, figures in rounds[0].items():
        yield name, {each: median(found[name][each] for found in rounds[1:]) for each in figures}


def _measured(cuts: Cuts, data: bytes, sizes: Sizes, places: Sequence[int]) -> Figures:
    begin_s = time.perf_counter()
    deque(cuts(data, sizes, True), maxlen=0)
    cut_s = time.perf_counter() - begin_s
    before = _divided(data, sizes, cuts)
    figures = {
        "MB/s": len(data) / 1e6 / cut_s,
        "MB/s with digests": len(data) / 1e6 / (time.perf_counter() - begin_s - cut_s),
        "KiB a block": len(data) / KIB / len(before),
    }
    for kind, edit in EDIT_KINDS.items():
        found = [_moved(before, _divided(edit(data, at), sizes, cuts)) for at in places]
        figures[f"{kind}: blocks moved"] = mean(map(len, found))
        figures[f"{kind}: KiB moved"] = mean(map(sum, found)) / KIB
    return figures


def _divided(data: bytes, sizes: Sizes, cuts: Cuts) -> Division:
    return [(chunk.length, chunk.digest) for chunk in content_of_bytes(data, sizes, cuts).chunks]


def _moved(old: Division, new: Division) -> list[int]:
    """Return the lengths of the blocks moved by a put."""
    kept = {chunk for _, chunk in match(old, new).kept}
    return [length for chunk, (length, _) in enumerate(new) if chunk not in kept]
