"""Commands about large files: put, get, files, rm, collect."""

import asyncio
import os
import shlex
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from ares.cli.files.file_access import (
    AskedKind,
    FileAccess,
    check_kind,
    content_of,
    kind,
    open_file,
    parse_sizes,
    speaking_of_files,
)
from ares.cli.files.put_report import (
    put_sentence,
    report_data,
    report_rest,
    save_both_sides,
    shell_words,
)
from ares.cli.local_files import is_stream, local_source, local_target, reporting_interruption
from ares.cli.options import NamePrefix, SharedOptions, with_manager
from ares.cli.terminal import Show, parse_seconds, printable, progress_bar, size
from ares.model.errors import BadInput, ObjectNotFound
from ares.model.identity import FILE_DOMAINS
from ares.model.numbers import plural

if TYPE_CHECKING:
    from ares.client.file import FileStat
    from ares.client.manager import Manager
    from ares.fragment.read import FileProgress, FileState
    from ares.fragment.report import WriteReport

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The file's name in the cluster.", show_default=False)
]
FileDomain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        metavar="D",
        help="The domain of the file's blocks (default: one of its own, called file/NAME).",
        show_default=False,
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache/--no-cache",
        help="Use and keep the base of the local copy. ARES_CACHE=off: never; ARES_CACHE=DIR: in "
        "DIR.",
    ),
]

BlockSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="In bytes, or with K or M; when the file is made.", show_default=False
    ),
]

STATS_AT_ONCE = 16


class Transfer:
    """The moved amounts from an operation's progress, which is shown too.

    ``stage``: "" before the first move.
    """

    def __init__(self, show: Show, size_bytes: int | None) -> None:
        self.stage = ""
        self.moved_blocks = self.moved_bytes = 0
        self._show = show
        self._of = f" of {size(size_bytes)}" if size_bytes is not None else ""
        self._last_bytes = 0

    def follow(self, now: "FileProgress") -> None:
        """Count another block.

        An operation that begins again counts from 0; the earlier moves stay counted.
        """
        self.stage = now.stage
        came = (
            now.moved_bytes - self._last_bytes
            if now.moved_bytes >= self._last_bytes
            else now.moved_bytes
        )
        self._last_bytes = now.moved_bytes
        self.moved_bytes += came
        self.moved_blocks += came > 0
        self._show(now.stage, now.done, now.total, f"{size(self.moved_bytes)}{self._of} moved")


