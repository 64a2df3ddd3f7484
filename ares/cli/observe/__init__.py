"""Views of a cluster: traces, a live view, and the results of runs."""
