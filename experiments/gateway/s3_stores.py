"""Stores of S3 on this machine: ares with gateways, and an installed peer."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ares.platform.interpreter import python
from experiments.bench.store_processes import await_that, free_ports, programs
from experiments.gateway.signed_connection import S3Endpoint
from experiments.local_cluster import local_cluster

GATEWAY_SERVERS = 5
S3_START_S = 60.0

S3Stores = dict[str, Callable[[int], AbstractContextManager[Sequence[S3Endpoint]]]]


@contextmanager
def ares_gateways(count: int) -> Iterator[Sequence[S3Endpoint]]:
    """Run five servers with each change on disk, and ``count`` gateways."""
    with local_cluster(GATEWAY_SERVERS, "--durability fsync") as file:
        _ares(file, "bucket", "init", "--dap", "ec", "--k", "3")
        key = json.loads(_ares(file, "bucket", "key", "new", "root", "--role", "admin", "--json"))
        command = ("-m", "ares", "-c", str(file), "gateway", "--listen")
        keys = [key["access_key"], key["secret_key"]]
        commands = {port: python(*command, f"127.0.0.1:{port}") for port in free_ports(count)}
        with _listening(commands, {}):
            yield [S3Endpoint("127.0.0.1", port, *keys) for port in commands]


@contextmanager
def versitygw(count: int) -> Iterator[Sequence[S3Endpoint]]:
    """Run ``count`` gateways of Versity on a directory, which they share."""
    secret = {"ROOT_ACCESS_KEY": "bench", "ROOT_SECRET_KEY": "bench-secret"}
    with TemporaryDirectory(prefix="versitygw-") as directory:
        command, ports = ("versitygw", "--port"), free_ports(count)
        commands = {port: [*command, f"127.0.0.1:{port}", "posix", directory] for port in ports}
        with _listening(commands, secret):
            yield [S3Endpoint("127.0.0.1", port, *secret.values()) for port in ports]


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
def _listening(commands: Mapping[int, Sequence[str]], more: dict[str, str]) -> Iterator[None]:
    """Run programs, which listen at their ports, until the end of the context."""
    named = {str(port): words for port, words in commands.items()}
    with (
        TemporaryDirectory() as directory,
        programs(Path(directory), named, os.environ | more),
    ):
        for port in commands:
            log = Path(directory) / f"{port}.log"
            await_that(partial(_listens, port), f"port {port} is open", S3_START_S, log)
        yield


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
