"""``python -P -m ares.testing.kills``: kill -9 by the thousand, and a report of lost data.

With an odd seed clients reach servers and members over Unix sockets, otherwise over TCP.
The exit status is 1 if data was lost.
"""

import argparse
import math
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from ares.cluster.new_cluster import Durability, InitPlan, create
from ares.platform.loop import run
from ares.testing.kills.kill_members import MembersReport, MembersRun
from ares.testing.kills.kill_servers import ServersReport, ServersRun
from ares.testing.kills.storm import StormLimits
from ares.testing.socket_runs import make_room_for_sockets

DUMP_AFTER_ENTRIES = 200
"""Entries after which a consensus member dumps the table: few, for kills during a dump."""


def kill_servers(
    directory: Path, limits: StormLimits, servers: int, seed: int, durability: Durability = "fsync"
) -> ServersReport:
    """Make a cluster in ``directory`` and kill its servers under load."""
    settings = create(directory, InitPlan(servers, consensus=1, base_port=0, durability=durability))
    make_room_for_sockets(settings, seed)
    return run(ServersRun(settings, limits, seed).perform())


def kill_members(directory: Path, limits: StormLimits, members: int, seed: int) -> MembersReport:
    """Make a cluster in ``directory`` and kill its consensus members while clients propose."""
    settings = create(directory, InitPlan(servers=3, consensus=members, base_port=0))
    make_room_for_sockets(settings, seed)
    return run(MembersRun(settings, limits, seed, DUMP_AFTER_ENTRIES).perform())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -P -m ares.testing.kills",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--of",
        choices=("servers", "consensus"),
        default="servers",
        help="the kind of process to kill",
    )
    parser.add_argument("--kills", type=int, default=3000, help="how often (default 3000)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="end after this time, too (default: never)"
    )
    parser.add_argument(
        "--processes",
        type=int,
        help="how many there are (default: 5 servers or 3 consensus members)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of the choices; real processes answer when they answer (default: one by chance)",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=None,
        help="where the stores are (default: in the usual place for temporary files)",
    )
    words = parser.parse_args()
    if (
        words.kills < 1
        or not words.minutes > 0
        or (words.processes is not None and words.processes < 1)
    ):
        parser.error("--kills, --minutes and --processes are more than 0")
    seed = secrets.randbelow(1_000_000) if words.seed is None else words.seed
    home = Path(tempfile.mkdtemp(prefix="ares-kills-", dir=words.dir))
    limits = StormLimits(words.kills, 60 * words.minutes)
    report: ServersReport | MembersReport | None = None
    try:
        if words.of == "servers":
            report = kill_servers(home / "cluster", limits, words.processes or 5, seed)
        else:
            report = kill_members(home / "cluster", limits, words.processes or 3, seed)
    finally:
        if report is None or not report.findings:
            shutil.rmtree(home)
    sys.stdout.buffer.write(
        msgspec.json.format(msgspec.json.encode({"seed": seed} | msgspec.to_builtins(report)))
        + b"\n"
    )
    sys.exit(f"{len(report.findings)} losses; all results are in {home}" if report.findings else 0)
