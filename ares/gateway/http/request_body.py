"""The body of a request, as an async iterator with backpressure to the socket."""

import asyncio
from collections import deque
from collections.abc import Callable

from ares.gateway.http.gateway_limits import (
    BODY_BUFFER_BYTES,
    BODY_IDLE_BYTES,
    BODY_IDLE_S,
    DRAINED_BYTES_MAX,
)
from ares.gateway.s3.s3_errors import S3Code, S3Error

PIECE_OVERHEAD_BYTES = 64
"""Memory of a piece beside its bytes: a peer may send pieces of one byte."""


class RequestBody:
    """The received, unread pieces of a body.

    ``length``: from the head; None for a body in chunks. ``flow`` is called when the socket may be
    read on. ``start`` sends ``100 Continue``; None for a peer without this wish.
    """

    def __init__(
        self, length: int | None, flow: Callable[[], None], start: Callable[[], None] | None
    ) -> None:
        self.complete = False
        self.received = 0
        """Bytes of the body so far."""
        self.dropped = False
        """The rest has no reader."""
        self._length = length
        self._flow = flow
        self._start = start
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._reader: asyncio.Future[None] | None = None
        self._waited_s = 0.0
        self._since_wait = 0
        """Bytes received since ``_waited_s`` was zero."""

    @property
    def is_full(self) -> bool:
        """Return True if the socket must not be read now."""
        return not self.dropped and self._held > BODY_BUFFER_BYTES

    @property
    def ends_soon(self) -> bool:
        """Return True if reading the short rest keeps the connection."""
        if self.complete:
            return True
        if self._start is not None or self._length is None:
            return False
        return self._length - self.received <= DRAINED_BYTES_MAX

    def feed(self, piece: bytes) -> None:
        """Take a piece from the socket."""
        self.received += len(piece)
        if self.dropped:
            return
        self._since_wait += len(piece)
        if self._since_wait >= BODY_IDLE_BYTES:
            self._since_wait, self._waited_s = 0, 0.0
        self._pieces.append(piece)
        self._held += len(piece) + PIECE_OVERHEAD_BYTES
        self._wake()

    def end(self) -> None:
        """Take the end of the body."""
        self.complete = True
        self._wake()

    def drop(self) -> None:
        """Drop the present and all later pieces."""
        self.dropped = True
        self._pieces.clear()
        self._held = 0

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> "RequestBody":
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece. Raises S3Error if the peer sends too slowly."""
        if self._start is not None:
            start, self._start = self._start, None
            start()
        while not self._pieces:
            if self.complete:
                raise StopAsyncIteration
            await self._wait()
        piece = self._pieces.popleft()
        was_full = self.is_full
        self._held -= len(piece) + PIECE_OVERHEAD_BYTES
        if was_full and not self.is_full:
            self._flow()
        return piece

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        self._reader = loop.create_future()
        try:
            async with asyncio.timeout(BODY_IDLE_S - self._waited_s):
                await self._reader
        except TimeoutError:
            raise S3Error(S3Code.RequestTimeout) from None
        finally:
            self._reader = None
        if self._since_wait:
            self._waited_s += loop.time() - begun_s
