"""Large files: the cost beside raw transfer, and the gain of each optimisation.

    .venv/bin/python -m experiments.large_files --quick    # small sizes, about two minutes
    .venv/bin/python -m experiments.large_files            # files of 256 MiB and of 4 GiB, ten
    minutes

The optimisations are fragmenting, remembering, piggybacking and batching; FastCDC is compared with
Rabin fingerprints. All processes run on this machine, on free ports of loopback, and are gone
afterwards. Only the ratios count: both sides of each were measured in turns in the same run. Missed
goals are printed; the exit status is 0 all the same.
"""

import argparse
import re

from ares.fragment.divide import Sizes
from ares.model.units import MIB
from ares.platform.loop import run
from experiments.chunkings import chunkings
from experiments.client_memory import affordable, memory
from experiments.local_cluster import local_cluster
from experiments.measuring import Table
from experiments.six_algorithms import six_algorithms
from experiments.switches import BLOCKS, SMALL_SIZES, batching, rereads
from experiments.transfer import transfers

UNITS = {"": 1, "K": 1024, "M": MIB, "G": 1024 * MIB}
SHAPES = ((5, 3), (11, 6))
LARGE_SECTIONS = ("chunkings", "transfer", "rereads", "batching", "six", "memory")


def parsed_size(text: str) -> int:
    """Return the bytes of ``256M`` and similar words."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size: expected a number of bytes, or with K, M or G behind it"
        )
    return int(match[1]) * UNITS[match[2]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--size", type=parsed_size, help="of the files (default 256M; quick: 32M)")
    parser.add_argument(
        "--size-memory",
        type=parsed_size,
        help="of the file whose client is watched (default 4G; quick: 512M)",
    )
    parser.add_argument("--rounds", type=int, help="of each measurement (default 5; quick: 3)")
    parser.add_argument(
        "--delay-ms",
        type=float,
        default=1.0,
        help="each way, on the slower links (default 1: a round trip takes 2 more)",
    )
    parser.add_argument(
        "--only", choices=LARGE_SECTIONS, action="append", help="this section; may be given again"
    )
    return parser.parse_args()


def main() -> None:
    given = arguments()
    quick, wanted, table = given.quick, given.only or LARGE_SECTIONS, Table()
    size = given.size or (32 if quick else 256) * MIB
    rounds = given.rounds or (3 if quick else 5)
    delay_s = given.delay_ms / 1000
    links = f"links {given.delay_ms:g} ms slower each way"
    if "chunkings" in wanted:
        chunkings(table, size, rounds)
    if "transfer" in wanted:
        for n, k in SHAPES:
            table.section(
                f"EC n={n} k={k}: files of {size / MIB:,.0f} MiB, blocks of the default sizes, "
                f"client and {n} servers on this machine"
            )
            with local_cluster(n, "ec", k, consensus=1) as cluster:
                run(transfers(table, cluster, size, rounds))
    if "rereads" in wanted:
        table.section(f"Reading a file of {BLOCKS} unchanged blocks again, EC n=5 k=3, {links}")
        with local_cluster(5, "ec", 3, consensus=1) as cluster:
            run(rereads(table, cluster, delay_s, 3 * rounds))
    if "batching" in wanted:
        for sizes, label in ((SMALL_SIZES, "4 to 8 KiB"), (Sizes(), "the default sizes")):
            for delay, where in ((0.0, "this machine's own links"), (delay_s, links)):
                table.section(
                    f"Reconfiguring a file of {BLOCKS} blocks of {label}, EC n=5 k=3, {where}"
                )
                with local_cluster(5, "ec", 3, consensus=1) as cluster:
                    run(
                        batching(
                            table,
                            cluster,
                            sizes,
                            delay,
                            rounds if sizes == SMALL_SIZES else min(rounds, 3),
                        )
                    )
    if "six" in wanted:
        whole = (8 if quick else 64) * MIB
        table.section(f"The six algorithms, an object of {whole / MIB:g} MiB, n=5, k=3 for EC")
        with local_cluster(5, "abd", consensus=1) as cluster:
            run(six_algorithms(table, cluster, whole, 3, rounds))
    if "memory" in wanted:
        asked = given.size_memory or (512 if quick else 4096) * MIB
        huge = affordable(asked, 5 / 3)
        table.section(f"A client that puts and gets a file of {huge / MIB:,.0f} MiB, EC n=5 k=3")
        if huge < asked:
            table.note(
                f"instead of {asked / MIB:,.0f} MiB: the servers of this machine have no memory "
                "for it now"
            )
        with local_cluster(5, "ec", 3, consensus=1) as cluster:
            memory(table, cluster, huge)
    table.close()


if __name__ == "__main__":
    main()
