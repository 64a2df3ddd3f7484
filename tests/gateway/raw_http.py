"""A client of HTTP that sends any bytes, for hostile requests."""

import asyncio
import contextlib
from typing import NamedTuple


class RawAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """A connection; ``address`` is a host and a port. ``own``: the host of this end."""

    def __init__(self, address, own="127.0.0.1"):
        self.address, self.own = address, own

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(
            *self.address, local_addr=(self.own, 0)
        )
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def head(self):
        """Return the status and the headers of the next answer, with small letters."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def answer(self, method="GET"):
        """Return the next whole answer."""
        status, headers = await self.head()
        body = b""
        if method != "HEAD" and status not in (100, 204, 304):
            if headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readline(), 16):
                    body += await self.reader.readexactly(size)
                    await self.reader.readexactly(2)
                await self.reader.readexactly(2)
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
        return RawAnswer(status, headers, body)

    async def ask(self, request, method="GET"):
        await self.send(request)
        return await self.answer(method)

    async def rest(self):
        """Wait for the end of the connection, and return what still comes."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self.reader.read(65536):
                received += piece
        return received

    async def is_ended(self):
        """Wait for the end of the connection, and drop what still comes."""
        await self.rest()
        return True