def put(
    common: SharedOptions,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|-", help="The local file, or standard input.", show_default=False
        ),
    ],
    name: Name,
    domain: FileDomain = None,
    atomic: Annotated[
        bool,
        typer.Option(
            "--atomic",
            help="Readers see one put or another, never parts of two; when the file is made.",
        ),
    ] = False,
    block_min: BlockSize = None,
    block_avg: BlockSize = None,
    block_max: BlockSize = None,
    chunking: Annotated[
        Literal["fastcdc", "rabin"] | None,
        typer.Option(
            help="How the file is cut into blocks, by FastCDC (the default) or by Rabin "
            "fingerprints; when the file is made.",
            show_default=False,
        ),
    ] = None,
    mine: Annotated[
        bool,
        typer.Option("--mine", help="Overwrite blocks that other clients changed too."),
    ] = False,
    theirs: Annotated[
        bool,
        typer.Option(
            "--theirs", help="Leave blocks that other clients changed too; exit status 0."
        ),
    ] = False,
    save_conflicts: Annotated[
        Path | None,
        typer.Option(
            "--save-conflicts",
            metavar="DIR",
            help="Write both sides of every conflict into DIR.",
            show_default=False,
        ),
    ] = None,
    cache: Cache = True,
) -> None:
    """Bring the file NAME in the cluster up to date with a local file. Only changed blocks move.

    Changed means different from the base of FILE: the version after the last `put` of FILE or `get`
    into FILE, remembered on this machine. Without a remembered base, and with standard input, FILE
    replaces the file in the cluster. Blocks changed only by other clients keep their changes. Where
    both sides changed a block, the other client's change is not overwritten, the ranges of FILE are
    named, and the exit status is 1.
    """
    if mine and theirs:
        raise BadInput("--mine and --theirs exclude each other")
    if save_conflicts is not None and save_conflicts.exists() and not save_conflicts.is_dir():
        raise BadInput(
            f"{save_conflicts} is not a directory to save conflicts in; nothing was sent"
        )
    asked = AskedKind(atomic, parse_sizes(block_min, block_avg, block_max), chunking)
    begun: list[FileAccess] = []
    unfinished = (
        f"{printable(name)} has its old content, or new content in some blocks and old content "
        "in the rest (an atomic file: wholly old or wholly new); put it again to finish"
    )
    with (
        reporting_interruption(lambda: unfinished if begun else "nothing was sent"),
        local_source(file) as source,
    ):

        async def use(manager: "Manager") -> "tuple[WriteReport, FileState | None]":
            access = await open_file(manager, name, domain, source.path, cached=cache, kind=asked)
            # before: later changes to the file may be absent from the put
            content = content_of(source.content) if source.path is not None else b""
            await check_kind(access, asked)
            begun.append(access)
            with progress_bar("look") as show, speaking_of_files():
                transfer = Transfer(show, source.size_bytes)
                report = await access.file.write(
                    source.content, mine=mine, progress=transfer.follow
                )
            if save_conflicts is not None:
                access.file.acknowledge(report.conflicts)
            access.keep(
                content
                if theirs or not report.conflicts
                else access.remembered.content(access.copy)
            )
            return report, access.file.state

        report, state = with_manager(common, use)
        saved = (
            save_both_sides(report.conflicts, save_conflicts, name, source.content)
            if save_conflicts is not None
            else []
        )
    about: dict[str, object] = {"file": name, "domain": begun[0].domain, "local": str(file)}
    about["bytes"] = source.size_bytes
    if state is not None:
        about |= {"kind": kind(state.genesis.atomic), "chunking": state.genesis.chunking}
        about["version"] = str(state.tag)
    about |= report_data(report) | {"saved": saved}
    common.report(about, f"{printable(name)}: {put_sentence(report, source.size_bytes)}")
    if not common.json:
        report_rest(report, name, domain, file, theirs, saved, source)
    if report.conflicts and not theirs:
        raise typer.Exit(1)


def get(
    common: SharedOptions,
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|-", help="The local file, or standard output.", show_default=False
        ),
    ],
    domain: FileDomain = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite FILE, whatever its content.")
    ] = False,
    cache: Cache = True,
) -> None:
    """Bring a local file up to date with the file NAME in the cluster, wholly or not at all.

    Only blocks missing in FILE move. A FILE that was edited since the last `put` or `get`, or
    existed before any, and differs from NAME, stays unchanged, and the exit status is 1. With
    --force FILE is overwritten, and likewise without a memory of earlier versions (--no-cache,
    ARES_CACHE=off).
    """
    if common.json and is_stream(file):
        raise BadInput("--json and the content cannot both be printed: name a FILE")
    outcome = "no more than a part was printed" if is_stream(file) else f"{file} is as it was"
    with reporting_interruption(lambda: outcome), local_target(file) as target:

        async def use(manager: "Manager") -> "tuple[bool, FileAccess, FileState, Transfer]":
            access = await open_file(manager, name, domain, target.path, cached=cache)
            known = access.file.state
            with progress_bar("look") as show, speaking_of_files():
                transfer = Transfer(show, known.length if known is not None else None)
                what, local = shell_words(name, domain), shlex.quote(str(file))
                replacing = (
                    None if force else partial(access.check_unedited, what=what, local=local)
                )
                changed = await access.file.read_into(
                    target.content, replacing=replacing, progress=transfer.follow
                )
            access.keep(content_of(target.content) if target.path is not None else b"")
            # a read leaves its result
            return (
                changed,
                access,
                cast("FileState", access.file.state),
                transfer,
            )

        changed, access, state, transfer = with_manager(common, use)
    blocks = sum(1 for part in state.parts if part.length)
    line = (
        f"{printable(name)}: {transfer.moved_blocks} of {blocks} blocks, "
        f"{size(transfer.moved_bytes)} of {size(state.length)} moved"
    )
    if is_stream(file):
        typer.echo(line, err=True)
        return
    about: dict[str, Any] = {
        "file": name,
        "domain": access.domain,
        "local": str(file),
        "bytes": state.length,
        "blocks": blocks,
    }
    about |= {"kind": kind(state.genesis.atomic), "version": str(state.tag), "changed": changed}
    about |= {"moved_blocks": transfer.moved_blocks, "moved_bytes": transfer.moved_bytes}
    common.report(
        about, f"{line}; {file} {'is up to date' if changed else 'was up to date already'}"
    )


