"""Script of the papers for the requirements of hosts (flags: experiments/papers.py)."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
from experiments.papers import install

if __name__ == "__main__":
    sys.exit(install())
