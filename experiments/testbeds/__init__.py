"""Hosts for the rounds of an experiment: namespaces, processes, or reserved machines.

Processes are on loopback.
"""
