"""Torture: a real cluster of processes under traffic and faults, with a judged history.

Servers are killed, stopped, cut off and reconfigured. A run (torture_run.py) has a place of its
own, in network namespaces if possible (partition.py). The run starts the cluster
(torture_cluster.py), processes of clients (clients.py) and reconfigurers (reconfigurer.py). The
nemesis (nemesis.py) hurts them at random, within the promises of the configurations in use. All
events are kept (records.py), judged (verdict.py) and drawn (timeline.py).
"""
