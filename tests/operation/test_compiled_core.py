"""The core in use: its reports, and an installation without a compiler.

See setup.py, ares/compiled.py.
"""

import os
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer

from ares import compiled
from ares.cli.main import _print_version
from ares.cli.status_command import _cores, _server_data
from ares.compiled import PYTHON_CORE, RUST_CORE
from ares.metrics import REPLY_S_BUCKETS, Histogram
from ares.model.messages import Description
from ares.platform.interpreter import python
from ares.server.prometheus import of_process, render
from ares.server.storage_server import StorageServer
from tests.journal.journal_node import plain, requests

CHECKOUT = Path(__file__).parents[2]
INSTALLED = """
import sys
# Editable finders would find the checkout's core.
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in repr(finder)]
sys.path.insert(0, sys.argv[1])
import ares.cli.entry, ares.compiled as found
print(found.__file__, found.CORE_NAME)
"""
CORE_LINES_MAX = 4_500
BUILT_OF = (
    "ares",
    "core/src",
    "core/Cargo.toml",
    "core/Cargo.lock",
    "setup.py",
    "MANIFEST.in",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)


def run(*words: str | Path, **environment: str) -> str:
    return subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=240, env=os.environ | environment
    ).stdout


def test_the_version_names_the_core():
    pure = run(*python("-m", "ares", "--version"), ARES_PURE="1")
    assert pure.endswith(" (python core)\n")
    assert run(*python("-m", "ares", "--version")) == pure.replace(PYTHON_CORE, compiled.CORE_NAME)


def test_the_slower_core_is_said_with_what_to_do(monkeypatch, capsys):
    def version() -> tuple[str, str]:
        with pytest.raises(typer.Exit):
            _print_version(True)
        return tuple(capsys.readouterr())

    monkeypatch.delenv(compiled.PURE_VARIABLE, raising=False)
    monkeypatch.setattr(compiled, "CORE", object())
    assert version()[1] == ""
    monkeypatch.setattr(compiled, "CORE", None)
    out, err = version()
    assert (len(out.splitlines()), len(err.splitlines())) == (1, 1)
    assert err.startswith("the slower core runs here")
    assert f"`make core` in {CHECKOUT}" in err
    monkeypatch.setattr(compiled, "_MANIFEST", Path("/nonexistent/core/Cargo.toml"))
    assert "install ares again where Rust 1.85 or newer is" in version()[1]
    monkeypatch.setenv(compiled.PURE_VARIABLE, "1")
    assert version()[1] == ""


async def test_a_server_tells_its_core_to_clients_and_to_prometheus():
    described = StorageServer(plain(requests(5))).vitals().description
    assert (described.core, _server_data(described)["core"]) == (
        compiled.CORE_NAME,
        compiled.CORE_NAME,
    )
    assert (
        f'core="{compiled.CORE_NAME}"'
        in render(of_process("s1", "server", True, Histogram(REPLY_S_BUCKETS))).decode()
    )


def test_status_says_which_servers_have_which_core():
    def description_of(core: str) -> Description:
        return Description(1, "s0", "", b"c", "1", 0.0, 0, (), core=core)

    assert (
        _cores(
            {
                "s0": description_of(RUST_CORE),
                "s1": description_of(PYTHON_CORE),
                "s2": None,
                "s3": description_of(RUST_CORE),
                "s4": description_of(""),
            }
        )
        == "core: python (s1), rust (s0, s3)"
    )
    assert _cores({"s0": None, "s1": description_of("")}) == ""


def test_the_crate_is_of_the_same_release():
    assert (
        tomllib.loads((CHECKOUT / "core/Cargo.toml").read_text(encoding="utf-8"))["package"][
            "version"
        ]
        == compiled.CRATE
    )


def test_the_crate_stays_small():
    assert (
        sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for path in CHECKOUT.glob("core/src/**/*.rs")
        )
        <= CORE_LINES_MAX
    )


def wheel(directory: Path, path: str) -> tuple[Path, list[str]]:
    """Build a wheel from a copy of the checkout with the programs on ``path``.

    Return the wheel and its files of the core.
    """
    source = directory / "source"
    for name in BUILT_OF:
        place = source / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (CHECKOUT / name).is_dir():
            shutil.copytree(
                CHECKOUT / name, place, ignore=shutil.ignore_patterns("__pycache__", "_core*.so")
            )
        else:
            shutil.copy(CHECKOUT / name, place)
    run(
        *python(
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            directory,
            source,
        ),
        PATH=path,
    )
    [built] = directory.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(directory / "installed")
        return built, [name for name in archive.namelist() if name.endswith(".so")]


@pytest.mark.slow
def test_where_nothing_compiles_the_package_is_pure_and_complete(tmp_path):
    pytest.importorskip("setuptools_rust")
    built, compiled_files = wheel(tmp_path, str(tmp_path))
    assert (built.name.endswith("-py3-none-any.whl"), compiled_files) == (True, [])
    assert run(*python("-c", INSTALLED, tmp_path / "installed")).split() == [
        str(tmp_path / "installed/ares/compiled.py"),
        PYTHON_CORE,
    ]


@pytest.mark.slow
def test_a_compiler_that_is_too_old_is_not_tried(tmp_path):
    pytest.importorskip("setuptools_rust")
    cargo = tmp_path / "bin/cargo"
    cargo.parent.mkdir()
    cargo.write_text("#!/bin/sh\necho cargo 1.66.1\n")
    cargo.chmod(0o755)
    built, compiled_files = wheel(tmp_path, str(cargo.parent))
    assert (built.name.endswith("-py3-none-any.whl"), compiled_files) == (True, [])
