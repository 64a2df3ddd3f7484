"""The local end of put and get: a file, or a stream through a temporary file; and interruptions."""

import asyncio
import errno
import os
import shutil
import stat as stat_module
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from ares.model.errors import AresError, BadInput
from ares.platform.replacement import COPY_BYTES, replace_file

STANDARD_STREAM = Path("-")

READ_BYTES = 256 * 1024
"""Bytes read from a stream at a time."""

_ENDLESS = {os.makedev(1, minor) for minor in (5, 7, 8, 9)}
"""The endless devices: zero, full, random, urandom."""


class Interrupted(AresError):
    """An interruption by the user; the message tells the outcome."""


@contextmanager
def reporting_interruption(outcome: Callable[[], str]) -> Iterator[None]:
    """Report Ctrl-C with ``outcome``."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {outcome()}") from None


class LocalEnd(Struct, frozen=True):
    """The source of a put, or the target of a get.

    ``content`` is the file of the bytes; ``size_bytes``: of a source. ``path`` is ``None`` for a
    stream, which cannot be the base of a later put.
    """

    content: Path
    path: Path | None
    size_bytes: int = 0


@contextmanager
def local_source(file: Path) -> Iterator[LocalEnd]:
    """Open a local source; a stream is first kept in a temporary file. Raises :class:`BadInput`.

    Streams are standard input, pipes and devices.
    """
    if is_stream(file):
        with _spooled(file) as content:
            yield LocalEnd(content, None, content.stat().st_size)
        return
    if file.is_dir():
        raise BadInput(
            f"{file} is a directory: put its files one by one, or pack the directory, as in `tar "
            f"c {file} | ares-cli put - NAME`; nothing was sent"
        )
    try:
        yield LocalEnd(file, resolved(file), file.stat().st_size)
    except OSError as error:
        if error.filename != os.fspath(file):
            raise
        raise BadInput(f"{file} cannot be read: {error.strerror}; nothing was sent") from error


@contextmanager
def local_target(file: Path) -> Iterator[LocalEnd]:
    """Open a local target; a stream gets the content of a temporary file at the end.

    Streams are standard output, pipes and devices. Raises :class:`BadInput`.
    """
    if not is_stream(file):
        check_output(file)
        yield LocalEnd(resolved(file), resolved(file))
        return
    with tempfile.TemporaryDirectory(prefix="ares-get-") as directory:
        content = Path(directory) / "content"
        yield LocalEnd(content, None)
        with (
            content.open("rb") as stream,
            naming(file),
            standard_output() if file == STANDARD_STREAM else file.open("wb") as out,
        ):
            shutil.copyfileobj(stream, out, COPY_BYTES)


def opened_source(file: Path) -> BinaryIO:
    """Open a file, or standard input, for reading."""
    return open(0 if file == STANDARD_STREAM else file, "rb", closefd=file != STANDARD_STREAM)


def refuse_endless(stream: BinaryIO, file: Path) -> None:
    """Raise :class:`BadInput` for a device without an end."""
    if os.fstat(stream.fileno()).st_rdev in _ENDLESS:
        raise BadInput(
            f"{file} is a device that never ends, and a file in the cluster has an end; nothing "
            "was sent"
        )


async def read_piece(source: BinaryIO) -> bytes:
    """Return the next bytes of a file or a stream; none at the end.

    A pipe or a terminal is waited for on the event loop: a reading thread cannot be interrupted.
    """
    mode = os.fstat(source.fileno()).st_mode
    if stat_module.S_ISFIFO(mode) or stat_module.S_ISSOCK(mode) or source.isatty():
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(source.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(source.fileno())
    return os.read(source.fileno(), READ_BYTES)


def is_stream(file: Path) -> bool:
    """Return whether the file is standard input or output, a pipe or a device.

    These have no content of their own.
    """
    return file == STANDARD_STREAM or (file.exists() and not file.is_file() and not file.is_dir())


def resolved(path: Path) -> Path:
    """Return ``path`` without symbolic links. Raises OSError for a cycle of links.

    pathlib reports such a cycle by another error.
    """
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def check_output(output: Path) -> None:
    """Raise :class:`BadInput` for an unusable output now, before the content is read."""
    if output.is_dir():
        raise BadInput(f"{output} is a directory: name the file to write; nothing was read")
    if not output.parent.is_dir():
        raise BadInput(
            f"there is no directory {output.parent} to write {output.name} in; nothing was read"
        )


def write_output(output: Path, value: bytes) -> None:
    """Write through a temporary file in the same directory, or directly to a device or a pipe."""
    if output.exists() and not output.is_file():
        output.write_bytes(value)
        return
    replace_file(resolved(output), value)


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Add the name ``file`` to an error of the machine without a name.

    A failed write does not name its file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Open standard output for bytes, with complete writes.

    With PYTHONUNBUFFERED, Python's own stream does not write all bytes: a write to a pipe may be
    partial, and the returned count is easily overlooked.
    """
    with naming("standard output"), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        yield out


@contextmanager
def _spooled(file: Path) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="ares-put-") as kept:
        try:
            with opened_source(file) as stream:
                refuse_endless(stream, file)
                shutil.copyfileobj(stream, kept, COPY_BYTES)
            kept.flush()
        except OSError as error:
            where = tempfile.gettempdir()
            raise BadInput(
                f"the input could not be kept in {where} until it is sent: {error.strerror}; "
                "nothing was sent. TMPDIR names another directory"
            ) from error
        yield Path(kept.name)
