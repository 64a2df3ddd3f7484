"""The processes of a gateway: start, several workers, death of a worker, end; and beside `up`."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from ares.cluster.addresses import split_address
from ares.gateway.access.sealed_keys import AccessKey, KeyRole
from ares.platform.interpreter import python
from tests.gateway.raw_requests import signed
from tests.gateway.test_tls_files import write_certificate
from tests.ports import free_addresses
from tests.process.command_line import Cli, running_cluster
from tests.process.warm_start import ares_cli

pytestmark = pytest.mark.process


def ask(address: str, request: bytes) -> http.client.HTTPResponse:
    """Return the answer to a whole request, and read it."""
    with socket.create_connection(split_address(address), timeout=60) as connection:
        return answer_to(connection, request)


def answer_to(connection: socket.socket, request: bytes) -> http.client.HTTPResponse:
    connection.sendall(request)
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.body = answer.read()  # type: ignore[attr-defined]
    return answer


def ask_over_tls(address: str, request: bytes) -> tuple[str, http.client.HTTPResponse]:
    """Return the name in the certificate, and the answer."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(split_address(address), timeout=60) as plain,
        trusting.wrap_socket(plain) as connection,
    ):
        presented = connection.getpeercert(binary_form=True)
        assert presented is not None
        name = x509.load_der_x509_certificate(presented).subject.rfc4514_string()
        return name, answer_to(connection, request)


