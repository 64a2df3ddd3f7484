"""Measurements of the gateway: speed beside a peer, and the race of rivals.

    python -m experiments.gateway [--scale quick|paper] [--only speed,race]

A peer runs if its program is on the path: `versitygw`. Compare figures of the same run.
"""

import argparse

from experiments.bench.store_processes import end_on_sigterm
from experiments.command_options import add_choice
from experiments.gateway.gateway_race import measure_race
from experiments.gateway.gateway_speed import measure_gateway_speed
from experiments.measuring import Table
from experiments.rounds.scenario import SCALES

GATEWAY_PARTS = {"speed": measure_gateway_speed, "race": measure_race}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=SCALES, default="quick")
    add_choice(parser, "--only", GATEWAY_PARTS)
    given = parser.parse_args()
    end_on_sigterm()
    for part in given.only:
        GATEWAY_PARTS[part](Table(), given.scale)


if __name__ == "__main__":
    main()
