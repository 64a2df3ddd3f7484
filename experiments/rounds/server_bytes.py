"""Bytes counted by the servers of ares in a round: messages of clients, and kept values.

Before the work and after the end a client asks all servers, and writes the sums into a file among
the logs of the host. A client that begins late writes none. The parameter ``counted`` of `run.json`
has the bytes of the work.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.model.messages import Description
from experiments.rounds.provenance import write_json

BEFORE, AFTER = "servers-before.json", "servers-after.json"


class ServerBytes(Struct, frozen=True):
    """Bytes received and sent by servers since their start, and bytes of kept values."""

    received: int
    sent: int
    kept: int


def note_servers(path: Path, servers: Iterable[Description | None]) -> None:
    """Write the sums over all servers into a file; no file if a server is silent."""
    received = sent = kept = 0
    for server in servers:
        if server is None or server.work is None:
            return
        received += server.work.received_bytes
        sent += server.work.sent_bytes
        kept += sum(hosted.bytes for hosted in server.hosted)
    path.write_bytes(msgspec.json.encode(ServerBytes(received, sent, kept)))


def note_counted(directory: Path) -> None:
    """Write the bytes of the work in ``directory`` into `run.json`, if both files are there."""
    found = [
        msgspec.json.decode(path.read_bytes(), type=ServerBytes)
        for name in (BEFORE, AFTER)
        for path in directory.glob(f"logs/*/{name}")
    ]
    if len(found) != 2:
        return
    before, after = found
    counted = ServerBytes(after.received - before.received, after.sent - before.sent, after.kept)
    path = directory / "run.json"
    described = msgspec.json.decode(path.read_bytes())
    described["parameters"]["counted"] = counted
    write_json(path, described)
