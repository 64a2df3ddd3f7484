"""The protocols of scenarios that run ares: algorithm and configuration."""

from ares.model.configuration import Algorithm, Configuration
from experiments.paper_algorithms import PaperAlgorithm

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


def configuration_of(dap: Algorithm, servers: list[str], parity: int) -> Configuration:
    """Return a configuration over these servers.

    The erasure code has ``parity``, limited by the number of servers.
    """
    if dap == "abd":
        return Configuration.abd(servers, allow_no_faults=True)
    return Configuration.ec(
        servers, k=max(1, len(servers) - min(parity, len(servers) - 1)), allow_no_faults=True
    )
