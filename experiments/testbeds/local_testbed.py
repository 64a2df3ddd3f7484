"""Testbed `local`: each host is a set of namespaces with its own root, address and sshd.

    controller (this machine) -- link -- router: a bridge for each site -- eth0 of each host

The hosts of a site are on the same bridge, with rules between the bridges. The router's namespace
forwards traffic between sites, so this traffic is delayed, lost, cut off and counted there; traffic
to the controller and within a site is not. No packet gets out: a host has routes to the other hosts
and to the controller only. Hosts share the machine's processors, memory and disk, and see its
files; hosts are no protection from each other.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import permutations
from pathlib import Path

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from ares.testing import namespaces
from ares.testing.namespaces import NETWORK_TOOLS, NamespaceFailed
from ares.tracing.tree import printable
from experiments import CHECKOUT
from experiments.testbeds import inventory, nfqueue, slots
from experiments.testbeds.nfqueue import QueueShape
from experiments.testbeds.packet_rules import counted, detached, forward, ip, restore
from experiments.testbeds.slowed_processes import MadeHosts
from experiments.testbeds.testbed_plan import HostPlan, LinkPlan, between, check_shape

LOCAL_TOOLS = NETWORK_TOOLS | {
    "tc": "iproute2", "iptables-legacy": "iptables", "unshare": "util-linux",
    "sshd": "openssh-server", "ssh": "openssh-client",
    "ssh-keygen": "openssh-client", "nsenter": "util-linux",
}  # fmt: skip

_HOST_SCRIPT = Path(__file__).with_name("host.sh")
_HOST_UP_S = 30.0
_HOST_ASK_S = 0.02
_BURST_S = 0.004
_BURST_BYTES_MIN = 16 * 1024
"""Least size of a token bucket, which holds the bytes sent in _BURST_S."""

_SSHD_CONFIG = """\
Port 22
AddressFamily inet
ListenAddress {address}
HostKey /etc/ares-testbed/host_key
AuthorizedKeysFile /etc/ares-testbed/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
AllowUsers root
UsePAM no
UseDNS no
MaxStartups 200
MaxSessions 200
Subsystem sftp internal-sftp
PidFile none
"""


def obstacle() -> str | None:
    """Return why this machine cannot have such a testbed, and the remedy, or `None`."""
    why = namespaces.obstacle(LOCAL_TOOLS)
    return f"no testbed local: {why}. Testbed processes needs no root" if why else None


class LocalTestbed(MadeHosts):
    """A :class:`experiments.testbeds.testbed_plan.Testbed` of namespaces.

    :func:`testbed` and :func:`up` make the testbed.
    """

    def __init__(
        self, hosts: Sequence[HostPlan], links: Sequence[LinkPlan], directory: Path | None
    ) -> None:
        super().__init__(hosts, links)
        if why := obstacle():
            raise BadInput(why)
        if strange := set(str(directory)) & set(",:\\\"'{} \n"):
            raise BadInput(
                f"a testbed cannot be in {printable(str(directory))!r}: {sorted(strange)} cannot "
                "stand in the options of a mount. Nothing was made"
            )
        self._links = links
        self._directory = directory and directory.resolve()
        self._shapes: dict[tuple[int, int], QueueShape] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._inits: dict[str, subprocess.Popen[bytes]] = {}

    def make(self) -> None:
        """Make the testbed. Raises BadInput or NamespaceFailed, and leaves no remains."""
        self._slot = slots.claim()
        own = self._directory and self._directory / "testbed"
        self._base = own or Path(f"/var/tmp/{self._slot.prefix}")
        self.inventory = self._base / "inventory.yml"
        try:
            self._own_directory()
            self._slot.write(
                str(self._base),
                map(self._namespace, self.hosts),
                {host.name: host.site for host in self.hosts.values()},
            )
            self._router()
            self._files()
            for host in self.hosts.values():
                self._start(host)
            self._shaper()
            for link in self._links:
                self.delay(link.site, link.other, link.delay_ms, link.jitter_ms, link.loss)
            self._await_ssh()
        except NamespaceFailed as error:
            self.remove()
            raise NamespaceFailed(f"{error}. All that was made is removed again") from error
        except BaseException:
            self.remove()
            raise

    def _own_directory(self) -> None:
        try:
            self._base.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"{self._base.parent} is no directory, and none can be made there"
            raise BadInput(f"{what}: {error.strerror}; nothing was made") from None
        kind = namespaces.run("stat", "--file-system", "--format", "%T", str(self._base.parent))
        if kind.strip() == "overlayfs":
            why = (
                "hosts cannot write there, as their own roots are overlays, too. Another "
                "--directory will do, such as /dev/shm, which is memory"
            )
            raise BadInput(f"{self._base.parent} is on an overlay: {why}. Nothing was made")
        try:
            self._base.mkdir(mode=0o700)
        except FileExistsError:
            why = (
                "a testbed has it (`python -m experiments local status`), or left it, and then it "
                "can be removed"
            )
            raise BadInput(f"{self._base} is there already: {why}. Nothing was made") from None
        except OSError as error:
            what = f"{self._base} cannot be made"
            raise BadInput(f"{what}: {error.strerror}; nothing was made") from None

    def remove(self) -> None:
        """Remove all parts of the testbed."""
        self.duty.end()
        slots.remove(self._slot)
        for process in [*self._inits.values(), *self._shapers()]:
            process.wait()

    @property
    def number(self) -> int:
        """Name of the testbed in `local status` and `local clean`."""
        return self._slot.number

    def leave(self) -> None:
        """Leave the testbed standing until a user removes it."""
        self.duty.end()
        self._slot.release()

    # -- making ---------------------------------------------------------------------------------

    def _namespace(self, host: str) -> str:
        return f"{self._slot.prefix}-{host}"

    def address(self, host: str) -> str:
        """Return the address of the host."""
        site, number = self.place(host)
        return f"{self._subnet(site)}.{number}"

    def _subnet(self, site: int) -> str:
        """Return the first three bytes of a site's addresses.

        Third byte 0 is the link to the controller.
        """
        return f"{slots.network_of(self._slot.number)}.{site + 1}"

    def _router(self) -> None:
        hub, network = self._slot.prefix, slots.network_of(self._slot.number)
        namespaces.add(hub)
        for words in (
            f"link add {hub} type veth peer name control netns {hub}",
            f"addr add {network}.0.1/30 dev {hub}",
            f"link set {hub} up",
            f"-n {hub} addr add {network}.0.2/30 dev control",
            f"-n {hub} link set control up",
            f"route add {network}.0.0/16 via {network}.0.2",
        ):
            namespaces.run("ip", *words.split())
        for site in range(len(self.sites)):
            namespaces.bridge(hub, f"site{site}")
            ip(hub, f"addr add {self._subnet(site)}.1/24 dev site{site}")
        for number, host in enumerate(self.hosts):
            (site, _), namespace = self.place(host), self._namespace(host)
            namespaces.add(namespace)
            address = f"{self.address(host)}/24"
            namespaces.plug(namespace, address, hub, f"site{site}", f"host{number}")
            ip(namespace, f"route add default via {self._subnet(site)}.1")
        control = "-A FORWARD -i control -j ACCEPT\n-A FORWARD -o control -j ACCEPT\n"
        pairs = "".join(self._pair_rules())
        restore(hub, f"*filter\n:FORWARD DROP\n{control}{pairs}COMMIT\n")
        restore(hub, f"*mangle\n{''.join(self._counting_rules())}COMMIT\n")
        forward(hub)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return permutations(range(len(self.sites)), 2)

    def _pair_rules(self) -> Iterator[str]:
        for site in range(len(self.sites)):  # for machines whose bridges ask iptables, too
            yield f"-A FORWARD -i site{site} -o site{site} -j ACCEPT\n"
        for one, other in self._pairs():
            yield (
                f":{_chain(one, other)} -\n"
                f"-A FORWARD -i site{one} -o site{other} -j {_chain(one, other)}\n"
                f"-A {_chain(one, other)} -j ACCEPT\n"
            )

    def _counting_rules(self) -> Iterator[str]:
        for one, other in self._pairs():
            yield f"-A POSTROUTING -s {self._subnet(one)}.0/24 -d {self._subnet(other)}.0/24\n"

    def _files(self) -> None:
        """Write the keys, the files of each host, and the inventory."""
        key, known_hosts = self._base / "key", self._base / "known_hosts"
        control = self._slot.place / "cp"
        _make_key(key)
        control.mkdir()
        addresses = "".join(f"{self.address(name)} {name}\n" for name in self.hosts)
        hosts, known = [], []
        for host in self.hosts.values():
            given = self._base / "hosts" / host.name / "given"
            for name in ("given", "upper", "work", "root", "scaffold"):
                (given.parent / name).mkdir(parents=True, mode=0o755)
            _make_key(given / "host_key")
            address = self.address(host.name)
            known.append(f"{address} {(given / 'host_key.pub').read_text()}")
            (given / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
            (given / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}")
            (given / "sshd_config").write_text(_SSHD_CONFIG.format(address=address))
            variables: dict[str, inventory.Value] = {
                "ansible_host": address,
                **inventory.ssh("root", key, known_hosts),
                "ares_become": False,
                "ansible_control_path_dir": str(control),
                "ansible_python_interpreter": python()[0],
                "ares_address": address,
                "ares_site": host.site,
                "ares_python": python()[0],
            }
            hosts.append(inventory.InventoryHost(host.name, host.groups, variables))
        known_hosts.write_text("".join(known))
        end = f"`python -m experiments local clean {self.number}`"
        heading = f"Testbed local {self.number}; it lasts until {end}."
        inventory.write(self.inventory, hosts, heading)

    def _start(self, host: HostPlan) -> None:
        directory = self._base / "hosts" / host.name
        root = os.stat("/").st_dev
        beside = [path for path in _programs() if os.stat(path).st_dev != root]
        items = [f"bind:{path}" for path in beside]
        items += [f"reach:{path}" for path in _programs() if path not in beside]
        items += [f"disk:{size}:{path}" for path, size in host.disks.items()]
        own = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "sh"]
        command = [*own, str(_HOST_SCRIPT), str(directory), host.name, *items]
        inside = namespaces.inside(self._namespace(host.name))
        self._inits[host.name] = detached([*inside, *command], directory / "log")

    def _shaper(self) -> None:
        """Start the process that delays traffic between sites.

        Settings reach the process by a socket, which exists when the process is ready.
        """
        place = self._slot.place / "delays"
        command = [
            *namespaces.inside(self._slot.prefix),
            *python("-m", "experiments.testbeds.nfqueue", str(place)),
        ]
        self._delays = detached(command, self._base / "delays.log")
        _await(place.exists, self._delays, self._base / "delays.log", "delays packets")

    def _shapers(self) -> list[subprocess.Popen[bytes]]:
        return [self._delays] if hasattr(self, "_delays") else []

    def _await_ssh(self) -> None:
        for name, process in self._inits.items():
            greets, log = partial(_greets, self.address(name)), self._base / "hosts" / name / "log"
            _await(greets, process, log, f"is host {name}")

    # -- the methods of Testbed
    # ------------------------------------------------------------------------------------------

    def delay(
        self, site: str, other: str, ms: float, jitter_ms: float = 0.0, loss: float = 0.0
    ) -> None:
        one, two = between(self.sites, site, other)
        check_shape(ms, jitter_ms, loss)
        shape = QueueShape(ms / 1000, jitter_ms / 1000, loss)
        self._shapes |= {(one, two): shape, (two, one): shape}
        shapes = {_queue(one, two): shape, _queue(two, one): shape}
        try:
            nfqueue.shape(self._slot.place / "delays", shapes)
        except OSError as error:
            what = f"the delay from {site} to {other} was not changed"
            raise NamespaceFailed(f"{what}: {error}") from error
        self._route(one, two)

    def cut(self, site: str, other: str) -> None:
        one, two = between(self.sites, site, other)
        self._cuts |= {(one, two), (two, one)}
        self._route(one, two)

    def join(self, site: str, other: str) -> None:
        one, two = between(self.sites, site, other)
        self._cuts -= {(one, two), (two, one)}
        self._route(one, two)

    def _route(self, one: int, two: int) -> None:
        """Change both ways at once: iptables-restore applies all given rules in a single step."""
        rules = [
            f"-F {_chain(*way)}\n-A {_chain(*way)} {self._target(way)}\n"
            for way in ((one, two), (two, one))
        ]
        restore(self._slot.prefix, f"*filter\n{''.join(rules)}COMMIT\n")

    def _target(self, way: tuple[int, int]) -> str:
        if way in self._cuts:
            return "-j DROP"
        shaped = self._shapes.get(way, QueueShape()) != QueueShape()
        return f"-j NFQUEUE --queue-num {_queue(*way)}" if shaped else "-j ACCEPT"

    def bandwidth(self, host: str, bits_per_s: int | None) -> None:
        self.host(host)
        port = f"host{list(self.hosts).index(host)}"
        if bits_per_s is not None and not 8_000 <= bits_per_s <= 10**12:
            raise BadInput(
                f"a host can have 8,000 bits a second and more, not {bits_per_s}; nothing was "
                "changed"
            )
        for namespace, interface in ((self._namespace(host), "eth0"), (self._slot.prefix, port)):
            if bits_per_s is not None:
                burst = max(_BURST_BYTES_MIN, int(bits_per_s / 8 * _BURST_S))
                bucket = f"tbf rate {bits_per_s}bit burst {burst} latency 100ms"
                _tc(namespace, f"replace dev {interface} root {bucket}")
            elif "tbf" in _tc(namespace, f"show dev {interface}"):
                _tc(namespace, f"del dev {interface} root")

    def processes(self, host: str) -> list[int]:
        self.host(host)
        inside, pids = _pid_namespace(self._init(host)), slots.processes(self._namespace(host))
        return [pid for pid in pids if _pid_namespace(pid) == inside]

    def fill(self, host: str, path: str, free_bytes: int) -> None:
        known = self.host(host).disks
        if path not in known or free_bytes < 0:
            disks = ", ".join(known) or "none"
            raise BadInput(
                f"only a disk of limited size can be filled, and host {host} has {disks}, not "
                f"{printable(path)!r}; nothing was changed"
            )
        script = """
            ballast=$1/.testbed-ballast; rm -f "$ballast"
            ballast_bytes=$(( $(stat --file-system --format '%f * %S' "$1") - $2 ))
            if [ $ballast_bytes -gt 0 ]; then fallocate --length $ballast_bytes "$ballast"; fi
        """
        enter = f"nsenter --mount --target {self._init(host)} sh -euc".split()
        namespaces.run(*enter, script, "sh", path, str(free_bytes))

    def traffic(self) -> dict[tuple[str, str], int]:
        """Return the bytes that arrived since the beginning, for each (site, other site).

        The bytes left the first site for the second.
        """
        counts = counted(self._slot.prefix)
        return dict(zip(permutations(self.sites, 2), counts, strict=True))

    def _init(self, host: str) -> int:
        """Return the pid of the host's first process, as the machine sees it."""
        holder = self._inits[host].pid
        try:
            return int(Path(f"/proc/{holder}/task/{holder}/children").read_text().split()[0])
        except (OSError, IndexError):
            said = _end_of(self._base / "hosts" / host / "log")
            raise NamespaceFailed(f"host {host} is down: its first process ended. {said}") from None


