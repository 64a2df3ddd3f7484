"""Waits for a turn on the event loop, before a server takes a request up."""

import asyncio
import json
import time

import pytest

from ares.metrics import REPLY_S_BUCKETS, Histogram
from ares.server.queue_probe import MISSED_MAX, PROBE_EVERY_S, QueueProbe
from tests.process.command_line import running_cluster


async def until_counted(waits: Histogram, times: int) -> None:
    async with asyncio.timeout(60):
        while sum(waits.counts) < times:  # noqa: ASYNC110 (the probe tells nobody)
            await asyncio.sleep(0.01)


async def test_an_event_loop_that_is_held_up_is_counted_as_often_as_it_was_asked():
    waits = Histogram(REPLY_S_BUCKETS)
    probe = QueueProbe(waits)
    probe.start()
    try:
        await until_counted(waits, 1)
        before = sum(waits.counts)
        while not probe._asked:
            time.sleep(0.001)  # noqa: ASYNC251 (the loop is held up on purpose)
        time.sleep(0.6)  # noqa: ASYNC251
        await until_counted(waits, before + 6)
    finally:
        probe.close()
    assert sum(waits.counts[REPLY_S_BUCKETS.index(1.0) :]) >= 1
    assert sum(waits.counts[REPLY_S_BUCKETS.index(0.5) :]) >= 3


async def test_a_wait_of_a_day_is_counted_in_no_time():
    waits = Histogram(REPLY_S_BUCKETS)
    QueueProbe(waits)._note(time.perf_counter() - 86400)
    assert sum(waits.counts) == MISSED_MAX + 1
    assert waits.counts[-1] == MISSED_MAX + 1


async def test_it_ends_while_a_probe_waits():
    probe = QueueProbe(Histogram(REPLY_S_BUCKETS))
    probe.start()
    time.sleep(2 * PROBE_EVERY_S)  # noqa: ASYNC251 (a probe waits)
    probe.close()
    probe._thread.join(60)
    assert not probe._thread.is_alive()
    assert sum(probe._waits.counts) == 0


def test_it_ends_with_a_loop_that_was_closed_before():
    async def probed() -> QueueProbe:
        probe = QueueProbe(Histogram(REPLY_S_BUCKETS))
        probe.start()
        return probe

    probe = asyncio.run(probed())
    probe._thread.join(60)
    assert not probe._thread.is_alive()


@pytest.mark.process
def test_top_tells_the_queue_and_the_commit_of_each_server(tmp_path):
    for cli in running_cluster(tmp_path / "c"):
        (tmp_path / "value").write_bytes(b"v")
        cli.ok("write", "x", str(tmp_path / "value"))
        tree = json.loads(cli.ok("--json", "top", "--once", "--interval", "1"))
        done = tree["operations"]
        assert 0 < done["queue_p50_s"] <= done["queue_p99_s"]
        assert all(server["queue_p50_s"] > 0 for server in tree["servers"])
        assert b"queue before" in cli.ok("top", "--once")
