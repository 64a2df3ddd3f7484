"""``python -P -m ares.torture.fuzz``: see ares/testing/fuzz/fuzz.py."""

from ares.testing.fuzz.fuzz import main

main()
