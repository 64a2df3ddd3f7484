"""The port between consensus members: the cost of strangers without the password."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ares.consensus.raft import transport as raft_transport
from ares.model.identity import ClientId, ServerId
from ares.model.units import MIB
from tests.consensus.clusters import PATIENCE_S, LocalMembers, configuration, until

FLOOD_BYTES = 4 * MIB
FEW = 8
"""Number of strangers borne by a member in these tests.

PySyncObj lets five wait to be accepted, and a later stranger tries again after seconds.
"""

R0 = ServerId("r0")


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[LocalMembers]:
    made = LocalMembers(tmp_path, count=1)
    await made.start_all()
    yield made
    await made.stop_all()


def place(members: LocalMembers) -> tuple[str, int]:
    host, _, port = members.raft_addresses[R0].rpartition(":")
    return host, int(port)


def flood(address: tuple[str, int]) -> int:
    """Send garbage shaped like the begin of a huge message; return the accepted bytes."""
    with socket.create_connection(address, PATIENCE_S) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        sent = 0
        with contextlib.suppress(ConnectionError):
            stranger.sendall((0x7FFFFFFF).to_bytes(4, "little"))
            while sent < FLOOD_BYTES:
                sent += stranger.send(bytes(64 * 1024))
    return sent


@contextlib.contextmanager
def silent(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Open `count` silent connections."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(address, PATIENCE_S)) for _ in range(count)
        ]


def hung_up(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return stranger.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def decide(members: LocalMembers, index: int = 1) -> None:
    client = members.client()
    assert (
        await client.propose(configuration(index), ClientId(1), PATIENCE_S)
    ).configuration.index == index
    await client.close()


async def test_a_stranger_that_keeps_sending_is_cut_off(single: LocalMembers) -> None:
    assert await asyncio.to_thread(flood, place(single)) < FLOOD_BYTES
    await decide(single)


async def test_without_the_bound_a_member_takes_whatever_comes(
    single: LocalMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This shows the reason for the bound."""
    monkeypatch.setattr(raft_transport, "STRANGER_BYTES_MAX", 1 << 40)
    assert await asyncio.to_thread(flood, place(single)) >= FLOOD_BYTES


async def test_of_many_strangers_the_first_have_to_go(
    single: LocalMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_transport, "STRANGER_S", 1e6)
    monkeypatch.setattr(raft_transport, "STRANGERS_MAX", FEW)
    with silent(place(single), 3 * FEW) as strangers:
        await until(lambda: sum(map(hung_up, strangers)) >= 2 * FEW)
        await decide(single)
        assert [hung_up(stranger) for stranger in strangers] == [True] * 2 * FEW + [False] * FEW


async def test_a_silent_stranger_has_to_go_after_a_while(
    single: LocalMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_transport, "STRANGER_S", 0.1)
    with silent(place(single), 1) as [stranger]:
        await until(lambda: hung_up(stranger))


async def test_members_find_each_other_among_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_transport, "STRANGERS_MAX", FEW)
    members = LocalMembers(tmp_path)
    await members.start(R0)
    with silent(place(members), 2 * FEW):
        for member in list(members.raft_addresses)[1:]:
            await members.start(member)
        await decide(members)
    await members.stop_all()
