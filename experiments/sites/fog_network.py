"""The fog of the study on this machine: sites with servers and users, as network namespaces.

    users of a site -- 10 ms -- its servers -- 50 ms -- servers of another site

The times are round trips; users reach other sites in 60 ms. A core between the namespaces delays,
counts and cuts. Packets wait in three queues of the core (experiments/testbeds/nfqueue.py), a queue
for each distance. Within a site servers reach each other by loopback. All parts are recorded as for
testbed `local`, so `python -m experiments local clean NAME` removes the remains of a killed runner.
"""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from ares.testing import namespaces
from ares.testing.namespaces import NETWORK_TOOLS, NamespaceFailed
from experiments import ENVIRONMENT
from experiments.bench.store_processes import ProgramNotStarted, await_that
from experiments.testbeds import nfqueue, slots
from experiments.testbeds.nfqueue import QueueShape
from experiments.testbeds.packet_rules import counted, detached, forward, ip, restore
from experiments.testbeds.testbed_plan import between

FOG_S, CORE_S = 0.010, 0.050
"""Round trips: from users to their site's servers, and from site to site."""

BED_SITES_MAX = 30
_QUEUES = {1: FOG_S / 2, 2: CORE_S / 2, 3: (FOG_S + CORE_S) / 2}
_AHEAD = ("nice", "-n", "-15")
"""Priority of the process for delays.

Busy servers would otherwise lengthen the delays of all sites.
"""

_BED_COMMAND_S = 120.0
_BED_UP_S = 20.0
_BED_STOP_S = 10.0


def obstacle() -> str | None:
    """Return why such a network is impossible here, and the remedy, or `None`."""
    why = namespaces.obstacle(NETWORK_TOOLS | {"iptables-legacy": "iptables"})
    return f"no sites: {why}" if why else None


