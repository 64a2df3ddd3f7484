"""Script of the papers for the scenario piggyback; experiments/papers.py defines the flags."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
from experiments.papers import execute

if __name__ == "__main__":
    sys.exit(execute("piggyback"))
