"""The making of a cluster file: a new cluster on one host, or a fresh start without data.

The text is first read back through the checks of any cluster file; hence `init` cannot produce a
file that `up` refuses.
"""

import errno
import math
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ares.cluster.addresses import is_loopback
from ares.cluster.cluster_keys import DECISIONS_ID, FIRST_CLIENT, KEYS_NAME, new_keys, write_keys
from ares.cluster.home import kept_in, new_identity, prepare, record_of
from ares.cluster.settings import FILE_NAME, Settings
from ares.cluster.tables import (
    CLUSTER_FORMAT,
    AutopilotSettings,
    ClientSettings,
    EtcdTable,
    FileTable,
    InitialTable,
    Limits,
    MemberSettings,
    ServerSettings,
    TransportName,
    lines,
    written,
)
from ares.model.configuration import (
    BACKEND_DEFAULT,
    DELTA_DEFAULT,
    Algorithm,
    Configuration,
    Server,
)
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import VALUE_BYTES_DEFAULT, ServerId
from ares.model.numbers import PORT_MAX
from ares.platform.named_files import SETTINGS_BYTES_MAX, read_named
from ares.platform.replacement import replace_durably
from ares.platform.trusted_files import (
    DIRECTORY_MADE_FOR_ALL,
    MADE_FOR_ALL,
    make_directory,
    write_new,
)
from ares.security.keys import write_secret

Durability = Literal["memory", "fsync"]

PASSWORD_NAME = "secrets/consensus.password"

_PORTS = range(20_000, 32_000)
"""Ports below the ports that Linux gives to outgoing connections.

A port free now is likely to stay free until the cluster starts.
"""

BASE_PORT = 7400
_BASE_PORTS = range(BASE_PORT, 20_000, 100)

