"""A deterministic simulator: the real replica, session, operations and codec in a world with virtual time and one seed, and faults of every kind."""
