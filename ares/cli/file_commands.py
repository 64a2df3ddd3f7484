"""Commands about large files: put, get, files, rm, collect.

The module opens files, remembers the base of local copies, and reports conflicts.
"""

import asyncio
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import typer
from blake3 import blake3
from msgspec import Struct, structs

from ares.cli.local_files import (
    STANDARD_STREAM,
    LocalEnd,
    is_stream,
    local_source,
    local_target,
    reporting_interruption,
)
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import Show, parse_seconds, parse_size, printable, progress_bar, size
from ares.model.errors import AresError, BadInput, ObjectNotFound
from ares.model.identity import FILE_DOMAINS
from ares.model.numbers import plural
from ares.platform.replacement import COPY_BYTES

if TYPE_CHECKING:
    from ares.client.file import File, FileStat
    from ares.client.local_copy import LocalName, RememberedBases
    from ares.client.manager import Manager
    from ares.fragment.divide import Sizes
    from ares.fragment.read import FileProgress, FileState
    from ares.fragment.report import Conflict, WriteReport

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

STATS_AT_ONCE = 16


class NoSuchFile(ObjectNotFound):
    """A missing object under the name that a user of files knows: a file."""

    text = "there is no file {object!r} in domain {domain!r}; `ares-cli files` lists the files"


class Edited(AresError):
    """The local file holds changes that would be lost."""


@contextmanager
def speaking_of_files() -> Iterator[None]:
    """Report missing objects as missing files."""
    try:
        yield
    except ObjectNotFound as error:
        raise NoSuchFile(error.object, error.domain) from None


class FileAccess(Struct, frozen=True):
    """A file, with the base of the local copy; for a stream no base is remembered."""

    file: "File"
    domain: str
    copy: "LocalName"
    remembered: "RememberedBases"

    def keep(self, content: bytes) -> None:
        """Remember the present base of the copy, and the digest of the content."""
        if self.file.state is not None:
            self.remembered.remember(self.copy, self.file.state, content)

    def check_unedited(self, copy: int, what: str, local: str) -> None:
        """Raise :class:`Edited` if ``copy`` (a descriptor) has content that no put or get left.

        Without a cache (--no-cache) the origin is unknown, and the check passes. ``what``,
        ``local``: the file in the cluster and the copy, as words of a command line.
        """
        from ares.client.local_copy import digest_of_file

        if not self.remembered.keeps or not os.fstat(copy).st_size:
            return
        known = self.remembered.content(self.copy)
        if digest_of_file(copy) == known:
            return
        path, differs = (
            printable(os.fsdecode(self.copy.path)),
            f"differs from {printable(self.file.name)}",
        )
        force = f"`ares-cli get {what} {local} --force` overwrites it"
        if known:
            put = f"`ares-cli put {local} {what}` puts the edited content"
            raise Edited(
                f"{path} was edited since its last put or get on this machine, and {differs}: "
                f"the file was not changed. {put}, {force}"
            )
        raise Edited(
            f"{path} exists already, no put or get of it is remembered on this machine, and it "
            f"{differs}: the file was not changed. Name another file, or {force}"
        )


def content_of(path: Path) -> bytes:
    """Return the digest of a local copy's content."""
    from ares.client.local_copy import digest_of_file

    with path.open("rb") as copy:
        return digest_of_file(copy.fileno())


class AskedKind(NamedTuple):
    """The kind, the block sizes and the chunking asked for a new file; None: the usual ones."""

    atomic: bool = False
    sizes: "Sizes | None" = None
    chunking: str | None = None


async def open_file(
    manager: "Manager",
    name: str,
    domain: str | None,
    path: Path | None = None,
    *,
    cached: bool = True,
    kind: AskedKind | None = None,
) -> FileAccess:
    """Open the file ``name`` of ``domain`` (``None``: a domain for this file alone).

    ``path``: the local copy (``None``: no copy).
    """
    from ares.client.local_copy import LocalName, RememberedBases, cache_directory
    from ares.client.store import ObjectStore
    from ares.fragment.divide import FASTCDC

    asked = kind or AskedKind()
    given = asked._asdict() | {"chunking": asked.chunking or FASTCDC}
    if domain is None:
        file, place = manager.file(name, **given), FILE_DOMAINS + name
    else:  # of the class, because a Manager's own files are domains of their own
        file, place = ObjectStore.file(await manager.domain(domain), name, **given), domain
    remembered = RememberedBases(
        cache_directory(os.environ) if cached and path is not None else None
    )
    copy = LocalName(manager.configuration.cluster_id, place, name, os.fsencode(path or ""))
    file.state = remembered.recall(copy)
    return FileAccess(file, place, copy, remembered)


