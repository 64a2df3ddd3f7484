"""The choice of tests for the lane without the compiled core (tests/lanes.py)."""

from pathlib import Path

import pytest

from ares import compiled
from tests import lanes

TESTS = Path(lanes.__file__).parent


def test_every_place_named_exists() -> None:
    named = [TESTS / place for place in lanes.SURROUNDINGS]
    for folder, exceptions in lanes.WITHOUT_CORE.items():
        named += [TESTS / folder, *(TESTS / folder / name for name in exceptions)]
    assert [place for place in named if not place.exists()] == []


@pytest.mark.skipif(compiled.CORE_NAME == compiled.PYTHON_CORE, reason="no compiled core here")
def test_a_test_that_runs_once_and_meets_the_core_fails() -> None:
    assert lanes.runs_once(Path(__file__))
    with pytest.raises(AssertionError, match=r"asks for its ClientCore: name .* tests/lanes.py"):
        compiled.fast_path()


@pytest.mark.parametrize(
    ("place", "once"),
    [
        ("unit/test_tag.py", True),
        ("unit/test_blocking.py", False),
        ("unit/conftest.py", False),
        ("unit", False),
        ("autopilot", True),
        ("autopilot/test_pilot.py", True),
        ("process/test_demo.py", True),
        ("process/test_durable_cluster.py", False),
        ("compiled/test_door.py", False),
        ("../ares", False),
    ],
)
def test_a_place_runs_once_or_in_both_lanes(place: str, once: bool) -> None:
    assert lanes.runs_once((TESTS / place).resolve()) is once
