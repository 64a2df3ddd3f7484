"""Rate and memory of importing operation logs.

`python -m experiments.import_rate [OPERATIONS]` makes OPERATIONS operations, imports them, and
prints both.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ares.platform.interpreter import python

IMPORT_FILES = 20
IMPORT_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


IMPORT_SERVERS = ["s0", "s1", "s2", "s3"]
ALIKE = {
    "levelname": "INFO", "name": "ares.operations", "status": "SUCCESS", "outcome": "ok",
    "objectID": "key", "domain": "default", "file_size": 2**20,
    "com_latency": 0.009, "read_config_latency_total": 0.001, "phase1_latency": 0.003,
    "phase2_latency": 0.004, "dap_protocols": {"EC": 1},
    "params": {"dap_protocol": "EC", "m": 2}, "servers_no": 5, "confs_no": 1, "configurations": [0],
    "rounds": 2,
    "quorum_phase1": 3, "quorum_phase1_servers": IMPORT_SERVERS, "quorum_phase2": 3,
    "quorum_phase2_servers": IMPORT_SERVERS,
}  # fmt: skip


def lines(client: str, count: int) -> Iterator[str]:
    """Yield the lines that a client with an operation log writes."""
    for number in range(count):
        op, latency_s, ended = (
            ("write", "read")[number % 2],
            0.01 + number % 97 / 1000,
            IMPORT_BEGAN + timedelta(seconds=number),
        )
        process_names = {
            "message": f"{op.upper()}-COMPLETE-DSMM",
            "op": op,
            "clientID": client,
            "opID": f"{op}-{client}-{number}",
            "maxTag": [number, client],
        }
        when = {
            "op_latency_start": float(number),
            "op_latency_end": number + latency_s,
            "op_latency": latency_s,
        }
        yield json.dumps(
            {"asctime": ended.isoformat(timespec="microseconds"), **ALIKE, **process_names, **when}
        )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    with tempfile.TemporaryDirectory(prefix="ares-import-") as made:
        for number in range(IMPORT_FILES):
            with Path(made, f"client-{number}.log").open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines(f"w{number}", count // IMPORT_FILES))
        begin = time.perf_counter()
        subprocess.run(
            python("-m", "ares", "results", "import", made, "--into", f"{made}/results.db"),
            check=True,
        )
        took_s = time.perf_counter() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak_mib, cpu_s = used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
        database_mib = Path(made, "results.db").stat().st_size / 2**20
        print(
            f"{count} operations in {took_s:.1f} s ({cpu_s:.1f} s of a processor), "
            f"{count / took_s:.0f} a second"
        )
        print(f"peak {peak_mib:.0f} MiB; the database has {database_mib:.0f} MiB")
        begin = time.perf_counter()
        subprocess.run(python("-m", "ares", "results", "summary", f"{made}/results.db"), check=True)
        print(f"their figures in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