async def check_kind(access: FileAccess, kind: AskedKind) -> None:
    """Raise :class:`BadInput` if an existing file has another kind than asked for.

    Without this check the wish would be ignored in silence.
    """
    if kind == AskedKind():
        return
    atomic, sizes, chunking = kind
    try:
        genesis = (access.file.state or await access.file.snapshot()).genesis
    except ObjectNotFound:
        return
    stays = (
        f"of file {access.file.name!r}, which is there, stay as they are; nothing was sent. "
        "Leave the option out, or delete the file first"
    )
    if atomic and not genesis.atomic:
        raise BadInput(f"the promises {stays}: it is a shared file, not an atomic one")
    if sizes is not None and sizes != genesis.sizes:
        raise BadInput(
            f"the block sizes {stays}: they are min {genesis.sizes.min}, avg "
            f"{genesis.sizes.avg}, max {genesis.sizes.max} bytes"
        )
    if chunking not in (None, genesis.chunking):
        raise BadInput(f"the cuts {stays}: they are by {genesis.chunking}, not by {chunking}")


def kind(atomic: bool) -> str:
    """Return the words for a file's guarantee."""
    return "atomic" if atomic else "shared"


def parse_sizes(low: str | None, average: str | None, high: str | None) -> "Sizes | None":
    """Return the block sizes asked for; ``None`` without any.

    A missing size has the same ratio to the average as in the defaults.
    """
    from ares.fragment.divide import Sizes

    if (low, average, high) == (None, None, None):
        return None
    middle = parse_size(average) if average is not None else Sizes().avg
    return Sizes(
        parse_size(low) if low is not None else middle,
        middle,
        parse_size(high) if high is not None else 2 * middle,
    )


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


CONFLICTS_SHOWN_MAX = 20
"""The number of conflicts shown to a person; --json has all."""

NAME_CHARACTERS_MAX = 100


def conflict_text(
    conflicts: "Sequence[Conflict]", name: str, domain: str | None, file: Path, theirs: bool
) -> str:
    """Return a paragraph for stderr: conflicting ranges of ``file``, losses, and remedies."""
    from ares.fragment.report import DELETED_MEANWHILE

    whole = len(conflicts) == 1 and conflicts[0].block is None and conflicts[0].whole_file
    what, local, origin = (
        shell_words(name, domain),
        shlex.quote(str(file)),
        printable(str(file)) if file != STANDARD_STREAM else "standard input",
    )
    many = f"{len(conflicts)} ranges" if len(conflicts) > 1 else "1 range"
    lines = [
        (
            f"{'left as other clients wrote it' if theirs else 'conflict'}: {many} of {origin} did "
            f"not get into {printable(name)}"
        )
    ]
    lines += [
        f"  {_range(conflict)}: {conflict.why}" for conflict in conflicts[:CONFLICTS_SHOWN_MAX]
    ]
    if more := conflicts[CONFLICTS_SHOWN_MAX:]:
        lines.append(f"  ... and {len(more)} more; --json shows all")
    rest = "nothing else was changed" if whole else "all other changes are in the cluster"
    lines.append(f"Nothing of theirs was overwritten, {origin} is as it was, and {rest}.")
    if whole and conflicts[0].why == DELETED_MEANWHILE:
        lines.append(f"To make it anew: ares-cli put {local} {what} --mine")
    elif theirs:
        lines.append(f"To have theirs here: ares-cli get {what} {local}")
    else:
        lines += [
            "Choose:",
            f"  ares-cli put {local} {what} --mine                 your ranges replace theirs",
            (
                f"  ares-cli put {local} {what} --theirs               leave theirs; `ares-cli get "
                f"{what} {local}` then brings them here"
            ),
            (
                f"  ares-cli put {local} {what} --save-conflicts DIR   write both sides into DIR; "
                f"put them together in {origin}, and put that"
            ),
        ]
    return "\n".join(lines)


def shell_words(name: str, domain: str | None) -> str:
    """Return a file's name in words of a command line."""
    return (
        f"{shlex.quote(name)} --domain {shlex.quote(domain)}"
        if domain is not None
        else shlex.quote(name)
    )


