"""Commands that move large files: put, get."""

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ares.cli.command_connection import printable, size, with_manager
from ares.cli.files import file_conflicts
from ares.cli.files.file_access import (
    Access,
    Cache,
    FileDomain,
    Name,
    Transfer,
    check_kind,
    content_of,
    kind,
    open_file,
    parse_sizes,
    speaking_of_files,
)
from ares.cli.files.local_files import Source, is_stream, local_source, local_target, telling_interruption
from ares.cli.options import Common, command
from ares.cli.progress import progress_bar
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.fragment.read import FileState
    from ares.fragment.report import WriteReport

BlockSize = Annotated[str | None, typer.Option(metavar="SIZE", help="In bytes, or with K or M; when the file is made.", show_default=False)]
Mine = Annotated[bool, typer.Option("--mine", help="Where others changed the same blocks, write over theirs.")]
Theirs = Annotated[bool, typer.Option("--theirs", help="Where others changed the same blocks, leave theirs; exit status 0.")]
Save = Annotated[
    Path | None, typer.Option("--save-conflicts", metavar="DIR", help="Write both sides of every conflict into DIR.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    command(app, "put", example="ares-cli put movie.mkv movies/big")(put)
    command(app, "get", example="ares-cli get movies/big movie.mkv")(get)


def put(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE|-", help="The local file, or standard input.", show_default=False)],
    name: Name,
    domain: FileDomain = None,
    atomic: Annotated[bool, typer.Option("--atomic", help="Readers see one put or another, never parts of two; when the file is made.")] = False,
    block_min: BlockSize = None,
    block_avg: BlockSize = None,
    block_max: BlockSize = None,
    mine: Mine = False,
    theirs: Theirs = False,
    save_conflicts: Save = None,
    cache: Cache = True,
) -> None:
    """Bring the file NAME in the cluster up to date with a local one. Only blocks that differ from what FILE was made from move.

    What FILE was made from is what the last `put` of it or `get` into it left, kept on this machine; where nothing is known, and with standard input,
    FILE replaces what is there. Blocks that others changed meanwhile and FILE did not stay theirs. Where both did, nothing of theirs is overwritten,
    the ranges of FILE are named, and the exit status is 1.
    """
    if mine and theirs:
        raise BadInput("--mine and --theirs exclude each other")
    if save_conflicts is not None and save_conflicts.exists() and not save_conflicts.is_dir():
        raise BadInput(f"{save_conflicts} is not a directory to save conflicts in; nothing was sent")
    sizes = parse_sizes(block_min, block_avg, block_max)
    begun: list[Access] = []
    with telling_interruption(lambda: _put_cut_short(name, begun)), local_source(file) as source:

        async def use(manager: "Manager") -> "tuple[WriteReport, FileState | None]":
            access = await open_file(manager, name, domain, source.path, cached=cache, atomic=atomic, sizes=sizes)
            access.recall()
            content = content_of(source.content) if access.copy is not None else b""  # before: what comes in meanwhile may not be put
            await check_kind(access, atomic, sizes)
            begun.append(access)
            with progress_bar("look") as show, speaking_of_files():
                transfer = Transfer(show, source.size_bytes)
                report = await access.file.write(source.content, mine=mine, progress=transfer.follow)
            if save_conflicts is not None:
                access.file.acknowledge(report.conflicts)
            access.keep(content if theirs or not report.conflicts else access.known_content())
            return report, access.file.state

        report, state = with_manager(common, use)
        saved = file_conflicts.save(report.conflicts, save_conflicts, name, source.content) if save_conflicts is not None else []
    about = {"file": name, "domain": begun[0].domain, "local": str(file), "bytes": source.size_bytes}
    now = {"kind": kind(state.genesis.atomic), "version": str(state.tag)} if state is not None else {}
    common.report(about | now | file_conflicts.report_data(report) | {"saved": saved}, _put_line(name, report, source.size_bytes))
    if not common.json:
        _tell_rest(report, name, domain, file, theirs, saved)
        _tell_growth(source, name)
    if report.conflicts and not theirs:
        raise typer.Exit(1)


def _put_cut_short(name: str, begun: list[Access]) -> str:
    if not begun:
        return "nothing was sent"
    return (
        f"{printable(name)} has its old content, or the new one in some blocks and the old one in others (an atomic file: one of the two, whole); "
        "put it again to finish"
    )


def _put_line(name: str, report: "WriteReport", size_bytes: int) -> str:
    moved = report.modified + report.inserted
    return f"{printable(name)}: {moved} of {report.kept + moved} blocks, {size(report.moved_bytes)} of {size(size_bytes)} moved ({report.describe()})"


def _tell_rest(report: "WriteReport", name: str, domain: str | None, file: Path, theirs: bool, saved: list[str]) -> None:
    """What the one line does not say; conflicts on stderr."""
    if report.merged:
        others = "1 other block, which stays as it is" if report.merged == 1 else f"{report.merged} other blocks, which stay as they are"
        typer.echo(f"{printable(name)} is not byte for byte {printable(str(file))}: others changed {others}; `ares-cli get` brings what is there")
    if report.conflicts:
        typer.echo(file_conflicts.told(report.conflicts, name, domain, file, theirs), err=True)
    if saved:
        typer.echo(f"saved: {', '.join(saved)}", err=True)


def _tell_growth(source: Source, name: str) -> None:
    """What is written to a local file behind what was looked at first is no change of that, and nobody else would notice."""
    if source.path is not None and source.path.exists() and (now := source.path.stat().st_size) > source.size_bytes:
        late = f"it is being written to, and what came late ({size(now - source.size_bytes)}) may not be in {printable(name)}: put it again"
        typer.echo(f"note: {printable(str(source.path))} has grown since: {late}", err=True)


def get(
    common: Common,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE|-", help="The local file, or standard output.", show_default=False)],
    domain: FileDomain = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE whatever is in it.")] = False,
    cache: Cache = True,
) -> None:
    """Bring a local file up to date with the file NAME in the cluster, wholly or not at all. Only blocks that FILE does not have move.

    A FILE that was edited since its last `put` or `get`, or was there before any, and differs from NAME, is left as it is, and the exit status is 1.
    With --force it is overwritten, and so it is where nothing is kept that would tell (--no-cache, ARES_CACHE=off).
    """
    if common.json and is_stream(file):
        raise BadInput("--json and the content cannot both be printed: name a FILE")
    outcome = "no more than a part was printed" if is_stream(file) else f"{file} is as it was"
    with telling_interruption(lambda: outcome), local_target(file) as target:

        async def use(manager: "Manager") -> "tuple[bool, Access, FileState, Transfer]":
            access = await open_file(manager, name, domain, target.path, cached=cache)
            access.recall()
            known = access.file.state
            with progress_bar("look") as show, speaking_of_files():
                transfer = Transfer(show, known.length if known is not None else None)
                what, local = file_conflicts.shell_words(name, domain), shlex.quote(str(file))
                replacing = None if force else partial(access.check_unedited, what=what, local=local)
                changed = await access.file.read_into(target.content, replacing=replacing, progress=transfer.follow)
            access.keep(content_of(target.content) if access.copy is not None else b"")
            return changed, access, cast("FileState", access.file.state), transfer  # a read leaves what it saw

        changed, access, state, transfer = with_manager(common, use)
    blocks = sum(1 for part in state.parts if part.length)
    line = f"{printable(name)}: {transfer.moved_blocks} of {blocks} blocks, {size(transfer.moved_bytes)} of {size(state.length)} moved"
    if is_stream(file):
        typer.echo(line, err=True)
        return
    about: dict[str, Any] = {"file": name, "domain": access.domain, "local": str(file), "bytes": state.length, "blocks": blocks}
    about |= {"kind": kind(state.genesis.atomic), "version": str(state.tag), "changed": changed}
    about |= {"moved_blocks": transfer.moved_blocks, "moved_bytes": transfer.moved_bytes}
    common.report(about, f"{line}; {file} {'is up to date' if changed else 'was up to date already'}")
