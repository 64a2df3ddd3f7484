"""A ZMTP connection on the event loop, on either side: bytes in, messages out, and back."""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from ares.model.codec import VALUE_BYTES_MAX, Frame
from ares.net.zmtp.frames import (
    MECHANISM_AT,
    SCRATCH_BYTES,
    FrameParser,
    Handshake,
    NotAdmitted,
    NotZmtp,
    NullHandshake,
    head,
    wire,
)

JOINED_BYTES_MAX = 64 * 1024
"""Size below which frames are joined for sending; larger frames are not copied."""

ACKED_AT = 120
"""Place of tcpi_bytes_acked in the TCP_INFO of Linux."""

UNSENT_BYTES = 1024 * 1024
"""Unsent bytes above which the peer counts as slow."""

_NOWHERE = memoryview(bytearray())
_NOTHING = NullHandshake(b"")


def process_at(raw: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end of a Unix socket.

    The process is the one which connected, or which began to listen.
    """
    credentials = struct.Struct("3i")  # SO_PEERCRED of Linux: pid, uid, gid
    pid, uid, _ = credentials.unpack(
        raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    )
    return pid, uid


def scratch() -> memoryview:
    """Return room for a read, shared by all connections of a thread."""
    return memoryview(bytearray(SCRATCH_BYTES))


class ConnectionEvents(NamedTuple):
    """Functions that a connection calls."""

    made: Callable[["ZmtpConnection", socket.socket], None]
    """The connection exists, with this socket."""

    met: Callable[["ZmtpConnection"], None]
    """The handshake is done."""

    receive: Callable[["ZmtpConnection", list[list[Frame]]], object]
    """A read completed these messages."""

    lost: Callable[["ZmtpConnection"], None]
    """The connection has ended."""

    taken: Callable[[], None] = lambda: None
    """A slow peer takes the bytes sent again."""

    holds: Callable[[int], None] = lambda _: None
    """The connection holds so many bytes more, or fewer, of incomplete messages."""

    quick: Callable[["ZmtpConnection", memoryview], bool] | None = None
    """A read has these bytes, which begin with a message, and the connection has no key.

    Returns whether all the work is done.
    """


class ZmtpConnection(asyncio.BufferedProtocol):
    """A connection of a socket of this ``kind`` (DEALER or ROUTER).

    ``handshake``: this side's handshake, not begun. ``slow``: the peer does not take the bytes
    sent. ``shaken``: the handshake was done; from this moment on, ``key`` is the peer's key, where
    clients have keys, ``site`` the peer's site by its own word, and ``peer_value_bytes`` the
    largest value taken by the peer. ``ready``: the handshake was done, and neither side has hung up
    since. ``trouble``: the reason for hanging up on a peer that sent other bytes than ZMTP.
    ``careful``: the handshake begins only when the peer's greeting is here and fits.
    ``value_bytes``: bytes of the largest value that the peer may send. ``local``: the connection is
    a Unix socket. ``silence_s``: seconds after which a slow peer that takes no byte is given up; 0:
    never. TCP does this by itself. The owner sends nothing to such a peer while it is slow.
    """

    def __init__(
        self,
        kind: bytes,
        handshake: Handshake,
        scratch: memoryview,
        events: ConnectionEvents,
        careful: bool = False,
        value_bytes: int = VALUE_BYTES_MAX,
    ) -> None:
        self.key = self.site = ""
        self.peer_value_bytes = VALUE_BYTES_MAX
        self.slow = self.local = False
        self.shaken = False
        self.ready = False
        self.trouble: NotZmtp | None = None
        self._incoming = FrameParser(kind, scratch, handshake, value_bytes)
        self._made, self._met, self._receive, self._lost = events[:4]
        self._taken, self._holds, self._quick = events[4:]
        self._careful = careful
        self._transport: asyncio.Transport | None = None
        self._paused = self._catching_up = False
        self.silence_s = 0.0
        self._watching: asyncio.Handle | None = None
        self.held_bytes = 0

    # -- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(UNSENT_BYTES)
        raw: socket.socket = transport.get_extra_info("socket")
        self.local = raw.family == socket.AF_UNIX
        handshake = self._incoming.handshake
        assert handshake is not None, "it has not begun"
        try:
            opening = handshake.opening()
            if self._careful:
                opening, self._incoming.after_greeting = (
                    opening[:MECHANISM_AT],
                    opening[MECHANISM_AT:],
                )
            self.transport.write(opening)
        except NotZmtp as error:
            self._give_up(error)
        self._made(self, raw)

    def get_buffer(self, sizehint: int) -> memoryview:
        incoming = self._incoming
        return incoming.scratch if incoming.large is None else incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Serve the bytes of a read whole, or take them apart."""
        incoming = self._incoming
        if (
            self._quick is not None
            and incoming.plain
            and not incoming.held_bytes
            and self._quick(self, incoming.scratch[:nbytes])
        ):
            return
        self._take_apart(nbytes)

    def _take_apart(self, nbytes: int) -> None:
        """Take the next messages from the bytes read, ``nbytes`` of them just now."""
        incoming = self._incoming
        try:
            messages = incoming.filled(nbytes)
        except NotZmtp as error:
            self._give_up(error)
            return
        if incoming.answers:
            answers, incoming.answers = incoming.answers, []
            if not self.slow:  # a peer that does not read the answers gets no more
                self.transport.write(b"".join(answers))
        if not self.shaken and incoming.ready:
            self.shaken, self.key, self.site = True, incoming.client_key, incoming.site
            self.peer_value_bytes = incoming.peer_value_bytes
            self.ready = not self.transport.is_closing()
            self._met(self)
        if messages:
            if self.held_bytes:  # from now on the owner counts the messages
                self._account(0)
            self._receive(self, messages)
        if incoming.held_bytes != self.held_bytes:
            self._account(incoming.held_bytes)
        if incoming.behind and self._is_open:
            self.transport.pause_reading()
            self._catch_up_soon()

    def _catch_up_soon(self) -> None:
        """Take apart more of the bytes read, after other connections had their turns.

        No bytes are read before all of these are taken apart.
        """
        if not self._catching_up:
            self._catching_up = True
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = False
        if not self._paused and self._is_open:
            self._take_apart(0)
            if not self._paused:
                self.resume()

    def _give_up(self, error: NotZmtp) -> None:
        # Without its traceback, or ended calls and all their bytes would stay in memory until the
        # next garbage collection.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.trouble = error
        if isinstance(error, NotAdmitted):
            self.transport.write(error.answer)
            self.close()
        else:
            self.hang_up()

    def _account(self, held_bytes: int) -> None:
        more, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        self._holds(more)

    def pause_writing(self) -> None:
        self.slow = True
        if self.silence_s:  # the rest of the message is written first
            self._watching = asyncio.get_running_loop().call_soon(self._watch, -1)

    def resume_writing(self) -> None:
        self.slow = False
        self._stop_watching()
        self._taken()

    def _watch(self, before: int) -> None:
        """Hang up if the peer took no byte since ``before`` were unsent; otherwise look again."""
        if (unsent := self.unsent_bytes) == before:
            self.hang_up()
        else:
            loop = asyncio.get_running_loop()
            self._watching = loop.call_later(self.silence_s, self._watch, unsent)

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self.ready = None, False
        self._stop_watching()
        # the bytes that came must not stay as long as the connection is referenced
        self._incoming = FrameParser(b"", _NOWHERE, _NOTHING)
        self._account(0)
        self._lost(self)

    # -- what its owner calls ----------------------------------------------------------------------

    @property
    def progress(self) -> int:
        """Return :attr:`ares.net.zmtp.frames.FrameParser.progress`."""
        return self._incoming.progress

    @property
    def missing_bytes(self) -> int:
        """Return the bytes held for the rest of a large frame, which has not come yet."""
        return self.held_bytes - self.progress

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "only a connection that is there is used"
        return self._transport

    @property
    def peer(self) -> str:
        """Return the peer's address, for people; over a Unix socket, the process and its user."""
        if self.local:
            return self.host
        return "" if self._transport is None else str(self._transport.get_extra_info("peername"))

    @property
    def host(self) -> str:
        """Return the host in the peer's address; over a Unix socket, the process and its user."""
        if self._transport is None:
            return ""
        if self.local:
            return "pid {}, uid {}".format(*process_at(self._transport.get_extra_info("socket")))
        return str(self._transport.get_extra_info("peername")[0])

    @property
    def sent_bytes(self) -> int:
        """Return the number of bytes given to this connection so far; 0 once it is closing.

        A Unix socket has no such count: 1, and no byte of it arrives while the peer is slow.
        """
        raw = self._socket
        if raw is None:
            return 0
        if self.local:
            return 1
        queued = fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4))
        return self.arrived_bytes + int.from_bytes(queued, sys.byteorder) + self.unsent_bytes

    @property
    def arrived_bytes(self) -> int:
        """Return the number of bytes whose arrival the other side's kernel has confirmed."""
        raw = self._socket
        if raw is None or self.local:
            return 0
        info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKED_AT + 8)
        return int.from_bytes(info[ACKED_AT:], sys.byteorder)

    @property
    def _socket(self) -> socket.socket | None:
        """The socket, unless it is closing."""
        if self._transport is None or self._transport.is_closing():
            return None
        return cast(socket.socket, self._transport.get_extra_info("socket"))

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send a message; return whether it was taken, which fails after the connection's end.

        A message that cannot be sent whole ends the connection, and the exception is raised.
        """
        transport, cipher = self._transport, self._incoming.cipher
        if not self.ready or transport is None or transport.is_closing():
            return False
        try:
            if cipher is None and len(frames) == 1 and len(frames[0]) < JOINED_BYTES_MAX:
                transport.write(head(len(frames[0])) + frames[0])
            else:
                self._transmit(wire(frames) if cipher is None else cipher.seal(frames))
        except BaseException:
            self.hang_up()  # the next message would be taken for the rest of this one
            raise
        return True

    def _transmit(self, buffers: Iterable[Frame | bytearray]) -> None:
        small = list[Frame | bytearray]()
        for buffer in buffers:
            if len(buffer) < JOINED_BYTES_MAX:
                small.append(buffer)
            else:
                self.transport.write(b"".join(small))
                self.transport.write(buffer)
                small.clear()
        if small:
            self.transport.write(b"".join(small))

    def pause(self) -> None:
        """Read no bytes until :meth:`resume`: the peer's TCP stream stands still."""
        self._paused = True
        if self._is_open:
            self.transport.pause_reading()

    def resume(self) -> None:
        self._paused = False
        if self._incoming.behind:
            self._catch_up_soon()
        elif self._is_open:
            self.transport.resume_reading()

    @property
    def _is_open(self) -> bool:
        """Return whether more may be read from the connection."""
        return self._transport is not None and not self._transport.is_closing()

    def hang_up(self) -> None:
        """End the connection at once; unsent bytes are dropped."""
        self.ready = False
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection after the sent bytes have left."""
        self.ready = False
        if self._transport is not None:
            self._transport.close()
