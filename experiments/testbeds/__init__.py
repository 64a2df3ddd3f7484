"""Hosts that rounds of an experiment run on: namespaces of this machine, processes on loopback, or machines that somebody has reserved."""
