"""Judging histories from outside: linearizability of what clients saw in a simulation, a torture run or a real cluster."""
