"""The command line, `ares-cli` (also `python -P -m ares`): commands that run a cluster's processes, and commands that use a running cluster.

main.py holds the app and turns errors into messages and exit statuses, options.py the options that commands share; the commands stand in the
``*_commands.py`` modules. Those import what is heavy (transports, codes, rich) inside their functions, so that `--help` answers at once.
"""
