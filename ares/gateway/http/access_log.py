"""The access log of a gateway: a JSON object a line for each answered request.

The event loop only appends a line to a bounded list; a thread writes. A disk that is slow, stopped
or full costs lines, which are counted and told by a later line, and never a request. Secret keys,
signatures and queries, which may contain signatures, are in no line.
"""

import errno
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.gateway.s3.s3_dates import iso_date
from ares.model.errors import BadInput
from ares.platform.json_logs import is_worth_a_line

STANDARD_OUTPUT = "-"
ACCESS_LOG_MODE = 0o640
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of lines that wait for the disk; further lines are lost."""

LOGGED_KEY_CHARACTERS_MAX = 512
"""Characters of an object's key in a line; a longer key is cut."""

ACCESS_LINE_BYTES_MAX = select.PIPE_BUF
"""Bytes of a write, of whole lines: lines of several processes do not mix, in a pipe either."""

LAST_LINES_S = 5.0
"""Time for the lines that wait at the end of the process."""

_log = logging.getLogger(__name__)


class AccessLine(Struct):
    """A request and its answer. ``ms``: from the whole head of the request to the end.

    ``access_key``: the id of a key whose signature was right. ``status``: 0 without an answer.
    ``error``: S3's code, or ``ConnectionCut`` for an answer that the client did not get wholly.
    """

    time: str
    server: str
    address: str
    access_key: str
    operation: str
    method: str
    bucket: str
    key: str
    status: int
    error: str
    received_bytes: int
    sent_bytes: int
    ms: float
    request: str

    def encoded(self) -> bytes:
        """Return the line, which has at most ACCESS_LINE_BYTES_MAX bytes."""
        self.key = self.key[:LOGGED_KEY_CHARACTERS_MAX]
        return _CONTROLS.sub(_escaped, _encode(self)) + b"\n"


class LostLines(Struct):
    """The number of lines that were not written before this one."""

    time: str
    server: str
    lost: int


_encode = msgspec.json.Encoder().encode
_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
"""Commands to terminals, and ends of lines, that JSON allows in a text."""


def _escaped(control: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(control[0].decode())


class AccessLog:
    """The log in a file, or on standard output for ``-``. Raises :class:`ares.BadInput`."""

    def __init__(self, path: str, server: str) -> None:
        self.server = server
        self._path = None if path == STANDARD_OUTPUT else Path(path)
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise BadInput(
                f"the access log {path} cannot be opened: {os.strerror(error.errno or 0)}. "
                "Nothing was started"
            ) from error
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        """Bytes of the waiting lines, and of the lines that are written now."""
        self._lost = 0
        """Lines lost since the last line that tells a number of them."""
        self._failed = 0
        self._torn = False
        """The last write ended within a line."""
        self._reopens = self._ends = False
        self._thread = threading.Thread(target=self._write_all, name="access log", daemon=True)
        self._thread.start()

    def note(self, line: AccessLine) -> None:
        """Append a line; without room for it, count it as lost."""
        encoded = line.encoded()
        with self._changed:
            if self._waiting_bytes + len(encoded) > WAITING_BYTES_MAX:
                self._lost += 1
                return
            self._waiting.append(encoded)
            self._waiting_bytes += len(encoded)
            self._changed.notify()

    def reopen(self) -> None:
        """Open the file again before the next line, after a rotation."""
        with self._changed:
            self._reopens = True
            self._changed.notify()

    def close(self) -> None:
        """Write the waiting lines, in bounded time; idempotent."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(LAST_LINES_S)

    # -- the thread --------------------------------------------------------------------------------

    def _write_all(self) -> None:
        """Write the lines until the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._reopens or self._ends)
                lines, self._waiting = self._waiting, []
                reopens, self._reopens = self._reopens, False
                ends = self._ends and not lines
            if ends:
                return
            if reopens:
                self._open_again()
            lost = sum(map(self._write, _joined(lines)))
            with self._changed:
                self._waiting_bytes -= sum(map(len, lines))
                self._lost += lost
            self._tell_lost()

    def _tell_lost(self) -> None:
        """Write a line with the number of lost lines, when lines can be written again."""
        with self._changed:
            lost = self._lost
        if lost:
            told = _encode(LostLines(iso_date(int(time.time() * 1000)), self.server, lost)) + b"\n"
            if not self._write(told):
                with self._changed:
                    self._lost -= lost

    def _write(self, lines: bytes) -> int:
        """Write whole lines; return the number of lines that are lost."""
        given = left = b"\n" + lines if self._torn else lines
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self._report("written", error)
        if left != given:
            self._torn = not given.endswith(b"\n", 0, len(given) - len(left))
        return left[-len(lines) :].count(b"\n")

    def _open(self) -> int:
        if self._path is None:
            return sys.stdout.fileno()
        # the opening of a pipe without a reader would wait for one
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, ACCESS_LOG_MODE)
        os.set_blocking(descriptor, True)
        return descriptor

    def _open_again(self) -> None:
        """Open the file of the name; keep the earlier file if the new one cannot be opened."""
        try:
            opened = self._open()
        except OSError as error:
            self._report("opened again", error)
            return
        if self._path is not None:
            os.close(self._descriptor)
        self._descriptor = opened

    def _report(self, what: str, error: OSError) -> None:
        self._failed += 1
        if is_worth_a_line(self._failed):
            why = os.strerror(error.errno or errno.EIO)
            _log.warning("the access log cannot be %s (%d so far): %s", what, self._failed, why)


def _joined(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the lines joined to pieces of at most ACCESS_LINE_BYTES_MAX bytes."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        if size + len(line) > ACCESS_LINE_BYTES_MAX:
            yield b"".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield b"".join(piece)
