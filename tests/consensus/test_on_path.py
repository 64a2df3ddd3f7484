"""An attacker between consensus members, without the password.

The attacker repeats, reorders, drops, reflects, delays and redirects messages. The attacks do not
use the project's code: the attacker knows only that a message is its length, in four bytes, and so
many bytes.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.node import TCPNode
from pysyncobj.transport import TCPTransport
from pysyncobj.transport import Transport as PysyncTransport

from ares.cluster.home import prepare
from ares.consensus.raft import replicated as raft_consensus
from ares.consensus.raft.member import RaftMember
from ares.consensus.raft.transport import RaftTransport
from ares.model.identity import ClientId, ServerId

from ..ports import free_addresses
from .clusters import PASSWORD, PATIENCE_S, configuration, until

ME = ClientId(1)
OBSERVED_S = 4.0
"""Seconds of observation, enough for several elections."""

INWARD, OUTWARD = 0, 1
"""Directions: from the connecting member, and to this member."""

HANDSHAKE = (2, 1)
"""Messages of each direction before the messages of Raft."""

Fate = Callable[["Crossing", int, int, bytes], list[bytes]]
"""The messages to send instead of a given message of a direction."""


def as_it_is(crossing: "Crossing", way: int, number: int, message: bytes) -> list[bytes]:
    return [message]


class Crossing:
    """A connection over the proxy.

    ``passed`` has the messages in each direction; ``ended`` says that a member has hung up.
    """

    def __init__(self, writers: list[asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.passed: tuple[list[bytes], list[bytes]] = ([], [])
        self.held: list[bytes] = []
        self.ended = asyncio.Event()


class Proxy:
    """The address at which other members find a member.

    ``fate`` is asked about every message; ``target`` is the destination.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.fate: Fate = as_it_is
        self.crossings: list[Crossing] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for crossing in self.crossings:
            for writer in crossing.writers:
                writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            other_reader, other_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        crossing = Crossing([other_writer, writer])
        self.crossings.append(crossing)
        for way, source in ((INWARD, reader), (OUTWARD, other_reader)):
            task = asyncio.create_task(self._carry(crossing, way, source))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, crossing: Crossing, way: int, source: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await source.readexactly(4)
                message = head + await source.readexactly(struct.unpack("<i", head)[0])
                number = len(crossing.passed[way])
                crossing.passed[way].append(message)
                for piece in self.fate(crossing, way, number, message):
                    crossing.writers[way].write(piece)
        crossing.ended.set()
        for writer in crossing.writers:
            writer.close()


class Members:
    """Members, of which only the started run; other members find each at a proxy."""

    def __init__(self, directory: Path, count: int, detours: dict[str, int]) -> None:
        self.addresses = dict(
            zip(
                (ServerId(f"r{index}") for index in range(count)),
                sorted(free_addresses(count)),
                strict=True,
            )
        )
        self.proxies = {member: Proxy(address) for member, address in self.addresses.items()}
        self.running: dict[ServerId, RaftMember] = {}
        self._directory = directory
        self._detours = detours

    async def open(self) -> None:
        for member, proxy in self.proxies.items():
            prepare(self._directory / member)
            self._detours[self.addresses[member]] = await proxy.start()

    def start(self, *ids: str) -> None:
        for id in map(ServerId, ids):
            self.running[id] = RaftMember(id, self.addresses, self._directory / id, PASSWORD)
            self.running[id].start()

    async def stop(self, id: str) -> None:
        await self.running.pop(ServerId(id)).close()

    async def decide(self, index: int) -> None:
        """Check that every running member learns the same decision."""
        wanted = configuration(index)
        for raft in self.running.values():
            assert (await raft.propose(wanted, ME, PATIENCE_S)).configuration == wanted

    @property
    def leaders(self) -> list[ServerId]:
        return [id for id, raft in self.running.items() if raft.leads]

    async def close(self) -> None:
        for id in list(self.running):
            await self.stop(id)
        for proxy in self.proxies.values():
            await proxy.close()


