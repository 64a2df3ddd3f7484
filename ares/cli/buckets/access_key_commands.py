"""Commands about the access keys of S3 clients: bucket key new, ls, rm."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ares.cli.buckets.bucket_paths import shown_time
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import printable
from ares.gateway.access.reserved_buckets import KEYS_BUCKET, is_reserved
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.gateway.access.issued_keys import IssuedKey
    from ares.gateway.access.sealed_keys import AccessKey

KeyName = Annotated[
    str, typer.Argument(metavar="NAME", help="A name for people.", show_default=False)
]
KeyId = Annotated[
    str, typer.Argument(metavar="ID", help="The key's id, ARES...", show_default=False)
]
SealKey = Annotated[
    Path | None,
    typer.Option(
        "--seal-key",
        metavar="FILE",
        help="The key of the gateways (default: gateway.key beside the cluster file).",
        show_default=False,
    ),
]


def new(
    common: SharedOptions,
    name: KeyName,
    role: Annotated[
        Literal["read", "write", "admin"],
        typer.Option(
            "--role",
            help="Read objects; write, too; or admin: also make and configure buckets.",
            show_default=False,
        ),
    ],
    buckets: Annotated[
        list[str] | None,
        typer.Option(
            "--bucket",
            metavar="B",
            help="Only for this bucket; may be repeated (default: all buckets).",
            show_default=False,
        ),
    ] = None,
    seal_key: SealKey = None,
) -> None:
    """Make an access key for an S3 client; its secret is shown this once.

    The output is a piece of shell: `eval "$(ares-cli bucket key new me --role read)"`. The first
    key of a cluster comes with the file gateway.key, which every gateway needs.
    """
    from ares.client.buckets.bucket_values import checked_bucket
    from ares.gateway.access.issued_keys import issue, open_seal
    from ares.gateway.access.sealed_keys import KeyRole, is_there, new_access_key, seal_path

    reach = tuple(dict.fromkeys(checked_bucket(bucket) for bucket in buckets or ()))
    if any(is_reserved(bucket) for bucket in reach):
        raise BadInput("no access key reaches a bucket of the gateways themselves")
    key = new_access_key(name, KeyRole[role.upper()], reach)
    cluster_file = common.settings().path
    path = seal_path(cluster_file, seal_key)
    made = not is_there(path)

    async def use(manager: "Manager") -> None:
        keys = await manager.bucket(KEYS_BUCKET, create=True)
        await issue(keys, await open_seal(keys, cluster_file, path), key)

    with_manager(common, use)
    data = _about(key) | {"secret_key": key.secret, "seal_key": str(path), "seal_key_made": made}
    common.report(data, "\n".join(_snippet(key, path if made else None)))


def _snippet(key: "AccessKey", made: Path | None) -> list[str]:
    """Return the lines of shell that use a new key. ``made``: the new file of the seal."""
    lines = [
        f"# {key.name}: {_grant(key)}; the secret is not shown again",
        f"export AWS_ACCESS_KEY_ID={key.id}",
        f"export AWS_SECRET_ACCESS_KEY={key.secret}",
        "# or, in place of these variables, as a profile in ~/.aws/credentials:",
        f"#   [{key.name}]",
        f"#   aws_access_key_id = {key.id}",
        f"#   aws_secret_access_key = {key.secret}",
    ]
    if made is not None:
        name = printable(str(made))
        lines.append(f"# {name} was made: copy it, with mode 600, to the machine of every gateway")
    return lines


def _grant(key: "AccessKey") -> str:
    return f"{key.role.name.lower()}, {' '.join(key.buckets) or 'all buckets'}"


def _about(key: "AccessKey") -> dict[str, Any]:
    return {
        "access_key": key.id,
        "name": key.name,
        "role": key.role.name.lower(),
        "buckets": list(key.buckets),
    }


def ls(common: SharedOptions, seal_key: SealKey = None) -> None:
    """List the access keys, with their names, roles and buckets, without their secrets."""
    from ares.client.buckets.bucket_errors import BucketNotFound
    from ares.gateway.access.issued_keys import issued_keys
    from ares.gateway.access.sealed_keys import GatewaySeal, seal_path

    cluster_file = common.settings().path
    path = seal_path(cluster_file, seal_key)

    async def use(manager: "Manager") -> "list[IssuedKey]":
        try:
            keys = await manager.bucket(KEYS_BUCKET)
        except BucketNotFound:
            return []
        return await issued_keys(keys, GatewaySeal.read(cluster_file, path))

    issued = with_manager(common, use)
    rows = [
        (_about(each.key) if each.key else {"access_key": each.id, "name": None})
        | {"made_ms": each.made_ms}
        for each in issued
    ]
    common.report(rows, "\n".join(_line(each, path) for each in issued) or "no access key")


def _line(issued: "IssuedKey", path: Path) -> str:
    key = issued.key
    told = f"cannot be unsealed with {path}" if key is None else f"{key.name}: {_grant(key)}"
    return f"{issued.id}  {shown_time(issued.made_ms)}  {told}"


def rm(common: SharedOptions, id: KeyId) -> None:
    """Revoke an access key: every gateway refuses requests that begin after the answer."""
    from ares.client.buckets.bucket_errors import BucketNotFound
    from ares.gateway.access.issued_keys import AccessKeyNotFound, revoke

    async def use(manager: "Manager") -> None:
        try:
            await revoke(await manager.bucket(KEYS_BUCKET), id)
        except BucketNotFound:
            raise AccessKeyNotFound(id) from None

    with_manager(common, use)
    common.report({"revoked": id}, f"{id}: revoked")
