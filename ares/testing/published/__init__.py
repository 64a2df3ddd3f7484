"""The papers' algorithms to the letter: ARES of 2022, ARES II, and their data access primitives.

CoARES and CoARESF stand over both, by the papers' sentences: no algorithm of theirs is printed.

For judging the papers' claims, and for nothing else: ARES II as printed can lose a completed write,
and EC-DAP with more than delta writers can go back (docs/piggyback-counterexample.md). Only tests,
the simulator and experiments import this package. Servers answer QUERY-LIST only where the cluster
file says ``published = true``, which ``ares-cli init`` never writes.

Names and line numbers are those of ARES II, Alg. 1 to 5. The servers' lines, Alg. 4, stand in
``alg4.py`` as functions; a running server answers the same, except after gc-config.
"""
