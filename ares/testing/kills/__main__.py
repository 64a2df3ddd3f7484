"""``python -P -m ares.testing.kills``: see ares/testing/kills/kills.py."""

from ares.testing.kills.kills import main

main()