def _range(conflict: "Conflict") -> str:
    if not conflict.length:
        return f"at byte {conflict.offset} (bytes were removed at this position)"
    return (
        f"bytes {conflict.offset} to {conflict.offset + conflict.length - 1} "
        f"({size(conflict.length)})"
    )


def save(conflicts: "Sequence[Conflict]", directory: Path, name: str, content: Path) -> list[str]:
    """Write NAME.OFFSET.mine, the range of the local ``content``, and NAME.OFFSET.theirs.

    The latter is written only if it exists. Returns the paths.
    """
    if not conflicts:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:NAME_CHARACTERS_MAX]
    if stem != name:  # files of other names may not get these names
        stem += f"-{blake3(name.encode()).hexdigest(4)}"
    used, paths = set[str](), []
    with content.open("rb") as stream:
        for conflict in conflicts:
            place = f"{stem}.{conflict.offset}"
            while (
                place in used
            ):  # two edits may share a place: a removal, and an insertion by the other client
                place += "+"
            used.add(place)
            mine = directory / f"{place}.mine"
            stream.seek(conflict.offset)
            with mine.open("wb") as out:
                left = conflict.length
                while left and (piece := stream.read(min(left, COPY_BYTES))):
                    out.write(piece)
                    left -= len(piece)
            paths.append(str(mine))
            if conflict.theirs is not None:
                theirs = directory / f"{place}.theirs"
                theirs.write_bytes(conflict.theirs)
                paths.append(str(theirs))
    return paths


def report_data(report: "WriteReport") -> dict[str, object]:
    """Return the report, for programs."""
    conflicts = [
        {name: getattr(conflict, name) for name in ("offset", "length", "why")}
        | {"theirs_bytes": len(conflict.theirs) if conflict.theirs is not None else None}
        for conflict in report.conflicts
    ]
    return structs.asdict(report) | {"conflicts": conflicts}


BlockSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="In bytes, or with K or M; when the file is made.", show_default=False
    ),
]


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
            content = (
                content_of(source.content) if source.path is not None else b""
            )  # before: later changes to the file may be absent from the put
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
            save(report.conflicts, save_conflicts, name, source.content)
            if save_conflicts is not None
            else []
        )
    about: dict[str, object] = {"file": name, "domain": begun[0].domain, "local": str(file)}
    about["bytes"] = source.size_bytes
    if state is not None:
        about |= {"kind": kind(state.genesis.atomic), "chunking": state.genesis.chunking}
        about["version"] = str(state.tag)
    about |= report_data(report) | {"saved": saved}
    common.report(about, f"{printable(name)}: {_put_sentence(report, source.size_bytes)}")
    if not common.json:
        _report_rest(report, name, domain, file, theirs, saved, source)
    if report.conflicts and not theirs:
        raise typer.Exit(1)


def _put_sentence(report: "WriteReport", size_bytes: int) -> str:
    sent, moved = report.modified + report.inserted, size(report.moved_bytes)
    return (
        f"{sent} of {report.kept + sent} blocks, {moved} of {size(size_bytes)} moved "
        f"({report.describe()})"
    )


def _report_rest(
    report: "WriteReport",
    name: str,
    domain: str | None,
    file: Path,
    theirs: bool,
    saved: list[str],
    source: LocalEnd,
) -> None:
    """Report the rest of a put; conflicts on stderr.

    A write to a local file behind the already read part is not in the put, and would stay unnoticed
    without this report.
    """
    if report.merged:
        others = (
            "1 other block, which stays as it is"
            if report.merged == 1
            else f"{report.merged} other blocks, which stay as they are"
        )
        typer.echo(
            f"{printable(name)} is not byte for byte {printable(str(file))}: other clients "
            f"changed {others}; `ares-cli get` brings the cluster's content"
        )
    if report.conflicts:
        typer.echo(conflict_text(report.conflicts, name, domain, file, theirs), err=True)
    if saved:
        typer.echo(f"saved: {', '.join(saved)}", err=True)
    if (
        source.path is not None
        and source.path.exists()
        and (now := source.path.stat().st_size) > source.size_bytes
    ):
        late = (
            f"a program writes to it, and its last {size(now - source.size_bytes)} may not be in "
            f"{printable(name)}: put it again"
        )
        typer.echo(f"note: {printable(str(source.path))} has grown since: {late}", err=True)


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
            return (
                changed,
                access,
                cast("FileState", access.file.state),
                transfer,
            )  # a read leaves its result

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
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="[PREFIX]", help="Only names that begin with PREFIX.", show_default=False
        ),
    ] = "",
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
