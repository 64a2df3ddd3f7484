"""The command for a new cluster: init.

Some of the options are shared with commands for domains, the demo and torture.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec import structs

from ares.cli.options import SharedOptions
from ares.cli.terminal import parse_size
from ares.model.configuration import SERVERS_MAX
from ares.model.errors import BadInput
from ares.model.numbers import PORT_MAX
from ares.platform.environment import TRANSPORT_VARIABLE

if TYPE_CHECKING:
    from ares.cluster.new_cluster import InitPlan
    from ares.cluster.settings import Settings

SERVERS_DEFAULT = 5
SPARES_MAX = 1000
VALUE_SIZE_DEFAULT = "256M"
MEMBERS_MAX = 15
"""The largest number of consensus members; each decision waits for a majority."""

Dap = Literal["abd", "ec"]
"""The data access primitives: replication or erasure coding."""

Durability = Literal["memory", "fsync"]
"""The failures that a server's acknowledgement outlasts."""

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="The cluster's directory; its file is DIR/cluster.toml.",
        show_default=False,
    ),
]
Consensus = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MEMBERS_MAX,
        help="How many consensus members; an odd number is best. Default: 3, or an etcd.",
    ),
]

Transport = Annotated[
    Literal["native", "libzmq"],
    typer.Option(
        envvar=TRANSPORT_VARIABLE,
        help="native: ares speaks ZeroMQ's protocol itself. libzmq: pyzmq does; both understand "
        "each other.",
    ),
]


def init(
    common: SharedOptions,
    directory: Directory,
    servers: Annotated[
        int | None,
        typer.Option(min=1, max=SERVERS_MAX, help="How many storage servers. Default: 5."),
    ] = None,
    consensus: Consensus = None,
    dap: Annotated[
        Dap, typer.Option(help="Replicate values (abd) or erasure-code them (ec).")
    ] = "abd",
    k: Annotated[
        int | None,
        typer.Option(
            help="With ec: how many elements rebuild a value. Default: the largest k that survives "
            "one crash."
        ),
    ] = None,
    delta: Annotated[
        int | None, typer.Option(help="With ec: how many writers at once. Default: 8.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address that all processes listen on.")
    ] = "127.0.0.1",
    base_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=PORT_MAX,
            help="The first of consecutive ports that are free on this machine; 0: any free ports. "
            "Default: 7400, or 7500, ... if taken.",
        ),
    ] = None,
    security: Annotated[
        Literal["curve", "none"] | None,
        typer.Option(
            help="curve: every process and client has a key. none: no keys, even if other machines "
            "reach --host."
        ),
    ] = None,
    allow_no_faults: Annotated[
        bool, typer.Option("--allow-no-faults", help="Accept a cluster that one crash stops.")
    ] = False,
    durability: Annotated[
        Durability,
        typer.Option(
            help="fsync: acknowledged data is on the disk. memory: data is lost when servers stop."
        ),
    ] = "fsync",
    etcd: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            help="An etcd that runs already decides. No consensus members then.",
        ),
    ] = None,
    spares: Annotated[
        int,
        typer.Option(
            min=0,
            max=SPARES_MAX,
            help="How many more servers, in no configuration, that can replace crashed servers.",
        ),
    ] = 0,
    autopilot: Annotated[
        bool,
        typer.Option(
            "--autopilot", help="Replace servers that are gone by spares, without being asked."
        ),
    ] = False,
    sites: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:N,...",
            help="How many servers are at which site, in place of --servers. `default` begins at "
            "the first one.",
        ),
    ] = None,
    transport: Transport = "native",
    value_max: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="The largest value, up to 1G; servers may then take more memory (docs/limits.md).",
        ),
    ] = VALUE_SIZE_DEFAULT,
) -> None:
    """Write the file and secrets of a new cluster.

    DIR is made if needed; existing files are never overwritten.
    """
    from ares.cluster.new_cluster import InitPlan, check_free, check_unused, create, free_base_port

    endpoints = tuple(part.strip() for part in (etcd or "").split(",") if part.strip())
    members = (0 if endpoints else 3) if consensus is None else consensus
    if sites is not None and servers is not None:
        raise BadInput(
            "--sites says how many servers there are: give no --servers; nothing was written"
        )
    plan = InitPlan(
        servers or SERVERS_DEFAULT,
        members,
        dap,
        k,
        delta,
        host,
        base_port or 0,
        security,
        allow_no_faults,
        durability,
        endpoints,
        spares,
        autopilot,
        transport=transport,
        value_bytes=parse_size(value_max),
    )
    plan = plan if sites is None else _at_sites(plan, sites)
    check_unused(directory)
    if base_port is None:
        plan = structs.replace(plan, base_port=free_base_port(plan))
    elif base_port:
        check_free(plan)
    settings = create(directory, plan)
    lines = _written(settings, plan, directory, base_port)
    data = {
        "file": str(settings.path),
        "name": settings.name,
        "configuration": settings.initial.describe(),
        "k": settings.initial.k,
        "crashes_survived": settings.initial.crashes_survived,
        "servers": {id: server.address for id, server in settings.servers.items()},
        "consensus": {id: member.address for id, member in settings.members.items()},
        "etcd": [] if settings.etcd is None else list(settings.etcd.endpoints),
        "notes": list(settings.notes),
    }
    common.report(data, "\n".join(lines))


