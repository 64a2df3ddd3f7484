"""Bytes between idle sites.

Three sites, in network namespaces, have three servers and a member each.

    sudo .venv/bin/python -m experiments.idle_traffic            # the defaults of `init --sites`
    sudo .venv/bin/python -m experiments.idle_traffic --curve --away
    sudo .venv/bin/python -m experiments.idle_traffic --set consensus_beat_s=0.1

Each site has a domain and a log of its own, and the cluster an autopilot. No client runs while
bytes are counted. The figure of a pair of sites is the sum of both directions, with the headers
of IP and TCP. Root, `ip` and `iptables` are required.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path

from ares.cluster.addresses import split_address
from ares.cluster.settings import Settings
from ares.platform.interpreter import python
from ares.testing import namespaces
from experiments import ENVIRONMENT
from experiments.sites.ares_store import at_homes

IDLE_TRAFFIC_SITES = ("a", "b", "c")
IDLE_TRAFFIC_SERVERS = 3
SETTLING_S = 90.0
"""The members elect a leader and find the logs; connections of the clients that made them end."""

ELECTING_S = 10.0
COUNTING_S = 120.0
"""Two rounds of the autopilot."""

BYTES_PER_S_MAX = 1024.0
IDLE_TRAFFIC_START_S = 60.0
IDLE_TRAFFIC_STOP_S = 20.0


def address_of(site: str) -> str:
    """The address of all processes of a site."""
    return f"198.18.0.{1 + IDLE_TRAFFIC_SITES.index(site)}"


class Network:
    """Namespaces of the sites, a bridge between them, and counters of bytes for each pair."""

    def __init__(self) -> None:
        self._prefix = f"idle{os.getpid()}"

    def inside(self, site: str) -> list[str]:
        """Return the start of a command that runs at ``site``."""
        return namespaces.inside(f"{self._prefix}-{site}")

    @contextmanager
    def made(self) -> Iterator["Network"]:
        """Make the namespaces, and remove them at the end."""
        names = [f"{self._prefix}-{site}" for site in IDLE_TRAFFIC_SITES]
        try:
            for name in (self._prefix, *names):
                namespaces.add(name)
            namespaces.bridge(self._prefix, "hub")
            for site, name in zip(IDLE_TRAFFIC_SITES, names, strict=True):
                namespaces.plug(name, f"{address_of(site)}/24", self._prefix, "hub", f"to-{site}")
            yield self
        finally:
            for name in (*names, self._prefix):
                namespaces.remove(name)

    def count(self, consensus_ports: Sequence[int]) -> None:
        """Begin to count; messages between consensus members have a count of their own."""
        for here, there in permutations(IDLE_TRAFFIC_SITES, 2):
            rule = (*self.inside(here), "iptables", "-w", "-A", "OUTPUT", "-p", "tcp")
            for port in consensus_ports:
                for side in ("--sport", "--dport"):
                    to = ("-d", address_of(there), side, str(port), "-j", "RETURN")
                    namespaces.run(*rule, *to)
            namespaces.run(*rule, "-d", address_of(there), "-j", "RETURN")

    def counted(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the bytes from a site to each further site so far: all, and of consensus."""
        sums = {}
        for here in IDLE_TRAFFIC_SITES:
            saved = namespaces.run(*self.inside(here), "iptables-save", "-c", "-t", "filter")
            rules = re.findall(r"^\[\d+:(\d+)\] -A OUTPUT -d ([\d.]+)/32(.*)$", saved, re.M)
            for there in IDLE_TRAFFIC_SITES:
                counts = [
                    (int(count), "port" in rest)
                    for count, address, rest in rules
                    if address == address_of(there)
                ]
                whole = sum(count for count, _ in counts)
                sums[here, there] = whole, sum(count for count, raft in counts if raft)
        return sums


