"""Judging histories from outside: linearizability of what clients saw, whoever produced it (a simulation, a torture run, a real cluster)."""
