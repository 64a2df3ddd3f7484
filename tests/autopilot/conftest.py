"""Servers in this process, as in the tests of managers, with shorter patience."""

import pytest

from tests.inproc.conftest import cluster as cluster


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ares.client.domain_directory.DESCRIBE_S", 0.3)
    monkeypatch.setattr("ares.autopilot.pilot.LOOK_UP_S", 1.5)
