"""Export to InfluxDB: to Debian's, to VictoriaMetrics, and to servers that refuse or hang.

VictoriaMetrics accepts the output of InfluxDB's client.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "influxdb_client", reason="pip install 'ares-storage[results]' has what this needs"
)
from ares.model.errors import BadInput
from ares.results import influx
from ares.results.database import ResultsFailed, opened
from tests.consensus.pem import Authority
from tests.ports import free_addresses
from tests.results.operation_logs import imported, line, own, rows, write

VICTORIA = shutil.which("victoria-metrics")
INFLUXD = shutil.which("influxd")
INFLUXD_SETTINGS = """
reporting-disabled = true
bind-address = "{backup}"
[meta]
dir = "{directory}/meta"
[data]
dir = "{directory}/data"
wal-dir = "{directory}/wal"
[http]
bind-address = "{address}"
auth-enabled = true
"""
READY_S = 30


@pytest.mark.skipif(
    VICTORIA is None, reason="victoria-metrics is not installed: apt-get install victoria-metrics"
)
def test_what_was_measured_arrives(tmp_path: Path) -> None:
    into = _some_results(tmp_path, 30)
    with _victoria(tmp_path) as url:
        assert _send(into, url) == 31
        assert _send(into, url) == 0
        write(tmp_path / "run" / "w.log", own("read", 31), mode="a")
        imported(into, tmp_path)
        assert _send(into, url) == 1
        assert _asked(url, "count(count_over_time(operation_latency_s[10y])) by (op)") == {
            "read": 2,
            "write": 1,
        }
        assert _asked(url, "sum(sum_over_time(operation_latency_s[10y])) by (op)") == {
            "read": 15 * 0.25 + 0.25 + 7,
            "write": 15 * 0.25,
        }
        assert _asked(
            url, "sum(sum_over_time(operation_count{run=~'.*/a ,=\"b\"/logs_.*'}[10y])) by (op)"
        ) == {"read": 1}


@pytest.mark.skipif(INFLUXD is None, reason="influxd is not installed: apt-get install influxdb")
def test_debians_influxdb_is_written_by_its_older_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(influx, "INFLUX_BATCH_POINTS", 10)
    into = _some_results(tmp_path, 30)
    with _influxdb(tmp_path) as url:
        monkeypatch.setenv("INFLUXDB_V2_TOKEN", "ares:wrong")
        with pytest.raises(ResultsFailed, match=r"answered 401 .*INFLUXDB_V2_TOKEN"):
            _send(into, url)
        monkeypatch.setenv("INFLUXDB_V2_TOKEN", "ares:secret")
        with pytest.raises(ResultsFailed, match=r"answered 404 .*such a bucket or database"):
            _send(into, f"{url}?bucket=other")
        assert _send(into, f"{url}?bucket=ares/autogen") == 31
        assert _send(into, f"{url}?bucket=ares/autogen") == 0
        found = _queried(url, "SELECT sum(count) FROM operation GROUP BY op", db="ares")
        counts = {each["tags"]["op"]: each["values"][0][1] for each in found["series"]}
    assert counts == {"read": 16, "write": 15}


def test_a_refused_batch_is_sent_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points sent before are not sent again, and the token comes from the variable."""
    monkeypatch.setattr(influx, "INFLUX_BATCH_POINTS", 10)
    monkeypatch.setenv("INFLUXDB_V2_TOKEN", "secret")
    into = _some_results(tmp_path, 30)
    with _server(answers=[204, 204, 500]) as server:
        with pytest.raises(
            ResultsFailed,
            match=r"answered 500 .*\. 20 operations were sent to it now.* the same command sends "
            r"the rest",
        ):
            _send(into, server.url + "?org=o&bucket=b")
        server.answers[:] = [204] * 5
        assert _send(into, server.url + "?org=o&bucket=b") == 11
    assert {(path, query, token) for path, query, token, _ in server.seen} == {
        ("/api/v2/write", "bucket=b&org=o&precision=ns", "Token secret"),
    }
    sent = [one for _, _, _, body in server.seen for one in body.splitlines()]
    assert (len(sent), len(set(sent))) == (10 + 10 + 10 + 11, 31)
    assert (
        sum(
            one.startswith(
                "operation,algorithm=ABD,client=1,iteration=1,level=client,object_size=1048576,op=read,"
            )
            for one in sent
        )
        == 1
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "INFLUXDB_V2_TOKEN"),
        (404, "is there such a bucket"),
        (301, "answered 301"),
        (200, "another server"),
    ],
)
def test_unexpected_answers_of_influxdb_are_named(tmp_path: Path, status: int, said: str) -> None:
    with _server(answers=[status]) as server, pytest.raises(ResultsFailed, match=said):
        _send(_some_results(tmp_path, 3), server.url)


def test_an_absent_and_a_silent_influx_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(influx, "INFLUX_TIMEOUT_MS", 200)
    into = _some_results(tmp_path, 3)
    with pytest.raises(ResultsFailed, match=r"refused.* 0 operations were sent"):
        _send(into, f"http://{free_addresses(1)[0]}")
    with _server(answers=[]) as server, pytest.raises(ResultsFailed, match="timed out"):
        _send(into, server.url)
    assert rows(into, "SELECT count(*) FROM sent") == [(0,)]


