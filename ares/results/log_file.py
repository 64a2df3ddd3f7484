"""A log file as lines, which an import can leave and resume.

A digest of the read content tells whether the file still begins with this content.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import xxhash

LINE_BYTES_MAX = 1 << 20
_LOG_PIECE_BYTES = 1 << 18


def open_log(path: Path) -> BinaryIO:
    """Open a file without waiting for a writer: the file may have become a pipe."""
    return os.fdopen(
        os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY),
        "rb",
        buffering=_LOG_PIECE_BYTES,
    )


def digest_of(
    file: BinaryIO, length: int, hasher: xxhash.xxh3_128 | None = None
) -> xxhash.xxh3_128:
    """Add the next ``length`` bytes, or all if fewer are left, to ``hasher`` or to a new hasher."""
    hasher = hasher or xxhash.xxh3_128()
    while length > 0 and (piece := file.read(min(length, _LOG_PIECE_BYTES))):
        hasher.update(piece)
        length -= len(piece)
    return hasher


class LogLines:
    """The lines of a file from ``position`` on; None for a line that is too long.

    ``hasher``: the digest of all bytes before ``position``. A last line without an end counts if
    the line is whole JSON, to which no byte can be added. Otherwise the line is left for later:
    ``is_unfinished``.
    """

    def __init__(self, file: BinaryIO, hasher: xxhash.xxh3_128, position: int) -> None:
        self._file = file
        self.hasher = hasher
        self.position = position
        self.is_unfinished = False

    def __iter__(self) -> Iterator[bytes | None]:
        end = os.fstat(self._file.fileno()).st_size  # the file may grow faster than it is read
        self._file.seek(max(self.position - 1, 0))
        if self.position and re.fullmatch(rb"[^\n]\n", self._file.read(2)):
            # the end of a line taken without its end
            self.hasher.update(b"\n")
            self.position += 1
        self._file.seek(self.position)
        while self.position < end and (line := self._file.readline(LINE_BYTES_MAX)):
            if line.endswith(b"\n") or (len(line) < LINE_BYTES_MAX and _is_json(line)):
                self.hasher.update(line)
                self.position += len(line)
                yield line
            elif len(line) < LINE_BYTES_MAX or not self._skip(line):
                self.is_unfinished = True
                return
            else:
                yield None

    def _skip(self, line: bytes) -> bool:
        """Pass over the rest of a line that is too long; return whether the line has an end."""
        hasher, position = self.hasher.copy(), self.position
        while line:
            hasher.update(line)
            position += len(line)
            if line.endswith(b"\n"):
                self.hasher, self.position = hasher, position
                return True
            line = self._file.readline(LINE_BYTES_MAX)
        return False


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=dict)
    except (ValueError, RecursionError):
        return False
    return True
