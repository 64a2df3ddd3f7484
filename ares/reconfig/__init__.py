"""Reconfiguration: successors, the sequence known to a client, its traversal, and the decision.

See ARES II section 5.
"""
