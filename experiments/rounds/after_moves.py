"""A check that readers began after the moves, and found all moves done.

Otherwise a scenario's claim about ``fresh_after_s`` is not true.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from experiments.rounds.scenario import Parameters

_READ, _FILE_READ, _MOVE = "read", "get", "reconfigure"
"""Operations in logs. Where files are read, reads are of their blocks."""


class _Line(Struct):
    asctime: str = ""
    op: str = ""
    op_latency: float = 0.0
    confs_no: int = 0

    @property
    def ended_s(self) -> float:
        return datetime.fromisoformat(self.asctime).timestamp()


def not_fresh(directory: Path, parameters: Parameters) -> str | None:
    """Return the fault of the round with logs in ``directory`` in a sentence, or `None`.

    Hosts' clocks are believed.
    """
    if not parameters.fresh_after_s or not parameters.reconfigurers:
        return None
    lines = list(_lines(directory))
    of_files = [line for line in lines if line.op == _FILE_READ]
    reads = of_files or [line for line in lines if line.op == _READ]
    began_s = [line.ended_s - line.op_latency for line in reads]
    moved_s = [line.ended_s for line in lines if line.op == _MOVE]
    if not began_s or not moved_s:
        return f"the round left no {'reads' if moved_s else 'reconfigurations'}"
    early_s = max(moved_s) - min(began_s)
    if early_s > 0:
        return (
            f"readers began {early_s:.1f} s before the last reconfiguration had ended: is the "
            "machine busy? A larger fresh_after_s waits longer"
        )
    moves = parameters.reconfigurers * parameters.reconfigurations
    found = [line.confs_no for line in reads if line.confs_no]
    if found and min(found) < moves and "gc" not in parameters.switches:
        return (
            f"{moves} reconfigurations were to be found, and a read found {min(found)}: some "
            "met, and a larger reconfigure_every_s keeps them apart"
        )
    return None


def _lines(directory: Path) -> Iterator[_Line]:
    for path in sorted(directory.glob("logs/*/client-*.log*")):
        with path.open("rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):  # half a line of a killed client
                    yield msgspec.json.decode(line, type=_Line)
