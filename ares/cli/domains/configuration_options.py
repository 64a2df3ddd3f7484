"""The options that name a configuration, and the wished configuration itself."""

from typing import Annotated, Any

import typer

from ares.cli.local.init_command import Dap
from ares.cli.options import SharedOptions
from ares.model.configuration import DELTA_DEFAULT, Algorithm, Configuration
from ares.model.errors import BadInput, ConfigurationRefused

DapOption = Annotated[
    Dap | None,
    typer.Option(
        "--dap", help="Replicate values (abd) or erasure-code them (ec).", show_default=False
    ),
]
AnyDap = Annotated[
    Algorithm | None,
    typer.Option(
        "--dap",
        help="Replicate values (abd), erasure-code them (ec), or, for a log, a chain (chain).",
        show_default=False,
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k",
        help="With ec: how many elements rebuild a value. Default: the largest k that survives one "
        "crash.",
    ),
]
Delta = Annotated[
    int | None, typer.Option("--delta", help="With ec: how many writers at once. Default: 8.")
]
Servers = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="s0,s1,...",
        help="The ids of the servers, with commas.",
        show_default=False,
    ),
]
AtSite = Annotated[
    str | None,
    typer.Option(
        "--site",
        metavar="SITE",
        help="Servers of this site, as many as `default` has, in place of --servers.",
        show_default=False,
    ),
]
AllowNoFaults = Annotated[
    bool, typer.Option("--allow-no-faults", help="Accept a configuration that one crash stops.")
]


def wished_configuration(
    common: SharedOptions,
    dap: Algorithm | None,
    k: int | None,
    delta: int | None,
    servers: str | None,
    allow_no_faults: bool,
) -> Configuration:
    """Return the configuration of the options, with the servers' addresses of the cluster file.

    Raises :class:`BadInput`.
    """
    from ares.cluster.new_cluster import largest_k

    book = common.settings().book()
    if dap is None:
        raise BadInput(
            "--dap is missing: say --dap abd to replicate values or --dap ec to erasure-code "
            "them; a log takes --dap chain"
        )
    names = named_servers(servers)
    try:
        if dap == "ec":
            k = largest_k(len(names)) if k is None else k
            wished = Configuration.ec(
                names, k, DELTA_DEFAULT if delta is None else delta, allow_no_faults=allow_no_faults
            )
        elif (k, delta) == (None, None):
            wished = (Configuration.abd if dap == "abd" else Configuration.chain)(
                names, allow_no_faults=allow_no_faults
            )
        else:
            raise BadInput(f"--k and --delta belong to --dap ec: {dap} replicates whole values")
        return wished.resolved(book)
    except ConfigurationRefused as error:
        raise BadInput(str(error)) from error


def named_servers(servers: str | None) -> list[str]:
    """Return the ids of --servers. Raises :class:`BadInput`."""
    if servers is None:
        raise BadInput("--servers is missing: name the servers, for example --servers s0,s1,s2")
    names = [name.strip() for name in servers.split(",")]
    if not all(names):
        raise BadInput(f"--servers takes ids with one comma between two of them, not {servers!r}")
    return names


def described(domain: str, configuration: Configuration) -> dict[str, Any]:
    """Return a configuration of ``domain`` as JSON shows it.

    ``index`` is -1 for a configuration without a place in the sequence yet.
    """
    return {
        "domain": domain,
        "configuration": configuration.describe(),
        "index": configuration.index,
        "dap": configuration.dap,
        "k": configuration.k,
        "delta": configuration.delta,
        "servers": list(configuration.server_ids),
        "quorum": configuration.quorum_size,
        "crashes_survived": configuration.crashes_survived,
    }
