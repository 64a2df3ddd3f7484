"""The verdict on recordings: clean recordings pass, and each kind of fault is found."""

import msgspec
import pytest
from msgspec import structs

from ares.testing.torture.records import (
    LogRecorded,
    Record,
    Spell,
    Timeline,
    load_log_records,
    load_records,
    name_of,
    value_of,
)
from ares.testing.torture.verdict import (
    LatencySummary,
    Summary,
    count_operations,
    judge,
    judge_log,
    latencies,
    longest_pause_s,
)
from ares.testing.verify.history import Event
from ares.testing.verify.log_history import LogEvent

from .torture_histories import records, with_lost_write, with_stale_read

NOTHING = LatencySummary(0, None, None, None)


def summary(**changes) -> Summary:
    clean = Summary(1, 2.0, 3, 3, False, {}, {}, {}, 1, NOTHING, NOTHING, 0.0, [], [], [], [], [])
    return structs.replace(clean, **changes)


def test_a_clean_recording_has_no_findings():
    findings = judge(records())
    assert (findings.violations, findings.undecided, findings.liveness_failures) == ([], [], [])


def test_a_stale_read_is_a_violation():
    stale = with_stale_read([record.event for record in records()])
    findings = judge([Record(event, event.responded or event.invoked) for event in stale])
    assert len(findings.violations) == 1
    assert "late read 'hot/0' 'a.writer-0'" in findings.violations[0]


def test_a_lost_write_is_a_violation():
    assert judge(with_lost_write(records())).violations


def test_an_operation_that_failed_is_a_liveness_failure_and_one_that_was_abandoned_is_not():
    write = Event("a.writer", "write", "hot/0", "x", 100.0, None, "unknown")
    assert judge([*records(), Record(write, 100.1, "", True)]).liveness_failures == []
    [failure] = judge([*records(), Record(write, 120.0, "Unavailable: nobody")]).liveness_failures
    assert failure == "[100.0 s, after 20.0 s] a.writer write 'hot/0': Unavailable: nobody"


@pytest.mark.parametrize("finding", ["violations", "undecided", "liveness_failures", "problems"])
def test_any_finding_makes_a_run_not_clean(finding):
    assert summary().ok
    assert summary().verdict.startswith("clean")
    broken = summary(**{finding: ["x"]})
    assert not broken.ok
    assert broken.verdict.startswith("NOT CLEAN: 1 ")


def test_a_note_does_not_make_a_run_unclean():
    assert summary(notes=["no partitions here"]).ok


def test_counts_and_the_longest_pause():
    abandoned = Record(
        Event("a.writer", "write", "hot/0", "y", 50.0, None, "unknown"), 50.1, "", True
    )
    late = Record(Event("b.reader", "read", "hot/0", "a.writer-9", 14.9, 15.0), 15.0)
    assert count_operations([*records(10), abandoned]) == {
        "read": {"ok": 10},
        "write": {"ok": 10, "abandoned": 1},
    }
    assert longest_pause_s([*records(10), abandoned, late]) == pytest.approx(15.0 - 9.3)


def test_latencies_during_faults_are_those_of_operations_that_overlap_with_one():
    chronicle = Timeline()
    chronicle.spells = [
        Spell("s0", "dead", 1, 2.95, 3.05),
        Spell("s1", "up", 1, 0.0, 9.0),
        Spell("s2", "stopped", 1, 5.15, 6.05),
    ]
    overall, during = latencies(records(10), chronicle)
    assert (overall.count, overall.p50_ms) == (20, 100.0)
    assert during.count == 3  # the writes that began at 3 and at 6, the read that began at 5.2


def test_values_tell_their_name_and_damage_is_noticed():
    value = value_of("a.writer-17", 5000)
    assert (len(value), name_of(value)) == (5000, "a.writer-17")
    assert name_of(value_of("a.writer-17", 4)) == "a.writer-17"
    assert name_of(value[:-1] + bytes([value[-1] ^ 1])).startswith("damaged:")
    assert name_of(b"\xff\xfe").startswith("damaged:")


def test_records_are_read_back_in_order_without_a_torn_line(tmp_path):
    lines = [msgspec.json.encode(record) + b"\n" for record in records(3)]
    (tmp_path / "one").write_bytes(b"".join(reversed(lines[::2])))
    (tmp_path / "other").write_bytes(b"".join(lines[1::2]) + lines[0][:20])
    assert load_records([tmp_path / "one", tmp_path / "other"], 0.0) == records(3)
    [moved, *_] = load_records([tmp_path / "one"], -100.0)
    assert (moved.event.invoked, moved.event.responded, moved.ended) == (100.0, 100.1, 100.1)


def log_records():
    """Return records of two appends, a read of both, and a request for the end.

    An append has two entries.
    """
    told = [
        ("w", "append", 0, ("a",)),
        ("w", "append", 1, ("b", "c")),
        ("r", "read", 0, ("a", "b", "c")),
        ("r", "tail", 3, ()),
    ]
    events = [
        LogEvent(client, kind, "events", place, at, at + 0.5, entries)
        for at, (client, kind, place, entries) in enumerate(told)
    ]
    return [LogRecorded(event, event.responded) for event in events]


@pytest.mark.parametrize(
    ("number", "changes", "finding"),
    [
        (2, {"entries": ("a",), "position": 1}, "position 0 and at 1"),
        (2, {"entries": ("a", "b", "x")}, "no append stored it"),
        (3, {"position": 1}, "at most 1 entries"),
        (0, {"position": 1}, "position 1 belongs to two appends"),
    ],
)
def test_what_a_log_lost_or_doubled_is_a_violation(number, changes, finding):
    records = log_records()
    assert judge_log(records).violations == []
    records[number] = structs.replace(
        records[number], event=structs.replace(records[number].event, **changes)
    )
    assert finding in judge_log(records).violations[0]


def test_records_of_a_log_are_read_back_and_a_failure_names_its_position(tmp_path):
    silent = LogRecorded(
        LogEvent("w", "append", "events", None, 1.0, None, ("d",), "unknown", 7),
        21.0,
        "Unavailable: nobody",
    )
    file = tmp_path / "log.jsonl"
    file.write_bytes(
        b"".join(msgspec.json.encode(record) + b"\n" for record in [*log_records(), silent])
        + b'{"event"'
    )
    found = load_log_records([file], 0.0)
    assert (len(found), silent in found) == (5, True)
    [failure] = judge_log(found).liveness_failures
    assert "w append 'events/7': Unavailable: nobody" in failure
    assert "append lost" in summary(operations=count_operations(found)).verdict