def test_an_untrusted_certificate_is_named(tmp_path: Path) -> None:
    own = Authority(tmp_path / "authority").issue("influx")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    with (
        _server(answers=[], tls=context) as server,
        pytest.raises(ResultsFailed, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        _send(_some_results(tmp_path, 3), server.url.replace("http:", "https:"))


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, but never the whole answer."""
    monkeypatch.setattr(influx, "INFLUX_BATCH_S", 0.5)
    into = _some_results(tmp_path, 3)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 204 No Content\r\nX-Long: ")
                while not ended.wait(0.05):
                    connection.sendall(b"a")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            with pytest.raises(
                ResultsFailed, match=r"no complete answer within 0\.5 s.* 0 operations were sent"
            ):
                _send(into, f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            ended.set()
            dripping.join()
    assert rows(into, "SELECT count(*) FROM sent") == [(0,)]


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8086",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://u:p@a",
        "http://a?token=x",
        "http://a?bucket",
        "http://[a",
        "http://a/#x",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(BadInput, match="--influx: expected http"):
        influx.parse_target(url)


def _some_results(directory: Path, count: int) -> Path:
    """Import ``count`` operations of our own and an operation of a published run.

    The preparation of the published run must not be sent.
    """
    write(
        directory / "run" / "w.log",
        *(own(("read", "write")[number % 2], number) for number in range(count)),
    )
    published = directory / 'a ,="b"' / "logs_scalability_slow_ABD_3-1-0_1"
    write(published / "client-1-x.log", line("read", 5, 7.0))
    write(published / "client-1-x_phase1.log", line("write", 1, 9.0))
    imported(directory / "results.db", directory)
    return directory / "results.db"


def _send(into: Path, url: str) -> int:
    with opened(into, create=True) as database:
        return influx.send(database, influx.parse_target(url), lambda count: None)


class _Server(ThreadingHTTPServer):
    """A server with the given ``answers``, in order, and none afterwards."""

    daemon_threads = True

    def __init__(self, answers: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.seen: list[tuple[str, str, str, str]] = []
        self.ended = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.seen.append(
            (
                parts.path,
                "&".join(
                    sorted(f"{k}={v[0]}" for k, v in urllib.parse.parse_qs(parts.query).items())
                ),
                self.headers["Authorization"],
                body,
            )
        )
        if not self.server.answers:
            self.server.ended.wait(READY_S)
            return
        self.send_response(self.server.answers.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _server(answers: list[int], tls: ssl.SSLContext | None = None) -> Iterator[_Server]:
    with _Server(answers) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


@contextmanager
def _influxdb(directory: Path) -> Iterator[str]:
    """Run InfluxDB with the user ``ares`` and the database ``ares``; yield the address."""
    address, backup = free_addresses(2)
    settings = INFLUXD_SETTINGS.format(address=address, backup=backup, directory=directory)
    (directory / "influxdb.conf").write_text(settings)
    url = f"http://{address}"
    with (directory / "influxd.log").open("wb") as log:
        process = subprocess.Popen(
            [str(INFLUXD), "-config", str(directory / "influxdb.conf")],
            stdout=log,
            stderr=log,
            env=os.environ | {"GOMAXPROCS": "1"},
        )
    try:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                _queried(url, "CREATE USER ares WITH PASSWORD 'secret' WITH ALL PRIVILEGES")
                break
            except OSError:
                assert time.monotonic() < deadline, (directory / "influxd.log").read_text()
                time.sleep(0.1)
        _queried(url, "CREATE DATABASE ares")
        yield url
    finally:
        process.terminate()
        process.wait(READY_S)


def _queried(url: str, query: str, **about: str) -> dict[str, Any]:
    """Return the result of a query, or of a command, of the user ``ares``."""
    words = urllib.parse.urlencode({"q": query, **about}).encode()
    basic = "Basic " + base64.b64encode(b"ares:secret").decode()
    request = urllib.request.Request(f"{url}/query", words, {"Authorization": basic})
    with urllib.request.urlopen(request, timeout=READY_S) as answer:
        [result] = json.load(answer)["results"]
    return result


@contextmanager
def _victoria(directory: Path) -> Iterator[str]:
    [address] = free_addresses(1)
    command = [
        str(VICTORIA),
        f"-storageDataPath={directory}/victoria",
        f"-httpListenAddr={address}",
        "-retentionPeriod=100y",
        "-memory.allowedBytes=64MB",
    ]
    with (directory / "victoria.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"GOMAXPROCS": "1"}
        )
    try:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://{address}/health", timeout=1):
                    break
            except OSError:
                assert time.monotonic() < deadline, (directory / "victoria.log").read_text()
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(READY_S)


def _asked(url: str, query: str) -> dict[str, float]:
    """Return VictoriaMetrics' answer, by the label op."""
    with urllib.request.urlopen(f"{url}/internal/force_flush", timeout=READY_S):
        pass
    # a test may have a slow clock: the logged times are before it
    at_s = time.time() + 3600 if time.time() > 1795345200 else 1795345200 + 86400
    question = urllib.parse.urlencode({"query": query, "time": at_s})
    with urllib.request.urlopen(f"{url}/api/v1/query?{question}", timeout=READY_S) as answer:
        result = json.load(answer)["data"]["result"]
    return {one["metric"]["op"]: float(one["value"][1]) for one in result}
