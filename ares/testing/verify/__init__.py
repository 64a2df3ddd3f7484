"""Judges of histories: linearizability of the replies that clients saw, simulated or real."""