def _written(
    settings: "Settings", plan: "InitPlan", directory: Path, base_port: int | None
) -> list[str]:
    """Return the new files and the next steps as text for a person."""
    from ares.cluster.new_cluster import BASE_PORT
    from ares.cluster.sites import sites_of

    initial = settings.initial
    deciders = (
        f"{len(settings.members)} consensus members"
        if settings.etcd is None
        else "decisions in etcd"
    )
    lines = [
        f"wrote {directory / settings.path.name}: {settings.name}, {deciders}",
        initial.describe(),
    ]
    if plan.dap == "ec" and plan.k is None:
        lines.append(
            f"k = {initial.k} was chosen: the largest with which {initial.n} servers survive a "
            "crash"
        )
    if settings.security is not None:
        lines.append(
            f"keys for all processes and clients are in {settings.security.directory}; the "
            "client admin is authorised, `ares-cli keys new` makes more"
        )
    lines += [f"site {site}: {', '.join(ids)}" for site, ids in sites_of(settings).items()]
    # servers at other sites are no spares
    unused = ", ".join(
        id for id in settings.servers if id not in initial.server_ids and not plan.sites
    )
    if plan.autopilot:
        lines.append(
            f"the autopilot replaces servers that are gone; spares: {unused or 'none yet'}"
        )
    elif unused:
        lines.append(f"spares, for `ares-cli reconfig`: {unused}")
    if base_port is None and plan.base_port != BASE_PORT:
        lines.append(
            f"ports from {BASE_PORT} on are taken by other processes here: the cluster uses "
            f"{settings.processes()[0].address} and the next ones"
        )
    lines += [f"note: {note}" for note in settings.notes]
    lines += [
        "next:",
        f"  ares-cli up {directory} --detach",
        f"  ares-cli -c {settings.path} status",
        f"  ares-cli down {directory}",
    ]
    return lines


def _at_sites(plan: "InitPlan", sites: str) -> "InitPlan":
    """Return the plan with the servers of ``NAME:N,...``. Raises :class:`BadInput`."""
    from ares.security.clients_file import CLIENT_NAME, CLIENT_NAME_EXPECTED

    counts: dict[str, int] = {}
    for part in sites.split(","):
        name, _, count = part.strip().rpartition(":")
        if (
            not CLIENT_NAME.fullmatch(name)
            or name in counts
            or not re.fullmatch("[1-9][0-9]{0,3}", count)
        ):
            raise BadInput(
                "--sites takes each site once and how many servers are there, as in "
                f"nantes:5,rennes:5, not {sites!r}; a site's name has {CLIENT_NAME_EXPECTED}; "
                "nothing was written"
            )
        counts[name] = int(count)
    first, *others = counts.values()
    if plan.spares:
        raise BadInput(
            "--sites names all servers, spares included: give no --spares, but more servers at a "
            "site; nothing was written"
        )
    if first + sum(others) > SERVERS_MAX + SPARES_MAX:
        raise BadInput(
            f"--sites names {first + sum(others)} servers, and {SERVERS_MAX + SPARES_MAX} are "
            "the most; nothing was written"
        )
    return structs.replace(plan, servers=first, spares=sum(others), sites=tuple(counts.items()))
