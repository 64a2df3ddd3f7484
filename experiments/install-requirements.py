"""The papers' script that installs what hosts need; experiments/papers.py has its flags."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
from experiments.papers import install

if __name__ == "__main__":
    sys.exit(install())
