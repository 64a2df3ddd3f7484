"""``python -P -m ares.testing.fuzz``: see ares/testing/fuzz/fuzz.py."""

from ares.testing.fuzz.fuzz import main

if __name__ == "__main__":
    main()
