"""Scripts of the papers: execute_..._exp.py are links to this file (flags: papers.py)."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
from experiments.papers import execute

sys.exit(execute(Path(sys.argv[0]).stem))
