"""Commands about large files that move none: files, rm, collect."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.command_connection import printable, size, with_manager
from ares.cli.files.file_access import Access, FileDomain, Name, kind, open_file, speaking_of_files
from ares.cli.files.local_files import telling_interruption
from ares.cli.options import Common, command
from ares.cli.quantities import parse_seconds
from ares.model.errors import BadInput, ObjectNotFound
from ares.model.identity import FILE_DOMAINS

if TYPE_CHECKING:
    from ares.client.file import FileStat
    from ares.client.manager import Manager

STATS_AT_ONCE = 16


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    command(app, "files", example="ares-cli files movies/")(files)
    command(app, "rm", example="ares-cli rm movies/big")(rm)
    command(app, "collect", example="ares-cli collect --grace 24h")(collect)


def files(
    common: Common,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only names that begin so.", show_default=False)] = "",
    domain: Annotated[str | None, typer.Option("--domain", metavar="D", help="Files whose blocks are in D.", show_default=False)] = None,
) -> None:
    """List files: name, size, blocks, kind, and when the list of the file's blocks was last written.

    Without --domain those that are domains of their own.
    """

    async def use(manager: "Manager") -> "list[FileStat]":
        from ares.client.store import ObjectStore

        names = await (manager.files(prefix) if domain is None else ObjectStore.files(await manager.domain(domain), prefix))
        turn = asyncio.Semaphore(STATS_AT_ONCE)

        async def stat(name: str) -> "FileStat | None":
            async with turn:
                try:
                    return await (await open_file(manager, name, domain)).file.stat()
                except ObjectNotFound:  # somebody deleted it meanwhile
                    return None

        return [found for found in await asyncio.gather(*map(stat, names)) if found is not None]

    found = with_manager(common, use)
    rows = [(printable(one.name), size(one.size_bytes), f"{one.blocks}", kind(one.atomic), _local_time(one.modified_s)) for one in found]
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    lines = [f"{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}} blocks  {row[3]:6}  {row[4]}" for row in rows]
    if common.json or lines:
        common.report({"files": [_stat_data(one) for one in found]}, "\n".join(lines))


def rm(common: Common, name: Name, domain: FileDomain = None) -> None:
    """Delete the file NAME and its blocks. What local copies on this machine were made from is forgotten."""

    async def use(manager: "Manager") -> Access:
        access = await open_file(manager, name, domain)
        with speaking_of_files():
            await access.file.delete()
        access.remembered.forget(manager.configuration.cluster_id, access.domain, name)
        return access

    with telling_interruption(lambda: f"{printable(name)} is there as it was, or gone; blocks of it that are left are found by `ares-cli collect`"):
        access = with_manager(common, use)
    common.report({"file": name, "domain": access.domain}, f"{printable(name)}: deleted")


def collect(
    common: Common,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only the domain of this file.", show_default=False)] = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="D", help="Only this domain.", show_default=False)] = None,
    grace: Annotated[str, typer.Option("--grace", metavar="TIME", help="Only what is older: longer than any put takes. With s, m, h or d.")] = "24h",
) -> None:
    """Delete blocks that no file names, which puts leave that were cut short or overtaken. Without NAME and --domain: of every domain."""
    grace_s = parse_seconds(grace)
    if name is not None and domain is not None:
        raise BadInput("NAME means its own domain, and --domain another one: give one of them")
    wanted = FILE_DOMAINS + name if name is not None else domain

    async def use(manager: "Manager") -> dict[str, int]:
        from ares.fragment.collect import fm_collect

        collected: dict[str, int] = {}
        for store in [await manager.domain(wanted)] if wanted is not None else [store async for store in manager.domains()]:
            operation = f"collection of {store.name!r}"
            collected[store.name] = await store.run_on_blocks(lambda blocks: fm_collect(blocks, int(time.time()), grace_s), operation)
        return collected

    collected = with_manager(common, use)
    total = sum(collected.values())
    common.report({"grace_s": grace_s, "domains": collected}, f"{total} block{'' if total == 1 else 's'} deleted in {len(collected)} domains")


def _local_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _stat_data(stat: "FileStat") -> dict[str, object]:
    return {
        "file": stat.name,
        "domain": stat.domain,
        "bytes": stat.size_bytes,
        "blocks": stat.blocks,
        "kind": kind(stat.atomic),
        "modified_s": stat.modified_s,
        "version": str(stat.version),
    }
