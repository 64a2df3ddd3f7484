"""The command line, `ares-cli` (also `python -P -m ares`): commands that run a cluster's processes, and commands that use a running cluster.

main.py has the table of all commands and turns errors into messages and exit statuses, options.py has the options that commands share; the commands
are in ``*_commands.py`` modules. Those import what is heavy (transports, codes, rich) inside their functions, so that `--help` answers at once.
"""
