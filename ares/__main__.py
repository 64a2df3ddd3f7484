"""``python -m ares``: the same as `ares-cli`."""

from ares.cli.main import main

if __name__ == "__main__":
    main()
