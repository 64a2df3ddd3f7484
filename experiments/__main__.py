"""Experiments: hosts to run them on, rounds, and what came of them. Run from a checkout, as none of it is installed.

.venv/bin/python -m experiments COMMAND --help
"""

import argparse
import sys
from collections.abc import Sequence

from ares.model.errors import AresError
from experiments.bench.processes import end_on_sigterm
from experiments.rounds import commands as rounds
from experiments.testbeds import commands as testbeds
from experiments.verdicts import commands as verdicts


def main(given: Sequence[str] | None = None) -> int:
    """0, 1 if something could not be done, 2 if the command line is none."""
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
        print("interrupted; what was begun is removed", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
