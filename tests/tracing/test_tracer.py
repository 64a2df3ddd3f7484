"""Traced operations and their spans; a bad exporter costs only spans.

The exporter fails, hangs or is slow.
"""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ares.cluster.tables import TracingSettings
from ares.platform.interpreter import python
from ares.tracing import tracer as subject
from ares.tracing.export import as_otlp, tracer_of
from ares.tracing.spans import CLIENT_KIND, DSMM, USER, Span
from ares.tracing.tracer import Tracer
from ares.tracing.tree import Tree, read_spans
from ares.tracing.variables import tracing_of

ON = TracingSettings(exporter="console")


def named(operation: str) -> dict[str, object]:
    return {"db.system.name": "ares", "db.operation.name": operation, "ares.rounds": 0}


def traced(tracer: Tracer, label: str = "read of 'x'", error: Exception | None = None) -> bool:
    begun = tracer.begin(label)
    if begun is not None:
        tracer.end(begun, None, error)
    return begun is not None


def test_an_operation_is_a_span_of_its_own_and_a_failed_one_says_why():
    spans: list[Span] = []
    tracer = Tracer(ON, spans.extend)
    assert traced(tracer)
    assert traced(tracer, "write of 'x'", ValueError("no"))
    tracer.close()
    one, other = spans
    assert (one.name, one.kind, one.parent, one.attributes, one.error) == (
        "read",
        CLIENT_KIND,
        b"",
        {"ares.level": USER, **named("read")},
        "",
    )
    assert (other.name, other.attributes["error.type"], other.error) == (
        "write",
        "ValueError",
        "ValueError",
    )
    assert (len(one.trace), len(one.id), one.trace != other.trace) == (16, 8, True)


@pytest.mark.parametrize(("share", "all"), [(0.0, 0), (1.0, 100)])
def test_a_share_of_the_operations_is_traced(share, all):
    tracer = Tracer(TracingSettings(exporter="console", share=share), lambda spans: None)
    assert sum(traced(tracer) for _ in range(100)) == all


def test_a_share_of_operations_is_traced():
    tracer = Tracer(TracingSettings(exporter="console", share=0.5), lambda spans: None)
    assert 60 < sum(traced(tracer) for _ in range(200)) < 140


@pytest.mark.parametrize("sampled", [True, False])
def test_a_span_of_the_caller_decides_and_is_the_parent(sampled):
    spans: list[Span] = []
    tracer = Tracer(
        TracingSettings(exporter="console", share=0.0),
        spans.extend,
        lambda: (b"t" * 16, b"p" * 8, sampled),
    )
    assert traced(tracer) == sampled
    tracer.close()
    assert [(span.trace, span.parent) for span in spans] == [(b"t" * 16, b"p" * 8)] * sampled


def test_a_child_of_a_fork_gives_other_ids_than_its_parent():
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, subject._new_ids(1))
        os._exit(0)
    os.wait()
    assert os.read(read_end, 8) != subject._new_ids(1)
    os.close(read_end)
    os.close(write_end)


def test_names_are_told_only_where_that_is_wanted():
    spans: list[Span] = []
    for keys in (False, True):
        tracer = Tracer(TracingSettings(exporter="console", keys=keys), spans.extend)
        traced(tracer)
        tracer.close()
    assert ["ares.object" in span.attributes for span in spans] == [False, True]


def test_an_exporter_that_fails_says_so_once_and_nothing_else_happens(caplog):
    def failing(spans):
        raise OSError("connection refused")

    tracer = Tracer(ON, failing)
    for _ in range(5):
        traced(tracer)
        tracer._flush()
    tracer.close()
    assert (
        caplog.text.count(
            "cannot be exported to console: connection refused; 1 spans are lost, and more until "
            "it takes"
        )
        == 1
    )


