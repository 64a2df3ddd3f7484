"""The wheel of README.md installs the whole package with all commands."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def run(directory: Path, *words: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        words,
        cwd=directory,
        env=environment | {"ARES_PURE": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=540,
    ).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the checkout's wheel and the wheel's requirements only."""
    pytest.importorskip("setuptools_rust")
    directory = tmp_path_factory.mktemp("wheel")
    source, wheels, environment = (directory / name for name in ("source", "wheels", "venv"))
    compiled = shutil.ignore_patterns("_core*.so", "__pycache__")
    shutil.copytree(CHECKOUT / "ares", source / "ares", ignore=compiled)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    wheels.mkdir()
    run(source, sys.executable, "-P", "-c", BUILD, wheels)
    venv.create(environment, symlinks=True)
    python = environment / "bin/python"
    [wheel] = wheels.glob("ares_storage-*.whl")
    words = ("--quiet", "--disable-pip-version-check", "--python", python, "install")
    run(directory, sys.executable, "-m", "pip", *words, "--no-index", "--no-deps", wheel)
    [site] = environment.glob("lib/*/site-packages")
    show_requirements(site)
    return environment


def show_requirements(site: Path) -> None:
    """Link the files of the wheel's requirements into ``site``, and no further files."""
    [metadata] = site.glob("ares_storage-*.dist-info")
    shown, pending = set[str](), [Distribution.at(metadata)]
    while pending:
        wanted = pending.pop()
        for requirement in map(Requirement, wanted.requires or ()):
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if needed and requirement.name not in shown:
                shown.add(requirement.name)
                pending.append(found := distribution(requirement.name))
                for file in found.files or ():
                    if file.suffix != ".pyc" and ".." not in file.parts:
                        (site / file).parent.mkdir(parents=True, exist_ok=True)
                        (site / file).symlink_to(found.locate_file(file))


def test_the_wheel_has_every_module_and_the_types(installed):
    here = {path.relative_to(CHECKOUT) for path in (CHECKOUT / "ares").rglob("*.py")}
    [package] = installed.glob("lib/*/site-packages/ares")
    assert {path.relative_to(package.parent) for path in package.rglob("*.py")} == here
    assert (package / "py.typed").exists()


def test_its_command_and_its_package_are_those_of_the_wheel(installed, tmp_path):
    assert "(python core)" in run(tmp_path, installed / "bin/ares-cli", "--version")
    where = run(tmp_path, installed / "bin/python", "-c", "import ares; print(ares.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    run(tmp_path, installed / "bin/ares-cli", "init", tmp_path / "c", "--base-port", "0")
    assert (tmp_path / "c/cluster.toml").exists()


def test_its_requirements_are_enough_for_every_module_without_an_extra(installed, tmp_path):
    program = """
import importlib, pkgutil, ares
for module in pkgutil.walk_packages(ares.__path__, "ares."):
    try:
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(error.name)
"""
    missing = run(tmp_path, installed / "bin/python", "-c", program)
    assert set(missing.split()) == {
        *("awscrt", "fsspec", "grpc", "httptools", "influxdb_client", "opentelemetry.sdk"),
        "requests",
    }
