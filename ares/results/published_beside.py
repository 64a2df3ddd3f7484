"""Published runs and figures under this project's names, for common figures in a page.

Names of scenarios and algorithms change only if the database has this project's runs of the
scenario; a page of published runs alone keeps the authors' names.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from ares.results.published_figures import PublishedLine


class Counterpart(Struct, frozen=True):
    """This project's scenario for a published scenario.

    ``parameters``: of this project's runs, implied by the published scenario. ``why``: the likeness
    of both.
    """

    scenario: str
    why: str
    parameters: dict[str, str] = {}


_SAME_SIZES = "the same sizes, eleven servers, the same parity"
_RAFT = "members of consensus"
PUBLISHED_SCENARIOS = {
    "scalability": Counterpart(
        "scalability", "the same numbers of servers, readers and writers; 1 MiB"
    ),
    "object_size": Counterpart("object_size", _SAME_SIZES),
    "fragmentation_k": Counterpart("fragmentation_k", "the same k over eleven servers; 4 MiB"),
    "topology1": Counterpart(
        "topology", "three servers, one writer and one reader without pauses, 32 bytes"
    ),
    "topology2": Counterpart(
        "servers", "one writer and one reader without pauses, 32 bytes, 3 to 15 servers"
    ),
    "node_crashes": Counterpart(
        "node_crashes", "server0 and server3 crash while reconfigurers work; 1 MiB"
    ),
    "recon_same_dap/rpi_raft": Counterpart(
        "reconfiguration",
        "moves to the same primitives, all servers",
        {"onto": "all", _RAFT: "Raspberry Pis"},
    ),
    "recon_same_dap/local_raft": Counterpart(
        "reconfiguration",
        "moves to the same primitives, all servers",
        {"onto": "all", _RAFT: "Emulab"},
    ),
    "recon_alternate_random_servers/rpi_raft": Counterpart(
        "reconfiguration",
        "moves to the other primitives and to servers by chance",
        {"onto": "some", _RAFT: "Raspberry Pis"},
    ),
    "recon_alternate_random_servers/local_raft": Counterpart(
        "reconfiguration",
        "moves to the other primitives and to servers by chance",
        {"onto": "some", _RAFT: "Emulab"},
    ),
    "piggyback": Counterpart("piggyback", _SAME_SIZES),
    "garbage_collection": Counterpart(
        "chain", "reads that begin before twelve finalized configurations"
    ),
}
"""Counterparts by published scenario."""

PUBLISHED_ALGORITHMS = {
    "AresABD": "ARES_ABD",
    "AresEC": "ARES_EC",
    "CoAresABD": "COARES_ABD",
    "CoAresEC": "COARES_EC",
    "CoAresABDF": "COARES_ABD_F",
    "CoAresECF": "COARES_EC_F",
    "Ares": "ARES_MIXED",  # Table 3: the primitives alternate
    "CoAres": "COARES_MIXED",
    "CoAresF": "COARES_MIXED_F",
}
"""Names of the algorithms of ARES II; the report has this project's names.

The name is followed by the switches: PB (piggyback) and GC.
"""


def _as_published(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Return the names of this project's runs of algorithms as published, by scenario and protocol.

    `ARES_EC (ARES of 2022)` stands beside the authors' ARES_EC, in place of today's ARES_EC. Of
    several, ARES II stands there.
    """
    found: dict[tuple[str, str], str] = {}
    for run in sorted(runs, key=lambda run: run["algorithm"]):
        protocol, named, _ = run["algorithm"].partition(" (")
        if named and not run["published"]:
            found.setdefault((run["scenario"], protocol), run["algorithm"])
    return found


def rename_runs(runs: Sequence[dict[str, Any]]) -> None:
    """Give published runs this project's names, if the database has such a scenario."""
    ours = {run["scenario"] for run in runs if not run["published"]}
    names = _as_published(runs)
    for run in runs:
        other = PUBLISHED_SCENARIOS.get(run["scenario"])
        if run["published"] and other is not None and other.scenario in ours:
            run["scenario"], run["parameters"] = (
                other.scenario,
                run["parameters"] | other.parameters,
            )
            place = run["scenario"], run["algorithm"]
            run["algorithm"] = names.get(place, run["algorithm"])


def rename_lines(
    lines: Sequence[PublishedLine], runs: Sequence[dict[str, Any]]
) -> list[PublishedLine]:
    """Return printed figures with this project's names, if the database has the scenario.

    The figures get the switches of this project's runs of the algorithm, or of the scenario if it
    has no such run. Figures of pending configurations stay unless this project has runs with as
    many.
    """
    switches: dict[tuple[str, str], set[str]] = {}
    pending: dict[str, set[int]] = {}
    for run in runs:
        if not run["published"]:
            pending.setdefault(run["scenario"], set()).add(run["parameters"].get("pending", 0))
            for algorithm in (run["algorithm"], ""):
                switches.setdefault((run["scenario"], algorithm), set()).add(
                    str(run["parameters"].get("switches", "none"))
                )
    names = _as_published(runs)
    renamed = [_renamed(line, names, switches, pending) for line in lines]
    return [line for line in renamed if line is not None]


def _renamed(
    line: PublishedLine,
    names: dict[tuple[str, str], str],
    switches: dict[tuple[str, str], set[str]],
    pending: dict[str, set[int]],
) -> PublishedLine | None:
    """Return the renamed figure, or None if no run had the figure's switches.

    ``switches`` is by scenario and algorithm; the empty algorithm has all of the scenario.
    ``pending``: the numbers of pending configurations in this project's runs, by scenario.
    """
    other, (name, _, on) = PUBLISHED_SCENARIOS[line.scenario], line.algorithm.partition(" ")
    everyone, counts = switches.get((other.scenario, "")), pending.get(other.scenario, {0})
    if everyone is None or line.at.get("pending", 0) not in counts:
        return line
    protocol = PUBLISHED_ALGORITHMS.get(name, name)
    algorithm = names.get((other.scenario, protocol), protocol)
    at = {key: value for key, value in line.at.items() if key != "pending" or counts != {0}}
    if name in PUBLISHED_ALGORITHMS:
        words = (
            {"PB": "piggyback"} if line.scenario == "piggyback" else {"PB": "piggyback", "GC": "gc"}
        )  # without a move no collection
        wanted = {word for short, word in words.items() if short in on.split("+")}
        same = [
            each
            for each in sorted(switches.get((other.scenario, algorithm), everyone))
            if wanted == set(words.values()) & set(each.split("+"))
        ]
        if not same:
            return None
        at["switches"] = same[0]
    return structs.replace(line, scenario=other.scenario, algorithm=algorithm, at=at)
