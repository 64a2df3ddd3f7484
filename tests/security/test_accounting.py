"""With keys, every byte of a batch is accounted for as well: what CURVE adds is known, and nobody is hung up on for it."""

import asyncio
import random

from ares.model.codec import encode
from ares.model.identity import CallId, ConfigurationId, ObjectName
from ares.model.messages import Ack, Element, PutData
from ares.model.tag import TAG_ZERO
from ares.security.keys import SecretKey

from .cluster import within
from .test_gate import S0, Server, client_of

HANDSHAKE_BYTES_MAX = 2048


def put(call: int, *sizes: int) -> PutData:
    parts = tuple(bytes(size) for size in sizes)
    return PutData(CallId(call), ConfigurationId(b"c" * 16), ObjectName("k"), TAG_ZERO, Element(0, sum(sizes), 1, parts))


async def test_every_byte_of_an_encrypted_batch_is_accounted_for() -> None:
    key, chance = SecretKey.generate(), random.Random(4)
    server = Server(key, "libzmq")
    server.address = await server.listener.serve(server.handle)
    async with client_of(server, key) as client:
        sent = 0
        for call in range(1, 200):
            sizes = [chance.choice([0, 1, 214, 221, 222, 223, 255, 256, 65_535, 70_000]) for _ in range(chance.randint(1, 5))]
            message = put(call, 8192, *sizes)
            sent += sum(map(len, encode([message])))
            client.received.clear()
            client.connections.post(S0, [message])

            async def answered() -> None:
                while not client.received:  # noqa: ASYNC110 (delivered by another callback)
                    await asyncio.sleep(0)

            await within(answered())
            assert client.received == [Ack(CallId(call), None)]
        assert sent > 1024 * HANDSHAKE_BYTES_MAX
        assert 0 <= server.listener.connections.waiting_bytes() < HANDSHAKE_BYTES_MAX
    await server.listener.close()
