"""The shared log: chains with apportioned reads (docs/log.md). The node and the client, without
I/O.
"""
