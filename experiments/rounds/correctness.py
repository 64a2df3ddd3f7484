"""A check that a single register could have given the answers of a round.

A client writes a line for each operation (`*.history`, the format of `ares-cli check-history`), by
the monotonic clock of the machine; ares/testing/verify checks the histories. Clocks of different
machines are not compared: such a round is undecided. Objects that are files are not judged, since a
write of a file is a write of many blocks. ARES II as printed can lose a completed write
(docs/piggyback-counterexample.md): such answers are told, and do not fail the round.
"""

import hashlib
import random
from pathlib import Path
from typing import Any, Literal

import msgspec

from ares.model.errors import BadInput
from ares.model.units import MIB
from ares.testing.verify.history import Event, dump, load
from ares.testing.verify.linearizability import check
from experiments.rounds.provenance import write_json

HISTORY_SUFFIX = ".history"
NOT_JUDGED = ("COARES_ABD_F", "COARES_EC_F", "COARES_MIXED_F")
HISTORY = "checked.history"
CONTENT_PIECE_BYTES = 64 * MIB
BOOT = Path("/proc/sys/kernel/random/boot_id")


def value_of(content: bytes | None) -> str | None:
    """Return the name of a value in a history, or `None` for no value."""
    return None if content is None else hashlib.blake2b(content, digest_size=12).hexdigest()


def first_value(seed: int, client: int, size: int) -> bytes:
    """Return the value that the object's creator writes."""
    return content(random.Random(f"{seed} {client}"), size)


def content(chance: random.Random, size: int) -> bytes:
    """Return random bytes; a call of ``randbytes`` makes less than 256 MiB."""
    begins = range(0, size, CONTENT_PIECE_BYTES)
    return b"".join(chance.randbytes(min(CONTENT_PIECE_BYTES, size - begin)) for begin in begins)


class History:
    """The history of a client: a line for each operation, written at the operation's end.

    The file name has the machine.
    """

    def __init__(self, directory: Path, client: int, key: str) -> None:
        machine = BOOT.read_text().strip()
        path = directory / f"client-{client}-{machine}{HISTORY_SUFFIX}"
        self._file = path.open("ab")
        self._client, self._key = str(client), key

    def add(
        self,
        operation: Literal["read", "write"],
        value: str | None,
        invoked: float,
        responded: float | None,
    ) -> None:
        """Add an operation. ``responded`` is `None` if the outcome is unknown."""
        outcome: Literal["unknown", "ok"] = "unknown" if responded is None else "ok"
        what = (self._client, operation, self._key, value)
        self._file.write(dump([Event(*what, invoked, responded, outcome)]))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


WRONG = "NOT LINEARIZABLE"
"""Beginning of a verdict."""


def checked(directory: Path) -> str | None:
    """Return the fault in the clients' answers in the round in ``directory``, or `None`.

    The fault is a sentence; a round without a check has no fault. The verdict goes into `run.json`
    (``checked``), and all histories into a single file, checked.history, for `ares-cli
    check-history`.
    """
    path = directory / "run.json"
    described = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    parameters = described.get("parameters", {})
    if not parameters.get("check"):
        return None
    verdict, wrong = _judged(directory, described)
    described["parameters"] = parameters | {"checked": verdict}
    write_json(path, described)
    return wrong


def _judged(directory: Path, described: dict[str, Any]) -> tuple[str, str | None]:
    """Return the verdict in a word or two, and the fault."""
    if str(described.get("algorithm")).partition(" (")[0] in NOT_JUDGED:
        return "not judged: a write of a file is several", None
    paths = [path for path in sorted(directory.rglob(f"*{HISTORY_SUFFIX}")) if path.name != HISTORY]
    if not paths:
        return "undecided", "the clients left no history to check"
    machines = {path.stem.split("-", 2)[-1] for path in paths}
    if len(machines) > 1:
        ran = f"the clients ran on {len(machines)} machines, whose clocks cannot be compared"
        return "undecided", f"{ran}; run them on one machine to check their answers"
    size, seed = described["object_size"], described["provenance"]["seed"]
    try:
        events = [event for path in paths for event in load(path.read_bytes(), str(path))]
    except BadInput as error:
        return "undecided", str(error)
    key = events[0].key if events else ""
    events.insert(0, Event("maker", "write", key, value_of(first_value(seed, 1, size)), 0.0, 0.0))
    (directory / HISTORY).write_bytes(dump(sorted(events, key=lambda event: event.invoked)))
    report, answers = check(events), "the clients' answers are"
    if report.violations:
        violation = report.violations[0].describe()
        if _is_not_atomic(described):
            return f"{WRONG}, as ARES II as printed can be: {violation.splitlines()[0]}", None
        return WRONG, f"{answers} not linearizable: {violation}"
    if report.undecided:
        why = report.undecided[0].describe()
        return "undecided", f"whether {answers} linearizable was not decided: {why}"
    return "linearizable", None


def _is_not_atomic(described: dict[str, Any]) -> bool:
    """Return whether the round's algorithm can lose a completed write, without a fault of it.

    Protocol ABD is plain ABD beside ARES II, too.
    """
    switches = described["parameters"].get("switches", ())
    printed = described["parameters"].get("published") == "ares2"
    plain = described["algorithm"].partition(" (")[0] == "ABD"
    return printed and not plain and not {"piggyback", "gc"}.isdisjoint(switches)
