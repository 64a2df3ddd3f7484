"""A network of the run's own, so that it can be cut: each process in a network namespace, all of them joined by a bridge in one more namespace.

Addresses (10.77.0.0/24) exist inside these namespaces only; nothing is sent to or from anywhere else, and the machine's own interfaces and rules stay
as they are. Names carry the pid of the run: ``ip netns`` shows what a run that was killed left behind, and ``ip netns del NAME`` removes it.

Packets are dropped in the namespace of the process that is cut off, by iptables.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from ares.testing import namespaces
from ares.testing.torture.records import TortureFailed

HOSTS_MAX = 250
_NETWORK = "10.77.0"

Direction = Literal["in", "out", "both"]
"""Seen from the one that is cut off: ``in``: it hears nothing, ``out``: it is not heard."""


def obstacle() -> str | None:
    """Why there can be no network of our own here, and what to do about it; None if there can."""
    why = namespaces.obstacle()
    return f"no partitions: {why}" if why else None


class Network:
    """``hosts``: their names, at most HOSTS_MAX. Use it as a context manager: at the end of it everything is removed, also after a failure."""

    def __init__(self, hosts: Sequence[str]) -> None:
        if len(hosts) > HOSTS_MAX:
            raise TortureFailed(
                f"a network of at most {HOSTS_MAX} hosts can be made, not {len(hosts)}; nothing was started"
            )
        self._places = {host: place for place, host in enumerate(hosts, 1)}
        self._pid = os.getpid()
        self._hub = self._namespace("hub")
        self._made: list[str] = []

    def __enter__(self) -> "Network":
        try:
            self._make(self._hub)
            bridge = f"br{self._pid}"
            namespaces.bridge(self._hub, bridge)
            for host, place in self._places.items():
                self._make(self._namespace(host))
                namespaces.plug(
                    self._namespace(host),
                    f"{self.address(host)}/24",
                    self._hub,
                    bridge,
                    f"v{self._pid}-{place}",
                )
        except namespaces.NamespaceFailed as error:
            self._remove()
            raise TortureFailed(str(error)) from None
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def address(self, host: str) -> str:
        """The IPv4 address of ``host``, in its namespace."""
        return f"{_NETWORK}.{self._places[host]}"

    def inside(self, host: str) -> list[str]:
        """What a command begins with that is to run there; the command takes the place of `ip`, pid and all."""
        return namespaces.inside(self._namespace(host))

    def cut(self, host: str, peers: Iterable[str], direction: Direction) -> None:
        """From now on drop what ``peers`` send to ``host``, or it to them, or both."""
        for peer in peers:
            if direction in ("in", "both"):
                self._filter(host, "-A", "INPUT", "-s", self.address(peer), "-j", "DROP")
            if direction in ("out", "both"):
                self._filter(host, "-A", "OUTPUT", "-d", self.address(peer), "-j", "DROP")

    def mend(self, host: str) -> None:
        """Drop nothing more at ``host``."""
        self._filter(host, "-F")

    def _filter(self, host: str, *rule: str) -> None:
        try:
            namespaces.run(*self.inside(host), "iptables", "-w", *rule)
        except namespaces.NamespaceFailed as error:
            raise TortureFailed(str(error)) from None

    def _namespace(self, host: str) -> str:
        return f"ares{self._pid}-{host}"

    def _make(self, namespace: str) -> None:
        namespaces.add(namespace)
        self._made.append(namespace)

    def _remove(self) -> None:
        """The interfaces go with their namespaces."""
        while self._made:
            namespaces.remove(self._made.pop())
