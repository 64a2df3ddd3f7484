"""Stores of S3 on this machine: ares with gateways, and an installed peer."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ares.platform.interpreter import python
from experiments.bench.store_processes import await_that, free_ports
from experiments.gateway.signed_connection import S3Endpoint
from experiments.local_cluster import local_cluster

GATEWAY_SERVERS = 5
S3_START_S = 60.0

S3Stores = dict[str, Callable[[int], AbstractContextManager[Sequence[S3Endpoint]]]]


@contextmanager
def ares_gateways(count: int) -> Iterator[Sequence[S3Endpoint]]:
    """Run five servers with each change on disk, and ``count`` gateways."""
    with local_cluster(GATEWAY_SERVERS, "--durability fsync") as file, ExitStack() as running:
        _ares(file, "bucket", "init", "--dap", "ec", "--k", "3")
        key = json.loads(_ares(file, "bucket", "key", "new", "root", "--role", "admin", "--json"))
        endpoints = []
        for port in free_ports(count):
            command = python(
                "-m", "ares", "-c", str(file), "gateway", "--listen", f"127.0.0.1:{port}"
            )
            running.enter_context(_program(command, port, {}))
            endpoints.append(S3Endpoint("127.0.0.1", port, key["access_key"], key["secret_key"]))
        yield endpoints


@contextmanager
def versitygw(count: int) -> Iterator[Sequence[S3Endpoint]]:
    """Run ``count`` gateways of Versity on a directory, which they share."""
    secret = {"ROOT_ACCESS_KEY": "bench", "ROOT_SECRET_KEY": "bench-secret"}
    with TemporaryDirectory(prefix="versitygw-") as directory, ExitStack() as running:
        endpoints = []
        for port in free_ports(count):
            command = ["versitygw", "--port", f"127.0.0.1:{port}", "posix", directory]
            running.enter_context(_program(command, port, secret))
            endpoints.append(S3Endpoint("127.0.0.1", port, *secret.values()))
        yield endpoints


def s3_stores() -> S3Stores:
    """Return ares, and each installed peer."""
    found: S3Stores = {"ares": ares_gateways}
    if shutil.which("versitygw"):
        found["versitygw"] = versitygw
    return found


def _ares(file: Path, *words: str) -> bytes:
    command = python("-m", "ares", "-c", str(file), *words)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


@contextmanager
def _program(
    command: Sequence[str | Path], port: int, more: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, which listens at ``port``, until the end of the context."""
    with TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | more)
        try:
            await_that(lambda: _listens(port), f"{command[0]} listens", S3_START_S, log)
            yield process
        finally:
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
