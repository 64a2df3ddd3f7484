"""Data access primitives: get-tag, get-data, put-data on a configuration (ARES II section 3; Alg.
3, 4).
"""