def test_an_exporter_that_hangs_costs_neither_time_nor_memory(monkeypatch, caplog):
    monkeypatch.setattr(subject, "WAITING_PARTS_MAX", 100)
    monkeypatch.setattr(subject, "CLOSE_S", 0.1)
    going_on = threading.Event()
    tracer = Tracer(ON, lambda spans: going_on.wait(60))
    for _ in range(1000):
        traced(tracer)
    assert len(tracer._waiting) <= 100
    assert tracer.backlog.left_out > 0
    assert caplog.text.count("some operations are not traced") == 1
    begin_s = time.monotonic()
    tracer.close()
    assert time.monotonic() - begin_s < 30
    going_on.set()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, TracingSettings()),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, TracingSettings(exporter="otlp")),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, TracingSettings()),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER": "always_off"}, TracingSettings()),
    ],
)
def test_the_standard_variables_win(variables, expected):
    assert tracing_of(TracingSettings(), variables) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"},
            TracingSettings(exporter="otlp", share=0.01, parent=False),
        ),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_always_off"},
            TracingSettings(exporter="otlp", share=0.0),
        ),
        ({"OTEL_SERVICE_NAME": "shop"}, TracingSettings(exporter="otlp", service="shop")),
    ],
)
def test_the_standard_variables_win_over_the_cluster_file(variables, expected):
    assert tracing_of(TracingSettings(exporter="otlp"), variables) == expected


@pytest.mark.parametrize(
    ("variables", "expected", "warning"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, TracingSettings(), "OTEL_TRACES_EXPORTER: 'zipkin'"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp,console"},
            TracingSettings(exporter="otlp"),
            "OTEL_TRACES_EXPORTER: 'otlp,console'",
        ),
        ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, TracingSettings(), ""),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "jaeger_remote"},
            TracingSettings(exporter="otlp"),
            "OTEL_TRACES_SAMPLER",
        ),
        (
            {
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_TRACES_SAMPLER": "traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "many",
            },
            TracingSettings(exporter="otlp", parent=False),
            "OTEL_TRACES_SAMPLER_ARG: 'many'",
        ),
    ],
)
def test_variables_for_other_programs_stop_nothing(variables, expected, warning, caplog):
    assert tracing_of(TracingSettings(), variables) == expected
    assert warning in caplog.text


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "x"},
    ],
)
def test_an_exporter_that_cannot_be_made_stops_nothing(variables, monkeypatch, caplog):
    pytest.importorskip("opentelemetry.sdk", reason="needs ares-storage[tracing]")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tracer_of(TracingSettings(exporter="otlp"), "a test") is None
    assert "nothing is traced" in caplog.text


def test_spans_in_a_file_are_the_spans_that_were_made(tmp_path: Path):
    path = tmp_path / "spans.json"
    tracer = tracer_of(TracingSettings(exporter=f"file:{path}"), "a test")
    assert tracer is not None
    traced(tracer, "write of 'x'", ValueError("no"))
    tracer.close()
    [line] = path.read_text().splitlines()
    assert {"key": "service.name", "value": {"stringValue": "a test"}} in json.loads(line)[
        "resourceSpans"
    ][0]["resource"]["attributes"]
    [span] = read_spans(path.open("rb"), bad := [])
    about = {"ares.level": USER, **named("write"), "error.type": "ValueError"}
    assert (span.name, span.attributes, span.error, bad) == ("write", about, "ValueError", [])


def test_the_span_of_the_caller_is_known_without_the_sdk(tmp_path: Path):
    program = f"""
import sys
sys.modules["opentelemetry.sdk"] = None
from opentelemetry import trace
from ares.cluster.tables import TracingSettings
from ares.tracing.export import tracer_of
tracer = tracer_of(TracingSettings(exporter="file:{tmp_path}/spans"), "a test")
context = trace.SpanContext(7, 5, True, trace.TraceFlags(trace.TraceFlags.SAMPLED))
with trace.use_span(trace.NonRecordingSpan(context)):
    tracer.end(tracer.begin("read of 'x'"), None, None)
tracer.close()
"""
    subprocess.run(python("-c", program), check=True)
    [span] = read_spans((tmp_path / "spans").open("rb"), [])
    assert (span.trace, span.parent) == ((7).to_bytes(16, "big"), (5).to_bytes(8, "big"))


def test_what_follows_a_line_that_was_cut_off_begins_a_line_of_its_own(tmp_path: Path):
    path = tmp_path / "spans.json"
    for cut in (True, False):
        tracer = tracer_of(TracingSettings(exporter=f"file:{path}"), "a test")
        assert tracer is not None
        traced(tracer)
        tracer.close()
        if cut:
            path.write_bytes(path.read_bytes()[:-20])
    bad: list[int] = []
    assert [span.name for span in read_spans(path.open("rb"), bad)] == ["read"]
    assert bad == [1]


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b"[]\n",
        b"\xff\n",
        b"1\n",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_lines_that_are_no_spans_are_counted(line):
    assert list(read_spans([line, b"\n", line], bad := [])) == []
    assert bad == [1, 3]


