"""``python -P -m ares.torture.kills``: see ares/testing/kills/kills.py."""

from ares.testing.kills.kills import main

main()
