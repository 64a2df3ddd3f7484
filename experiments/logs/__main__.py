"""Measurements of the shared log: speed, the figures of Ikaria's thesis, peers, faults.

    python -m experiments.logs [--scale quick|paper|points] [--only speed,figures,peers,faults,size]
    python -m experiments.logs --only peers,size --results results/bench/logs

Loads are bounded in count and in time. The quick scale takes about ten minutes, the paper's about
half an hour, and 31 GiB of the disk for a log of 10 GiB. Compare figures of the same run. Figures
for claims go into the results that `python -m experiments verdicts` reads. Missing and failed peers
are left out and named. The figures with a goal are in DIR/logs_figures.json, too.
"""

import argparse

from experiments.bench.figures import Figure
from experiments.bench.performance_page import record
from experiments.bench.store_processes import end_on_sigterm
from experiments.command_options import POINTS, add_choice, add_results
from experiments.logs.log_faults import measure_faults
from experiments.logs.log_figures import measure_figures
from experiments.logs.log_load_plan import LOG_EXTENTS, POINTS_EXTENT, runs
from experiments.logs.log_peers import measure_peers
from experiments.logs.log_size import measure_size
from experiments.logs.log_speed import measure_speed
from experiments.measuring import Table
from experiments.rounds.provenance import checkout_commit
from experiments.rounds.scenario import SCALES
from experiments.verdicts.claimed_points import claims, log_runs

LOG_PARTS = ("speed", "peers", "faults", "figures", "size")
LOG_PARTS_OF_CLAIMS = {"faults", "figures"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=(*SCALES, POINTS), default="quick")
    add_choice(parser, "--only", LOG_PARTS)
    add_results(parser)
    given = parser.parse_args()
    chosen = given.only
    if given.scale == POINTS and not set(chosen) <= LOG_PARTS_OF_CLAIMS:
        parser.error(f"--scale {POINTS} is for --only faults,figures: other parts have no claims")
    end_on_sigterm()
    checkout_commit()
    table = Table()
    try:
        if "speed" in chosen:
            measure_speed(table, given.scale)
        if "peers" in chosen:
            measure_peers(table, given.scale)
        if "faults" in chosen:
            measure_faults(table, given.scale, given.results)
        if "size" in chosen:
            measure_size(table, given.scale)
        if "figures" in chosen:
            of_claims = given.scale == POINTS
            extent = POINTS_EXTENT if of_claims else LOG_EXTENTS[given.scale]
            chosen_runs = log_runs(claims()) if of_claims else runs(given.scale)
            measure_figures(table, chosen_runs, extent, given.results)
    finally:  # a failed part leaves the figures of the others
        named = {name: Figure.of(values) for name, values in table.named.items()}
        print(f"\n{record(given.results, 'logs', named)}", end="")


if __name__ == "__main__":
    main()