_OBSTACLES = {
    errno.EADDRINUSE: "another process listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}

_HTTP_HOST = "127.0.0.1"
"""Host of the http addresses: figures are for this machine, until an operator changes the host."""

_DURABILITY = {
    "memory": """\
# The servers keep all data in memory. The data survives the crash of a few servers at a time (see
# [initial]), and is lost when all servers stop.
""",
    "fsync": """\
# The servers acknowledge data that is on stable storage, in their data directories, and start again
# with all of it.
""",
}
_SECURITY = {
    None: "",
    "none": """\
# No keys: every program that reaches the addresses below can read and write all data.
""",
    "curve": """\
# Every process and client has a key, and is known by the key. This file holds no secret: hand it
# out. The secrets are in the directory of keys. The file clients.toml there says what each client
# may do; `ares-cli keys` writes it.
""",
}
_REMARKS = {
    "format": """\
# A cluster of ares: its servers, its consensus members, and its first configuration. Clients and
# servers read the same file. At the address http a process tells its state: GET /health, and
# GET /metrics for Prometheus.
""",
    "transport": """\
# All processes and clients of this file send and receive with this library (docs/transport.md).
""",
    "decision_key": """\
# The key that consensus members sign decisions with; servers accept no other decisions.
""",
    "consensus_password": """\
# The consensus members' shared secret; the file must be readable by its owner only.
""",
}
_ETCD = """
# This etcd keeps the decisions; its endpoints are members of one etcd cluster. Clients need this
# table, servers do not talk to etcd. Further keys: prefix = "/ares", the beginning of all keys in
# the etcd; ca = "pem/ca.pem" for TLS; certificate and key for an etcd that asks clients for a
# certificate; user = "ares" and password = "secrets/etcd.password", a file of mode 600.
"""
_AUTOPILOT = """
# With this table, a spare replaces a server that was silent for after_s seconds. A spare is a
# server that is up and in fewer configurations. every_s: seconds between two checks of the servers.
# bytes_per_s: how fast data moves to a spare. log_after_s: seconds of silence after which a server
# is left out of a log's chain. transfer: "servers" lets large values travel from server to server
# and not through the autopilot. A domain that follows its users rests follow_rest_s seconds after a
# move, and all following domains together move at most follow_bytes_per_hour. mirror_every_s:
# seconds between two updates of a mirror.
"""
_INITIAL = """
# {description}.
# Every client starts from this table: never edit it while the cluster holds data, use
# `ares-cli reconfig`.
"""


class InitPlan(Struct, frozen=True):
    """The wishes of a call of `init`.

    ``base_port`` 0: free ports are chosen. ``k`` None with "ec": the largest k that survives a
    crash. ``etcd``: endpoints (``host:port``) of an etcd which keeps the decisions, in place of
    consensus members. ``spares``: servers outside the initial configuration. ``autopilot``: spares
    take the places of dead servers. ``sites``: the number of servers at each site; the initial
    configuration has the servers at the first site. ``value_bytes``: of the largest value.
    """

    servers: int = 5
    consensus: int = 3
    dap: Algorithm = "abd"
    k: int | None = None
    delta: int | None = None
    host: str = "127.0.0.1"
    base_port: int = BASE_PORT
    security: str | None = None
    allow_no_faults: bool = False
    durability: Durability = "fsync"
    etcd: tuple[str, ...] = ()
    spares: int = 0
    autopilot: bool = False
    sites: tuple[tuple[str, int], ...] = ()
    transport: TransportName = "native"
    value_bytes: int = VALUE_BYTES_DEFAULT

    @property
    def server_sites(self) -> list[str]:
        """The site of each server; empty names without sites."""
        return [site for site, count in self.sites for _ in range(count)] or [""] * (
            self.servers + self.spares
        )

    @property
    def member_sites(self) -> list[str]:
        """Sites of the consensus members, spread over all sites; empty names without sites."""
        sites = [site for site, _ in self.sites] or [""]
        return [sites[number % len(sites)] for number in range(self.consensus)]

    @property
    def server_ids(self) -> list[str]:
        """The ids of the initial configuration's servers, followed by the spares."""
        return [f"s{index}" for index in range(self.servers + self.spares)]

    @property
    def member_ids(self) -> list[str]:
        return [f"r{index}" for index in range(self.consensus)]

    @property
    def ports(self) -> int:
        """The number of ports: two for a server, three for a consensus member."""
        return 2 * len(self.server_ids) + 3 * self.consensus


def check_unused(directory: Path) -> None:
    """Raise :class:`BadInput` if a cluster is in ``directory``."""
    for existing in (directory / FILE_NAME, directory / PASSWORD_NAME, directory / KEYS_NAME):
        if existing.exists():
            raise BadInput(
                f"{existing} exists, and init never overwrites a cluster: choose another "
                "directory, or remove it yourself"
            )


def create(directory: Path, plan: InitPlan) -> Settings:
    """Write the cluster file and the secrets of a new cluster into ``directory``.

    The directory is made if absent. The directories of the processes are made ready for first
    starts. Raises :class:`BadInput`, with nothing written, for an impossible plan, or if a cluster
    exists already.
    """
    path, password = directory / FILE_NAME, directory / PASSWORD_NAME
    check_unused(directory)
    if plan.etcd and plan.consensus:
        raise BadInput(
            "either consensus members decide or an etcd does: say --etcd or --consensus, not "
            "both; nothing was written"
        )
    if plan.etcd and plan.security == "curve":
        why = (
            "servers of a cluster with keys take only decisions that its consensus members have "
            "signed, and etcd signs nothing"
        )
        raise BadInput(
            f"--etcd and --security curve do not go together: {why}; nothing was written"
        )
    keys = (
        new_keys([*plan.server_ids, *plan.member_ids], plan.consensus)
        if plan.security == "curve"
        else {}
    )
    text = _text(plan, {id: pair.public for id, pair in keys.items()})
    processes = Settings.parse(text, path).processes()
    for process in processes:
        record = record_of(process.data)
        if (found := kept_in(process.data) or (record if record.exists() else None)) is not None:
            remove = f"remove {found if found == record else process.data} yourself"
            raise BadInput(
                f"{found} is left of an earlier cluster: choose another directory, or {remove}; "
                "nothing was written"
            )
    try:
        make_directory(directory, DIRECTORY_MADE_FOR_ALL)
        if plan.consensus:
            write_secret(password, secrets.token_urlsafe(32))
        if keys:
            write_keys(keys, directory)
        for process in processes:
            prepare(process.data)
        write_new(path, text, MADE_FOR_ALL)
    except OSError as error:
        raise BadInput(
            f"no cluster was written into {directory}: {error.strerror} ({error.filename})"
        ) from error
    return Settings.load(path)


def renew_identities(settings: Settings) -> Settings:
    """Give every server of the file a new identity, and keep the remaining file.

    Afterwards no server has the data of an earlier life. The directories of all processes must have
    been removed; they are made ready for first starts.
    """
    text = read_named(settings.path, SETTINGS_BYTES_MAX)[0].decode("utf-8")
    for server in settings.servers.values():
        text = text.replace(server.identity, new_identity())
    replace_durably(settings.path, text, settings.path.stat().st_mode & 0o777)
    for process in settings.processes():
        # last: a start under the old identities would not count as the first
        prepare(process.data)
    return Settings.load(settings.path)


def largest_k(servers: int) -> int:
    """Return the most data elements over ``servers`` that survive a crash: floor((n-k)/2) >= 1.

    Raises :class:`BadInput` if no such k exists.
    """
    if servers < 3:
        raise BadInput(
            f"erasure coding over {servers} servers survives no crash, whatever the value of k: "
            "use 3 servers or more, or give --k yourself"
        )
    return servers - 2


def _configuration(plan: InitPlan) -> Configuration:
    members = [Server(ServerId(f"s{index}")) for index in range(plan.servers)]
    try:
        if plan.dap == "ec":
            k = largest_k(plan.servers) if plan.k is None else plan.k
            delta = DELTA_DEFAULT if plan.delta is None else plan.delta
            return Configuration.ec(
                members, k, delta, BACKEND_DEFAULT, allow_no_faults=plan.allow_no_faults
            )
        if (plan.k, plan.delta) != (None, None):
            raise BadInput("--k and --delta belong to --dap ec: ABD replicates whole values")
        return Configuration.abd(members, allow_no_faults=plan.allow_no_faults)
    except ConfigurationRefused as error:
        raise BadInput(str(error)) from error


def _text(plan: InitPlan, keys: Mapping[str, str]) -> str:
    """Return the text of the cluster file. ``keys``: the public keys; empty without keys."""
    configuration = _configuration(plan)
    if not plan.host.strip():
        raise BadInput("--host: expected the address that all processes listen on, and it is empty")
    if plan.security is None and not is_loopback(plan.host):
        why = (
            f"{plan.host} is not a loopback address: without keys every client that reaches it "
            "can read and write"
        )
        raise BadInput(
            f"{why}. Use --security curve, which gives every process and client a key; or, if "
            "the network is trusted, --security none"
        )
    file = _file(plan, keys, configuration)
    remarks = _REMARKS | {
        "durability": _DURABILITY[plan.durability],
        "security": _SECURITY[plan.security],
    }
    remarks["initial"] = _INITIAL.format(description=configuration.describe())
    if plan.etcd:
        remarks["etcd"] = _ETCD
    if plan.autopilot:
        remarks["autopilot"] = _AUTOPILOT
    elif plan.consensus:  # commented out, until an operator wants the table
        remarks["autopilot"] = _AUTOPILOT + "".join(
            f"# {line}\n" for line in ("[autopilot]", *lines(AutopilotSettings()).splitlines())
        )
    return written(file, remarks)


def timeout_for(value_bytes: int) -> float:
    """Return the seconds for an operation on the largest value: the default, or more."""
    return float(math.ceil(ClientSettings().timeout_s * value_bytes / VALUE_BYTES_DEFAULT))


def _file(plan: InitPlan, keys: Mapping[str, str], configuration: Configuration) -> FileTable:
    chosen = _free_ports(plan) if plan.base_port == 0 else range(plan.base_port, 1 << 20)
    addresses = (f"{plan.host}:{port}" for port in chosen)
    https = (f"{_HTTP_HOST}:{port}" for port in chosen[len(plan.server_ids) + 2 * plan.consensus :])
    ec: dict[str, Any] = (
        {"k": configuration.k, "delta": configuration.delta, "backend": configuration.backend}
        if configuration.dap == "ec"
        else {}
    )
    return FileTable(
        format=CLUSTER_FORMAT,
        name=f"ares-{secrets.token_hex(3)}",
        durability=plan.durability,
        security=plan.security,
        transport=plan.transport,
        decision_key=keys.get(DECISIONS_ID),
        consensus_password=PASSWORD_NAME if plan.consensus else None,
        server=[
            ServerSettings(
                ServerId(id),
                next(addresses),
                new_identity(),
                public_key=keys.get(id, ""),
                http=next(https),
                site=site,
            )
            for id, site in zip(plan.server_ids, plan.server_sites, strict=True)
        ],
        consensus=[
            MemberSettings(
                ServerId(id),
                next(addresses),
                next(addresses),
                public_key=keys.get(id, ""),
                http=next(https),
                site=site,
            )
            for id, site in zip(plan.member_ids, plan.member_sites, strict=True)
        ],
        etcd=EtcdTable(plan.etcd) if plan.etcd else None,
        limits=Limits.for_values(plan.value_bytes),
        autopilot=AutopilotSettings() if plan.autopilot else None,
        client=ClientSettings(
            timeout_for(plan.value_bytes),
            key=f"{KEYS_NAME}/{FIRST_CLIENT}.secret" if keys else None,
        ),
        initial=InitialTable(
            configuration.dap,
            list(configuration.server_ids),
            **ec,
            allow_no_faults=plan.allow_no_faults,
        ),
    )


def _free_ports(plan: InitPlan) -> list[int]:
    """Return free ports, next to each other.

    With neighbouring ports two clusters made at the same time are less likely to want the same port
    than with ports chosen independently.
    """
    first, wanted = secrets.randbelow(len(_PORTS)), plan.ports
    free: list[int] = []
    for port in (*_PORTS[first:], *_PORTS[:first]):
        if len(free) == wanted:
            return free
        if is_free(plan.host, port) and is_free(_HTTP_HOST, port):
            free.append(port)
    raise BadInput(
        f"fewer than {wanted} ports from {_PORTS.start} to {_PORTS.stop} are free on {plan.host}"
    )


def free_base_port(plan: InitPlan) -> int:
    """Return the first of 7400, 7500, ... from which on all ports of the plan are free.

    7400 if ``host`` is another machine's address.
    """
    if not is_free(plan.host, 0):
        return BASE_PORT
    for base in _BASE_PORTS:
        if all(
            is_free(plan.host, port) and is_free(_HTTP_HOST, port)
            for port in range(base, base + plan.ports)
        ):
            return base
    return 0


def check_free(plan: InitPlan) -> None:
    """Raise :class:`BadInput` if this machine cannot listen on all addresses of the plan now.

    If ``host`` is another machine's address, its ports are unknown and are not checked.
    """
    listening = len(plan.server_ids) + 2 * plan.consensus
    hosts = [plan.host] * listening + [_HTTP_HOST] * (plan.ports - listening)
    taken = [
        f"{host}:{port} cannot be listened on: {why}"
        for host, port in zip(hosts, range(plan.base_port, PORT_MAX + 1), strict=False)
        if (why := obstacle(host, port))
    ]
    if taken and is_free(plan.host, 0):
        more = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
        raise BadInput(
            f"{taken[0]}{more}. {other_ports(plan)}, or give no --base-port; nothing was written"
        )


def other_ports(plan: InitPlan) -> str:
    """Return advice on free ports."""
    base = free_base_port(plan)
    found = f"{plan.ports} ports from {base} on are free" if base else "it chooses free ports"
    return f"Use --base-port {base}: {found}"


def is_free(host: str, port: int) -> bool:
    """Return whether this machine can listen at ``host`` and ``port`` now."""
    return not obstacle(host, port)


def obstacle(host: str, port: int) -> str:
    """Return why this machine cannot listen at ``host`` and ``port``; empty if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return _OBSTACLES.get(error.errno or 0, error.strerror or str(error))
        except (ValueError, TypeError) as error:  # TypeError: a name that IDNA cannot encode
            return str(error)
    return ""
