"""``python -P -m ares.sim``: see ares/testing/sim/__main__.py."""

from ares.testing.sim.__main__ import main

main()
