"""Testbed `processes`: hosts are addresses of loopback and directories, without root.

All hosts are at one place: links have no delay and no cut, rates have no limit, and hosts have no
disk to fill. Such requests are refused, and testbed local has them. All parts end with the process
that made them.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments.testbeds import inventory
from experiments.testbeds.slowed_processes import MadeHosts, command_line
from experiments.testbeds.testbed_plan import HostPlan, check, refusing

_NETWORKS = range(64, 128)
"""The second byte of addresses 127.N.SITE.HOST."""


_no_disk = refusing("testbed processes has no disk of its own")


class LoopbackTestbed(MadeHosts):
    """A :class:`experiments.testbeds.testbed_plan.Testbed`, made by :func:`testbed`."""

    def __init__(self, hosts: Sequence[HostPlan], directory: Path, network: int) -> None:
        super().__init__(hosts)
        self._directory = directory.resolve()
        self._network = network
        self.inventory = self._directory / "inventory.yml"

    def write(self) -> None:
        """Make the hosts' directories, and write the inventory. Raises BadInput."""
        hosts = []
        for host in self.hosts.values():
            home = self.home(host.name)
            home.mkdir(parents=True, exist_ok=True)
            variables: dict[str, inventory.Value] = {
                "ansible_connection": "local",
                "ansible_host": self._address(host.name),
                "ansible_python_interpreter": python()[0],
                "ares_python": python()[0],
                "ares_service_manager": "process",
                "ares_become": False,
                "ares_address": self._address(host.name),
                "ares_site": host.site,
                "ares_home": str(home),
            }
            for name in ("config", "data", "log", "run"):
                variables[f"common_{name}_directory"] = str(home / name)
            hosts.append(inventory.InventoryHost(host.name, host.groups, variables))
        heading = "Testbed processes; it lasts as long as the process that made it."
        inventory.write(self.inventory, hosts, heading)

    def home(self, host: str) -> Path:
        """Return the directory of the host.

        The host's processes have this path in the command line, or as working directory.
        """
        return self._directory / "hosts" / host

    def _address(self, host: str) -> str:
        site, number = self.place(host)
        return f"127.{self._network}.{site + 1}.{number}"

    delay = cut = join = refusing("testbed processes has no links between sites")
    bandwidth = refusing("testbed processes limits no rate")
    fill = _no_disk

    def processes(self, host: str) -> list[int]:
        self.host(host)
        home = self.home(host)
        return [pid for pid in _own_processes() if _belongs(pid, home)]

    def end_processes(self) -> None:
        """End the processes of all hosts: playbooks start processes that outlive the playbook."""
        for host in self.hosts:
            for pid in self.processes(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def testbed(hosts: Sequence[HostPlan], directory: Path) -> Iterator[LoopbackTestbed]:
    """Make a testbed that lasts as long as the context. Raises BadInput.

    Files written by processes of the hosts stay in ``directory``/hosts.
    """
    check(hosts, ())
    if any(host.disks for host in hosts):
        _no_disk()
    network, claim = _network()
    with claim:
        made = LoopbackTestbed(hosts, directory, network)
        try:
            made.write()
            made.end_processes()  # processes of an earlier testbed whose maker was killed
            yield made
        finally:
            made.duty.end()
            made.end_processes()
            made.inventory.unlink(missing_ok=True)


def _network() -> tuple[int, socket.socket]:
    """Return a second byte of addresses that no other testbed has while the socket is open.

    The kernel keeps the name of the socket unique.
    """
    for number in _NETWORKS:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0ares-testbed-processes-{number}")
        except OSError:
            claim.close()
        else:
            return number, claim
    raise BadInput(
        f"all {len(_NETWORKS)} networks of loopback for testbeds are taken; nothing was made"
    )


def _own_processes() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.geteuid():
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid()]


def _belongs(pid: int, home: Path) -> bool:
    try:
        inside = Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(home)
    except OSError:
        return False
    words = command_line(pid).replace("=", " ").split()
    return inside or any(Path(word).is_relative_to(home) for word in words)
