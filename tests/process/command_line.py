"""`ares-cli` as a user types it, against real processes: set-up for tests."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ares.cluster.settings import Settings

from .warm_start import ares_cli


class Cli:
    """`ares-cli` for a cluster.

    ``ok`` and ``fails`` check the exit status. ``environment`` has further variables.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"ARES_CACHE": "off"}
        self.settings = Settings.load(directory / "cluster.toml")

    def run(self, *words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ares_cli(*words)
        environment = os.environ | {"ARES_CLUSTER": str(self.settings.path)} | self.environment
        return subprocess.run(
            command, input=stdin, capture_output=True, check=False, timeout=240, env=environment
        )

    def ok(self, *words: str | Path, stdin: bytes = b"") -> bytes:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def json(self, *words: str | Path, status: int = 0) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == status, done.stderr.decode()
        assert done.stdout.count(b"\n") == 1
        return json.loads(done.stdout)

    def fails(self, status: int, *words: str | Path, stdin: bytes = b"") -> str:
        done = self.run(*words, stdin=stdin)
        assert (done.returncode, done.stdout) == (status, b""), done.stderr.decode()
        message = done.stderr.decode()
        assert message.startswith("error: ")
        assert "Traceback" not in message
        return message

    def kill(self, id: str) -> None:
        os.kill(int((self.directory / f"run/{id}.pid").read_text()), signal.SIGKILL)


def running_cluster(directory: Path, *more: str, setting: str = "") -> Iterator[Cli]:
    """Run a cluster in ``directory``, stopped at the end.

    The cluster has three consensus members and four servers, unless the words ``more`` for `init`
    name sites. ``setting``: a first line for the cluster file.
    """
    servers = () if "--sites" in more else ("--servers", "4")
    _run("init", directory, *servers, "--consensus", "3", "--base-port", "0", *more)
    file = directory / "cluster.toml"
    file.write_text(setting + file.read_text())
    _run("up", directory, "--detach")
    try:
        yield Cli(directory)
    finally:
        subprocess.run(ares_cli("down", directory), capture_output=True, check=True, timeout=240)


def _run(*words: str | Path) -> None:
    done = subprocess.run(
        ares_cli(*words), capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
