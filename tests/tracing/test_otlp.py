"""Data for a collector, at an OTLP receiver of the test.

OpenTelemetry's exporter sends by HTTP.
"""

import contextlib
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ares.cluster.tables import TracingSettings
from ares.tracing.export import tracer_of

from .test_backlog import one_write

collector = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="needs ares-storage[tracing]"
)


class Receiver(ThreadingHTTPServer):
    """A receiver with a record of the data; each answer is ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.reason: str | None = None
        self.reply: Iterable[bytes] = ()
        self.replied_bytes = 0
        self.received: list[bytes] = []

    def spans(self):
        requests = [collector.ExportTraceServiceRequest.FromString(body) for body in self.received]
        return [
            (r.resource, span)
            for q in requests
            for r in q.resource_spans
            for scope in r.scope_spans
            for span in scope.spans
        ]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Receiver)
        if self.server.status == 200:
            self.server.received.append(body)
        self.send_response(self.server.status, self.server.reason)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for piece in self.server.reply:
                self.wfile.write(piece)
                self.server.replied_bytes += len(piece)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch) -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
    yield receiver
    receiver.shutdown()
    thread.join()
    receiver.server_close()


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def operation(tracer, label):
    tracer.end(tracer.begin(label), None, None)


def test_a_collector_gets_spans_with_their_service_and_parents(receiver):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    tracer = tracer_of(TracingSettings(exporter="otlp", service="shop"), "ares-client")
    with TracerProvider().get_tracer("a caller").start_as_current_span("checkout") as caller:
        operation(tracer, "read of 'x'")
    operation(tracer, "write of 'x'")
    tracer.close()
    (resource, below), (_, alone) = receiver.spans()
    assert "shop" in [
        attribute.value.string_value
        for attribute in resource.attributes
        if attribute.key == "service.name"
    ]
    context = caller.get_span_context()
    assert (below.name, below.trace_id.hex(), below.parent_span_id.hex()) == (
        "read",
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
    )
    assert (alone.name, alone.parent_span_id) == ("write", b"")
    assert trace.get_current_span().get_span_context().is_valid is False


@pytest.mark.parametrize("status", [302, 400, 401, 413, 429, 503])
def test_a_collector_that_refuses_is_told_of_once(receiver, monkeypatch, caplog, status):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")  # the end of tries after 429 and 503
    monkeypatch.setattr("ares.tracing.tracer.EXPORT_S", 0.01)
    receiver.status, receiver.reason = status, "Not\x1b Now"
    receiver.reply = [b"the quota\n is used up \x1b[31m", b"!" * 1000]
    tracer = tracer_of(TracingSettings(exporter="otlp"), "ares-client")
    for _ in range(3):
        operation(tracer, "read of 'x'")
        until(lambda: not tracer._waiting and not tracer._given)
    tracer.close()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2, told
    refusal = f"the collector refuses them with {status} Not? Now and says: the quota is used up ?"
    assert refusal in told[0]
    assert told[0].endswith(
        "; 1 spans are lost, and more until it takes them, but no operation fails"
    )
    assert told[1] == "otlp did not take 3 spans: they are lost"
    assert all(len(each) < 500 and each.isprintable() for each in told)
    assert receiver.received == []


def test_a_collector_that_is_tried_again_is_told_of_at_the_end(receiver, monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    monkeypatch.setattr("ares.tracing.tracer.CLOSE_S", 0.1)
    monkeypatch.setattr("ares.tracing.tracer.EXPORTER_STOP_S", 30.0)
    receiver.status = 429
    tracer = tracer_of(TracingSettings(exporter="otlp"), "ares-client")
    operation(tracer, "read of 'x'")
    tracer.close()
    assert "the collector refuses them with 429 Too Many Requests; 1 spans are lost" in caplog.text


@pytest.mark.parametrize("status", [200, 400])
def test_a_bounded_part_of_a_reply_is_read(receiver, status, caplog):
    receiver.status, piece = status, bytes(1 << 20)
    receiver.reply = (piece for _ in range(100))
    tracer = tracer_of(TracingSettings(exporter="otlp"), "ares-client")
    tracemalloc.start()
    try:
        operation(tracer, "read of 'x'")
        until(lambda: not tracer._waiting and not tracer._given)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    tracer.close()
    assert receiver.replied_bytes < 100 << 20
    assert ("refuses" in caplog.text) is (status == 400)


def test_a_collector_gets_the_rounds_of_a_write(receiver):
    tracer = tracer_of(TracingSettings(exporter="otlp"), "ares-client")
    assert one_write(tracer, "x", Counter())
    tracer.close()
    spans = [span for _, span in receiver.spans()]
    assert len(spans) == 8
    put = next(span for span in reversed(spans) if span.name == "CommunicationLatency")
    about = {attribute.key: attribute.value for attribute in put.attributes}
    assert [value.string_value for value in about["ares.asked"].array_value.values] == [
        f"s{number}" for number in range(5)
    ]
    assert [value.string_value for value in about["ares.quorum"].array_value.values] == [
        "s0",
        "s1",
        "s2",
        "s3",
    ]
    assert [value.double_value >= 0 for value in about["ares.quorum.ms"].array_value.values] == [
        True
    ] * 4
    assert (about["ares.needed"].int_value, about["ares.round"].string_value) == (4, "put-data")
