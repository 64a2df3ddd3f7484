"""The working directory, from which no command and no started process imports.

Any user may be able to write to this directory.
"""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from ares.platform.interpreter import python

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONSOLE_SCRIPT = [str(Path(sysconfig.get_path("scripts")) / "ares-cli")]
OURS = ("ares", "tests", "experiments")
INSTALLED = (
    "_pytest", "aetcd", "blake3", "click", "cryptography", "fastcdc", "grpc", "msgspec", "nacl",
    "prometheus_client", "pyeclib", "pysyncobj",
    "pythonjsonlogger", "rapidfuzz", "rich", "sitecustomize", "sortedcontainers", "typer",
    "usercustomize", "uvloop", "xxhash", "zmq",
)  # fmt: skip
LIBRARY = (
    "asyncio", "base64", "codecs", "concurrent", "ctypes", "encodings", "errno", "json", "logging",
    "multiprocessing", "pathlib", "pickle", "pkgutil",
    "random", "re", "runpy", "select", "selectors", "shutil", "signal", "site", "socket", "ssl",
    "struct", "subprocess", "tempfile", "threading",
    "tomllib", "traceback", "typing",
)  # fmt: skip


class Trap:
    """A directory with modules of well-known names, which leave a mark at import or compilation."""

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        self.directory = directory / "trap"
        self.directory.mkdir()
        self._mark = directory / "mark"
        for name in names:
            text = (
                f"open({str(self._mark)!r}, 'a').write(__name__ + ' ')\n"
                "raise ImportError('from the working directory')\n"
            )
            (self.directory / f"{name}.py").write_text(text)

    def run(self, *command: str | Path, status: int = 0) -> str:
        """Run a command and return the output; the command must end with ``status``."""
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=240, cwd=self.directory
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    def imported(self) -> list[str]:
        return self._mark.read_text().split() if self._mark.exists() else []


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path, (*OURS, *INSTALLED, *LIBRARY))


def live(trap: Trap, ares: list[str], cluster: Path) -> None:
    """Run a cluster from ``init`` to ``down``."""
    file = cluster / "cluster.toml"
    trap.run(
        *ares,
        "init",
        cluster,
        "--servers",
        "3",
        "--consensus",
        "1",
        "--base-port",
        "0",
        "--security",
        "curve",
    )
    try:
        trap.run(*ares, "up", cluster, "--detach")
        trap.run(*ares, "-c", file, "write", "key", file)
        trap.run(*ares, "-c", file, "put", file, "name")
        trap.run(*ares, "-c", file, "reconfig", "--dap", "ec", "--k", "1", "--servers", "s0,s1,s2")
        trap.run(*ares, "-c", file, "status")
        assert trap.run(*ares, "-c", file, "read", "key") == file.read_text()
    finally:
        trap.run(*ares, "down", cluster)


@pytest.mark.parametrize("ares", [CONSOLE_SCRIPT, python("-m", "ares")], ids=["script", "module"])
def test_a_cluster_lives_there(trap: Trap, tmp_path: Path, ares: list[str]) -> None:
    live(trap, ares, tmp_path / "cluster")
    assert trap.imported() == []


def test_without_its_flag_python_finds_no_installed_package_there(tmp_path: Path) -> None:
    """Python alone would look for `ares` and the first imports of `ares` in the working directory.

    No other module comes from the working directory.
    """
    trap = Trap(tmp_path, INSTALLED)
    live(trap, [word for word in python("-m", "ares") if word != "-P"], tmp_path / "cluster")
    assert trap.imported() == []


@pytest.mark.parametrize(
    "command",
    [
        [*CONSOLE_SCRIPT, "demo", "--mib", "1"],
        [
            *CONSOLE_SCRIPT,
            "torture",
            "--minutes",
            "0.1",
            "--servers",
            "3",
            "--consensus",
            "1",
            "--no-partitions",
        ],
        python("-m", "ares.testing.sim", "--runs", "4", "--jobs", "2", "--scenario", "calm"),
        python("-m", "ares.testing.kills", "--kills", "8"),
    ],
    ids=["demo", "torture", "sim", "kills"],
)
def test_what_starts_many_processes_runs_there(trap: Trap, command: list[str]) -> None:
    trap.run(*command)
    assert trap.imported() == []


def test_the_trap_catches_python_without_the_flag(trap: Trap) -> None:
    """The control: Python without the flag."""
    trap.run(*(word for word in python("-c", "import msgspec") if word != "-P"), status=1)
    assert trap.imported() == ["msgspec"]


def test_an_installation_named_by_pythonpath_is_found(trap: Trap, tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/extra.py").write_text("print('found')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        python("-m", "extra"),
        capture_output=True,
        text=True,
        check=False,
        cwd=trap.directory,
        env=environment,
        timeout=240,
    )
    assert done.stdout == "found\n"
