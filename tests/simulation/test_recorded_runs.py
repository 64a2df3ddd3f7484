"""Recordings of every operation of a run: events stay the same, and recordings are consistent.

With recordings at servers, too, messages have different bytes and come at different moments: such a
run is a separate run, and keeps every promise.
"""

from collections import deque

import pytest

from ares.engine.phases import ROUND
from ares.engine.recording import Recording
from ares.engine.session import Session
from ares.model.message import TRACE_BYTES
from ares.testing.sim.plan import OBJECT_SCENARIOS, draw
from ares.testing.sim.run import run_plan


class Recorded:
    """A recorder for each job of every session, with a clock that only counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, context: bytes | None = None) -> None:
        self.recordings: list[Recording] = []
        self._now = 0
        start, computed = Session.start, deque()

        def recorded(session, operation, label, *arguments, **more):
            self.recordings.append(
                Recording(
                    str(label), self._clock, computed, None if context is None else lambda: context
                )
            )
            return start(
                session, operation, label, *arguments, **more, recording=self.recordings[-1]
            )

        monkeypatch.setattr(Session, "start", recorded)
        # recorded operations do not run in the compiled core
        monkeypatch.setattr("ares.testing.sim.simulated_client.fast_path", lambda: None)

    def _clock(self) -> float:
        self._now += 1
        return float(self._now)


@pytest.mark.parametrize("scenario", OBJECT_SCENARIOS)
def test_a_run_whose_operations_are_recorded_is_the_same_run(scenario, monkeypatch):
    plans = [draw(seed, scenario) for seed in range(2)]
    plain = [run_plan(plan) for plan in plans]
    recorded = Recorded(monkeypatch)
    assert [run_plan(plan) for plan in plans] == plain
    assert len(recorded.recordings) >= sum(verdict.operations for verdict in plain)
    for recording in recorded.recordings:
        ended = recording.operation.ended_s is not None
        for part in recording.parts[1:]:
            assert part.parent is not None
            assert part.parent.began_s <= part.began_s
            assert not ended or part.ended_s is not None
        if ended:
            assert recording._standing == {}


@pytest.mark.parametrize("scenario", OBJECT_SCENARIOS)
def test_servers_that_are_told_keep_their_promises(scenario, monkeypatch):
    recorded, plan = Recorded(monkeypatch, b"t" * TRACE_BYTES), draw(1, scenario)
    assert run_plan(plan).violation is None
    rounds = [
        part for recording in recorded.recordings for part in recording.parts if part.name == ROUND
    ]
    waits = [
        heard.durable_s - heard.handled_s
        for part in rounds
        for heard in part.heard
        if heard.handled_s is not None
    ]
    assert bool(waits) == bool(plan.segment_bytes), (
        "servers with a journal are whole ones, and tell what they spent"
    )
    assert all(wait >= 0 for wait in waits)
