"""Servers in this process, as in the tests of managers, with shorter patience."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.inproc.conftest import cluster as cluster

from .virtual_time import VirtualLoop, monotonic, since_1970


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop of a test: with a virtual clock for tests marked `virtual_time`."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ares.client.domain_directory.DESCRIBE_S", 0.3)
    monkeypatch.setattr("ares.autopilot.pilot.LOOK_UP_S", 1.5)


@pytest.fixture(autouse=True)
def _time_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each clock in this process be the loop's, which may be virtual."""
    for module in ("runner", "store"):
        monkeypatch.setattr(f"ares.client.{module}.monotonic", monotonic)
    for module in ("client.mirrors", "autopilot.mirror_patrol"):
        monkeypatch.setattr(f"ares.{module}.time", SimpleNamespace(time=since_1970))
