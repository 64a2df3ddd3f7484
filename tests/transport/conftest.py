"""Fixtures: the transport under test."""

import functools
from collections.abc import AsyncIterator, Callable

import pytest

from .wires import InprocWire, OurClientWire, OurServerWire, Wire, ZmqWire, ZmtpWire

TCP_WIRES: dict[str, type[ZmqWire]] = {
    "zmq": ZmqWire,
    "zmtp": ZmtpWire,
    "zmq client, our server": OurServerWire,
    "our client, zmq server": OurClientWire,
}
WIRES: dict[str, Callable[[], Wire]] = {"inproc": InprocWire, **TCP_WIRES}
WIRES |= {f"{name}, with keys": functools.partial(made, has_keys=True) for name, made in TCP_WIRES.items()}


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
