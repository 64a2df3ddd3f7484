"""Cost of a fault in a load round: the points of `load.json`, and the time in `events.jsonl`."""

from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from ares.results.load_points import LOAD_FILE
from experiments.bench.measured_points import read_load, under_fault, write_load
from experiments.rounds.scenario import Parameters


class _Event(Struct):
    time: str
    event: str = ""


def judge_load(directory: Path, parameters: Parameters) -> str | None:
    """Complete `load.json` in the directory of a round with the cost of the fault.

    Return an error in a sentence, or `None`. Call this after the logs were fetched; repeated calls
    are allowed.
    """
    paths = sorted(directory.rglob(LOAD_FILE))
    if not paths:
        return f"the round left no {LOAD_FILE}"
    for path in paths:
        try:
            file = read_load(path)
        except msgspec.MsgspecError as error:
            return f"{path.name} is none: {error}"
        if file.wrong:
            return f"a read returned a value that no write stored: {file.wrong[0]}"
        if not any(point.per_s for point in file.points):
            return "no operation succeeded"
        if parameters.bad == "nobody":
            continue
        struck = _struck(directory / "events.jsonl")
        if struck is None:
            return f"no server was made bad: {parameters.bad} was asked for"
        begins = (datetime.fromisoformat(point.began or "") for point in file.points)
        try:
            points = [
                under_fault(point, (struck - began).total_seconds())
                for point, began in zip(file.points, begins, strict=True)
            ]
        except ValueError as error:
            return str(error)
        write_load(path.parent, structs.replace(file, points=points, fault=f"a {parameters.bad}"))
    return None


def _struck(events: Path) -> datetime | None:
    """Return when the first server crashed or was slowed."""
    lines = events.read_bytes().splitlines() if events.exists() else []
    found = (msgspec.json.decode(line, type=_Event) for line in lines)
    times = (event.time for event in found if event.event in ("crash", "slow"))
    return next(map(datetime.fromisoformat, times), None)
