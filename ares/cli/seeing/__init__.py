"""Seeing inside: traces, a live view of a cluster, and the results of runs."""
