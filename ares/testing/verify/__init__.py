"""Judges of histories: linearizability of replies to clients, simulated or real."""