@pytest.fixture
def detours(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the ports at which other members find a member, by the member's address."""
    known: dict[str, int] = {}
    monkeypatch.setattr(
        TCPNode,
        "port",
        property(lambda node: known.get(node.address) or int(node.address.rpartition(":")[2])),
    )
    return known


@pytest.fixture
async def three(tmp_path: Path, detours: dict[str, int]) -> AsyncIterator[Members]:
    """Run three members; r2 connects to r0 and r1, and r1 to r0."""
    made = Members(tmp_path, 3, detours)
    await made.open()
    made.start("r0", "r1", "r2")
    yield made
    await made.close()


@pytest.fixture
async def five(tmp_path: Path, detours: dict[str, int]) -> AsyncIterator[Members]:
    made = Members(tmp_path, 5, detours)
    await made.open()
    yield made
    await made.close()


def repeating(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    return [message] * (1 if number < HANDSHAKE[way] else 3)


async def test_votes_that_are_repeated_make_no_leader_of_a_minority(five: Members) -> None:
    for proxy in five.proxies.values():
        proxy.fate = repeating
    five.start("r0", "r1")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(OBSERVED_S):
            await until(lambda: bool(five.leaders))
    assert five.leaders == []
    assert five.proxies[ServerId("r0")].crossings
    for proxy in five.proxies.values():
        proxy.fate = as_it_is
    five.start("r2")
    await five.decide(0)


class Once:
    """A fate that does ``harm`` to a single message after the handshake, in direction ``way``."""

    def __init__(self, way: int, harm: Fate) -> None:
        self.crossing: Crossing | None = None
        self._way = way
        self._harm = harm
        self._at = -1

    def __call__(self, crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
        if self.crossing is None and way == self._way and number >= HANDSHAKE[way] + 2:
            self.crossing, self._at = crossing, number
        if crossing is self.crossing and way == self._way and number >= self._at:
            return self._harm(crossing, way, number - self._at, message)
        return [message]


def repeat(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    return [message, message] if number == 0 else [message]


def repeat_an_earlier_one(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    return [message, crossing.passed[way][HANDSHAKE[way]]] if number == 0 else [message]


def repeat_the_handshake(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    return [message, crossing.passed[way][HANDSHAKE[way] - 1]] if number == 0 else [message]


def swap(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    if number == 0:
        crossing.held.append(message)
        return []
    return [message, crossing.held.pop()] if crossing.held else [message]


def leave_out(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    return [] if number == 0 else [message]


def send_back(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
    if number == 0:
        crossing.writers[1 - way].write(message)
    return [message]


@pytest.mark.parametrize("way", [INWARD, OUTWARD], ids=["inward", "outward"])
@pytest.mark.parametrize(
    "harm", [repeat, repeat_an_earlier_one, repeat_the_handshake, swap, leave_out, send_back]
)
async def test_what_was_tampered_with_ends_the_connection_and_nothing_else(
    three: Members, harm: Fate, way: int
) -> None:
    await three.decide(0)
    harmed = three.proxies[ServerId("r0")].fate = Once(way, harm)
    await until(lambda: harmed.crossing is not None)
    assert harmed.crossing is not None
    await asyncio.wait_for(harmed.crossing.ended.wait(), PATIENCE_S)
    await three.decide(1)


async def test_what_was_recorded_is_worth_nothing_later(three: Members) -> None:
    """The messages are replayed over the next connection, or after a restart of the receiver."""
    await three.decide(0)
    proxy = three.proxies[ServerId("r0")]
    recorded = proxy.crossings[0]
    await until(lambda: len(recorded.passed[INWARD]) > HANDSHAKE[INWARD] + 4)
    await three.stop("r0")
    before = len(proxy.crossings)
    replayed: list[int] = []

    def replay(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
        if way == INWARD and number == HANDSHAKE[INWARD] and not replayed:
            replayed.append(proxy.crossings.index(crossing))
            return [message, *recorded.passed[INWARD][HANDSHAKE[INWARD] :]]
        return [message]

    proxy.fate = replay
    three.start("r0")
    await until(lambda: bool(replayed))
    assert replayed[0] >= before
    await asyncio.wait_for(proxy.crossings[replayed[0]].ended.wait(), PATIENCE_S)
    await three.decide(1)


async def test_messages_that_are_late_and_in_order_are_taken(three: Members) -> None:
    """TCP may delay messages, too."""
    await three.decide(0)
    proxy = three.proxies[ServerId("r0")]
    crossing = proxy.crossings[0]

    def late(crossing: Crossing, way: int, number: int, message: bytes) -> list[bytes]:
        asyncio.get_running_loop().call_later(0.2, crossing.writers[way].write, message)
        return []

    proxy.fate = late
    for index in range(1, 5):
        await three.decide(index)
    assert not crossing.ended.is_set()


async def test_a_member_is_not_taken_for_another_one(
    five: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages for r0 are redirected to r1: r1's answers do not count as r0's."""
    heard: list[str] = []
    take = PysyncTransport._onMessageReceived
    monkeypatch.setattr(
        PysyncTransport,
        "_onMessageReceived",
        lambda self, node, message: heard.append(node.id) or take(self, node, message),
    )
    five.proxies[ServerId("r0")].target = five.addresses[ServerId("r1")]
    five.start("r1", "r2")
    astray = five.proxies[ServerId("r0")].crossings
    await until(lambda: sum(crossing.ended.is_set() for crossing in astray) >= 2)
    assert five.addresses[ServerId("r0")] not in heard
    assert max(len(crossing.passed[INWARD]) for crossing in astray) > HANDSHAKE[INWARD], (
        "the handshake was done"
    )
    assert not next(iter(five.proxies[ServerId("r1")].crossings)).ended.is_set(), (
        "the connection of r2 with r1 itself stays as it is"
    )


async def test_a_member_that_was_led_astray_breaks_no_connection_of_others_for_good(
    three: Members,
) -> None:
    """r1 connects to r0, and r2 to r1.

    Redirected to r2, r1 must not take the place of r2's own connection.
    """
    await three.decide(0)
    proxy = three.proxies[ServerId("r0")]
    proxy.target = three.addresses[ServerId("r2")]
    before = len(proxy.crossings)
    proxy.cut()
    await until(lambda: len(proxy.crossings) > before)
    await asyncio.sleep(1.5)
    proxy.target = three.addresses[ServerId("r0")]
    proxy.cut()
    await three.stop("r0")
    await three.decide(1)


class Earlier(RaftTransport):
    """A member of the last release, whose messages have no numbers."""

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        self._syncObj.make_durable(message)
        return bool(
            TCPTransport.send(self, node, {**message, "sender_term": self._syncObj._getTerm()})
        )

    def _onMessageReceived(self, node: Any, message: dict[str, Any]) -> None:
        admitted = self._syncObj.admitted(node.address, message)
        if admitted is not None:
            TCPTransport._onMessageReceived(self, node, admitted)


@pytest.mark.parametrize(
    "earlier",
    [{"r0"}, {"r1"}, {"r2"}, {"r0", "r2"}, {"r0", "r1"}],
    ids=lambda members: " ".join(sorted(members)),
)
async def test_members_of_the_last_release_are_heard_and_named(
    tmp_path: Path,
    detours: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    earlier: set[str],
) -> None:
    """An upgrade replaces the members sequentially."""
    members = Members(tmp_path, 3, detours)
    await members.open()
    for member in members.addresses:
        with monkeypatch.context() as patch:
            if member in earlier:
                patch.setattr(raft_consensus, "RaftTransport", Earlier)
            members.start(member)
    await members.decide(0)
    await until(
        lambda: all(
            f"{members.addresses[ServerId(member)]} is of an earlier release" in caplog.text
            for member in earlier
        )
    )
    for member in earlier:
        await members.stop(member)
        members.start(member)
    await members.decide(1)
    await members.close()