class FogNetwork:
    """The network as deployments see it, made by :func:`bed`.

    Each site has a network namespace for its servers and a network namespace for its users. Servers
    of the same site reach each other without a delay. ``directory`` is for files of servers: it is
    empty at first, and removed with all files at the end.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        """Check the sites. Raises BadInput."""
        if not 1 <= len(sites) <= BED_SITES_MAX or len(set(sites)) < len(sites):
            own = f"1 to {BED_SITES_MAX} sites with names of their own"
            raise BadInput(f"there can be {own}, not {len(sites)}; nothing was made")
        self.sites: Sequence[str] = list(sites)
        self._cuts: set[int] = set()
        self._running: list[subprocess.Popen[bytes]] = []

    # -- making ---------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the network. Raises BadInput or NamespaceFailed, and leaves no remains."""
        self._slot = slots.claim()
        base = Path(f"/var/tmp/{self._slot.prefix}")
        self.directory = base / "servers"
        try:
            core, places = self._slot.prefix, range(len(self.sites))
            names = [each(place) for place in places for each in (self._servers, self._users)]
            base.mkdir(mode=0o755)
            self._slot.write(str(base), names, {name: name for name in names})
            self.directory.mkdir()
            namespaces.add(core)
            for place in places:
                self._plug(place, self._servers(place), f"srv{place}", 0)
                self._plug(place, self._users(place), f"usr{place}", 128)
            self._rules()
            forward(core)
            self._delay()
        except BaseException:
            self.remove()
            raise

    def _plug(self, place: int, name: str, port: str, first: int) -> None:
        """Plug a namespace into a port of the core, with an address of half the site's network."""
        core, net = self._slot.prefix, self._net(place)
        namespaces.add(name)
        ip(core, f"link add {port} type veth peer name eth0 netns {name}")
        ip(core, f"addr add {net}.{first + 1}/25 dev {port}")
        ip(core, f"link set {port} up")
        ip(name, f"addr add {net}.{first + 10}/25 dev eth0")
        ip(name, "link set lo up")
        ip(name, "link set eth0 up")
        ip(name, f"route add default via {net}.{first + 1}")

    def _rules(self) -> None:
        """Set the queues of packets, and the counters of bytes that leave each site, in order."""
        local = "".join(
            f"-A FORWARD -i {one}{place} -o {other}{place} -j NFQUEUE --queue-num 1\n"
            for place in range(len(self.sites))
            for one, other in (("srv", "usr"), ("usr", "srv"))
        )
        remote = (("srv", "srv", 2), ("usr", "srv", 3), ("srv", "usr", 3))
        far = "".join(
            f"-A FORWARD -i {one}+ -o {other}+ -j NFQUEUE --queue-num {queue}\n"
            for one, other, queue in remote
        )
        rules = f":FORWARD DROP\n:cuts -\n{local}-A FORWARD -j cuts\n{far}"
        restore(self._slot.prefix, f"*filter\n{rules}COMMIT\n")
        nets = [f"{self._net(place)}.0/24" for place in range(len(self.sites))]
        inside = "".join(f"-A POSTROUTING -s {net} -d {net} -j ACCEPT\n" for net in nets)
        out = "".join(f"-A POSTROUTING -s {net}\n" for net in nets)
        restore(self._slot.prefix, f"*mangle\n{inside}{out}COMMIT\n")

    def _delay(self) -> None:
        place, log = self._slot.place / "delays", self.directory.parent / "delays.log"
        delays = python("-m", "experiments.testbeds.nfqueue", str(place))
        command = [*namespaces.inside(self._slot.prefix), *_AHEAD, *delays]
        self._running.append(detached(command, log))
        try:
            await_that(place.exists, "packets are delayed", _BED_UP_S, log)
            shapes = {queue: QueueShape(one_way_s) for queue, one_way_s in _QUEUES.items()}
            nfqueue.shape(place, shapes)
        except (ProgramNotStarted, OSError) as error:
            raise NamespaceFailed(
                f"packets cannot be delayed: {error}. All that was made is removed again"
            ) from error

    def remove(self) -> None:
        """Remove all parts of the network, with all processes."""
        for process in self._running[1:]:
            process.terminate()
        slots.remove(self._slot)
        for process in self._running:
            process.wait()

    # -- names ----------------------------------------------------------------------------------

    def _net(self, place: int) -> str:
        return f"{slots.network_of(self._slot.number)}.{place + 1}"

    def _servers(self, place: int) -> str:
        return f"{self._slot.prefix}-srv{place}"

    def _users(self, place: int) -> str:
        return f"{self._slot.prefix}-usr{place}"

    def address(self, site: str) -> str:
        """Return the IPv4 address of the site's servers, reachable from everywhere."""
        return f"{self._net(self.sites.index(site))}.10"

    def among_users(self, site: str) -> list[str]:
        """Return the first words of a command in the network of the site's users."""
        return namespaces.inside(self._users(self.sites.index(site)))

    # -- processes ------------------------------------------------------------------------------

    def run(self, site: str, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Return the output of a command in the network of the site's servers.

        The command ends by itself. Raises ProgramNotStarted if it fails, or takes 120 s.
        """
        command = [*namespaces.inside(self._servers(self.sites.index(site))), *words]
        told, kept = f"`{' '.join(words)}`", environment or ENVIRONMENT
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_BED_COMMAND_S, env=kept
            )
        except subprocess.TimeoutExpired:
            raise ProgramNotStarted(f"{told} did not end in {_BED_COMMAND_S:g} s") from None
        if done.returncode:
            why = done.stderr.strip()[-1000:] or f"status {done.returncode}"
            raise ProgramNotStarted(f"{told} failed: {why}")
        return done.stdout

    def start(
        self, site: str, name: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that stays, with its output in ``directory``/``name``.log.

        The bed ends remaining processes at its own end.
        """
        command = [*namespaces.inside(self._servers(self.sites.index(site))), *words]
        process = detached(command, self.directory / f"{name}.log", environment, self.directory)
        self._running.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End the process: SIGTERM, and SIGKILL after 10 s."""
        process.terminate()
        try:
            process.wait(_BED_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # -- the network ----------------------------------------------------------------------------

    def left(self) -> dict[str, int]:
        """Return the bytes sent out of each site so far, by servers and users."""
        counts = counted(self._slot.prefix)
        return dict(zip(self.sites, counts, strict=True))

    def cut(self, site: str) -> None:
        """Cut the site off.

        Its users reach its servers; connections stay, and are silent.
        """
        self._cuts.add(self._place(site))
        self._cutting()

    def heal(self, site: str) -> None:
        """End the cut."""
        self._cuts.discard(self._place(site))
        self._cutting()

    def _cutting(self) -> None:
        rules = "".join(
            f"-A cuts {way} {port}{place} -j DROP\n"
            for place in self._cuts
            for way in ("-i", "-o")
            for port in ("srv", "usr")
        )
        restore(self._slot.prefix, f"*filter\n-F cuts\n{rules}COMMIT\n")

    def _place(self, site: str) -> int:
        if len(self.sites) < 2:
            raise BadInput("there is one site, and nothing to cut it off from; nothing was changed")
        other = next(other for other in self.sites if other != site)
        return between(self.sites, site, other)[0]


@contextlib.contextmanager
def bed(sites: Sequence[str]) -> Iterator[FogNetwork]:
    """Make sites for the time of the context. Raises BadInput, NamespaceFailed."""
    if why := obstacle():
        raise BadInput(why)
    made = FogNetwork(sites)
    made.make()
    try:
        yield made
    finally:
        made.remove()
