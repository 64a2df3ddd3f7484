"""Commands that move objects of buckets: bucket put, get, cp, mv."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol

import typer

from ares.cli.buckets.bucket_paths import (
    IfAbsent,
    IfEtag,
    IfVersion,
    NamedVersion,
    ObjectPath,
    about_object,
    object_path,
    parsed_tags,
    refuse_reserved,
)
from ares.cli.local_files import (
    STANDARD_STREAM,
    check_output,
    is_stream,
    naming,
    opened_source,
    read_piece,
    refuse_endless,
    reporting_interruption,
    resolved,
    standard_output,
)
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import Show, printable, progress_bar, size
from ares.model.errors import BadInput
from ares.model.units import MIB
from ares.platform.replacement import Replacement

if TYPE_CHECKING:
    from ares.client.buckets.bucket_values import ObjectInfo
    from ares.client.buckets.found_object import FoundObject
    from ares.client.manager import Manager

TargetPath = Annotated[
    str,
    typer.Argument(
        metavar="BUCKET/NEW", help="The bucket and the key of the new object.", show_default=False
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
    place: ObjectPath,
    if_absent: IfAbsent = False,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type", metavar="T", help="The media type to keep.", show_default=False
        ),
    ] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="NAME=TEXT", help="A tag to keep; repeat it.", show_default=False
        ),
    ] = None,
) -> None:
    """Store a file, or standard input, as an object; prints the new version.

    A stream is stored as it comes, in chunks of 8 MiB. The object changes at the end, at once.
    """
    path, told = object_path(place), parsed_tags(tags or [])
    refuse_reserved(path.bucket)
    whole = None if is_stream(file) or not file.is_file() else file.stat().st_size

    async def use(manager: "Manager") -> "ObjectInfo":
        bucket = await manager.bucket(path.bucket)
        with progress_bar("put") as show, _source(file) as source:
            return await bucket.put(
                path.key,
                source,
                if_absent=if_absent,
                if_version=if_version,
                if_etag=if_etag,
                content_type=content_type,
                tags=told,
                progress=partial(_show, show, "put", whole),
            )

    outcome = "the object is as it was, or new as a whole: `ares-cli bucket stat` tells"
    with reporting_interruption(lambda: outcome):
        stored = with_manager(common, use)
    common.report(
        about_object(path.bucket, stored),
        f"{printable(place)}: {size(stored.size)}, version {stored.version}",
    )


def _show(show: Show, stage: str, whole: int | None, done: int) -> None:
    show(stage, done // MIB, (whole or 0) // MIB, "MiB")


@contextmanager
def _source(file: Path) -> "Iterator[Path | AsyncIterator[bytes]]":
    """Open the source of a put: a file can be read again, a stream comes once."""
    if not is_stream(file):
        yield file
        return
    try:
        stream = opened_source(file)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}; nothing was sent") from error
    with stream, naming(file):
        refuse_endless(stream, file)
        yield _pieces(stream)


async def _pieces(stream: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await read_piece(stream):
        yield piece


class _Output(Protocol):
    """The local end of a get."""

    def write(self, content: bytes, /) -> object: ...


def get(
    common: SharedOptions,
    place: ObjectPath,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="[FILE|-]", help="The file to write, wholly or not at all.", show_default=False
        ),
    ] = STANDARD_STREAM,
    version: NamedVersion = None,
    bytes_: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="A-B",
            help="Only the bytes from A to B, from A on (A-), or the last N (-N).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print an object, byte for byte, or write it to a file."""
    path, (start, length) = object_path(place), _range(bytes_)
    if common.json and is_stream(file):
        raise BadInput("--json and the content cannot both be printed: name a FILE")
    if not is_stream(file):
        check_output(file)

    async def use(manager: "Manager") -> "FoundObject":
        bucket = await manager.bucket(path.bucket)
        async with await bucket.get(path.key, version=version, start=start, length=length) as found:
            with progress_bar("get") as show, _output(file) as out:
                done = 0
                async for chunk in found:
                    await asyncio.to_thread(out.write, chunk)
                    done += len(chunk)
                    _show(show, "get", found.length, done)
        return found

    outcome = "no more than a part was printed" if is_stream(file) else f"{file} is as it was"
    with reporting_interruption(lambda: outcome):
        found = with_manager(common, use)
    if not is_stream(file):
        about = about_object(path.bucket, found.info) | {"file": str(file), "read": found.length}
        common.report(about, f"{printable(place)}: {size(found.length)}, in {file}")


@contextmanager
def _output(file: Path) -> Iterator[_Output]:
    """Open the target of a get: a file is replaced at the end, and a stream is written to."""
    if file == STANDARD_STREAM:
        with standard_output() as out:
            yield out
    elif is_stream(file):
        with naming(file), file.open("wb") as out:
            yield out
    else:
        new = Replacement(resolved(file))
        try:
            with naming(file):
                yield new
                new.finish()
        finally:
            new.discard()


def _range(text: str | None) -> tuple[int, int | None]:
    """Return the first byte, or the negative number of last ones, and the length."""
    if text is None:
        return 0, None
    found = re.fullmatch(r"([0-9]{0,19})-([0-9]{0,19})", text)
    if found is None or not (found[1] or found[2]):
        raise BadInput(f"--range takes A-B, A- or -N, whole numbers of bytes, not {text!r}")
    first, last = found[1], found[2]
    if not first:
        return (-int(last), None) if int(last) else (0, 0)
    if not last:
        return int(first), None
    if int(last) < int(first):
        raise BadInput(f"--range {text}: {last} is before {first}")
    return int(first), int(last) - int(first) + 1


def cp(
    common: SharedOptions,
    source: ObjectPath,
    target: TargetPath,
    if_absent: IfAbsent = False,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    version: NamedVersion = None,
) -> None:
    """Copy an object to another key or bucket; no bytes move.

    The conditions are about the target. `cp photos/cat photos/cat --version V` restores a version.
    """
    path, to = object_path(source), object_path(target)
    refuse_reserved(to.bucket)

    async def use(manager: "Manager") -> "ObjectInfo":
        bucket = await manager.bucket(path.bucket)
        return await bucket.copy(
            *(path.key, to.key),
            bucket=to.bucket,
            version=version,
            if_absent=if_absent,
            if_version=if_version,
            if_etag=if_etag,
        )

    _report(common, target, to.bucket, with_manager(common, use))


def mv(
    common: SharedOptions,
    source: ObjectPath,
    target: TargetPath,
    if_absent: IfAbsent = False,
) -> None:
    """Move an object to another key or bucket, at once; no bytes move.

    Every reader sees the object under one of the two keys.
    """
    path, to = object_path(source), object_path(target)
    for bucket in (path.bucket, to.bucket):
        refuse_reserved(bucket)

    async def use(manager: "Manager") -> "ObjectInfo":
        bucket = await manager.bucket(path.bucket)
        return await bucket.move(path.key, to.key, bucket=to.bucket, if_absent=if_absent)

    _report(common, target, to.bucket, with_manager(common, use))


def _report(common: SharedOptions, target: str, bucket: str, made: "ObjectInfo") -> None:
    common.report(
        about_object(bucket, made),
        f"{printable(target)}: {size(made.size)}, version {made.version}",
    )
