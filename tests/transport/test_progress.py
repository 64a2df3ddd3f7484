"""Progress of a large reply: a repeated request would cause a second copy."""

import asyncio
import struct

import pytest

from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import GetTag
from ares.net.native import ZmtpConnections
from ares.net.zmtp.frames import NullHandshake

S0 = ServerId("s0")
LARGE_BYTES = 8 * 1024 * 1024


async def test_a_reply_that_goes_on_is_arriving_and_one_that_stands_still_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ares.net.native.PROGRESS_S", 0.0)
    peers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        writer.write(NullHandshake(b"ROUTER").opening())
        await reader.read(1 << 16)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = ZmtpConnections()
    connections.open(lambda server, messages: None)
    connections.learn(S0, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert not connections.receiving(S0), "nobody ever spoke to it"
    connections.post(S0, [GetTag(CallId(1), ConfigurationId(b"c" * 16), ObjectName("k"))])
    try:
        async with asyncio.timeout(20):
            while not peers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert not connections.receiving(S0), "there is no reply"
            peers[0].write(struct.pack(">BQ", 2, LARGE_BYTES))
            for _ in range(3):
                peers[0].write(bytes(LARGE_BYTES // 4))
                await peers[0].drain()
                while not connections.receiving(S0):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            connections.receiving(S0)
            assert not connections.receiving(S0), "it stands still"
    finally:
        await connections.close()
        peers[0].close()
        server.close()
