"""Growth of ares: clients of an object, keys, servers, sizes of values, domains, and idle servers.

    make bench-scale
    .venv/bin/python -m experiments.bench.scale --full             # long
    .venv/bin/python -m experiments.bench.scale --only keys,empty

`--full` has up to 270 client processes, 1,000,000 keys, 256 MiB and 10,000 domains. Processor time
for each operation is printed beside the rate, because all processes share this machine. The bench
prints a table, and writes scale.json, scale.txt and the page report.html. The exit status is 1 if a
read returned a value that no client wrote.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from experiments.bench.__main__ import machine
from experiments.bench.as_runs import write_samples
from experiments.bench.bench_files import bench_parser, finished, write_report
from experiments.bench.growth_sample import GrowthSample
from experiments.bench.scale_domains import domains
from experiments.bench.scale_empty import empty
from experiments.bench.scale_load import clients, keys, servers, values
from experiments.bench.store_processes import end_on_sigterm
from experiments.bench.text import number

Section = Callable[[bool], Iterator[GrowthSample]]
SCALE_SECTIONS: dict[str, tuple[str, Section]] = {
    "empty": ("A server that holds nothing", empty),
    "clients": ("Readers and writers of one object, each a process of its own", clients),
    "keys": ("Keys of 10 bytes, ABD n=5", keys),
    "servers": ("Servers, 32 clients, 10 bytes", servers),
    "values": ("Sizes of values, one client", values),
    "domains": ("Domains, one object in each, ABD n=5", domains),
}


class Scale(Struct, frozen=True):
    """All results of the bench."""

    samples: list[GrowthSample]


def text(samples: Sequence[GrowthSample]) -> str:
    """Return a line for each sample."""
    lines: list[str] = []
    for section in dict.fromkeys(sample.section for sample in samples):
        lines += ["", SCALE_SECTIONS[section][0]]
        lines += [sample_line(sample) for sample in samples if sample.section == section]
    return "\n".join(lines).strip() + "\n"


def sample_line(sample: GrowthSample) -> str:
    """Return the line of a sample."""
    figures = "   ".join(f"{name} {number(value)}" for name, value in sample.figures.items())
    return f"  {sample.series:22} {sample.axis} {number(sample.x):>10}   {figures}" + (
        f"   WRONG READS: {sample.wrong}" if sample.wrong else ""
    )


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench.scale", __doc__)
    parser.add_argument(
        "--full", action="store_true", help="all sizes; without it what ends in minutes"
    )
    parser.add_argument(
        "--only", help=f"these sections, with commas between them: {','.join(SCALE_SECTIONS)}"
    )
    return parser.parse_args(given)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    given = arguments(words)
    wanted = given.only.split(",") if given.only else list(SCALE_SECTIONS)
    if unknown := set(wanted) - set(SCALE_SECTIONS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SCALE_SECTIONS)}")
    samples: list[GrowthSample] = []
    for name in wanted:
        title, section = SCALE_SECTIONS[name]
        print(f"\n{title}", flush=True)
        for sample in section(given.full):
            samples.append(sample)
            print(sample_line(sample), flush=True)
    write_report(given.out, "scale", Scale(samples), text(samples))
    write_samples(
        given.out, samples, {name: title for name, (title, _) in SCALE_SECTIONS.items()}, machine()
    )
    print(f"\n{finished(given.out, 'scale')}")
    return 1 if any(sample.wrong for sample in samples) else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
