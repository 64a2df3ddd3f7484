"""The outcome of an operation, from its recording, for its span and for the operation log.

A line of the log has the attributes logged by the authors of ARES (python-json-logger, NGIatlantic
2022) under their names, and more.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from math import comb
from typing import Any

from msgspec import Struct

from ares.dap.primitives import DataResult
from ares.engine.jobs import OperationLabel
from ares.engine.phases import (
    CHAIN,
    CONSENSUS,
    DECODE,
    ENCODE,
    GET_DATA,
    PAUSE,
    PHASE_1,
    PHASE_2,
    PUT_DATA,
    QUEUE,
    READ_CONFIG,
    ROUND,
)
from ares.engine.recording import RecordedPart, Recording
from ares.fragment.read import FileState
from ares.fragment.report import WriteReport
from ares.model.configuration import Configuration
from ares.model.errors import Uncertain
from ares.model.identity import FILE_DOMAINS, NO_DOMAIN, RESERVED, ServerId, shown
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.reconfigure import ReconfigurationResult
from ares.registers.coverable import CoverableResult

BEFORE_PHASES = ""
_PHASE_OF_STEP = {PHASE_1: PHASE_1, PHASE_2: PHASE_2, GET_DATA: PHASE_1, PUT_DATA: PHASE_2}
"""The phase that a step begins; a reconfiguration moves data without a phase of its own."""

_WAITS = (ROUND, CONSENSUS, PAUSE, QUEUE, CHAIN)
_CHANGING_OPERATIONS = ("write", "put", "delete", "reconfigure", "append", "trim")

OPERATIONS = {"reconfiguration": "reconfigure", "deletion": "delete", "listing": "list"}
"""Operations whose label begins with another word than their name."""

BOOKKEEPING = {"read": "lookup", "write": "record"}
"""Names of operations on reserved objects, a client's own bookkeeping.

Such objects give the beginnings of domains.
"""

COMPLETE_WORDS = {
    **dict.fromkeys(("read", "get"), "READ"),
    **dict.fromkeys(("write", "put"), "WRITE"),
    "delete": "DELETE",
    "reconfigure": "RECONFIG",
}
"""Beginning of the message of an operation; by default the operation's name in capitals."""

_OF_MEMORY = ("read", "write", "delete", "reconfigure")
"""Operations of the shared memory (DSMM) on an object; on a file they are not."""


class OperationSummary(Struct):
    """The summary of an operation.

    ``rounds``: rounds with servers. ``configurations``: the configurations visited. ``tag``: of the
    version read or written. ``size``: bytes of the value. ``moved``: objects moved by a
    reconfiguration.
    """

    rounds: int
    configurations: list[Configuration]
    tag: Tag | None = None
    size: int | None = None
    moved: int | None = None


class OperationPhases:
    """The parts of an operation by phase and name; a phase itself is a part of the phase."""

    def __init__(self, recording: Recording) -> None:
        self.parts: defaultdict[tuple[str, str], list[RecordedPart]] = defaultdict(list)
        phases: dict[RecordedPart, str] = {}
        for part in recording.parts[1:]:
            above = (
                phases.get(part.parent, BEFORE_PHASES) if part.parent is not None else BEFORE_PHASES
            )
            phase = phases[part] = above or _PHASE_OF_STEP.get(part.name, BEFORE_PHASES)
            self.parts[phase, part.name].append(part)

    def of(self, name: str, *phases: str) -> list[RecordedPart]:
        """Return the parts of this name in these phases, or in any phase."""
        found: list[RecordedPart] = []
        for phase in phases or (BEFORE_PHASES, PHASE_1, PHASE_2):
            found += self.parts.get((phase, name), ())
        return found

    @property
    def found(self) -> Tag | None:
        """Return the highest tag met by the first phase."""
        return max(
            (
                heard.tag
                for part in self.of(ROUND, PHASE_1)
                for heard in part.heard
                if heard.tag is not None
            ),
            default=None,
        )

    def quorum(self, phase: str) -> RecordedPart | None:
        """Return the last round of the phase with a quorum."""
        return next(
            (
                part
                for part in reversed(self.of(ROUND, phase))
                if len(part.heard) >= part.needed and not part.failed
            ),
            None,
        )


