"""Small files named by a person: the cluster file, keys, the list of clients.

Reading ends and takes little memory, whatever kind of file has the name.
"""

import errno
import os
import re
import select
import stat
import time
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from ares.model.errors import BadInput

SETTINGS_BYTES_MAX = 1 << 20
NAMED_FILE_WAIT_S = 10.0
"""Seconds for a pipe to give its whole content."""

_WRITER_S = 1.0
"""Seconds for a pipe to get a writer."""

_WRITER_POLL_S = 0.05
_NAMED_FILE_PIECE_BYTES = 1 << 16
_KEY_PARTS_MAX = 32
_DEEP_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_KEY_PARTS_MAX}}}"""
)
"""A key of many parts: tomllib's time grows with the square of a key's parts."""

_INTEGER_MAX = 2**63
_SHOWN_CHARACTERS = 80
HIDDEN = "(hidden: it may be a key)"
_LONG_RUN = re.compile(r"[0-9A-Fa-f]{40,}")
"""A run of digits that may be a key.

A key has 64 digits, and a cut key somewhat fewer; identities, and ids of configurations, have 32.
"""

_VALUES = "expected texts without NUL and integers of 64 bits"


def read_named(
    path: Path | str, bytes_max: int, *, streams: bool = True, wait_s: float = NAMED_FILE_WAIT_S
) -> tuple[bytes, os.stat_result]:
    """Return the content of the file at ``path``, at most ``bytes_max``, and its status.

    ``streams``: a pipe or a device will do, too, such as the shell's ``<(command)``. The wait for a
    pipe takes at most ``wait_s``, and less without a writer. Raises OSError, whose ``strerror``
    names the expectation.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file has such a name: {error}", str(path)) from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, "it is a directory, and a file was expected", str(path))
        if not streams and not stat.S_ISREG(status.st_mode):
            raise OSError(
                errno.EINVAL, "it is a pipe or a device, and a file was expected", str(path)
            )
        content = _read(descriptor, bytes_max + 1, wait_s)
    except TimeoutError as error:
        raise OSError(errno.ETIMEDOUT, str(error), str(path)) from None
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise OSError(
            errno.EFBIG, f"it has more than {bytes_max} bytes, and such a file has fewer", str(path)
        )
    return content, status


def _read(descriptor: int, bytes_max: int, wait_s: float) -> bytes:
    """Return the bytes up to the end, at most ``bytes_max``. Raises TimeoutError."""
    content = bytearray()
    begin = time.monotonic()
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    is_pipe, written = stat.S_ISFIFO(os.fstat(descriptor).st_mode), False
    while len(content) < bytes_max:
        try:
            piece = os.read(descriptor, min(_NAMED_FILE_PIECE_BYTES, bytes_max - len(content)))
        except BlockingIOError:  # another process has the other end, and wrote nothing yet
            written = True
        else:
            content += piece
            written = written or bool(piece)
            if not piece and (written or not is_pipe):
                break
            if piece:
                continue
        waited_s = time.monotonic() - begin
        if waited_s > (wait_s if written else _WRITER_S):
            why = (
                f"its end did not come within {wait_s:g} s"
                if written
                else "it is a pipe, and no process writes to it"
            )
            raise TimeoutError(why)
        if written:
            poller.poll(1000 * (wait_s - waited_s))
        else:
            time.sleep(_WRITER_POLL_S)
    return bytes(content)


class NotToml(ValueError):
    """The text lacks the expected form, named in the message."""


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables in ``text``, in time that grows with its length alone.

    Raises :class:`NotToml`.
    """
    if deep := _DEEP_KEY.search(text):
        line = text.count("\n", 0, deep.start()) + 1
        raise NotToml(
            f"expected keys of a few parts, and one in line {line} has more than {_KEY_PARTS_MAX}"
        )
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(f"expected TOML: {error}") from error
    except RecursionError:
        raise NotToml(
            "expected TOML of a few levels, and its arrays or tables are nested too deep"
        ) from None
    except ValueError:  # Python's own error, with advice for programmers
        raise NotToml(f"{_VALUES}, and one of its integers has thousands of digits") from None
    try:
        _check_values(tables)
    except ValueError as error:
        raise NotToml(f"{_VALUES}: {error}") from error
    return tables


def _check_values(value: object, key: str = "") -> None:
    """Raise ValueError for a text with a NUL, or an integer beyond 64 bits.

    No path has a NUL, and longer integers cannot even be shown. The message leaves out the value:
    it may be a secret in a wrong place.
    """
    if isinstance(value, int) and not -_INTEGER_MAX <= value < _INTEGER_MAX:
        raise ValueError(f"{key} has {value.bit_length()} bits")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"{key} has a NUL")
    if isinstance(value, dict):
        for name, part in value.items():
            _check_values(part, f"{key}.{name}"[-_SHOWN_CHARACTERS:].removeprefix("."))
    elif isinstance(value, list):
        for part in value:
            _check_values(part, key)


def refuse(path: Path, key: str, why: str) -> NoReturn:
    """Raise the :class:`BadInput` of the cluster file at ``path``.

    The message has the file's name, the key's path and the expectation. Secret keys are not
    repeated.
    """
    raise BadInput(f"{path}: {without_long_hex(f'{key}: {why}')}")


def without_long_hex(text: str) -> str:
    """Return ``text`` with each run of 40 or more hexadecimal digits hidden.

    Such a run may be a secret key, typed in a wrong place.
    """
    return _LONG_RUN.sub(HIDDEN, text)
