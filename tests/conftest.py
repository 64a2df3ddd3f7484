"""Settings of the whole suite: no result depends on the machine's speed or the suite's start."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ares import compiled

from . import lanes, ports

# Time is no property, and examples are the same every time, as in the simulated runs of CI.
# `--hypothesis-profile=hunt` looks for new examples.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("hunt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

ports.stay_in_lane()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--twice",
        action="store_true",
        help="leave out the files that run once, with the compiled core (tests/lanes.py)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--twice") and lanes.runs_once(collection_path) else None


@pytest.fixture(autouse=True, scope="module")
def _trap_for_the_core(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set a trap in place of the core for the tests that meet no core.

    `make test-pure` relies on the absence of the core from these tests, and skips them. The scope
    equals the scope of the widest fixtures of these files. A function taken from the core by a
    module's import is out of the trap's reach (ares/client/chunking.py takes such a function).
    """
    with pytest.MonkeyPatch.context() as patch:
        if compiled.CORE is not None and lanes.meets_no_core(request.path):
            patch.setattr(compiled, "CORE", lanes.CoreTrap())
        yield


def pytest_configure() -> None:
    """Restore SIGINT, which tests send.

    A suite started in the background by a shell script ignores SIGINT, and all children of the
    suite do as well.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
