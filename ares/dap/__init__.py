"""Data access primitives: get-tag, get-data and put-data against one configuration (ARES II section 3; Alg. 3 and 4)."""
