"""Experiments: hosts for the rounds, the rounds, and their results.

The package is not installed; run from a checkout:

    .venv/bin/python -m experiments COMMAND --help
"""

import argparse
import sys
from collections.abc import Sequence

from ares.model.errors import AresError
from experiments.bench.store_processes import end_on_sigterm
from experiments.rounds import round_commands as rounds
from experiments.testbeds import testbed_commands as testbeds
from experiments.verdicts import verdict_commands as verdicts


def main(given: Sequence[str] | None = None) -> int:
    """Run a command. Return 0, 1 after a failure, or 2 for an invalid command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    rounds.add(commands)
    testbeds.add(commands)
    verdicts.add(commands)
    arguments = parser.parse_args(given)
    end_on_sigterm()
    try:
        return int(arguments.run(arguments))
    except AresError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; begun work is removed", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
