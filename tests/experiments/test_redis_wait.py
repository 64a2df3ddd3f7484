"""A write to Redis that too few replicas have for WAIT: no success, and counted in the results.

The round has real processes.
"""

import asyncio
import json
import os
import shutil
import signal
import sqlite3

import pytest

from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.bench import redis_client
from experiments.bench.redis_peer import Redis
from experiments.rounds.round_worker import RoundWorker, WorkerTask
from experiments.rounds.scenario import Parameters

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("redis-server") is None,
        reason="redis-server is not installed: sudo apt-get install redis-server",
    ),
]

FEWER = (
    "SELECT count(*) FROM operations WHERE NOT ok AND more ->> 'wait_acks' < more ->> 'majority'"
)


async def test_a_paused_replica_is_in_the_log_and_in_the_results(tmp_path, monkeypatch):
    # a replica gets data only after its first message, which takes a second
    monkeypatch.setattr(redis_client, "WAIT_MS", 1500)
    store, logs = tmp_path / "store", tmp_path / "results" / "round"
    store.mkdir()
    logs.mkdir(parents=True)
    parameters = Parameters(servers=3, operations=1, interval_s=0.0)
    with Redis("redis", wait=2, n=3).running(store) as running:

        async def write(client: int) -> list[dict[str, object]]:
            await RoundWorker(
                WorkerTask(running.store, "REDIS_W", parameters, "write", (client,), 1, str(logs))
            ).run()
            return [
                json.loads(line)
                for line in (logs / f"client-{client}.log").read_text().splitlines()
            ]

        well = await write(1)
        os.kill(running.servers["r2"], signal.SIGSTOP)
        ill = await write(2)
    told = [
        [
            (line["status"], line["outcome"], line["wait"], line["wait_acks"], line["majority"])
            for line in lines
        ]
        for lines in (well, ill)
    ]
    assert told == [[("SUCCESS", "ok", "Yes", 2, 2)], [("UNSUCCESS", "unknown", "Yes", 1, 2)]]
    assert ill[0]["error"] == "WAIT 2 ended with 1"
    words = python("-m", "ares", "results", "import", logs, "--into", tmp_path / "results.db")
    assert await (await asyncio.create_subprocess_exec(*words, env=ENVIRONMENT)).wait() == 0
    with sqlite3.connect(tmp_path / "results.db") as database:
        assert database.execute(FEWER).fetchone() == (1,)