def health(address: str) -> dict[str, Any]:
    return json.loads(ask(address, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").body)


def key_of(facts: dict[str, Any]) -> AccessKey:
    return AccessKey(facts["access_key"], facts["secret_key"], "root", KeyRole.ADMIN)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    for cluster in running_cluster(tmp_path_factory.mktemp("gateway") / "cluster"):
        address = free_addresses(1)[0]
        assert "bucket init" in cluster.fails(1, "gateway", "--listen", address)
        cluster.ok("bucket", "init")
        assert "bucket key new" in cluster.fails(2, "gateway", "--listen", address)
        yield cluster


def started(cli: Cli, listen: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start a gateway, and wait until it says READY."""
    command = python("-m", "ares", "-c", cli.settings.path, "gateway", "--listen", listen, *words)
    gateway = subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | cli.environment, bufsize=0
    )
    assert gateway.stdout is not None
    assert gateway.stdout.readline().startswith(b"READY gateway")
    return gateway


def test_workers_share_a_port_and_a_dead_one_is_started_again(cli: Cli, tmp_path: Path) -> None:
    key = key_of(cli.json("bucket", "key", "new", "root", "--role", "admin"))
    listen, pages = free_addresses(2)
    host, port = split_address(pages)
    log = tmp_path / "access.log"
    gateway = started(cli, listen, "--processes", "2", "--http", pages, "--access-log", str(log))
    try:
        taken = cli.fails(2, "gateway", "--listen", listen)
        assert f"cannot listen on {listen}: Address already in use" in taken
        assert ask(listen, signed(key, "PUT", "/photos")).status == 200
        assert ask(listen, signed(key, "PUT", "/photos/cat", b"cat")).status == 200
        assert gateway.stdout is not None
        assert gateway.stdout.readline().startswith(b"READY gateway-1")
        assert health(f"{host}:{port + 1}")["serving"] is True
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
        worker = int(children.read_text().split()[0])
        os.kill(worker, signal.SIGKILL)
        assert ask(listen, signed(key, "GET", "/photos/cat")).body == b"cat"
        assert gateway.stdout.readline().startswith(b"READY gateway-0")
        assert worker not in map(int, children.read_text().split())
        log.rename(tmp_path / "access.log.1")
        gateway.send_signal(signal.SIGHUP)
        while not log.exists():
            time.sleep(0.05)
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(timeout=120) == 0
    finally:
        gateway.kill()
    with pytest.raises(OSError):  # noqa: PT011
        ask(listen, b"")
    lines = list(map(json.loads, (tmp_path / "access.log.1").read_bytes().splitlines()))
    operations = [line["operation"] for line in lines]
    assert operations == ["CreateBucket", "PutObject", "GetObject"]
    assert {line["access_key"] for line in lines} == {key.id}


def test_workers_have_one_certificate_and_several_domains(cli: Cli, tmp_path: Path) -> None:
    """Each worker serves alone while the other is stopped, also after a change of the files."""
    key = key_of(cli.json("bucket", "key", "new", "third", "--role", "admin"))
    listen = free_addresses(1)[0]
    write_certificate(tmp_path, "first")
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    domains = ("--domain", "s3.test", "--domain", "other.test")
    gateway = started(cli, listen, "--processes", "2", *files, *domains)
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline().startswith(b"READY gateway-1")
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
        workers = list(map(int, children.read_text().split()))

        def asked(method: str, target: str, host: str) -> set[tuple[str, int]]:
            """Return the name in the certificate and the status of each worker."""
            found = set()
            for stopped in workers:
                os.kill(stopped, signal.SIGSTOP)
                try:
                    request = signed(key, method, target, host=host)
                    name, answer = ask_over_tls(listen, request)
                finally:
                    os.kill(stopped, signal.SIGCONT)
                found.add((name, answer.status))
            return found

        assert ask_over_tls(listen, signed(key, "PUT", "/films"))[1].status == 200
        for host in ("films.s3.test", "films.other.test"):
            assert asked("PUT", "/cat", host) == {("CN=first", 200)}
        assert asked("GET", "/films/cat", "s3.test") == {("CN=first", 200)}
        assert asked("GET", "/films/cat", "films.other.test") == {("CN=first", 404)}
        write_certificate(tmp_path, "second")
        gateway.send_signal(signal.SIGHUP)
        while asked("GET", "/cat", "films.s3.test") != {("CN=second", 200)}:
            time.sleep(0.05)
    finally:
        gateway.kill()


def test_workers_end_when_their_parent_is_gone(cli: Cli) -> None:
    cli.ok("bucket", "key", "new", "other", "--role", "read")
    listen = free_addresses(1)[0]
    gateway = started(cli, listen, "--processes", "2")
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    gateway.kill()
    while any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.05)


def run(*words: str | Path) -> tuple[Any, str]:
    """Run a command with success; return its result and its notes."""
    done = subprocess.run(ares_cli(*words, "--json"), capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout), done.stderr.decode()


def test_up_starts_a_gateway_and_down_stops_it(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    [listen] = free_addresses(1)
    _, port = split_address(listen)
    run("init", directory, "--servers", "3", "--consensus", "1", "--base-port", "0")
    up = ("up", directory, "--detach", "--gateway", "--gateway-port", str(port))
    told = run(*up)[0]["gateway"]
    try:
        assert told["endpoint"] == f"http://127.0.0.1:{port}"
        key = key_of(told)
        assert ask(listen, signed(key, "PUT", "/photos")).status == 200
        # s2 is in the chain of the log: the autopilot leaves it out while the client waits
        os.kill(int((directory / "run/s2.pid").read_text()), signal.SIGKILL)
        assert ask(listen, signed(key, "PUT", "/photos/cat", b"cat")).status == 200
        assert run("down", directory)[0]["stopped"][0] == "gateway"
        again = run(*up)[0]["gateway"]
        assert "secret_key" not in again
        assert ask(listen, signed(key, "HEAD", "/photos")).status == 200
    finally:
        run("down", directory)
    assert not Path(f"/proc/{told['pid']}").exists()


def test_up_says_that_a_cluster_that_runs_in_part_gets_no_autopilot(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    [listen] = free_addresses(1)
    run("init", directory, "--servers", "3", "--consensus", "1", "--base-port", "0")
    try:
        run("up", directory, "--detach")
        os.kill(int((directory / "run/s2.pid").read_text()), signal.SIGKILL)
        port = str(split_address(listen)[1])
        told, notes = run("up", directory, "--detach", "--gateway", "--gateway-port", port)
        assert told["gateway"]["endpoint"] == f"http://{listen}"
        assert "the autopilot is not added" in notes
    finally:
        run("down", directory)
