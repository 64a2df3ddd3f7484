"""``python -P -m ares.sim``: see ares/testing/sim/__main__.py."""

import sys

from ares.testing.sim.__main__ import main

sys.exit(main())