@contextmanager
def testbed(
    hosts: Sequence[HostPlan], links: Sequence[LinkPlan], directory: Path
) -> Iterator[LocalTestbed]:
    """Make hosts that last as long as the context. Raises BadInput, NamespaceFailed.

    Their files are in ``directory``/testbed, which is removed with the hosts.
    """
    made = LocalTestbed(hosts, links, directory)
    made.make()
    try:
        yield made
    finally:
        made.remove()


def _chain(one: int, other: int) -> str:
    return f"from{one}to{other}"


def _queue(one: int, other: int) -> int:
    return one * 64 + other


def _tc(namespace: str, words: str) -> str:
    return namespaces.run("tc", "-n", namespace, "qdisc", *words.split())


def _make_key(path: Path) -> None:
    kind = ["ssh-keygen", "-q", "-t", "ed25519", "-C", "ares-testbed"]
    namespaces.run(*kind, "-N", "", "-f", str(path))


def _await(
    holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, what: str
) -> None:
    deadline_s = time.monotonic() + _HOST_UP_S
    while not holds():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline_s:
            why = "ended" if ended else "does not serve"
            raise NamespaceFailed(f"the process that {what} {why}: {_end_of(log)}")
        time.sleep(_HOST_ASK_S)


def _end_of(log: Path) -> str:
    return printable(log.read_text(errors="replace")[-500:].strip()) if log.exists() else ""


def _greets(address: str) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.create_connection((address, 22), timeout=1.0) as connection,
    ):
        return connection.recv(4) == b"SSH-"
    return False


def _pid_namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _programs() -> list[str]:
    """Return the directories with our programs, which hosts must see and their users must reach."""
    return sorted({sys.prefix, sys.base_prefix, str(CHECKOUT)})
