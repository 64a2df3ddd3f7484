"""A deterministic simulator: the real replica, session, operations and codec in a world with virtual time and one seed, and faults of every kind.

python -P -m ares.sim --runs 1000        # many seeds
python -P -m ares.sim --seed 42 --story  # one, and what happened in it
"""
