"""``python -P -m ares.testing.kills``: see ares/testing/kills/kills.py."""

from ares.testing.kills.kills import main

if __name__ == "__main__":
    main()
