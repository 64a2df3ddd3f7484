"""The six algorithms that the papers evaluate, with the names used in their figures.

See ARES II section 4, "Evaluated Algorithms". The algorithms differ only in the data access
primitives of the configuration and in the client's use of the primitives: plain reads and writes
(ARES), coverable reads and writes with the optimised primitives (CoARES), or coverable blocks of a
fragmented file (CoARESF). The generation and piggybacking, collecting and batching depend on the
client's switches (ares/reconfig/view.py).
"""

from msgspec import Struct

from ares.model.configuration import Algorithm
from ares.model.errors import BadInput


class PaperAlgorithm(Struct, frozen=True):
    """An algorithm of the papers.

    ``dap`` names the primitives required of the objects' configuration. With ``coverable``, a write
    names the version to replace. With ``fragmented``, the object is a file of coverable blocks.
    """

    name: str
    dap: Algorithm
    coverable: bool = False
    fragmented: bool = False

    @property
    def optimised(self) -> bool:
        """Return whether the primitives are optimised, which is part of CoARES, not of ARES.

        Optimised primitives send no value that the client holds.
        """
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
    """Return the algorithm called `name`, in upper or lower case.

    Raises :class:`BadInput` naming the six.
    """
    known = _BY_NAME.get(name.lower())
    if known is None:
        raise BadInput(
            f"{name!r} is no algorithm of the papers: expected one of "
            f"{', '.join(each.name for each in ALGORITHMS)}"
        )
    return known
