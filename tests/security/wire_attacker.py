"""An attacker on the way between clients and servers, who has no key.

    python wire_attacker.py KIND SEED ATTACKS LISTEN=TARGET...

The process listens at each LISTEN (host:port), and carries bytes to TARGET and back. On each of the
first ATTACKS connections it does one thing to the frames of ZMTP that pass, at a random frame and
in a random direction; the remaining connections it leaves alone. KIND names the thing (see KINDS).

It prints the line `ready`, and after the end of its input a line of JSON: `attacked`, the number of
attacked connections, and `ended`, how many of these the receiver of the attack ended within some
seconds. The script imports nothing of the project.
"""

import asyncio
import json
import random
import struct
import sys

ZMTP_GREETING = 64
LARGE, COMMAND = 2, 4
SEALED = b"\x07MESSAGE"
SEALED_AT = len(SEALED) + 8
"""Bytes before the sealed part of a frame: the name, and the count."""

END_S = 5.0
"""Seconds for a receiver to end a connection after an attack."""

HANDSHAKE = 2
"""Commands of the handshake in each direction."""

MESSAGES = 12
"""An attack is on one of so many frames after the handshake."""

KINDS = (
    "change",  # a bit of a sealed frame
    "count",  # the count of a sealed frame
    "repeat",  # a frame comes twice
    "swap",  # a frame comes after the next one
    "omit",  # a frame does not come
    "shorten",  # a frame without its last byte
    "reflect",  # a frame comes back to its sender
    "foreign",  # a frame of another connection
    "plain",  # a frame that is not sealed
    "refuse",  # ERROR 400, not sealed
    "handshake",  # a bit of a command of the handshake
    "downgrade",  # a greeting without keys
)


def framed(body, flags=0):
    if len(body) > 255:
        return bytes([flags | LARGE]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body


class Direction:
    """One direction of a connection: frames from ``reader`` go to ``writer``."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.passed = 0
        self.held = b""

    async def frame(self):
        flags = (await self.reader.readexactly(1))[0]
        size = await self.reader.readexactly(8 if flags & LARGE else 1)
        return flags, await self.reader.readexactly(int.from_bytes(size, "big"))

    async def send(self, *frames):
        self.writer.write(b"".join(frames))
        await self.writer.drain()


class Connection:
    """A connection through the attacker, attacked once or not at all."""

    def __init__(self, attacker, attacked):
        self.attacker = attacker
        self.random = attacker.random
        self.attacked = attacked
        self.victim = self.random.randrange(2)
        first = attacker.kind in ("handshake", "downgrade")
        self.frame = self.random.randrange(HANDSHAKE) if first else self.random.randrange(MESSAGES)
        self.done = asyncio.Event()
        self.ended = asyncio.get_running_loop().create_future()

    async def carry(self, there, back):
        directions = (there, back)
        pumps = [asyncio.create_task(self.pump(directions, which)) for which in (0, 1)]
        done = asyncio.create_task(self.done.wait())
        await asyncio.wait([*pumps, done], return_when=asyncio.FIRST_COMPLETED)
        if self.done.is_set():
            # the pump of the receiver's own bytes comes to an end when the receiver hangs up
            ended, _ = await asyncio.wait([pumps[1 - self.victim]], timeout=END_S)
            self.ended.set_result(bool(ended))
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for task in (*pumps, done):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        if not self.ended.done():
            self.ended.set_result(None)  # no attack, or not before an end sent its last byte
        for direction in directions:
            direction.writer.close()

    async def pump(self, directions, which):
        direction, other = directions[which], directions[1 - which]
        mine = self.attacked and which == self.victim
        greeting = await direction.reader.readexactly(ZMTP_GREETING)
        if mine and self.attacker.kind == "downgrade":
            self.done.set()
            greeting = greeting.replace(b"CURVE", b"NULL\0")
        await direction.send(greeting)
        while True:
            flags, body = await direction.frame()
            sealed = body.startswith(SEALED) and not flags & COMMAND
            due = mine and not self.done.is_set() and direction.passed >= self.frame
            direction.passed += sealed or self.attacker.kind == "handshake"
            if due and (sealed or (self.attacker.kind == "handshake" and flags & COMMAND)):
                await self.attack(direction, other, flags, body)
            else:
                await direction.send(direction.held, framed(body, flags))
                if direction.held:
                    direction.held = b""
            if sealed:
                self.attacker.seen = framed(body, flags)

    async def attack(self, direction, other, flags, body):
        kind, plain = self.attacker.kind, framed(body, flags)
        if kind in ("omit", "swap") and direction.held == b"":
            # this frame is missed only when the next one arrives
            direction.held = plain
            flags, body = await direction.frame()
            held, direction.held = direction.held, b""
            self.done.set()
            await direction.send(framed(body, flags), held if kind == "swap" else b"")
            return
        if kind == "foreign" and self.attacker.seen == b"":
            await direction.send(plain)
            return
        self.done.set()
        if kind in ("change", "handshake"):
            at = self.random.randrange(SEALED_AT if kind == "change" else 10, len(body))
            changed = bytearray(body)
            changed[at] ^= 1 << self.random.randrange(8)
            await direction.send(framed(bytes(changed), flags))
        elif kind == "count":
            count = int.from_bytes(body[len(SEALED) : SEALED_AT], "big") + self.random.choice(
                (-1, 1, 9)
            )
            await direction.send(
                framed(SEALED + count.to_bytes(8, "big") + body[SEALED_AT:], flags)
            )
        elif kind == "shorten":
            await direction.send(framed(body[:-1], flags))
        elif kind == "reflect":
            # to the sender, as from its peer
            self.victim = 1 - self.victim
            await other.send(plain)
            await direction.send(plain)
        else:
            inserted = {
                "repeat": plain,
                "foreign": self.attacker.seen,
                "plain": framed(b"hello"),
                "refuse": framed(b"\x05ERROR\x03400", COMMAND),
            }[kind]
            await direction.send(plain, inserted)


class WireAttacker:
    def __init__(self, kind, seed, attacks):
        self.kind, self.random, self.attacks = kind, random.Random(seed), attacks
        self.connections = []
        self.seen = b""

    async def accept(self, target, reader, writer):
        host, _, port = target.rpartition(":")
        try:
            back, there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        connection = Connection(self, len(self.connections) < self.attacks)
        self.connections.append(connection)
        await connection.carry(Direction(reader, there), Direction(back, writer))


async def main(kind, seed, attacks, pairs):
    attacker = WireAttacker(kind, seed, attacks)
    servers = []
    for pair in pairs:
        listen, _, target = pair.partition("=")
        host, _, port = listen.rpartition(":")
        servers.append(
            await asyncio.start_server(
                lambda *streams, target=target: attacker.accept(target, *streams), host, int(port)
            )
        )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    attacked = [connection for connection in attacker.connections if connection.done.is_set()]
    ended = await asyncio.gather(*(connection.ended for connection in attacked))
    sys.stdout.write(
        json.dumps({"attacked": len(ended) - ended.count(None), "ended": ended.count(True)})
    )
    for server in servers:
        server.close()


if __name__ == "__main__":
    assert sys.argv[1] in KINDS, KINDS
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
