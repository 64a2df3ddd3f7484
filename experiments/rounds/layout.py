"""Hosts of a round, their work, and the inventory for Ansible. No I/O.

The testbed may have more hosts than a round needs; the round's inventory has only the participants,
with their groups in the round.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec
from msgspec import Struct

from ares.cluster.tables import LARGEST_AT_ONCE, Limits
from ares.dap.coding import STRIPE_BYTES
from ares.model.errors import BadInput
from ares.model.identity import VALUE_BYTES_DEFAULT
from experiments.bench.store_clients import AresStore, CassandraStore, EtcdStore, RedisStore, Store
from experiments.rounds.ares_protocols import (
    ALGORITHM_OF,
    configuration_of,
    is_coded,
    k_of,
    servers_of_some,
)
from experiments.rounds.round_worker import Role, WorkerTask
from experiments.rounds.scenario import OF_ARES, Parameters, ScenarioRound
from experiments.rounds.server_bytes import AFTER, BEFORE
from experiments.testbeds.testbed_plan import CLIENT_GROUPS, HostPlan

CLIENTS_PER_PROCESS = 10
CONSENSUS_MEMBERS = 3
"""Number of consensus members, on the first servers, with reconfigurers; otherwise a single member.
"""

DISK = "/var/lib/ares-disk"
DISK_BYTES = 1 << 30
"""Size of the disk that a host gets if a fault fills the disk of a server."""

STRIPE_MORE_BYTES = 1024
"""Bytes of an element beyond its share of the value, for each stripe: the code adds 80 to 100."""

PORTS = {"redis": 6379, "etcd": 2379, "cassandra": 9042}
ROUND_KEYSPACE = "bench"
PATTERNS = {
    "ares": r" ares server ",
    "redis": "redis-server",
    "etcd": r"(^|/)etcd( |$)",
    "cassandra": "CassandraDaemon",
}
"""Patterns for the command lines of servers, by store."""

MEMBER_PATTERN = r" ares consensus "

GROUP_OF: dict[Role, str] = {"write": "writers", "read": "readers", "reconfigure": "recons"}


class RoundHost(Struct, frozen=True):
    """A host of the testbed: groups and variables.

    ``fast`` names the directories for rounds, if the testbed gives them.
    """

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]

    @property
    def site(self) -> str:
        return str(self.variables.get("ares_site", ""))

    @property
    def address(self) -> str:
        given = self.variables.get("ares_address") or self.variables.get("ansible_host")
        return str(given or self.name)


class Layout(Struct, frozen=True):
    """The hosts of a round by their work, in order."""

    servers: tuple[str, ...]
    consensus: tuple[str, ...]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    recons: tuple[str, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        clients = (*self.writers, *self.readers, *self.recons)
        return tuple(dict.fromkeys((*self.servers, *self.consensus, *clients)))


def store_name(protocol: str) -> str:
    """Return the name of the protocol's store in the playbooks."""
    return "ares" if protocol in OF_ARES else protocol.partition("_")[0].lower()


def placed(round: ScenarioRound, hosts: Mapping[str, RoundHost]) -> Layout:
    """Return hosts for the round. Raises BadInput naming the parts that the testbed lacks."""
    own = round.parameters
    servers = _servers(own, [host for host in hosts.values() if "servers" in host.groups])
    members = CONSENSUS_MEMBERS if own.reconfigurers else 1
    sites = {own.client_site} if own.client_site else {hosts[server].site for server in servers}
    writers, readers, recons = (
        _clients(group, count, sites, hosts.values())
        for group, count in zip(CLIENT_GROUPS, _counts(own), strict=True)
    )
    consensus = servers[:members] if round.protocol in OF_ARES else ()
    return Layout(servers, consensus, writers, readers, recons)


