"""``python -P -m ares``: the same as `ares-cli`.

Without -P, Python itself looks for `ares` in the working directory first.
"""

from ares.platform.interpreter import leave_working_directory

if __name__ == "__main__":
    leave_working_directory()
    from ares.cli.entry import main

    main()
