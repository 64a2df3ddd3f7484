"""A deterministic simulator with virtual time, one seed, and faults of every kind.

The real replica, session, operations and codec run in the simulated world.
"""
