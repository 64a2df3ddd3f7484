"""Tools by their names in scripts.

``python -P -m ares.torture.kills`` and ``python -P -m ares.torture.fuzz``.
"""
