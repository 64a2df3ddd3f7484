"""Operations that are traced whole or not at all.

Operations beyond the rate of export, or of traces a second, are left out, counted and reported.
"""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.cluster.tables import TracingSettings
from ares.model.message import TRACE_BYTES
from ares.model.messages import GetTag
from ares.registers.operations import write
from ares.replica.group_commit import served_of
from ares.tracing import backlog as subject
from ares.tracing import tracer as tracer_module
from ares.tracing.backlog import Backlog
from ares.tracing.tracer import Tracer

from .test_recording import EC, Traced

ON = TracingSettings(exporter="console")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Start the exporter's thread only when a tracer is closed."""
    monkeypatch.setattr(tracer_module, "EXPORT_S", 3600.0)


@given(
    st.integers(1, 100),
    st.lists(st.one_of(st.just("begin"), st.integers(1, 30), st.just("add"), st.just("take"))),
)
def test_what_was_begun_is_taken_and_what_waits_is_bounded(most, steps):
    backlog, under_way, waiting, refused, largest = Backlog(most, 1e9), 0, [], 0, 1
    for second, step in enumerate(steps, 1):
        if step == "begin":
            behind = sum(waiting) + subject.PARTS_EXPECTED * under_way >= most
            assert backlog.begin(second) is not behind
            under_way, refused = under_way + (not behind), refused + behind
        elif step == "add":
            behind = sum(waiting) >= most
            assert backlog.add(2, second) is not behind
            waiting, refused = waiting + [2] * (not behind), refused + behind
        elif step == "take":
            if waiting:
                backlog.take(waiting.pop(0))
        elif under_way:
            assert backlog.end(step), "it was begun"
            under_way -= 1
            waiting.append(step)
            largest = max(largest, step)
        assert (backlog.waiting, backlog.left_out) == (sum(waiting), refused)
        assert sum(waiting) <= most + 2 + largest * (most // subject.PARTS_EXPECTED + 1)


def test_many_large_operations_that_end_together_are_lost_whole():
    backlog = Backlog(1000, 1000.0)
    assert all(backlog.begin(0.0) for _ in range(100))
    ended = [backlog.end(20_000) for _ in range(100)]
    assert (ended.count(True), backlog.left_out, backlog.waiting) == (2, 98, 40_000)
    backlog.take(40_000)
    assert backlog.begin(1.0)


def test_only_so_much_is_traced_in_a_second():
    """After a pause, a whole second's traces come at once."""
    backlog, traced = Backlog(1000, 50.0), Counter()
    for tenth in range(200):
        for _ in range(10):
            if 100 <= tenth < 150:
                continue
            if backlog.begin(tenth / 10):
                traced[tenth // 50] += 1
                assert backlog.end(10)
                backlog.take(10)
    assert traced == {0: 30, 1: 25, 3: 30}
    assert backlog.left_out == 1500 - traced.total()


class Exporter:
    """An exporter that waits for permission."""

    def __init__(self):
        self.may, self.spans = threading.Event(), []

    def __call__(self, spans):
        assert self.may.wait(60)
        self.spans += spans


def one_write(tracer: Tracer, name: str, seen: Counter) -> bool:
    """Write through servers; ``seen`` counts requests of each trace at them."""
    begun = tracer.begin(f"write of {name!r}")
    rig = Traced()
    rig.recording = None if begun is None else begun.recording
    rig.run(write(rig.view, name, b"value"))
    while not rig.ends:
        sent = rig.sent()
        seen.update(
            message.trace[:16]
            for messages in sent.values()
            for message in messages
            if message.trace is not None
        )
        for server, messages in sent.items():
            rig.reply(server, *[rig.replicas[server].handle(message) for message in messages])
    if begun is not None:
        tracer.end(begun, rig.value, None)
    return begun is not None


def test_behind_a_slow_exporter_a_trace_is_whole_or_not_there(monkeypatch, caplog):
    monkeypatch.setattr(tracer_module, "WAITING_PARTS_MAX", 100)
    exporter, seen = Exporter(), Counter()
    tracer = Tracer(ON, exporter)
    traced = [one_write(tracer, f"x{number}", seen) for number in range(50)]
    assert 0 < traced.count(True) < traced.count(False), (
        "the exporter takes nothing, and all of them ended"
    )
    assert traced.count(True) == len(seen), "servers are asked to trace what their client traces"
    assert caplog.text.count("some operations are not traced, and counted") == 1
    exporter.may.set()
    tracer.close()
    assert f"{traced.count(False)} operations, or requests of them, were not traced" in caplog.text
    spans = Counter(span.trace for span in exporter.spans)
    assert set(spans) == set(seen)
    assert set(spans.values()) == {8}
    ids = {span.id for span in exporter.spans}
    roots = [span for span in exporter.spans if not span.parent]
    assert len(roots) == len(spans)
    assert all(span.parent in ids for span in exporter.spans if span.parent)


def test_what_follows_says_how_much_was_left_out(monkeypatch):
    monkeypatch.setattr(tracer_module, "WAITING_PARTS_MAX", 30)
    exporter, seen = Exporter(), Counter()
    tracer = Tracer(ON, exporter)
    traced = [one_write(tracer, "x", seen) for _ in range(10)]
    exporter.may.set()
    while tracer.backlog.waiting:
        tracer._wake.set()
    assert one_write(tracer, "x", seen)
    tracer.close()
    roots = [span for span in exporter.spans if not span.parent]
    assert "ares.left_out" not in roots[0].attributes
    assert roots[-1].attributes["ares.left_out"] == traced.count(False)


def test_what_is_under_way_counts(monkeypatch):
    monkeypatch.setattr(tracer_module, "WAITING_PARTS_MAX", 100)
    tracer = Tracer(ON, lambda spans: None)
    begun = [tracer.begin("read of 'x'") for _ in range(1000)]
    assert sum(operation is not None for operation in begun) == 100 // subject.PARTS_EXPECTED
    tracer.close()


def test_a_callers_sampled_span_does_not_force_a_trace(monkeypatch):
    monkeypatch.setattr(tracer_module, "WAITING_PARTS_MAX", 0)
    tracer = Tracer(ON, lambda spans: None, lambda: (b"t" * 16, b"p" * 8, True))
    assert tracer.begin("read of 'x'") is None
    assert tracer.backlog.left_out == 1
    tracer.close()


@pytest.mark.parametrize("most", [0, 10, 1000])
def test_a_server_that_is_behind_leaves_requests_out(monkeypatch, caplog, most):
    monkeypatch.setattr(tracer_module, "WAITING_PARTS_MAX", most)
    exporter = Exporter()
    tracer = Tracer(ON, exporter)
    request = GetTag(1, EC.id, "x", trace=b"t" * (TRACE_BYTES - 1) + b"\x01")
    for _ in range(100):
        tracer.served("s0", {}, served_of(request, 0.0))
    exporter.may.set()
    tracer.close()
    expected = min(100, most // 2)
    assert (len(exporter.spans), tracer.backlog.left_out) == (expected, 100 - expected)
    assert ("operations, or requests of them, were not traced" in caplog.text) == (expected < 100)


def test_a_server_makes_no_spans_of_what_says_that_it_is_not_sampled():
    exporter = Exporter()
    exporter.may.set()
    tracer = Tracer(ON, exporter)
    for context in (b"t" * (TRACE_BYTES - 1) + b"\0", bytes(16) + b"p" * 8 + b"\x01", b"short"):
        tracer.served("s0", {}, served_of(GetTag(1, EC.id, "x", trace=context), 0.0))
    tracer.close()
    assert exporter.spans == []
