"""Hosts without root: addresses, directories, and relays between sites.

The relays delay, hold and count.
"""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments.bench.store_processes import cpu_s
from experiments.testbeds import loopback_testbed
from experiments.testbeds.loopback_testbed import LoopbackTestbed
from experiments.testbeds.testbed_plan import HostPlan, LinkPlan

from .inventories import inventory_of
from .network_probe import rtt

HOSTS = [
    HostPlan("s0", "nantes", ["servers"]),
    HostPlan("s1", "nantes", ["servers"]),
    HostPlan("w0", "lille", ["writers"]),
]


@pytest.fixture
def made(tmp_path) -> Iterator[LoopbackTestbed]:
    with loopback_testbed.testbed(HOSTS, [LinkPlan("nantes", "lille", 20)], tmp_path) as made:
        yield made


@pytest.fixture
def port(made) -> Iterator[int]:
    """Run an echo on s0, and yield its port; the echo ignores the first byte of a connection."""
    address = made.through("nantes", "s0", 1).rpartition(":")[0]
    with socket.create_server((address, 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _echo(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            stream, _ = server.accept()
            with stream:
                stream.recv(1)
                while data := stream.recv(65536):
                    stream.sendall(data)


def place(made: LoopbackTestbed, site: str, port: int) -> tuple[str, int]:
    host, _, number = made.through(site, "s0", port).rpartition(":")
    return host, int(number)


def test_other_sites_are_late_and_the_own_one_is_not(made, port):
    assert rtt(place(made, "nantes", port), 5) < 20
    assert rtt(place(made, "lille", port), 10) >= 40
    made.delay("lille", "nantes", 0)
    assert rtt(place(made, "lille", port), 10) < 20
    assert made.through("lille", "s0", port) == made.through("lille", "s0", port)


def test_bytes_are_held_while_sites_are_cut_apart(made, port):
    with socket.create_connection(place(made, "lille", port), timeout=60) as stream:
        stream.sendall(b"xa")
        assert stream.recv(1) == b"a"
        made.cut("lille", "nantes")
        stream.sendall(b"b")
        stream.settimeout(1)
        with pytest.raises(TimeoutError):
            stream.recv(1)
        stream.settimeout(60)
        made.join("nantes", "lille")
        assert stream.recv(1) == b"b"


def test_what_goes_between_sites_is_counted(made, port):
    with socket.create_connection(place(made, "lille", port), timeout=60) as stream:
        stream.sendall(b"x" + bytes(1000))
        got = 0
        while got < 1000:
            got += len(stream.recv(1000))
    assert made.traffic() == {("nantes", "lille"): 1000, ("lille", "nantes"): 1001}


def test_processes_of_a_host_are_slowed_and_no_others(made):
    busy = ["-c", "while True: pass", "busy"]
    with (
        subprocess.Popen(python(*busy), cwd=made.home("s0")) as mine,
        subprocess.Popen(python(*busy)) as other,
    ):
        try:
            while "pass busy" not in loopback_testbed.command_line(
                mine.pid
            ) or "pass busy" not in loopback_testbed.command_line(other.pid):
                time.sleep(0.01)
            assert made.slow("s0", "pass busy$", 20) == [mine.pid]
            before, begun_s = cpu_s(mine.pid), time.monotonic()
            time.sleep(1)
            assert cpu_s(mine.pid) - before < 0.45 * (time.monotonic() - begun_s)
            with pytest.raises(BadInput, match="no process of this host"):
                made.slow("s1", "pass busy$", 20)
        finally:
            made.duty.end()
            mine.kill()
            other.kill()


def test_the_inventory_has_hosts_with_places_of_their_own(made):
    hosts = inventory_of(made.inventory)["all"]["hosts"]
    assert (
        len({host["ares_address"] for host in hosts.values()})
        == len({host["common_data_directory"] for host in hosts.values()})
        == 3
    )
    assert {host["ansible_connection"] for host in hosts.values()} == {"local"}
    assert hosts["w0"]["ares_site"] == "lille"


def test_two_testbeds_have_other_addresses(made, tmp_path):
    with loopback_testbed.testbed(HOSTS, [], tmp_path / "other") as other:
        assert other.through("nantes", "s0", 1) != made.through("nantes", "s0", 1)


def test_what_it_cannot_do_is_refused(made, tmp_path):
    for order in (
        lambda: made.delay("nantes", "lille", 1, loss=0.1),
        lambda: made.bandwidth("s0", 10**6),
        lambda: made.fill("s0", "/data", 0),
    ):
        with pytest.raises(
            BadInput, match=r"testbed local can do that, as root. Nothing was changed"
        ):
            order()
    with (
        pytest.raises(BadInput, match="disk"),
        loopback_testbed.testbed(
            [HostPlan("s0", "x", [], {"/data": 1 << 20})], [], tmp_path / "other"
        ),
    ):
        pass


def test_relays_that_are_gone_are_told_of(tmp_path):
    with loopback_testbed.testbed(HOSTS, [], tmp_path) as made:
        made._links.end()
        made._links._process.wait()
        with pytest.raises(BadInput, match="the process with the relays ended"):
            made.cut("nantes", "lille")
