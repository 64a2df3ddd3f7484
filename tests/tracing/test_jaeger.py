"""A real Jaeger v2 beside a cluster, asked for a trace by the query API.

The trace has the spans of a client and of servers. `experiments/build_jaeger.sh` builds Jaeger;
without Jaeger these tests skip.
"""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..ports import free_addresses
from ..process.command_line import running_cluster

JAEGER = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ares" / "jaeger-v1.76.0"
)

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not JAEGER.exists(),
        reason=f"there is no {JAEGER}: experiments/build_jaeger.sh builds it (with Go, a quarter "
        "of an hour)",
    ),
]

CONFIGURATION = """
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], processors: [batch], exporters: [jaeger_storage_exporter]}}
  telemetry: {{metrics: {{level: none}}}}
extensions:
  jaeger_query:
    storage: {{traces: here}}
    http: {{endpoint: "{query}"}}
    grpc: {{endpoint: "{unused}"}}
  jaeger_storage: {{backends: {{here: {{memory: {{max_traces: 1000}}}}}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: "{http}"}}, grpc: {{endpoint: "{grpc}"}}}}}}}}
processors: {{batch: {{timeout: 100ms}}}}
exporters: {{jaeger_storage_exporter: {{trace_storage: here}}}}
"""


@pytest.fixture
def jaeger(tmp_path) -> Iterator[dict[str, str]]:
    """Run Jaeger, and yield the addresses: ``query``, ``http`` and ``grpc`` (OTLP)."""
    addresses = dict(zip(("query", "http", "grpc", "unused"), free_addresses(4), strict=True))
    file = tmp_path / "jaeger.yaml"
    file.write_text(CONFIGURATION.format(**addresses))
    with (
        open(tmp_path / "jaeger.log", "wb") as log,
        subprocess.Popen([JAEGER, "--config", file], stdout=log, stderr=log) as process,
    ):
        try:
            asked(addresses, "/api/v3/services", lambda answer: True)
            yield addresses
        finally:
            process.kill()


def asked(jaeger, path, enough):
    """Return the first answer of the query API that is ``enough``."""
    deadline, answer = time.monotonic() + 60, None
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{jaeger['query']}{path}", timeout=10) as response:
                answer = json.load(response)
        except OSError:
            answer = None
        if answer is not None and enough(answer):
            return answer
        time.sleep(0.2)
    raise AssertionError(f"Jaeger says of {path}: {answer}")


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_trace_has_spans_of_the_client_and_of_servers(jaeger, protocol, tmp_path, monkeypatch):
    pytest.importorskip("opentelemetry.sdk", reason="needs ares-storage[tracing]")
    endpoint = f"http://{jaeger['grpc' if protocol == 'grpc' else 'http']}"
    for name, value in {
        "TRACES_EXPORTER": "otlp",
        "EXPORTER_OTLP_PROTOCOL": protocol,
        "EXPORTER_OTLP_ENDPOINT": endpoint,
    }.items():
        monkeypatch.setenv(f"OTEL_{name}", value)
    with contextlib.contextmanager(running_cluster)(tmp_path / "c") as cli:
        cli.ok("write", "greeting", stdin=b"hello")

        def whole(answer):
            return any(len(trace["processes"]) >= 4 for trace in answer["data"])

        answer = asked(jaeger, "/api/traces?service=ares-client&operation=write", whole)
    [trace] = [trace for trace in answer["data"] if len(trace["processes"]) >= 4]
    spans = {span["spanID"]: span for span in trace["spans"]}
    services = {id: process["serviceName"] for id, process in trace["processes"].items()}
    served = [span for span in spans.values() if services[span["processID"]] == "ares-server"]
    assert {"PutData", "GetTag", "Commit"} <= {span["operationName"] for span in served}
    for span in served:
        path = []
        while span is not None:
            path.append(span["operationName"])
            above = [reference["spanID"] for reference in span["references"]]
            span = spans.get(above[0]) if above else None
        assert path[-2:] == ["StartWriteRequest-MEMORY", "write"]
