"""Short ways to write events down: ``w(1, 2, "a")`` is a write of "a" from 1 to 2.

An end of None is an unknown outcome.
"""

from ares.testing.verify.history import Event


def _event(operation, key, value, times, outcome, tag):
    invoked, responded = times
    return Event(
        f"{operation[0]}{invoked:g}",
        operation,
        key,
        value,
        float(invoked),
        None if responded is None else float(responded),
        outcome or ("unknown" if responded is None else "ok"),
        tag,
    )


def w(invoked, responded, value, key="k", outcome=None, tag=None):
    return _event("write", key, value, (invoked, responded), outcome, tag)


def d(invoked, responded, key="k", outcome=None, tag=None):
    return _event("delete", key, None, (invoked, responded), outcome, tag)


def r(invoked, responded, value, key="k", outcome=None, tag=None):
    return _event("read", key, value, (invoked, responded), outcome, tag)
