"""Script of the papers for the scenario node_crashes; experiments/papers.py defines the flags."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
from experiments.papers import execute

if __name__ == "__main__":
    sys.exit(execute("node_crashes"))