def files(
    common: SharedOptions,
    prefix: NamePrefix = "",
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain", metavar="D", help="Only files with blocks in domain D.", show_default=False
        ),
    ] = None,
) -> None:
    """List files: name, size, blocks, kind, chunking, and the last write of the block list.

    Without --domain, files that are domains of their own are listed.
    """

    async def use(manager: "Manager") -> "list[FileStat]":
        from ares.client.store import ObjectStore

        names = await (
            manager.files(prefix)
            if domain is None
            else ObjectStore.files(await manager.domain(domain), prefix)
        )
        turn = asyncio.Semaphore(STATS_AT_ONCE)

        async def stat(name: str) -> "FileStat | None":
            async with turn:
                try:
                    return await (await open_file(manager, name, domain)).file.stat()
                except ObjectNotFound:  # deleted meanwhile
                    return None

        return [found for found in await asyncio.gather(*map(stat, names)) if found is not None]

    found = with_manager(common, use)
    times = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.modified_s)) for one in found]
    rows = [
        (
            *(printable(one.name), size(one.size_bytes), f"{one.blocks}"),
            *(kind(one.atomic), one.chunking, at),
        )
        for one, at in zip(found, times, strict=True)
    ]
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    lines = [
        (
            f"{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}} blocks  "
            f"{row[3]:6}  {row[4]:7}  {row[5]}"
        )
        for row in rows
    ]
    if common.json or lines:
        common.report({"files": [_stat_data(one) for one in found]}, "\n".join(lines))


def rm(common: SharedOptions, name: Name, domain: FileDomain = None) -> None:
    """Delete the file NAME and its blocks. The bases of its local copies are forgotten."""

    async def use(manager: "Manager") -> FileAccess:
        from ares.client.local_copy import RememberedBases, cache_directory

        access = await open_file(manager, name, domain)
        with speaking_of_files():
            await access.file.delete()
        RememberedBases(cache_directory(os.environ)).forget(
            access.copy.cluster, access.domain, name
        )
        return access

    with reporting_interruption(
        lambda: (
            f"{printable(name)} is unchanged or deleted; `ares-cli collect` finds blocks that "
            "were left"
        )
    ):
        access = with_manager(common, use)
    common.report({"file": name, "domain": access.domain}, f"{printable(name)}: deleted")


def collect(
    common: SharedOptions,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Only the domain of this file.", show_default=False),
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option("--domain", metavar="D", help="Only this domain.", show_default=False),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            "--grace",
            metavar="TIME",
            help="Only blocks older than this: longer than any put takes. With s, m, h or d.",
        ),
    ] = "24h",
) -> None:
    """Delete blocks that no file names, left by puts that were cut short or overtaken.

    Without NAME and --domain, such blocks of every domain are deleted.
    """
    grace_s = parse_seconds(grace)
    if name is not None and domain is not None:
        raise BadInput(
            "NAME means its own domain, and --domain another domain: give only one of the two"
        )
    wanted = FILE_DOMAINS + name if name is not None else domain

    async def use(manager: "Manager") -> dict[str, int]:
        from ares.client.store import ObjectStore
        from ares.fragment.collect import fm_collect

        collected: dict[str, int] = {}
        for store in (
            [await manager.domain(wanted)]
            if wanted is not None
            else [store async for store in manager.domains()]
        ):
            if not isinstance(store, ObjectStore):  # a log has no blocks
                continue
            operation = f"collection of {store.name!r}"
            collected[store.name] = await store.run_on_blocks(
                lambda blocks: fm_collect(blocks, int(time.time()), grace_s), operation
            )
        return collected

    collected = with_manager(common, use)
    total = sum(collected.values())
    common.report(
        {"grace_s": grace_s, "domains": collected},
        f"{plural(total, 'block')} deleted in {plural(len(collected), 'domain')}",
    )


def _stat_data(stat: "FileStat") -> dict[str, object]:
    return {
        "file": stat.name,
        "domain": stat.domain,
        "bytes": stat.size_bytes,
        "blocks": stat.blocks,
        "kind": kind(stat.atomic),
        "chunking": stat.chunking,
        "modified_s": stat.modified_s,
        "version": str(stat.version),
    }