def otlp(*spans: dict[str, object]) -> bytes:
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": "5", "traceId": "00"}
    return (
        json.dumps(
            {
                "resourceSpans": [
                    {"scopeSpans": [{"spans": [times | {"name": "x"} | span for span in spans]}]}
                ]
            }
        ).encode()
        + b"\n"
    )


def attribute(name: str, **value: object) -> dict[str, object]:
    return {"key": name, "value": value}


ODD = {
    "its own parent": [{"spanId": "aa", "parentSpanId": "aa"}],
    "a circle": [{"spanId": "aa", "parentSpanId": "bb"}, {"spanId": "bb", "parentSpanId": "aa"}],
    "very deep": [
        {"spanId": f"{n:04x}", "parentSpanId": f"{n - 1:04x}" if n else ""} for n in range(3000)
    ],
    "no times": [
        {
            "spanId": "aa",
            "attributes": [
                attribute("ares.quorum", arrayValue={"values": [{"stringValue": "s0"}]})
            ],
        }
    ],
    "odd numbers": [
        {
            "spanId": "aa",
            "name": "CommunicationLatency",
            "attributes": [
                attribute("ares.needed", stringValue="x"),
                attribute("ares.asked", intValue=1),
            ],
        },
    ],
    "no quorum": [
        {
            "spanId": "aa",
            "name": "CommunicationLatency",
            "attributes": [attribute("ares.needed", intValue="0")],
        }
    ],
    "ended before it began": [{"spanId": "aa", "startTimeUnixNano": "9", "endTimeUnixNano": "1"}],
    "for a terminal": [{"spanId": "aa", "name": "\x1b[2J\nx"}],
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_spans_are_shown_somehow(odd):
    tree = Tree(list(read_spans([otlp(*ODD[odd])], [])))
    lines = list(tree.lines())
    assert len(lines) >= 1
    assert all(line.isprintable() for line in lines)
    assert tree.sentence()


@pytest.mark.parametrize("time", ["9" * 400, float("inf"), -1, None, "x"])
def test_spans_at_no_time_are_passed_over(time):
    assert list(read_spans([otlp({"spanId": "aa", "endTimeUnixNano": time})], bad := [])) == []
    assert bad == [1]


def span(name, parent, began_ms, ended_ms, **attributes):
    return Span(
        name,
        b"t",
        name.encode(),
        parent.encode(),
        int(began_ms * 1e6),
        int(ended_ms * 1e6),
        "internal",
        {"ares.level": DSMM, **attributes},
    )


def test_a_tree_shows_when_and_says_where_the_time_went():
    quorum = {
        "ares.asked": ["s0", "s1", "s2"],
        "ares.needed": 2,
        "ares.quorum": ["s1", "s0"],
        "ares.quorum.ms": [1.0, 6.0],
    }
    tree = Tree(
        [
            span("read", "", 0, 10),
            span("GetData", "read", 0, 8),
            span("CommunicationLatency", "GetData", 1, 7, **quorum, **{"ares.round": "get-data"}),
            span("DecodeLatency", "GetData", 7, 8),
        ]
    )
    assert list(tree.lines()) == [
        "read                       10.00 ms    0.00 ms  ██████████████████████████████",
        "  GetData                   8.00 ms    0.00 ms  ████████████████████████",
        "    not accounted for       1.00 ms    1.00 ms  ███",
        (
            "    CommunicationLatency    6.00 ms    6.00 ms     ██████████████████           "
            "get-data: s1 1.0 s0 6.0; not yet s2"
        ),
        "    DecodeLatency           1.00 ms    1.00 ms                       ███",
        "  not accounted for         2.00 ms    2.00 ms                          ██████",
    ]
    assert (
        tree.sentence()
        == "6.0 of 10.0 ms went into GetData of read: s0 made the quorum of 2, after 6.0 ms: "
        "6.0 ms that this process cannot tell from the network's; s2 had not answered by then."
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (0.5, 0.5)],
)
def test_a_number_that_json_has_not_is_told_as_otlp_does(value, written):
    span = Span("x", b"t" * 16, b"s" * 8, b"", 1, 2, CLIENT_KIND, {"a": value})
    assert as_otlp(span)["attributes"] == [{"key": "a", "value": {"doubleValue": written}}]
