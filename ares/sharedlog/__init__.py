"""The shared log: chains with apportioned reads. The node and the client, without I/O.

See docs/log.md.
"""