@contextmanager
def running(network: Network, site: str, log: Path, *words: str) -> Iterator[None]:
    """Run a process of ares at a site until the end of the context, from when it serves."""
    command = [*network.inside(site), *python("-m", "ares", *words)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=ENVIRONMENT
        ) as process,
    ):
        try:
            until_s = time.monotonic() + IDLE_TRAFFIC_START_S
            while b"READY" not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise SystemExit(f"{words} did not start: {log.read_text()[-1000:]}")
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(IDLE_TRAFFIC_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def made_cluster(directory: Path, curve: bool, set_keys: Sequence[str]) -> Settings:
    """Write the cluster file of the sites. ``set_keys``: lines in place of its defaults."""
    shape = ",".join(f"{site}:{IDLE_TRAFFIC_SERVERS}" for site in IDLE_TRAFFIC_SITES)
    words = ["init", str(directory), "--sites", shape, "--autopilot", "--durability", "memory"]
    words += ["--security", "curve" if curve else "none"]
    subprocess.run(python("-m", "ares", *words), check=True, env=ENVIRONMENT, stdout=2)
    path = directory / "cluster.toml"
    homes = {
        f"s{number}": IDLE_TRAFFIC_SITES[number // IDLE_TRAFFIC_SERVERS]
        for number in range(IDLE_TRAFFIC_SERVERS * len(IDLE_TRAFFIC_SITES))
    }
    homes |= {f"r{number}": site for number, site in enumerate(IDLE_TRAFFIC_SITES)}
    text = at_homes(path.read_text(), {id: address_of(site) for id, site in homes.items()})
    for line in set_keys:
        key, _, value = line.partition("=")
        text, replaced = re.subn(rf"(?m)^{re.escape(key)} = .*$", f"{key} = {value}", text)
        if not replaced:
            text = text.replace("\n[[server]]", f"{key} = {value}\n\n[[server]]", 1)
    path.write_text(text)
    return Settings.load(path)


def measure(
    network: Network, settings: Settings, seconds: float, away: bool
) -> dict[tuple[str, str], float]:
    """Run the cluster and return bytes a second of each pair of sites; print them.

    ``away``: another site than that of `default` has the leader, whose members start first.
    """
    directory, file = settings.path.parent, str(settings.path)
    at = {address_of(site): site for site in IDLE_TRAFFIC_SITES}
    members = sorted(settings.members.items(), reverse=away)
    kinds = {"server": list(settings.servers.items()), "consensus": members}
    with ExitStack() as stack:
        for kind, processes in kinds.items():
            for id, own in processes:
                if away and own is members[-1][1]:
                    time.sleep(ELECTING_S)
                site, log = at[split_address(own.address)[0]], directory / f"{id}.log"
                stack.enter_context(running(network, site, log, kind, file, "--id", id))
        for site in IDLE_TRAFFIC_SITES:
            servers = [id for id, own in settings.servers.items() if own.site == site]
            for words in (
                ("domain", "create", f"objects-{site}", "--site", site),
                ("log", "create", f"log-{site}", "--servers", ",".join(servers)),
            ):
                command = (*network.inside(site), *python("-m", "ares", *words, "-c", file))
                subprocess.run([*command, "--timeout", "60"], check=True, env=ENVIRONMENT, stdout=2)
        network.count([split_address(member.raft)[1] for member in settings.members.values()])
        time.sleep(SETTLING_S)
        before, began_s = network.counted(), time.monotonic()
        time.sleep(seconds)
        after, passed_s = network.counted(), time.monotonic() - began_s
        words = ("status", "--json", "-c", file)
        command = [*network.inside(IDLE_TRAFFIC_SITES[0]), *python("-m", "ares", *words)]
        status = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, check=False
        )
        leader = re.search(r'"leader": ?"(\w*)"', status.stdout)
    print(
        f"leader: {leader[1] if leader else 'unknown'}; `default` lives at {IDLE_TRAFFIC_SITES[0]}"
    )
    pairs = {}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        ways = [
            (IDLE_TRAFFIC_SITES[one], IDLE_TRAFFIC_SITES[other]),
            (IDLE_TRAFFIC_SITES[other], IDLE_TRAFFIC_SITES[one]),
        ]
        whole, raft = (sum(after[way][of] - before[way][of] for way in ways) for of in (0, 1))
        pairs[ways[0]] = whole / passed_s
        what = f"{whole / passed_s:8.0f} B/s, {raft / passed_s:.0f} of them between members"
        print(f"{IDLE_TRAFFIC_SITES[one]} and {IDLE_TRAFFIC_SITES[other]}: {what}", flush=True)
    return pairs


def main() -> None:
    """Measure, and exit with status 1 where a pair of sites exceeds the bound."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.idle_traffic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--curve", action="store_true", help="with keys")
    parser.add_argument(
        "--away", action="store_true", help="let another site than a have the leader"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=COUNTING_S)
    given = parser.parse_args()
    if why := namespaces.obstacle():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory() as scratch, Network().made() as network:
        settings = made_cluster(Path(scratch) / "cluster", given.curve, given.set)
        pairs = measure(network, settings, given.seconds, given.away)
    if max(pairs.values()) > BYTES_PER_S_MAX:
        sys.exit(f"more than {BYTES_PER_S_MAX:g} B/s between two sites")


if __name__ == "__main__":
    main()
