"""Testbed `processes`: hosts are addresses of loopback and directories, without root.

Relays join the sites (relays.py). Messages to another site must be sent to the relay, so
ask :meth:`LoopbackTestbed.through` for addresses. A relay carries TCP: it delays bytes, and holds
them while sites are cut apart. A relay loses no packets and limits no rate, and hosts have no disk
to fill: such requests are refused, and testbed local has them. All parts end with the process that
made them.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path
from typing import NoReturn

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments.bench.worker_process import GeneratorFailed, WorkerProcess
from experiments.testbeds import inventory
from experiments.testbeds.relays import RelayReply, RelayRequest
from experiments.testbeds.slowed_processes import MadeHosts, command_line
from experiments.testbeds.testbed_plan import HostPlan, LinkPlan, between, check, check_shape

_NETWORKS = range(64, 128)
"""The second byte of addresses 127.N.SITE.HOST."""


class LoopbackTestbed(MadeHosts):
    """A :class:`experiments.testbeds.testbed_plan.Testbed` of processes, made by :func:`testbed`.

    ``links`` is the process that runs the relays.
    """

    def __init__(
        self,
        hosts: Sequence[HostPlan],
        directory: Path,
        network: int,
        links: WorkerProcess,
    ) -> None:
        super().__init__(hosts)
        self._directory = directory.resolve()
        self._network = network
        self._links = links
        self._through: dict[tuple[str, str, int], str] = {}
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

    def delay(
        self, site: str, other: str, ms: float, jitter_ms: float = 0.0, loss: float = 0.0
    ) -> None:
        between(self.sites, site, other)
        check_shape(ms, jitter_ms, loss)
        if loss:
            _refuse("loses no packets")
        for one, two in ((site, other), (other, site)):
            self._ask(RelayRequest(one, two, delay_s=ms / 1000, jitter_s=jitter_ms / 1000))

    def cut(self, site: str, other: str) -> None:
        self._joined(site, other, False)

    def join(self, site: str, other: str) -> None:
        self._joined(site, other, True)

    def _joined(self, site: str, other: str, joined: bool) -> None:
        between(self.sites, site, other)
        for one, two in ((site, other), (other, site)):
            self._ask(RelayRequest(one, two, joined=joined))

    def bandwidth(self, host: str, bits_per_s: int | None) -> None:
        if bits_per_s is not None:
            _refuse("limits no rate")

    def fill(self, host: str, path: str, free_bytes: int) -> None:
        _refuse("has no disk of its own")

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

    def traffic(self) -> dict[tuple[str, str], int]:
        counts = {(site, other): count for site, other, count in self._ask(RelayRequest()).traffic}
        return {ways: counts.get(ways, 0) for ways in permutations(self.sites, 2)}

    def through(self, site: str, host: str, port: int) -> str:
        other, target = self.host(host).site, f"{self._address(host)}:{port}"
        if site == other:
            return target
        between(self.sites, site, other)
        if (site, host, port) not in self._through:
            self._through[site, host, port] = self._ask(RelayRequest(site, other, target)).address
        return self._through[site, host, port]

    def _ask(self, request: RelayRequest) -> RelayReply:
        """Send a request to the relays. Raises BadInput if they are gone or report an error."""
        try:
            self._links.send(request)
            reply = self._links.receive(RelayReply)
        except (GeneratorFailed, OSError):
            reply = RelayReply(error="the process with the relays ended")
        if reply.error:
            raise BadInput(f"the links between sites did not change: {reply.error}")
        return reply


@contextmanager
def testbed(
    hosts: Sequence[HostPlan], links: Sequence[LinkPlan], directory: Path
) -> Iterator[LoopbackTestbed]:
    """Make a testbed that lasts as long as the context. Raises BadInput.

    Files written by processes of the hosts stay in ``directory``/hosts.
    """
    check(hosts, links)
    if any(host.disks for host in hosts):
        _refuse("has no disk of its own")
    network, claim = _network()
    with claim, ExitStack() as closing:
        relays = WorkerProcess("experiments.testbeds.relays", start_new_session=True)
        closing.callback(relays.join)
        made = LoopbackTestbed(hosts, directory, network, relays)
        try:
            made.write()
            made.end_processes()  # processes of an earlier testbed whose maker was killed
            for link in links:
                made.delay(link.site, link.other, link.delay_ms, link.jitter_ms, link.loss)
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


def _refuse(why: str) -> NoReturn:
    raise BadInput(
        f"testbed processes {why}; testbed local can do that, as root. Nothing was changed"
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
