"""A network of the run's own, so that it can be cut: each process in a network namespace, all of them joined by a bridge in one more namespace.

Addresses (10.77.0.0/24) exist inside these namespaces only; nothing is sent to or from anywhere else, and the machine's own interfaces and rules stay
as they are. Names carry the pid of the run: ``ip netns`` shows what a run that was killed left behind, and ``ip netns del NAME`` removes it.

Packets are dropped in the namespace of the process that is cut off, by iptables.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Literal

from ares.testing.torture.records import TortureFailed

HOSTS_MAX = 250
_NETWORK = "10.77.0"
_COMMAND_S = 20.0

Direction = Literal["in", "out", "both"]
"""Seen from the one that is cut off: ``in``: it hears nothing, ``out``: it is not heard."""


def obstacle() -> str | None:
    """Why there can be no network of our own here, and what to do about it; None if there can."""
    missing = [package for tool, package in (("ip", "iproute2"), ("iptables", "iptables")) if shutil.which(tool) is None]
    if missing:
        return f"no partitions: {' and '.join(missing)} missing. On Debian or Ubuntu: sudo apt-get install {' '.join(missing)}"
    if os.geteuid() != 0:
        return "no partitions: only root may make network namespaces. Run it as root (sudo)"
    probe = f"ares{os.getpid()}-probe"
    try:
        try:
            _run("ip", "netns", "add", probe)
            _run("ip", "netns", "exec", probe, "iptables", "-w", "-A", "INPUT", "-s", "127.0.0.2", "-j", "DROP")
        finally:
            subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False, timeout=_COMMAND_S)
    except TortureFailed as error:
        return f"no partitions: this machine does not let us make network namespaces ({error}); a container needs CAP_NET_ADMIN and CAP_SYS_ADMIN"
    return None


class Network:
    """``hosts``: their names, at most HOSTS_MAX. Use it as a context manager: at the end of it everything is removed, also after a failure."""

    def __init__(self, hosts: Sequence[str]) -> None:
        if len(hosts) > HOSTS_MAX:
            raise TortureFailed(f"a network of at most {HOSTS_MAX} hosts can be made, not {len(hosts)}; nothing was started")
        self._places = {host: place for place, host in enumerate(hosts, 1)}
        self._pid = os.getpid()
        self._hub = self._namespace("hub")
        self._made: list[str] = []

    def __enter__(self) -> "Network":
        try:
            self._make(self._hub)
            bridge = f"br{self._pid}"
            self._in_hub("link", "add", bridge, "type", "bridge")
            self._in_hub("link", "set", bridge, "up")
            for host in self._places:
                self._join(host, bridge)
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
        return ["ip", "netns", "exec", self._namespace(host)]

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
        _run(*self.inside(host), "iptables", "-w", *rule)

    def _namespace(self, host: str) -> str:
        return f"ares{self._pid}-{host}"

    def _join(self, host: str, bridge: str) -> None:
        namespace, port = self._namespace(host), f"v{self._pid}-{self._places[host]}"
        self._make(namespace)
        self._in_hub("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        self._in_hub("link", "set", port, "master", bridge, "up")
        _run("ip", "-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", namespace, "link", "set", "eth0", "up")

    def _make(self, namespace: str) -> None:
        _run("ip", "netns", "add", namespace)
        self._made.append(namespace)

    def _in_hub(self, *arguments: str) -> None:
        _run("ip", "-n", self._hub, *arguments)

    def _remove(self) -> None:
        """The interfaces go with their namespaces."""
        while self._made:
            subprocess.run(["ip", "netns", "del", self._made.pop()], capture_output=True, check=False, timeout=_COMMAND_S)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    if done.returncode:
        raise TortureFailed(f"`{' '.join(command)}` failed: {done.stderr.strip() or f'status {done.returncode}'}")
