"""Hosts without root: addresses, directories, and processes."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments.bench.store_processes import cpu_s
from experiments.testbeds import loopback_testbed
from experiments.testbeds.loopback_testbed import LoopbackTestbed
from experiments.testbeds.testbed_plan import HostPlan

from .inventories import inventory_of

HOSTS = [
    HostPlan("s0", "nantes", ["servers"]),
    HostPlan("s1", "nantes", ["servers"]),
    HostPlan("w0", "lille", ["writers"]),
]


@pytest.fixture
def made(tmp_path) -> Iterator[LoopbackTestbed]:
    with loopback_testbed.testbed(HOSTS, tmp_path) as made:
        yield made


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
    with loopback_testbed.testbed(HOSTS, tmp_path / "other") as other:
        found = [
            {host["ares_address"] for host in inventory_of(each.inventory)["all"]["hosts"].values()}
            for each in (made, other)
        ]
        assert found[0].isdisjoint(found[1])


def test_what_it_cannot_do_is_refused(made, tmp_path):
    for order in (
        lambda: made.delay("nantes", "lille", 1, loss=0.1),
        lambda: made.cut("nantes", "lille"),
        lambda: made.bandwidth("s0", 10**6),
        lambda: made.fill("s0", "/data", 0),
    ):
        with pytest.raises(
            BadInput, match=r"testbed local can do that, as root. Nothing was changed"
        ):
            order()
    disk = HostPlan("s0", "x", [], {"/data": 1 << 20})
    with (
        pytest.raises(BadInput, match="disk"),
        loopback_testbed.testbed([disk], tmp_path / "other"),
    ):
        pass
