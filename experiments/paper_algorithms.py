"""The six algorithms that the papers evaluate, by the names that their figures use (ARES II section 4, "Evaluated Algorithms").

They differ in two things only: the data access primitives of the configuration, and what a client does with them: plain reads and writes (ARES),
coverable ones with the optimised primitives (CoARES), or coverable blocks of a fragmented file (CoARESF). Whichever generation, with or without
piggybacking, collecting and batching, is a matter of the client's switches (ares/reconfig/view.py).
"""

from msgspec import Struct

from ares.model.configuration import Algorithm
from ares.model.errors import BadInput


class PaperAlgorithm(Struct, frozen=True):
    """``dap``: the primitives that the configuration of its objects has to speak. ``coverable``: a write names the version that it replaces.
    ``fragmented``: the object is a file of coverable blocks."""

    name: str
    dap: Algorithm
    coverable: bool = False
    fragmented: bool = False

    @property
    def optimised(self) -> bool:
        """Whether the primitives are the optimised ones, which send no value that the client holds: part of CoARES, not of ARES."""
        return self.coverable


ALGORITHMS = (
    PaperAlgorithm("AresABD", "abd"),
    PaperAlgorithm("CoAresABD", "abd", coverable=True),
    PaperAlgorithm("CoAresABDF", "abd", coverable=True, fragmented=True),
    PaperAlgorithm("AresEC", "ec"),
    PaperAlgorithm("CoAresEC", "ec", coverable=True),
    PaperAlgorithm("CoAresECF", "ec", coverable=True, fragmented=True),
)

_BY_NAME = {known.name.lower(): known for known in ALGORITHMS}


def algorithm(name: str) -> PaperAlgorithm:
    """The algorithm of that name, in upper or lower case. Raises :class:`BadInput` naming the six."""
    known = _BY_NAME.get(name.lower())
    if known is None:
        raise BadInput(
            f"{name!r} is no algorithm of the papers: expected one of {', '.join(each.name for each in ALGORITHMS)}"
        )
    return known
