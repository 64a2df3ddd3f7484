"""Commands about buckets: bucket init, create, ls, stat, rm, set."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ares.cli.buckets.bucket_paths import (
    IfEtag,
    IfVersion,
    NamedVersion,
    about_object,
    object_path,
    refuse_reserved,
    shown_time,
)
from ares.cli.domains.configuration_options import (
    AllowNoFaults,
    DapOption,
    K,
    Servers,
    described,
    named_servers,
)
from ares.cli.options import SharedOptions, print_line, with_manager
from ares.cli.terminal import parse_size, printable, size
from ares.gateway.access.reserved_buckets import is_reserved
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ConfigurationRefused

if TYPE_CHECKING:
    from ares.cli.local.init_command import Dap
    from ares.client.buckets.bucket_values import (
        BucketSettings,
        CommonPrefix,
        ListedVersion,
        ObjectInfo,
    )
    from ares.client.manager import Manager

BucketName = Annotated[
    str, typer.Argument(metavar="NAME", help="The bucket's name.", show_default=False)
]
BucketOrObject = Annotated[
    str,
    typer.Argument(
        metavar="BUCKET[/KEY]", help="The bucket, or an object in it.", show_default=False
    ),
]
ListedPlace = Annotated[
    str,
    typer.Argument(
        metavar="[BUCKET[/PREFIX]]",
        help="Objects of BUCKET whose keys begin with PREFIX; without it, all buckets.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter",
        metavar="D",
        help="List keys up to D only, as / lists a directory.",
        show_default=False,
    ),
]
After = Annotated[
    str,
    typer.Option(
        "--after", metavar="KEY", help="Begin behind this key or prefix.", show_default=False
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="At most N lines.", show_default=False),
]
Long = Annotated[bool, typer.Option("--long", help="With size, time and version of each object.")]
WithReserved = Annotated[
    bool, typer.Option("--reserved", help="With the buckets of the gateways themselves.")
]
WithVersions = Annotated[
    bool,
    typer.Option("--versions", help="All versions, the newest first, with the marks of deletions."),
]


def init(
    common: SharedOptions,
    dap: DapOption = None,
    k: K = None,
    servers: Servers = None,
    allow_no_faults: AllowNoFaults = False,
) -> None:
    """Make the domains for buckets, once for a cluster.

    These are the log of all changes, a chain of three servers; the objects' data; and snapshots.
    Without options the data is kept as the objects of `default` are. An interrupted `init` is
    completed by another.
    """

    async def use(manager: "Manager") -> dict[str, Configuration]:
        like = await manager.current()
        ids: list[str] = [*like.server_ids] if servers is None else named_servers(servers)
        wished = _wished(like, dap, k, ids, allow_no_faults)
        return await manager.create_bucket_domains(wished)

    made = with_manager(common, use)
    lines = [f"{printable(name)}: {each.describe()}" for name, each in made.items()]
    advice = ""
    if common.settings().autopilot is None:
        advice = (
            "\nChanges wait while a server of the log's chain is down: an autopilot replaces it "
            "(`ares-cli init --autopilot`)"
        )
    data = {"domains": [described(name, each) for name, each in made.items()]}
    common.report(data, "\n".join(lines) + advice)


def _wished(
    like: Configuration, dap: "Dap | None", k: int | None, ids: list[str], allow_no_faults: bool
) -> Configuration:
    """Return the configuration of the objects' data."""
    from ares.cluster.new_cluster import largest_k

    algorithm = dap or ("ec" if k is not None else like.dap)
    if algorithm == "abd" and k is not None:
        raise BadInput("--k belongs to --dap ec: abd replicates whole values")
    try:
        if algorithm == "abd":
            return Configuration.abd(ids, allow_no_faults=allow_no_faults)
        same = like.dap == "ec" and len(ids) == like.n
        elements = k or (like.k if same else largest_k(len(ids)))
        return Configuration.ec(ids, elements, allow_no_faults=allow_no_faults)
    except ConfigurationRefused as error:
        raise BadInput(str(error)) from error


def create(common: SharedOptions, name: BucketName) -> None:
    """Make a bucket; of several creators one wins."""
    refuse_reserved(name)
    with_manager(common, lambda manager: manager.create_bucket(name))
    common.report({"bucket": name}, f"bucket {printable(name)}: made")


def ls(
    common: SharedOptions,
    place: ListedPlace = "",
    delimiter: Delimiter = "",
    after: After = "",
    limit: Limit = None,
    long: Long = False,
    reserved: WithReserved = False,
    versions: WithVersions = False,
) -> None:
    """List buckets, or the objects of a bucket, in order.

    The objects come in pages of a thousand. A name with control characters is shown as a Python
    literal.
    """
    bucket, _, prefix = place.partition("/")
    entries: list[dict[str, Any]] = []
    if versions and (not place or delimiter or after):
        raise BadInput("--versions lists BUCKET[/PREFIX], without --delimiter and --after")

    async def use(manager: "Manager") -> None:
        if not place:
            for name in await manager.buckets():
                if reserved or not is_reserved(name):
                    show({"bucket": name}, printable(name))
            return
        opened = await manager.bucket(bucket)
        if versions:
            async for version in opened.versions(prefix, limit=limit):
                about = {"latest": version.latest, "deletion": version.deletion}
                show(about_object(bucket, version) | about, _version_line(version))
            return
        async for entry in opened.list(prefix, delimiter=delimiter, after=after, limit=limit):
            show(_listed(bucket, entry), _line(entry, long))

    def show(data: dict[str, Any], line: str) -> None:
        if common.json:
            entries.append(data)
        else:
            print_line(line)

    with_manager(common, use)
    if common.json:
        common.report({"entries": entries}, "")


