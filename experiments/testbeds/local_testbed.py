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
from contextlib import ExitStack, contextmanager
from functools import partial
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
from experiments.testbeds.slots import SlotState
from experiments.testbeds.slowed_processes import SlowedProcesses, kill
from experiments.testbeds.testbed_plan import (
    FIRST_HOST,
    HostPlan,
    LinkPlan,
    between,
    check,
    check_shape,
)

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


class LocalTestbed:
    """A :class:`experiments.testbeds.testbed_plan.Testbed` of namespaces.

    :func:`testbed` and :func:`up` make the testbed.
    """

    def __init__(
        self, hosts: Sequence[HostPlan], links: Sequence[LinkPlan], directory: Path | None
    ) -> None:
        self._sites = check(hosts, links)
        if why := obstacle():
            raise BadInput(why)
        if strange := set(str(directory)) & set(",:\\\"'{} \n"):
            raise BadInput(
                f"a testbed cannot be in {printable(str(directory))!r}: {sorted(strange)} cannot "
                "stand in the options of a mount. Nothing was made"
            )
        self._hosts = {host.name: host for host in hosts}
        self._links = links
        self._directory = directory and directory.resolve()
        self._shapes: dict[tuple[int, int], QueueShape] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._inits: dict[str, subprocess.Popen[bytes]] = {}
        self._duty = SlowedProcesses()

    def make(self) -> None:
        """Make the testbed. Raises BadInput or NamespaceFailed, and leaves no remains."""
        self._slot = slots.claim()
        self._base = (
            self._directory / "testbed"
            if self._directory
            else Path(f"/var/tmp/{self._slot.prefix}")
        )
        self.inventory = self._base / "inventory.yml"
        try:
            self._own_directory()
            names = [self._slot.prefix, *map(self._namespace, self._hosts)]
            sites = {host.name: host.site for host in self._hosts.values()}
            self._slot.write(
                SlotState(
                    self._slot.number, os.getpid(), str(self._base), self._slot.prefix, names, sites
                )
            )
            self._router()
            self._files()
            for host in self._hosts.values():
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
            raise BadInput(
                f"{self._base.parent} is no directory, and none can be made there: "
                f"{error.strerror}; nothing was made"
            ) from None
        if (
            namespaces.run(
                "stat", "--file-system", "--format", "%T", str(self._base.parent)
            ).strip()
            == "overlayfs"
        ):
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
            raise BadInput(
                f"{self._base} cannot be made: {error.strerror}; nothing was made"
            ) from None

    def remove(self) -> None:
        """Remove all parts of the testbed."""
        self._duty.end()
        slots.remove(self._slot)
        for process in [*self._inits.values(), *self._shapers()]:
            process.wait()

    @property
    def number(self) -> int:
        """Name of the testbed in `local status` and `local clean`."""
        return self._slot.number

    def leave(self) -> None:
        """Leave the testbed standing until a user removes it."""
        self._duty.end()
        self._slot.release()

    # -- making ---------------------------------------------------------------------------------

    def _namespace(self, host: str) -> str:
        return f"{self._slot.prefix}-{host}"

    def _address(self, host: str) -> str:
        site = self._hosts[host].site
        place = [name for name, other in self._hosts.items() if other.site == site].index(host)
        return f"{self._subnet(self._sites.index(site))}.{FIRST_HOST + place}"

    def _subnet(self, site: int) -> str:
        """Return the first three bytes of a site's addresses.

        Third byte 0 is the link to the controller.
        """
        return f"{slots.network_of(self._slot.number)}.{site + 1}"

    def _router(self) -> None:
        hub, network = self._slot.prefix, slots.network_of(self._slot.number)
        namespaces.add(hub)
        namespaces.run(
            "ip", "link", "add", hub, "type", "veth", "peer", "name", "control", "netns", hub
        )
        namespaces.run("ip", "addr", "add", f"{network}.0.1/30", "dev", hub)
        namespaces.run("ip", "link", "set", hub, "up")
        ip(hub, f"addr add {network}.0.2/30 dev control")
        ip(hub, "link set control up")
        namespaces.run("ip", "route", "add", f"{network}.0.0/16", "via", f"{network}.0.2")
        for site in range(len(self._sites)):
            namespaces.bridge(hub, f"site{site}")
            ip(hub, f"addr add {self._subnet(site)}.1/24 dev site{site}")
        for number, host in enumerate(self._hosts.values()):
            namespaces.add(self._namespace(host.name))
            namespaces.plug(
                self._namespace(host.name),
                f"{self._address(host.name)}/24",
                hub,
                f"site{self._sites.index(host.site)}",
                f"host{number}",
            )
            gateway = f"{self._subnet(self._sites.index(host.site))}.1"
            ip(self._namespace(host.name), f"route add default via {gateway}")
        restore(
            hub,
            "*filter\n"
            ":FORWARD DROP\n"
            "-A FORWARD -i control -j ACCEPT\n"
            "-A FORWARD -o control -j ACCEPT\n"
            f"{''.join(self._pair_rules())}COMMIT\n",
        )
        restore(hub, f"*mangle\n{''.join(self._counting_rules())}COMMIT\n")
        forward(hub)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        places = range(len(self._sites))
        return ((one, other) for one in places for other in places if one != other)

    def _pair_rules(self) -> Iterator[str]:
        for site in range(len(self._sites)):  # for machines whose bridges ask iptables, too
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
        key, known_hosts, control = (
            self._base / "key",
            self._base / "known_hosts",
            self._slot.place / "cp",
        )
        _make_key(key)
        control.mkdir()
        addresses = "".join(f"{self._address(name)} {name}\n" for name in self._hosts)
        hosts, known = [], []
        for host in self._hosts.values():
            given = self._base / "hosts" / host.name / "given"
            for name in ("given", "upper", "work", "root", "scaffold"):
                (given.parent / name).mkdir(parents=True, mode=0o755)
            _make_key(given / "host_key")
            known.append(f"{self._address(host.name)} {(given / 'host_key.pub').read_text()}")
            (given / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
            (given / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}")
            (given / "sshd_config").write_text(
                _SSHD_CONFIG.format(address=self._address(host.name))
            )
            variables: dict[str, inventory.Value] = {
                "ansible_host": self._address(host.name),
                **inventory.ssh("root", key, known_hosts),
            }
            variables |= {
                "ares_become": False,
                "ansible_control_path_dir": str(control),
                "ansible_python_interpreter": python()[0],
            }
            variables |= {
                "ares_address": self._address(host.name),
                "ares_site": host.site,
                "ares_python": python()[0],
            }
            hosts.append(inventory.InventoryHost(host.name, host.groups, variables))
        known_hosts.write_text("".join(known))
        inventory.write(
            self.inventory,
            hosts,
            f"Testbed local {self._slot.number}; it lasts until `python -m experiments local "
            f"clean {self._slot.number}`.",
        )

    def _start(self, host: HostPlan) -> None:
        directory = self._base / "hosts" / host.name
        beside = [path for path in _programs() if os.stat(path).st_dev != os.stat("/").st_dev]
        items = [f"bind:{path}" for path in beside] + [
            f"reach:{path}" for path in _programs() if path not in beside
        ]
        items += [f"disk:{size}:{path}" for path, size in host.disks.items()]
        own = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
        command = [
            *namespaces.inside(self._namespace(host.name)),
            *own,
            "sh",
            str(_HOST_SCRIPT),
            str(directory),
            host.name,
            *items,
        ]
        self._inits[host.name] = detached(command, directory / "log")

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
            _await(
                partial(_greets, self._address(name)),
                process,
                self._base / "hosts" / name / "log",
                f"is host {name}",
            )

    # -- the methods of Testbed
    # ------------------------------------------------------------------------------------------

    def delay(
        self, site: str, other: str, ms: float, jitter_ms: float = 0.0, loss: float = 0.0
    ) -> None:
        one, two = between(self._sites, site, other)
        check_shape(ms, jitter_ms, loss)
        shape = QueueShape(ms / 1000, jitter_ms / 1000, loss)
        for way in ((one, two), (two, one)):
            self._shapes[way] = shape
        try:
            nfqueue.shape(
                self._slot.place / "delays", {_queue(one, two): shape, _queue(two, one): shape}
            )
        except OSError as error:
            raise NamespaceFailed(
                f"the delay from {site} to {other} was not changed: {error}"
            ) from error
        self._route(one, two)

    def cut(self, site: str, other: str) -> None:
        one, two = between(self._sites, site, other)
        self._cuts |= {(one, two), (two, one)}
        self._route(one, two)

    def join(self, site: str, other: str) -> None:
        one, two = between(self._sites, site, other)
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
        return (
            f"-j NFQUEUE --queue-num {_queue(*way)}"
            if self._shapes.get(way, QueueShape()) != QueueShape()
            else "-j ACCEPT"
        )

    def bandwidth(self, host: str, bits_per_s: int | None) -> None:
        self._known(host)
        ends = (
            (self._namespace(host), "eth0"),
            (self._slot.prefix, f"host{list(self._hosts).index(host)}"),
        )
        if bits_per_s is not None and not 8_000 <= bits_per_s <= 10**12:
            raise BadInput(
                f"a host can have 8,000 bits a second and more, not {bits_per_s}; nothing was "
                "changed"
            )
        for namespace, interface in ends:
            if bits_per_s is None:
                shown = namespaces.run("tc", "-n", namespace, "qdisc", "show", "dev", interface)
                if "tbf" in shown:
                    namespaces.run("tc", "-n", namespace, "qdisc", "del", "dev", interface, "root")
                continue
            burst = max(_BURST_BYTES_MIN, int(bits_per_s / 8 * _BURST_S))
            bucket = ("tbf", "rate", f"{bits_per_s}bit", "burst", str(burst), "latency", "100ms")
            namespaces.run(
                "tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *bucket
            )

    def slow(self, host: str, pattern: str, percent: float) -> list[int]:
        return self._duty.slow(pattern, percent, self._processes(host))

    def kill(self, host: str, pattern: str) -> list[int]:
        return kill(pattern, self._processes(host))

    def _processes(self, host: str) -> list[int]:
        self._known(host)
        inside = os.readlink(f"/proc/{self._init(host)}/ns/pid")
        return [
            pid for pid in slots.processes(self._namespace(host)) if _pid_namespace(pid) == inside
        ]

    def fill(self, host: str, path: str, free_bytes: int) -> None:
        self._known(host)
        if path not in self._hosts[host].disks or free_bytes < 0:
            disks = ", ".join(self._hosts[host].disks) or "none"
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
        counts = counted(self._slot.prefix)
        return {
            (self._sites[one], self._sites[other]): count
            for (one, other), count in zip(self._pairs(), counts, strict=True)
        }

    def through(self, site: str, host: str, port: int) -> str:
        self._known(host)
        if site not in self._sites:
            raise BadInput(
                f"there is no site {printable(site)!r}; there are {', '.join(self._sites)}"
            )
        return f"{self._address(host)}:{port}"

    def _known(self, host: str) -> None:
        if host not in self._hosts:
            raise BadInput(
                f"there is no host {printable(host)!r}; there are {', '.join(self._hosts)}. "
                "Nothing was changed"
            )

    def _init(self, host: str) -> int:
        """Return the pid of the host's first process, as the machine sees it."""
        holder = self._inits[host].pid
        try:
            return int(Path(f"/proc/{holder}/task/{holder}/children").read_text().split()[0])
        except (OSError, IndexError):
            raise NamespaceFailed(
                f"host {host} is down: its first process ended. "
                f"{_end_of(self._base / 'hosts' / host / 'log')}"
            ) from None


@contextmanager
def testbed(
    hosts: Sequence[HostPlan], links: Sequence[LinkPlan], directory: Path
) -> Iterator[LocalTestbed]:
    """Make hosts that last as long as the context. Raises BadInput, NamespaceFailed.

    Their files are in ``directory``/testbed, which is removed with the hosts.
    """
    made = LocalTestbed(hosts, links, directory)
    made.make()
    with ExitStack() as stack:
        stack.callback(made.remove)
        yield made


def _chain(one: int, other: int) -> str:
    return f"from{one}to{other}"


def _queue(one: int, other: int) -> int:
    return one * 64 + other


def _make_key(path: Path) -> None:
    namespaces.run(
        "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ares-testbed", "-f", str(path)
    )


def _await(
    holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, what: str
) -> None:
    deadline_s = time.monotonic() + _HOST_UP_S
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise NamespaceFailed(
                f"the process that {what} "
                f"{'ended' if process.poll() is not None else 'does not serve'}: {_end_of(log)}"
            )
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
