"""Operation logs for tests, and the contents of the database after an import."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from ares.results.database import opened
from ares.results.importing import ImportReport, import_runs
from ares.results.summary import summarise

DATA = Path(__file__).parents[3] / "shared" / "data"
"""A sample of the published collection, beside the repository."""

INVENTORY = """[servers]
server0 ansible_ssh_host=193.190.127.1 ansible_ssh_user=a
server1 ansible_ssh_host=n1.wall1.ilabt.iminds.be
server2 ansible_ssh_host=ms1.utah.cloudlab.us
[servers:vars]
replicas=1
[writers]
writer0 ansible_ssh_host=pcvm1-3.genirack.nyu.edu \
ansible_ssh_common_args='-o ProxyCommand="ssh -W %h:%p a@bastion.ilabt.imec.be"'
[readers]
reader0 ansible_ssh_host=pcvm1.instageni.idre.ucla.edu
reader1 ansible_ssh_host=graphene-1.nancy.grid5000.fr
[clients]
reader0 ansible_ssh_host=pcvm1.instageni.idre.ucla.edu
"""


def line(
    op: str,
    at_s: float,
    latency_s: float | None = 0.5,
    *,
    hour: int = 10,
    dsmm: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return an operation in the form of published logs, ended ``at_s`` after the hour."""
    clock = f"{hour + int(at_s) // 3600:02}:{int(at_s) // 60 % 60:02}:{int(at_s) % 60:02}"
    when = f"2022-07-03 {clock},{int(at_s % 1 * 1000):03}"
    message = f"{op.upper()}-COMPLETE" + "-DSMM" * dsmm
    told = {
        "levelname": "DEBUG",
        "asctime": when,
        "message": message,
        "status": "SUCCESS",
        "clientID": "9",
        "file_size": 64,
    }
    if latency_s is not None:
        told |= {
            "op_latency_start": 7e4 + at_s - latency_s,
            "op_latency_end": 7e4 + at_s,
            "op_latency": latency_s,
        }
    return {key: value for key, value in (told | more).items() if value is not ...}


def own(op: str, number: int, **more: Any) -> dict[str, Any]:
    """Return an operation in the form of our own logs."""
    message = (
        "READ-COMPLETE-DSMM"
        if op == "read"
        else "WRITE-COMPLETE-DSMM"
        if op == "write"
        else "WRITE-COMPLETE"
    )
    when = f"2026-11-22T12:{number // 60:02}:{number % 60:02}.123456+01:00"
    told = {
        "asctime": when,
        "message": message,
        "outcome": "ok",
        "op": op,
        "clientID": "w1",
        "opID": f"{op}-w1-{number}",
        "op_latency": 0.25,
    }
    return told | {"op_latency_start": float(number)} | more


def write(path: Path, *lines: Any, mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.writelines(one if isinstance(one, str) else f"{json.dumps(one)}\n" for one in lines)


def imported(into: Path, *directories: Path) -> ImportReport:
    with opened(into, create=True) as database:
        return import_runs(database, directories, lambda done, total, name: None)


def rows(into: Path, question: str) -> list[Any]:
    with opened(into) as database:
        database.row_factory = sqlite3.Row if question.startswith("SELECT *") else None
        return database.execute(question).fetchall()


def figures(into: Path) -> list[dict[str, Any]]:
    with opened(into) as database:
        return list(summarise(database))


def content(into: Path) -> list[Any]:
    """Return all imported data, except for the numbers of files and runs.

    These numbers depend on the order of imports.
    """
    where = "FROM runs r JOIN files f ON f.run_id = r.id JOIN operations o ON o.file_id = f.id"
    return [
        rows(
            into,
            "SELECT path, kind, client, shift_s, read_bytes, digest, lines, malformed, "
            "passed_over FROM files ORDER BY path",
        ),
        rows(into, "SELECT path, name, scenario, algorithm, level FROM runs ORDER BY path"),
        rows(
            into,
            "SELECT f.path, o.line, o.level, op, o.client, ok, began_s, clock_s, latency_s, "
            f"size, error, more {where} ORDER BY 1, 2",
        ),
        rows(
            into,
            "SELECT path, line, why FROM files f JOIN bad_lines b ON b.file_id = f.id ORDER BY 1, "
            "2",
        ),
        rows(
            into,
            "SELECT path, line, at_s, what, server, detail FROM files f JOIN events e ON "
            "e.file_id = f.id ORDER BY 1, 2",
        ),
        rows(
            into,
            "SELECT path, line, name, trace, s.id FROM files f JOIN spans s ON s.file_id = f.id "
            "ORDER BY 1, 2, 5",
        ),
    ]
