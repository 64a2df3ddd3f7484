"""Published runs and figures beside ours: what their scenarios and algorithms are called here, so that a page can draw both in one figure.

Names change only where the database has runs of ours of that scenario; a page of published runs alone keeps the names of their authors.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from ares.results.published_figures import PublishedLine


class Counterpart(Struct, frozen=True):
    """Our scenario for one of theirs. ``told``: what our runs tell as parameters, and theirs by their scenario. ``why``: what makes them alike."""

    scenario: str
    why: str
    told: dict[str, str] = {}


_SIZES = "the same sizes, eleven servers, the same parity"
_RAFT = "members of consensus"
SCENARIOS = {
    "scalability": Counterpart(
        "scalability", "the same numbers of servers, readers and writers; 1 MiB"
    ),
    "object_size": Counterpart("object_size", _SIZES),
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
    "piggyback": Counterpart("piggyback", _SIZES),
    "garbage_collection": Counterpart(
        "chain", "reads that begin before twelve finalized configurations"
    ),
}
"""By the name of theirs."""

ALGORITHMS = {
    "AresABD": "ARES_ABD",
    "AresEC": "ARES_EC",
    "CoAresABD": "COARES_ABD",
    "CoAresEC": "COARES_EC",
    "CoAresABDF": "COARES_ABD_F",
    "CoAresECF": "COARES_EC_F",
    "Ares": "ARES_EC",  # Table 3: primitives alternate there. A chain is followed in the same way whatever they are
    "CoAres": "COARES_EC",
    "CoAresF": "COARES_EC_F",
}
"""Algorithms of ARES II; those of the report have our names. After them stands what is on: PB (piggyback) and GC."""


def rename_runs(runs: Sequence[dict[str, Any]]) -> None:
    """Give published runs our names, where we have such a scenario."""
    ours = {run["scenario"] for run in runs if not run["published"]}
    for run in runs:
        other = SCENARIOS.get(run["scenario"])
        if run["published"] and other is not None and other.scenario in ours:
            run["scenario"], run["parameters"] = other.scenario, run["parameters"] | other.told


def rename_lines(
    lines: Sequence[PublishedLine], runs: Sequence[dict[str, Any]]
) -> list[PublishedLine]:
    """Printed figures with our names, where we have such a scenario; with the switches that our runs of it had. Pending ones we do not have."""
    switches: dict[str, set[str]] = {}
    for run in runs:
        if not run["published"]:
            switches.setdefault(run["scenario"], set()).add(
                str(run["parameters"].get("switches", "none"))
            )
    return [renamed for line in lines if (renamed := _renamed(line, switches)) is not None]


def _renamed(line: PublishedLine, switches: dict[str, set[str]]) -> PublishedLine | None:
    """None if our runs of the scenario had never on what the figure is of."""
    other, (name, _, on) = SCENARIOS[line.scenario], line.algorithm.partition(" ")
    if other.scenario not in switches or line.at.get("pending"):
        return line
    at = {key: value for key, value in line.at.items() if key != "pending"}
    if name in ALGORITHMS:
        words = (
            {"PB": "piggyback"} if line.scenario == "piggyback" else {"PB": "piggyback", "GC": "gc"}
        )  # nothing moves there: no collection
        wanted = {word for short, word in words.items() if short in on.split("+")}
        same = [
            each
            for each in sorted(switches[other.scenario])
            if wanted == set(words.values()) & set(each.split("+"))
        ]
        if not same:
            return None
        at["switches"] = same[0]
    return structs.replace(
        line, scenario=other.scenario, algorithm=ALGORITHMS.get(name, name), at=at
    )
