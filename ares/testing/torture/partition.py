"""A network of the run that can be cut: a network namespace for each process, joined by a bridge.

The bridge is in a further namespace. Addresses (10.77.0.0/24) exist inside these namespaces only;
no packet leaves them, and the machine's own interfaces and rules stay unchanged. Names carry the
pid of the run: ``ip netns`` shows the rest of a killed run, and ``ip netns del NAME`` removes it.

Packets are dropped in the namespace of the cut-off process, by iptables.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from ares.testing import namespaces
from ares.testing.torture.records import TortureFailed

NETWORK_HOSTS_MAX = 250
_NETWORK = "10.77.0"

Direction = Literal["in", "out", "both"]
"""Direction for the cut-off process: ``in``: it hears no peer, ``out``: no peer hears it."""


def obstacle() -> str | None:
    """Return why this machine cannot make a network, with the remedy; ``None`` if it can."""
    why = namespaces.obstacle()
    return f"no partitions: {why}" if why else None


class TortureNetwork:
    """The network of a run. ``hosts``: their names, at most NETWORK_HOSTS_MAX.

    Use it as a context manager: at the end all parts are removed, also after a failure.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        if len(hosts) > NETWORK_HOSTS_MAX:
            raise TortureFailed(
                f"a network of at most {NETWORK_HOSTS_MAX} hosts can be made, not {len(hosts)}; "
                "nothing was started"
            )
        self._places = {host: place for place, host in enumerate(hosts, 1)}
        self._pid = os.getpid()
        self._hub = self._namespace("hub")
        self._made: list[str] = []

    def __enter__(self) -> "TortureNetwork":
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
        """Return the IPv4 address of ``host``, in the namespace of ``host``."""
        return f"{_NETWORK}.{self._places[host]}"

    def inside(self, host: str) -> list[str]:
        """Return the words that begin a command on ``host``.

        The command replaces `ip`, pid included.
        """
        return namespaces.inside(self._namespace(host))

    def cut(self, host: str, peers: Iterable[str], direction: Direction) -> None:
        """Drop from now on packets from ``peers`` to ``host``, the reverse, or both."""
        for peer in peers:
            if direction in ("in", "both"):
                self._filter(host, "-A", "INPUT", "-s", self.address(peer), "-j", "DROP")
            if direction in ("out", "both"):
                self._filter(host, "-A", "OUTPUT", "-d", self.address(peer), "-j", "DROP")

    def mend(self, host: str) -> None:
        """Drop no more packets at ``host``."""
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
        """Remove the namespaces, and with them the interfaces."""
        while self._made:
            namespaces.remove(self._made.pop())