def summary_of(recording: Recording, result: object) -> OperationSummary:
    """Return the summary of an operation; ``result`` is None for an operation without a result."""
    rounds = [
        (part, part.configuration) for part in recording.parts if part.configuration is not None
    ]
    configurations = {
        configuration.id: configuration
        for _, configuration in rounds
        if configuration.domain != NO_DOMAIN
    }
    summary = OperationSummary(len(rounds), list(configurations.values()))
    written = {part.tag: part.size for part, _ in rounds if part.tag is not None}
    if len(written) == 1:
        [(summary.tag, summary.size)] = written.items()
    match result:
        case DataResult():
            summary.tag, summary.size = result.tag, result.length
        case CoverableResult(_, tag, value):
            summary.tag = tag
            summary.size = len(value) if isinstance(value, bytes) else summary.size
        case Tag():
            summary.tag = result
        case (WriteReport(), FileState() as state):
            summary.tag, summary.size = state.tag, state.length
        case FileState():
            summary.tag, summary.size = result.tag, result.length
        case ReconfigurationResult():
            summary.moved, summary.size = result.moved, result.bytes
        case (_, ReconfigurationResult() as done):  # the autopilot's, with its verdict
            summary.moved, summary.size = done.moved, done.bytes
        case bytes():
            summary.size = len(result)
    summary.size = None if summary.size is None else max(summary.size, 0)
    return summary


def attributes_of(recording: Recording, result: object, keys: bool) -> dict[str, Any]:
    """Return the attributes of the operation's own span. ``keys``: files may be named."""
    summary, names = summary_of(recording, result), {part.name for part in recording.parts}
    about: dict[str, Any] = {
        "db.system.name": "ares",
        "db.operation.name": recording.operation.name,
    }
    if summary.configurations:
        last = of_configuration(summary.configurations[-1], keys)
        about |= {
            "db.namespace": last["ares.domain"],
            **last,
            "ares.configurations": tuple([each.index for each in summary.configurations]),
        }
    about["ares.rounds"] = summary.rounds
    if PHASE_1 in names:
        about["ares.fast"] = PHASE_2 not in names
    attributes = {
        "ares.tag": None if summary.tag is None else str(summary.tag),
        "ares.bytes": summary.size,
        "ares.objects_moved": summary.moved,
    }
    return about | {name: value for name, value in attributes.items() if value is not None}


def of_configuration(configuration: Configuration, keys: bool) -> dict[str, Any]:
    """Return the attributes of a configuration in spans. ``keys``: files may be named."""
    domain = configuration.domain
    return {
        "ares.domain": domain if keys or not domain.startswith(FILE_DOMAINS) else FILE_DOMAINS,
        "ares.configuration": configuration.index,
        "ares.dap": configuration.dap,
        "ares.n": configuration.n,
        "ares.k": configuration.k,
    }


