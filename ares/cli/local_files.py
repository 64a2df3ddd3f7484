"""The local end of put and get: a file, or a stream by way of a temporary file; and what an interruption means."""

import errno
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from ares.model.errors import AresError, BadInput

STANDARD_STREAM = Path("-")
COPY_BYTES = 2**20

_ENDLESS = {os.makedev(1, minor) for minor in (5, 7, 8, 9)}
"""zero, full, random, urandom."""


class Interrupted(AresError):
    """The person had enough; the message says what became of it."""


@contextmanager
def telling_interruption(outcome: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C is told with ``outcome``."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {outcome()}") from None


class LocalEnd(Struct, frozen=True):
    """What is to be put, or where a file goes. ``content`` is where its bytes are, or are written to; ``size_bytes``: how many are to be put.

    ``path`` is None for a stream, which no later put can be based on.
    """

    content: Path
    path: Path | None
    size_bytes: int = 0


@contextmanager
def local_source(file: Path) -> Iterator[LocalEnd]:
    """A local file; standard input, a pipe or a device is first kept in a temporary file. Raises :class:`BadInput`."""
    if is_stream(file):
        with _spooled(file) as content:
            yield LocalEnd(content, None, content.stat().st_size)
        return
    if file.is_dir():
        raise BadInput(
            f"{file} is a directory: put its files one by one, or pack it, as in `tar c {file} | ares-cli put - NAME`; nothing was sent"
        )
    try:
        yield LocalEnd(file, resolved(file), file.stat().st_size)
    except OSError as error:
        if error.filename != os.fspath(file):
            raise
        raise BadInput(f"{file} cannot be read: {error.strerror}; nothing was sent") from error


@contextmanager
def local_target(file: Path) -> Iterator[LocalEnd]:
    """A local file; what goes to standard output, a pipe or a device goes there at the end, from a temporary file. Raises :class:`BadInput`."""
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
    """A file, or standard input, to read from."""
    return open(0 if file == STANDARD_STREAM else file, "rb", closefd=file != STANDARD_STREAM)


def is_stream(file: Path) -> bool:
    """Whether it is standard input or output, a pipe or a device: nothing that has a content of its own."""
    return file == STANDARD_STREAM or (file.exists() and not file.is_file() and not file.is_dir())


def resolved(path: Path) -> Path:
    """``path`` without symbolic links. Raises OSError where they go round, which pathlib tells otherwise."""
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def check_output(output: Path) -> None:
    """Find out now, not when the content has been read. Raises :class:`BadInput`."""
    if output.is_dir():
        raise BadInput(f"{output} is a directory: name the file to write; nothing was read")
    if not output.parent.is_dir():
        raise BadInput(
            f"there is no directory {output.parent} to write {output.name} in; nothing was read"
        )


def write_output(output: Path, value: bytes) -> None:
    """Through a temporary file in the same directory, unless ``output`` is a device or a pipe."""
    if output.exists() and not output.is_file():
        output.write_bytes(value)
        return
    target = resolved(output)
    temporary = target.with_name(f".ares-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as stream:
            if target.exists():
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o777)
            stream.write(value)
        os.replace(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == os.fspath(temporary):
            error.filename = str(output)  # the other name is nobody's business
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def naming(file: object) -> Iterator[None]:
    """An error of the machine's names ``file``, if it names nothing: that a write failed does not say what was written to."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output for bytes. It writes all that it is given, which Python's own does not where PYTHONUNBUFFERED is set: a write to a pipe may be
    a part, and what it returns is easily passed over.
    """
    with naming("standard output"), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        yield out


@contextmanager
def _spooled(file: Path) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="ares-put-") as kept:
        try:
            with opened_source(file) as stream:
                if os.fstat(stream.fileno()).st_rdev in _ENDLESS:
                    raise BadInput(
                        f"{file} is a device that never ends, and a file in the cluster has an end; nothing was sent"
                    )
                shutil.copyfileobj(stream, kept, COPY_BYTES)
            kept.flush()
        except OSError as error:
            where = tempfile.gettempdir()
            raise BadInput(
                f"the input could not be kept in {where} until it is sent: {error.strerror}; nothing was sent. TMPDIR names another directory"
            ) from error
        yield Path(kept.name)
