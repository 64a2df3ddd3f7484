"""Buckets: the index of objects, a deterministic fold of a log's entries. Pure, without I/O.

A condition travels inside its command, and the outcome is the fold's at the command's position.
Every process with the same entries has the same rows and the same digest: no floats, no clock, no
chance, no unordered iteration.
"""
