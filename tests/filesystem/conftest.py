"""A small cluster of real processes for all tests of the package.

Each test has a file system, and a separate directory in it.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares.cli.local.supervisor import Supervisor, members_of
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'ares-storage[fsspec]'")

import fsspec  # after the line above; otherwise collection fails without fsspec

from ares.filesystem import AresFileSystem

DOMAIN = "files"

_count = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "settings" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = create(
        tmp_path_factory.mktemp("files") / "cluster", InitPlan(servers=3, consensus=1, base_port=0)
    )
    supervisor = Supervisor(settings.path)
    with supervisor.alone():
        supervisor.start(members_of(settings), 30.0, lambda: False)
    yield settings
    supervisor.stop()


@pytest.fixture
def make(settings: Settings) -> Iterator[Callable[..., AresFileSystem]]:
    """Make file systems, and close them at the end.

    ``shared`` uses the file system that fsspec keeps for these options.
    """
    made: list[AresFileSystem] = []

    def make(shared: bool = False, **options: Any) -> AresFileSystem:
        defaults: dict[str, Any] = {"cluster": str(settings.path), "domain": DOMAIN, "create": True}
        if not shared:
            defaults["skip_instance_cache"] = True
        made.append(fsspec.filesystem("ares", **defaults | options))
        return made[-1]

    yield make
    for fs in made:
        if not fs.asynchronous:
            fsspec.asyn.sync(fs.loop, fs.aclose)


@pytest.fixture
def fs(make: Callable[..., AresFileSystem]) -> AresFileSystem:
    return make()


@pytest.fixture
def here() -> str:
    """Return an empty directory."""
    return f"tests/{next(_count)}"
