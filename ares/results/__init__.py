"""The database of runs: operation logs, faults and traces, and the figures made of them."""
