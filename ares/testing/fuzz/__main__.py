"""``python -P -m ares.testing.fuzz``: see ares/testing/fuzz/fuzz.py."""

from ares.testing.fuzz.fuzz import main

main()
