"""The protocols of scenarios that run ares, or its algorithms as published."""

from collections.abc import Collection

from ares.model.configuration import DELTA_DEFAULT, Algorithm, Configuration
from ares.testing.published.ares2 import Ares2Switches
from ares.testing.published.published_objects import PublishedAlgorithm
from experiments.algorithms import PaperAlgorithm

ALGORITHM_OF = {
    "ABD": PaperAlgorithm("ABD", "abd"),
    "ARES_ABD": PaperAlgorithm("AresABD", "abd"),
    "ARES_EC": PaperAlgorithm("AresEC", "ec"),
    "ARES_MIXED": PaperAlgorithm("AresABD", "abd"),
    "COARES_MIXED": PaperAlgorithm("CoAresABD", "abd", coverable=True),
    "COARES_MIXED_F": PaperAlgorithm("CoAresABDF", "abd", coverable=True, fragmented=True),
    "COARES_ABD": PaperAlgorithm("CoAresABD", "abd", coverable=True),
    "COARES_EC": PaperAlgorithm("CoAresEC", "ec", coverable=True),
    "COARES_ABD_F": PaperAlgorithm("CoAresABDF", "abd", coverable=True, fragmented=True),
    "COARES_EC_F": PaperAlgorithm("CoAresECF", "ec", coverable=True, fragmented=True),
}
"""Algorithms of the ares protocols of scenarios.

ABD is the algorithm of ARES_ABD without reconfigurations, with two rounds for every operation. The
primitives of the MIXED protocols change with each reconfiguration, beginning with ABD.
"""


def is_mixed(protocol: str) -> bool:
    """Return whether reconfigurations change the primitives."""
    return "_MIXED" in protocol


def is_coded(protocol: str) -> bool:
    """Return whether a configuration of the protocol has the erasure code."""
    return ALGORITHM_OF[protocol].dap == "ec" or is_mixed(protocol)


TRANSCRIPTIONS = {
    "": "today's ares",
    "ares": "ARES of 2022",
    "ares2": "ARES II as printed",
    "abd": "plain ABD",
}
"""Names of the algorithms that ``published`` names in scenarios and claims."""


def why_untranscribed(
    protocol: str, published: str, switches: Collection[str] = (), reconfigurers: int = 0
) -> str | None:
    """Return why the algorithm ``published`` cannot run the protocol, or `None`.

    Other stores have no algorithm as published, and their rounds are without.
    """
    if not published or protocol not in ALGORITHM_OF:
        return None
    if published == "abd" and protocol != "ABD":
        return f"plain ABD is protocol ABD, and not {protocol}"
    if published == "ares2" and protocol != "ABD" and "fast_read" in switches:
        return "ARES II as printed has no switch fast_read, which only today's ares has"
    collects = published == "ares2" and protocol != "ABD" and "gc" in switches
    if collects and reconfigurers and "piggyback" not in switches:
        return (
            "gc needs the piggyback: else a read asks a collected configuration, finds no value, "
            'and returns v0 (docs/piggyback-counterexample.md, "Modifications that need the '
            'piggyback")'
        )
    return None


def algorithm_name(protocol: str, published: str) -> str:
    """Return the name of a run's algorithm in results: as published it is no line of today's."""
    name = "plain" if protocol == "ABD" else TRANSCRIPTIONS[published]
    return f"{protocol} ({name})" if published else protocol


def published_algorithm(
    protocol: str, published: str, switches: Collection[str]
) -> PublishedAlgorithm:
    """Return the algorithm as published. Protocol ABD is plain ABD beside all of them."""
    of = ALGORITHM_OF[protocol]
    return PublishedAlgorithm(
        "abd" if protocol == "ABD" else published,
        Ares2Switches("piggyback" in switches, "gc" in switches, "batch" in switches),
        of.coverable,
        of.fragmented,
    )


def k_of(servers: int, parity: int) -> int:
    """Return k of a configuration of so many servers: the parity is limited by their number."""
    return max(1, servers - parity)


def servers_of_some(running: int) -> list[int]:
    """Return the possible numbers of servers of a move onto some of the ``running`` servers."""
    return [number for number in (3, 5, 7, 9, 11) if number <= running] or [running]


def configuration_of(
    dap: Algorithm, servers: list[str], parity: int, delta: int = DELTA_DEFAULT
) -> Configuration:
    """Return a configuration over these servers."""
    if dap == "abd":
        return Configuration.abd(servers, allow_no_faults=True)
    k = k_of(len(servers), parity)
    return Configuration.ec(servers, k, delta, allow_no_faults=True)
