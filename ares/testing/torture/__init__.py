"""Torture: a real cluster of processes under traffic, while servers are killed, stopped, cut off and reconfigured; then the history is judged.

A run (torture_run.py) has a place of its own, in network namespaces if it can (partition.py). It starts the cluster (cluster.py), processes of
clients (clients.py) and reconfigurers (reconfigurer.py). The nemesis (nemesis.py) hurts them at random, within what the configurations in use
promise to survive. What happened is kept (records.py), judged (verdict.py) and drawn (timeline.py).
"""
