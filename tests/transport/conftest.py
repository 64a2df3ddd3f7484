"""Fixtures: the transport under test."""

import functools
from collections.abc import AsyncIterator, Callable

import pytest

from .wires import InprocWire, OurClientWire, OurServerWire, SocketWire, Wire, ZmqWire, ZmtpWire

OUR_SERVERS: dict[str, type[ZmqWire]] = {"zmtp": ZmtpWire, "zmq client, our server": OurServerWire}
TCP_WIRES = {"zmq": ZmqWire, "our client, zmq server": OurClientWire, **OUR_SERVERS}
WITH_SOCKETS = {"zmtp, Unix socket": SocketWire}
SOCKETS = TCP_WIRES | WITH_SOCKETS
WIRES: dict[str, Callable[[], Wire]] = {"inproc": InprocWire, **SOCKETS}
WIRES |= {
    f"{name}, with keys": functools.partial(made, has_keys=True) for name, made in SOCKETS.items()
}


@pytest.fixture(params=sorted(WIRES))
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    made = WIRES[request.param]()
    yield made
    await made.close()


@pytest.fixture(params=sorted(TCP_WIRES))
async def zmq_wire(request: pytest.FixtureRequest) -> AsyncIterator[ZmqWire]:
    made = TCP_WIRES[request.param]()
    yield made
    await made.close()


@pytest.fixture(params=sorted(OUR_SERVERS))
async def our_server(request: pytest.FixtureRequest) -> AsyncIterator[ZmqWire]:
    """Yield the wires whose servers keep the bounds that libzmq lacks (docs/limits.md)."""
    made = OUR_SERVERS[request.param]()
    yield made
    await made.close()


@pytest.fixture(params=sorted(OUR_SERVERS | WITH_SOCKETS))
async def our_wire(request: pytest.FixtureRequest) -> AsyncIterator[ZmqWire]:
    """Yield the same wires, and Unix sockets, for tests whose server is the wire's."""
    made = (OUR_SERVERS | WITH_SOCKETS)[request.param]()
    yield made
    await made.close()
