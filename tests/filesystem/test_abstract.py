"""The suites of fsspec for every file system: copy, get, put, open, pipe."""

from collections.abc import Callable
from typing import Any

import fsspec.tests.abstract as abstract
import pytest


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs_path(self, here: str) -> str:
        return here

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *segments: "/".join(segments)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class InOneDomain(Fixtures):
    @pytest.fixture
    def fs(self, make: Callable[..., Any]) -> Any:
        return make()


@pytest.mark.slow
class TestCopy(abstract.AbstractCopyTests, InOneDomain):
    pass


@pytest.mark.slow
class TestGet(abstract.AbstractGetTests, InOneDomain):
    pass


@pytest.mark.slow
class TestPut(abstract.AbstractPutTests, InOneDomain):
    pass


class TestOpen(abstract.AbstractOpenTests, InOneDomain):
    pass


class TestPipe(abstract.AbstractPipeTests, InOneDomain):
    pass


class InDomainsOfTheirOwn(Fixtures):
    """Fixtures in separate domains; only the small suites, because making each takes consensus."""

    @pytest.fixture
    def fs(self, make: Callable[..., Any]) -> Any:
        return make(domain=None)


class TestOpenOwnDomain(abstract.AbstractOpenTests, InDomainsOfTheirOwn):
    pass


class TestPipeOwnDomain(abstract.AbstractPipeTests, InDomainsOfTheirOwn):
    pass
