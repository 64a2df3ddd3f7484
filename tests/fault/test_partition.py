"""A private network: packets arrive, or not, in each direction; the network leaves no trace."""

import os
import socket
import subprocess

import pytest

from ares.platform.interpreter import python
from ares.testing import namespaces
from ares.testing.namespaces import NamespaceFailed
from ares.testing.torture.partition import TortureNetwork, obstacle
from ares.testing.torture.records import TortureFailed

needs_network = pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")

LISTEN = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind((sys.argv[1], 9000))
    receiver.settimeout(float(sys.argv[2]))
    print("bound", flush=True)
    try:
        print(receiver.recv(10).decode())
    except TimeoutError:
        print("silence")
"""
SEND = (
    "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', "
    "(sys.argv[1], 9000))"
)


def arrives(network: TortureNetwork, sender: str, receiver: str, *, expected: bool) -> bool:
    """Return whether a datagram from a host gets to another.

    The wait is short for silence, and long for arrival.
    """
    place = network.address(receiver)
    listen = [*network.inside(receiver), *python("-c", LISTEN, place, "60" if expected else "0.5")]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "bound\n"
        subprocess.run(
            [*network.inside(sender), *python("-c", SEND, place)],
            capture_output=True,
            check=False,
            timeout=120,
        )
        return listener.stdout.readline() == "hello\n"


def left() -> list[str]:
    """Return the existing namespaces of this process."""
    shown = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in shown.splitlines() if line.startswith(f"ares{os.getpid()}-")]


@needs_network
def test_packets_are_dropped_in_the_direction_that_was_asked_for():
    with TortureNetwork(["s0", "s1", "a"]) as network:
        assert arrives(network, "a", "s0", expected=True)
        network.cut("s0", ["a"], "in")
        assert not arrives(network, "a", "s0", expected=False)
        assert arrives(network, "s0", "a", expected=True)
        assert arrives(network, "s1", "s0", expected=True)
        network.mend("s0")
        network.cut("s0", ["a"], "out")
        assert arrives(network, "a", "s0", expected=True)
        assert not arrives(network, "s0", "a", expected=False)
        network.cut("s0", ["s1"], "both")
        assert not arrives(network, "s1", "s0", expected=False)
        assert not arrives(network, "s0", "s1", expected=False)
        network.mend("s0")
        assert arrives(network, "s0", "a", expected=True)
        assert arrives(network, "s1", "s0", expected=True)


@needs_network
def test_names_carry_the_pid_and_nothing_is_left_of_them():
    before = socket.if_nameindex()
    with TortureNetwork(["s0", "a"]):
        assert sorted(line.split()[0] for line in left()) == sorted(
            f"ares{os.getpid()}-{name}" for name in ("hub", "s0", "a")
        )
        assert socket.if_nameindex() == before, "the machine's own interfaces stay as they are"
    assert left() == []
    assert socket.if_nameindex() == before


@needs_network
def test_nothing_is_left_when_something_fails():
    with pytest.raises(ZeroDivisionError), TortureNetwork(["s0"]):
        _ = 1 / 0
    assert left() == []
    with pytest.raises(TortureFailed, match="netns add"), TortureNetwork(["s0", "not/a/name"]):
        pass
    assert left() == []


def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(
        namespaces.shutil, "which", lambda tool: None if tool == "iptables" else f"/sbin/{tool}"
    )
    assert "sudo apt-get install iptables" in (obstacle() or "")
    monkeypatch.setattr(namespaces.shutil, "which", lambda _: None)
    assert "sudo apt-get install iproute2 iptables" in (obstacle() or "")
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    assert "only root" in (obstacle() or "")


def test_a_machine_that_refuses_is_told_of(monkeypatch):
    def refuse(*command):
        raise NamespaceFailed("Operation not permitted")

    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces, "run", refuse)
    monkeypatch.setattr(namespaces.subprocess, "run", lambda *_, **__: None)
    assert "CAP_NET_ADMIN" in (obstacle() or "")


def test_more_hosts_than_addresses_are_refused():
    with pytest.raises(TortureFailed, match="at most 250"):
        TortureNetwork([f"h{number}" for number in range(251)])
