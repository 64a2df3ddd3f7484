"""Data access primitives: get-tag, get-data and put-data on a configuration.

See ARES II section 3, Alg. 3 and 4.
"""
