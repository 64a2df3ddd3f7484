"""Short ways to write events down: ``w(1, 2, "a")`` is a write of "a" from 1 to 2.

An end of None is an unknown outcome.
"""

from ares.testing.verify.history import Event


def _event(operation, invoked, responded, value, key, outcome, tag):
    client = f"{operation[0]}{invoked:g}"
    outcome = outcome or ("unknown" if responded is None else "ok")
    return Event(
        client,
        operation,
        key,
        value,
        float(invoked),
        None if responded is None else float(responded),
        outcome,
        tag,
    )


def w(invoked, responded, value, key="k", outcome=None, tag=None):
    return _event("write", invoked, responded, value, key, outcome, tag)


def d(invoked, responded, key="k", outcome=None, tag=None):
    return _event("delete", invoked, responded, None, key, outcome, tag)


def r(invoked, responded, value, key="k", outcome=None, tag=None):
    return _event("read", invoked, responded, value, key, outcome, tag)