def _listed(bucket: str, entry: "ObjectInfo | CommonPrefix") -> dict[str, Any]:
    if entry.is_prefix:
        return {"bucket": bucket, "prefix": entry.key}
    return about_object(bucket, entry)  # type: ignore[arg-type]


def _line(entry: "ObjectInfo | CommonPrefix", long: bool) -> str:
    key = printable(entry.key)
    if not long:
        return key
    if entry.is_prefix:
        return f"{'':>32}  {'':>8}  {key}"
    return f"{entry.size:>12} {shown_time(entry.modified_ms)}  {entry.version:>8}  {key}"  # type: ignore[union-attr]


def _version_line(version: "ListedVersion") -> str:
    mark = "deleted" if version.deletion else "latest" if version.latest else ""
    return f"{_line(version, True)}  {mark}".rstrip()


def _about_settings(settings: "BucketSettings") -> dict[str, Any]:
    return {"versioning": settings.versioning, "quota": settings.quota}


def stat(common: SharedOptions, place: BucketOrObject, version: NamedVersion = None) -> None:
    """Show version, size, metadata and tags of an object, or counts and settings of a bucket."""
    bucket, slash, key = place.partition("/")

    async def use(manager: "Manager") -> Any:
        opened = await manager.bucket(bucket)
        if slash:
            return await opened.stat(object_path(place).key, version=version)
        return await opened.info(), await opened.settings()

    found: Any = with_manager(common, use)
    if not slash:
        info, settings = found
        data = {"bucket": bucket, "objects": info.objects, "bytes": info.bytes}
        data |= _about_settings(settings) | {"position": info.position}
        common.report(data, "\n".join(f"{name.ljust(10)}  {data[name]}" for name in data))
        return
    rows = [
        ("key", printable(key)), ("size", f"{found.size} bytes"), ("version", found.version),
        ("etag", found.etag), ("modified", f"{shown_time(found.modified_ms)} UTC"),
        *((printable(name), printable(text)) for name, text in sorted(found.metadata.items())),
        *(("tag", printable(f"{name}={text}")) for name, text in sorted(found.tags.items())),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    common.report(
        about_object(bucket, found),
        "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows),
    )


def sweep(common: SharedOptions) -> None:
    """Drop the data that no bucket names, as commands that are killed leave it.

    Processes that use buckets for ten minutes do this by themselves. With other sessions it takes
    up to 20 seconds.
    """
    done = with_manager(common, lambda manager: manager.sweep_buckets())
    text = (
        f"{done.sessions} sessions ended, {done.blobs} blobs of garbage dropped, "
        f"{done.names} names of litter dropped at the servers"
    )
    if done.silent:
        text += f"\n{', '.join(done.silent)} did not answer: sweep again when they are back"
    common.report(
        {name: getattr(done, name) for name in ("sessions", "blobs", "names", "silent")}, text
    )


def rm(
    common: SharedOptions,
    place: BucketOrObject,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    reserved: Annotated[
        bool,
        typer.Option("--reserved", help="Delete also what the gateways keep: keys of S3 clients."),
    ] = False,
    version: NamedVersion = None,
) -> None:
    """Delete an object, or a bucket without objects.

    In a bucket with versions the older versions stay; `--version V` removes one for ever.
    """
    bucket, slash, _ = place.partition("/")
    if not reserved:
        refuse_reserved(bucket, "; --reserved deletes nevertheless")
    if not slash and (version, if_version, if_etag) != (None, None, None):
        raise BadInput("--version and conditions are about an object: name BUCKET/KEY")

    async def use(manager: "Manager") -> None:
        if not slash:
            await manager.delete_bucket(bucket)
            return
        opened = await manager.bucket(bucket)
        await opened.delete(
            object_path(place).key, version=version, if_version=if_version, if_etag=if_etag
        )

    with_manager(common, use)
    common.report({"deleted": place}, f"{printable(place)}: deleted")


class VersioningChoice(StrEnum):
    """The values of `--versioning`."""

    ON = "on"
    OFF = "off"


def set_(
    common: SharedOptions,
    name: BucketName,
    versioning: Annotated[
        VersioningChoice | None,
        typer.Option(
            "--versioning",
            help="Whether puts and deletions leave older versions in place.",
            show_default=False,
        ),
    ] = None,
    quota: Annotated[
        str | None,
        typer.Option(
            "--quota",
            metavar="SIZE",
            help="The most bytes of all versions and parts, as 10G; 0 for no bound.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Change the settings of a bucket, and show them.

    `--versioning off` suspends: the versions that are there stay.
    """
    if versioning is None and quota is None:
        raise BadInput("name a setting: --versioning or --quota; nothing was changed")
    refuse_reserved(name)
    most = None if quota is None else parse_size(quota)

    async def use(manager: "Manager") -> "BucketSettings":
        bucket = await manager.bucket(name)
        keeps = None if versioning is None else versioning is VersioningChoice.ON
        return await bucket.set(versioning=keeps, quota=most)

    made = with_manager(common, use)
    bound = size(made.quota) if made.quota else "none"
    common.report(
        {"bucket": name} | _about_settings(made),
        f"{printable(name)}: versioning {made.versioning}, quota {bound}",
    )