def check_private(protocol: str, servers: Iterable[RoundHost]) -> None:
    """Refuse public addresses for Redis, etcd and Cassandra, which listen without a password.

    Raises BadInput.
    """
    for server in servers if protocol not in OF_ARES else ():
        if _is_public(server.address):
            where = f"{server.address} of {server.name} is public: give ares_address a private one"
            raise BadInput(f"{protocol} has no password, and {where}. Not begun")


def _is_public(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


def _servers(parameters: Parameters, hosts: Sequence[RoundHost]) -> tuple[str, ...]:
    """Return the servers: at each site the number in the placement, the clients' site first.

    Without a placement the first hosts are taken.
    """
    if not parameters.placement:
        return _so_many("servers", parameters.servers, [host.name for host in hosts])
    chosen: tuple[str, ...] = ()
    for site in sorted(parameters.sites, key=lambda site: site != parameters.client_site):
        there = [host.name for host in hosts if host.site == site]
        chosen += _so_many(f"servers at site {site}", parameters.sites[site], there)
    return chosen


def _clients(
    group: str, count: int, sites: Set[str], hosts: Iterable[RoundHost]
) -> tuple[str, ...]:
    """Return all hosts of the group at these sites, but at most as many as clients."""
    there = [host.name for host in hosts if group in host.groups and host.site in sites]
    what = f"{group} at site {' or '.join(sorted(sites))}"
    return _so_many(what, min(count, max(1, len(there))), there)


def _so_many(what: str, count: int, names: list[str]) -> tuple[str, ...]:
    if len(names) < count:
        raise BadInput(f"{count} hosts are asked for as {what}, and the testbed has {len(names)}")
    return tuple(names[:count])


def wanted(rounds: Iterable[ScenarioRound], clients_per_host: int) -> list[HostPlan]:
    """Return hosts that are enough for each of these rounds.

    The site with the most servers comes first: rounds without a placement run there.
    """
    rounds, sites = list(rounds), dict[str, int]()
    for round in rounds:
        for site, count in round.parameters.sites.items():
            sites[site] = max(sites.get(site, 0), count)
    alone = (each.parameters.servers for each in rounds if not each.parameters.placement)
    first = max(sites, key=lambda site: sites[site], default="here")
    sites[first] = max(sites.get(first, 0), *alone, 0)
    full = {fault.server for round in rounds for fault in round.faults if fault.event == "fill"}
    most = list(map(max, *[_counts(round.parameters) for round in rounds], (0, 0, 0)))
    plans = []
    for site in sorted(sites, key=lambda site: site != first):
        ending = f"-{site}" if len(sites) > 1 else ""
        for number in range(sites[site]):
            disks = {DISK: DISK_BYTES} if number in full and site == first else {}
            plans.append(HostPlan(f"server{number}{ending}", site, ["servers"], disks))
        for group, count in zip(CLIENT_GROUPS, most, strict=True):
            names = [f"{group.removesuffix('s')}{number}" for number in range(count)]
            needed = names[: -(-count // clients_per_host)]
            plans += [HostPlan(f"{name}{ending}", site, [group]) for name in needed]
    return plans


def _counts(parameters: Parameters) -> tuple[int, int, int]:
    return parameters.writers, parameters.readers, parameters.reconfigurers


def works(
    round: ScenarioRound, layout: Layout, store: Store, seed: int
) -> dict[str, dict[str, WorkerTask]]:
    """Return the work of the processes in each step, by host and name.

    A name begins with the name of the step. In rounds of ares the first writer and the
    reader at the end count the servers' bytes.
    """
    parameters = round.parameters
    once = msgspec.structs.replace(parameters, operations=1, interval_s=0.0, fresh_after_s=0.0)
    made: dict[str, dict[str, WorkerTask]] = {host: {} for host in layout.hosts}

    def give(host: str, step: str, role: Role, clients: tuple[int, ...]) -> None:
        what, logs = once if role == "read" and step != "work" else parameters, "logs"
        logs = logs if step == "work" else "run"
        task = WorkerTask(store, round.protocol, what, role, clients, seed, logs)
        made[host][f"{step}-{role}-{clients[0]}"] = task

    writer, reader = layout.writers[0], layout.readers[0]
    give(writer, "create", "create", (1,))
    if parameters.load is not None:
        give(writer, "work", "load", (1,))
        return made
    give(reader, "read_file", "read", (1,))
    first = 1
    for (role, group), count in zip(GROUP_OF.items(), _counts(parameters), strict=True):
        clients = tuple(range(first, first + count))
        for host, mine in _shared(clients, getattr(layout, group)):
            for some in _groups(mine):
                give(host, "work", role, some)
                others = tuple(client for client in some if client != 1)
                if role != "reconfigure" and others:
                    give(host, "first_read", "read", others)
        first += count
    counting = ((writer, "work-write-1", BEFORE), (reader, "read_file-read-1", AFTER))
    for host, name, file in counting if round.protocol in OF_ARES else ():
        made[host][name] = msgspec.structs.replace(made[host][name], count_into=f"logs/{file}")
    return made


def _shared(
    clients: tuple[int, ...], hosts: tuple[str, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Divide the clients evenly over the hosts."""
    for number, host in enumerate(hosts):
        begin, end = len(clients) * number // len(hosts), len(clients) * (number + 1) // len(hosts)
        yield host, clients[begin:end]


def _groups(clients: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(clients), CLIENTS_PER_PROCESS):
        yield clients[first : first + CLIENTS_PER_PROCESS]


def store_of(
    round: ScenarioRound, layout: Layout, hosts: Mapping[str, RoundHost], directory: str
) -> Store:
    """Return the store as clients reach it.

    ``directory`` is the directory of the round on a host. When WAIT ends, a majority of Redis's
    servers has a write.
    """
    name = store_name(round.protocol)
    if name == "ares":
        return AresStore(f"{directory}/config/cluster.toml")
    nodes = tuple((hosts[server].address, PORTS[name]) for server in layout.servers)
    addresses = tuple(f"{host}:{port}" for host, port in nodes)
    if name == "redis":
        return RedisStore(addresses[0], len(nodes) // 2 if round.protocol == "REDIS_W" else 0)
    return EtcdStore(addresses) if name == "etcd" else CassandraStore(nodes, ROUND_KEYSPACE)


def _numbers_of_servers(round: ScenarioRound) -> list[int]:
    """Return the possible numbers of servers of a configuration of the round, after crashes too."""
    own = round.parameters
    if not own.reconfigurers:
        return [own.servers]
    crashed = sum(fault.event == "crash" for fault in round.faults)
    running = max(1, own.servers - crashed)
    return [own.servers, *(servers_of_some(running) if own.onto == "some" else [running])]


def value_bytes_of(round: ScenarioRound) -> int:
    """Return the bytes of the largest value of a round of ares, or of a List as published."""
    own, algorithm = round.parameters, ALGORITHM_OF[round.protocol]
    size = own.block_max if algorithm.fragmented else own.object_size
    if not (own.published and is_coded(round.protocol)):
        return size
    k = min(k_of(number, own.parity) for number in _numbers_of_servers(round))
    more = -(-size // STRIPE_BYTES) * STRIPE_MORE_BYTES
    return max(size, (own.delta + 1) * (size // k + more))


def memory_bytes_of(round: ScenarioRound) -> int:
    """Return the bytes of values that a round of ares holds at once, at the least.

    Servers hold versions, of a file one, and a reader a value. As published, a reader gets the
    Lists of all servers. Of a file as published servers hold delta + 1 versions of a block, too,
    and each client holds the blocks, and a reader the file beside them.
    """
    own, algorithm = round.parameters, ALGORITHM_OF[round.protocol]
    size, coded = own.object_size, is_coded(round.protocol)
    versions = min(own.delta + 1, 1 + own.writers * own.operations) if coded else 1
    of_blocks = bool(own.published) and algorithm.fragmented
    versions = 1 if algorithm.fragmented and not of_blocks else versions
    whole = size if algorithm.dap == "abd" else 0
    at_servers = max(
        number * max(versions * size // k_of(number, own.parity), whole)
        for number in _numbers_of_servers(round)
    )
    if of_blocks:
        return at_servers + (own.writers + 2 * own.readers) * size
    at_reader = at_servers if own.published else size
    return at_servers + own.readers * at_reader


def cluster_file_of(round: ScenarioRound) -> dict[str, Any]:
    """Return the variables of the cluster file beyond the usual.

    Large values need a limit of their own, and room for the values of all clients: without room,
    servers hang up on clients, which send again. In a round as published c0 of the clients is the
    first configuration of the file, and libzmq is the transport.
    """
    own = round.parameters
    options: dict[str, Any] = {}
    if round.protocol in OF_ARES and (largest := value_bytes_of(round)) > VALUE_BYTES_DEFAULT:
        at_once = max(LARGEST_AT_ONCE, own.writers + own.reconfigurers, 2 * own.readers)
        options["limits"] = msgspec.structs.asdict(Limits.for_values(largest, at_once))
    if not own.published:
        return {"round_cluster_options": options} if options else {}
    servers = [str(number) for number in range(own.servers)]
    c0 = configuration_of(ALGORITHM_OF[round.protocol].dap, servers, own.parity, own.delta)
    made = {
        "round_cluster_options": options | {"published": True, "transport": "libzmq"},
        "round_dap": c0.dap,
        "round_allow_no_faults": True,
    }
    return made | ({"round_k": c0.k, "round_delta": c0.delta} if c0.dap == "ec" else {})


def command(python: str, names: Sequence[str]) -> str:
    """Return a shell line that runs the workers of these files at once.

    The line fails if a worker fails; without files it is empty.
    """
    if not names:
        return ""
    worker = f"{python} -m experiments.rounds.round_worker"
    begin = " ".join(f'{worker} < work/{name}.json & all="$all $!";' for name in names)
    end = "for one in $all; do wait $one || status=1; done; (exit $status)"
    return f'all=""; status=0; {begin} {end}'


def inventory_of(
    round: ScenarioRound,
    layout: Layout,
    hosts: Mapping[str, RoundHost],
    directories: Mapping[str, str],
    variables: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Return the inventory of the round, for JSON.

    ``directories`` has the directory of the round by host. ``variables`` are for all hosts.
    """
    numbers = [fault.server for fault in round.faults if fault.event == "fill"]
    full = {layout.servers[number] for number in numbers if isinstance(number, int)}
    crashes = any(fault.event == "crash" for fault in round.faults)
    described: dict[str, Any] = {}
    for name in layout.hosts:
        given, directory = dict(hosts[name].variables), directories[name]
        mine = works(round, layout, store_of(round, layout, hosts, directory), seed)[name]
        own = given.get("ares_python")
        python = f"{own} -P" if own else "/opt/ares/bin/python -P"
        steps = {
            step: command(python, [work for work in mine if work.startswith(f"{step}-")])
            for step in ("create", "first_read", "work", "read_file")
        }
        last = steps["read_file"]
        if last and crashes:  # with so many dead servers the command may fail
            last += " || echo 'the last read failed'"
        files = {f"work/{work}.json": msgspec.json.encode(mine[work]).decode() for work in mine}
        described[name] = given | {
            "round_directory": directory,
            "round_files": files,
            "round_create_command": steps["create"],
            "round_first_read_command": steps["first_read"],
            "round_command": steps["work"],
            "round_final_read_command": last,
        }
        if name in full:
            described[name]["round_data_directory"] = f"{DISK}/data"
    groups = {
        group: {"hosts": {name: {} for name in getattr(layout, group)}}
        for group in ("servers", "consensus", *CLIENT_GROUPS)
    }
    return {"all": {"hosts": described, "vars": dict(variables), "children": groups}}