def line_of(
    recording: Recording, label: object, result: object, error: BaseException | None
) -> dict[str, Any]:
    """Return the line of an operation log, without the fields known only to the log.

    These are the client, the operation's number, and its earlier tag of the object.
    """
    summary, phases, whole = (
        summary_of(recording, result),
        OperationPhases(recording),
        recording.operation,
    )
    op, object = _named(whole.name, label)
    communication_s = covered_s([part for name in _WAITS for part in phases.of(name)])
    whole_s = (whole.ended_s or 0.0) - whole.began_s
    of_memory = op in _OF_MEMORY and not getattr(label, "kind", "")
    line = {
        "message": f"{COMPLETE_WORDS.get(op, op.upper())}-COMPLETE{'-DSMM' if of_memory else ''}",
        "op": op,
        "objectID": object,
        "status": "SUCCESS" if error is None else "UNSUCCESS",
        "outcome": _outcome(op, error),
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "op_latency_start": whole.began_s,
        "op_latency_end": whole.ended_s,
        "op_latency": whole_s,
        "com_latency": communication_s,
        "manager_comp_latency": max(whole_s - communication_s, 0.0),
        "read_config_latency_total": covered_s(phases.of(READ_CONFIG, BEFORE_PHASES, PHASE_1)),
        "phase1_latency": covered_s(phases.of(PHASE_1, PHASE_1))
        - covered_s(phases.of(READ_CONFIG, PHASE_1)),
        "phase2_latency": covered_s(phases.of(PHASE_2, PHASE_2)),
        "p2_read_config_time_total": covered_s(phases.of(READ_CONFIG, PHASE_2)),
        "p2_put_data_time_total": covered_s(phases.of(PUT_DATA, PHASE_2)),
        "encode_latency": covered_s(phases.of(ENCODE)),
        "decode_latency": covered_s(phases.of(DECODE)),
        "newTag": _tag(summary.tag)
        if op in ("write", "delete") and getattr(result, "changed", True)
        else None,
        "maxTag": _tag(summary.tag if op == "read" else phases.found),
        "prop": bool(phases.of(PHASE_2, PHASE_2) and phases.of(PUT_DATA, PHASE_2)),
        "file_size": summary.size if error is None else 0,
        "found": getattr(result, "value", None) is not TOMBSTONE if error is None else None,
        "rounds": len(phases.of(ROUND)),
        **_of_configurations(summary.configurations),
    }
    for phase in (PHASE_1, PHASE_2):
        if (quorum := phases.quorum(phase)) is not None and quorum.configuration is not None:
            servers = [heard.server for heard in quorum.heard[: quorum.needed]]
            line |= {
                f"quorum_{phase.lower()}": quorum_number(
                    tuple(servers), quorum.configuration.server_ids
                ),
                f"quorum_{phase.lower()}_servers": servers,
            }
    return line if summary.moved is None else line | {"objects_moved": summary.moved}


def _named(name: str, label: object) -> tuple[str, str]:
    """Return the log's names of the operation and its object."""
    op = OPERATIONS.get(name, name)
    if not isinstance(label, OperationLabel):
        named = str(label).partition(" of ")[2]
        return op, named[1:-1] if named[:1] == named[-1:] and named[:1] in ("'", '"') and len(
            named
        ) > 1 else named
    if label.name.startswith(RESERVED):
        return BOOKKEEPING.get(op, op), shown(label.name)
    return "get" if label.kind and op == "read" else op, label.name


def _of_configurations(configurations: Sequence[Configuration]) -> dict[str, Any]:
    if not configurations:
        return {}
    last, daps = configurations[-1], [each.dap.upper() for each in configurations]
    return {
        "domain": last.domain,
        "dap_protocols": {dap: daps.count(dap) for dap in daps},
        "params": {"dap_protocol": last.dap.upper()}
        | ({"m": last.n - last.k} if last.dap == "ec" else {}),
        "servers_no": last.n,
        "confs_no": len(configurations),
        "configurations": [each.index for each in configurations],
    }


def _outcome(op: str, error: BaseException | None) -> str:
    if error is None:
        return "ok"
    unknown = (
        error.may_have_taken_effect
        if isinstance(error, Uncertain)
        else not isinstance(error, Exception)
    )
    return "unknown" if unknown and op in _CHANGING_OPERATIONS else "failed"


def _tag(tag: Tag | None) -> list[Any] | None:
    return None if tag is None else [tag.number, f"{tag.writer:016x}"]


def covered_s(parts: Sequence[RecordedPart]) -> float:
    """Return the seconds covered by the parts together."""
    if len(parts) < 2:
        return sum((part.ended_s or part.began_s) - part.began_s for part in parts)
    covered, until = 0.0, 0.0
    for began, ended in sorted((part.began_s, part.ended_s or part.began_s) for part in parts):
        covered += max(ended - max(began, until), 0.0)
        until = max(until, ended)
    return covered


@lru_cache
def quorum_number(quorum: tuple[ServerId, ...], servers: tuple[ServerId, ...]) -> int:
    """Return the place of the quorum among the combinations of so many of ``servers``.

    The order is lexicographic from 0, as in the published logs.
    """
    places, rank, after = sorted(servers.index(server) for server in quorum), 0, 0
    for position, place in enumerate(places):
        rank += sum(
            comb(len(servers) - 1 - skipped, len(places) - 1 - position)
            for skipped in range(after, place)
        )
        after = place + 1
    return rank
