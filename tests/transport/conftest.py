"""Fixtures: the transport under test."""

from collections.abc import AsyncIterator

import pytest

from .wires import InprocWire, Wire, ZmqWire

WIRES: dict[str, type[Wire]] = {"inproc": InprocWire, "zmq": ZmqWire}


@pytest.fixture(params=sorted(WIRES))
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    made = WIRES[request.param]()
    yield made
    await made.close()


@pytest.fixture
async def zmq_wire() -> AsyncIterator[ZmqWire]:
    made = ZmqWire()
    yield made
    await made.close()
