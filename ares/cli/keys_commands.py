"""Commands about the keys of clients: keys new, keys list, keys revoke.

They change the file of authorised clients, and never show a secret.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.options import SharedOptions
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.cluster.cluster_keys import SecuritySettings

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The client's name in the list.", show_default=False),
]
RoleOption = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="read, write, reconfigure or admin; each role includes the roles before it.",
    ),
]
AllowNoAdmin = Annotated[
    bool, typer.Option("--allow-no-admin", help="Revoke the last client with the role admin, too.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where the secret key goes (default: NAME.secret beside the list).",
    ),
]


def new(common: SharedOptions, name: Name, role: RoleOption, output: Out = None) -> None:
    """Make a key for a client and authorise it.

    Servers on this machine know the key at once; copy clients.toml to further machines. The file
    with the secret key is for the client; no part of ares needs the file.
    """
    from ares.cluster.cluster_keys import authorise

    client, path = authorise(_security(common), name, role, output)
    data = {"name": name, "role": role, "key": client.key, "secret": str(path)}
    common.report(
        data,
        f"{name} may {role}; its secret key is in {path}\n"
        f"use it: ares-cli --key {path} ..., or ARES_KEY={path}",
    )


def list_(common: SharedOptions) -> None:
    """List the clients that are authorised, with their roles and public keys."""
    from ares.security.clients_file import read_clients

    clients = read_clients(_security(common).clients_path, managed=True)
    rows = [
        {"name": client.name, "role": client.role.name.lower(), "key": client.key}
        for client in clients
    ]
    width = max((len(client.name) for client in clients), default=0)
    common.report(
        rows,
        "\n".join(f"{row['name']:{width}}  {row['role']:11}  {row['key']}" for row in rows)
        or "no client is authorised",
    )


def revoke(common: SharedOptions, name: Name, allow_no_admin: AllowNoAdmin = False) -> None:
    """Take a client off the list: within a second servers on this machine refuse its requests.

    They also refuse new connections of the client. Copy the file to all further machines.
    """
    from ares.cluster import cluster_keys

    cluster_keys.revoke(_security(common), name, allow_no_admin)
    common.report(
        {"revoked": name},
        f"{name} is no longer authorised; the file with its secret key can be removed",
    )


def _security(common: SharedOptions) -> "SecuritySettings":
    settings = common.settings()
    if settings.security is None:
        why = (
            "this cluster has no keys: every client that reaches it may read, write and administer"
        )
        raise BadInput(
            f"{settings.path}: {why}. `ares-cli init DIR --security curve` makes one with keys; "
            "nothing was changed"
        )
    return settings.security
