"""The command line, `ares-cli` (also `python -P -m ares`).

Commands run a cluster's processes, or use a running cluster. main.py has the table of all commands
and turns errors into messages and exit statuses, options.py has the shared options; the commands
are in ``*_commands.py`` modules. These import heavy modules (transports, codes, rich) inside their
functions, to let `--help` answer at once.
"""
