"""Tools by the names that scripts know: ``python -P -m ares.torture.kills`` and ``python -P -m ares.torture.fuzz``."""
