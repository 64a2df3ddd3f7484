"""Reconfiguration: pointers to successors, the sequence that a client knows, its traversal, and the decision on a successor (ARES II section 5)."""
