"""The packages that an installation brings, and the packages of extras."""

import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())[
    "project"
]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"ansible-dev", "dev", "docs"}


def brought_by(extra: str) -> set[str]:
    """Return the names of the packages of an extra and of the extras that it names."""
    found = set()
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == PROJECT["name"]:
            found |= {name for inner in requirement.extras for name in brought_by(inner)}
        else:
            found.add(requirement.name)
    return found


def test_a_plain_installation_brings_the_packages_of_a_program() -> None:
    required = {Requirement(line).name for line in PROJECT["dependencies"]}
    own = {"pyzmq", "pysyncobj", "pyeclib", "python-json-logger", "opentelemetry-api"}
    assert own <= required
    large = {"opentelemetry-sdk", "influxdb-client", "ansible-core"}
    assert large <= brought_by("all")
    assert not large & required


def test_all_brings_every_extra_except_the_tools_of_developers() -> None:
    of_users = EXTRAS.keys() - FOR_DEVELOPERS - {"all"}
    assert brought_by("all") == {name for extra in of_users for name in brought_by(extra)}
