"""ABD-DAP II, the client half: ABD with the modifications of ARES II.

The papers print it in words only: "similar modifications are applied to the ABD-DAP" (ARES II,
5.1). A server holds a single pair, which is a List of one entry. Line numbers are those of Alg. 3.
"""

from ares.engine.effects import Operation
from ares.engine.phases import GET_DATA, MAX_TAG, phase
from ares.model.configuration import Successor
from ares.model.identity import ObjectName
from ares.model.tag import TAG_ZERO
from ares.model.value import Answered
from ares.testing.published.data_access import BOTTOM, Cs, Found, PublishedDap


class AbdDap(PublishedDap):
    """ABD-DAP II: each server holds the pair with the highest tag."""

    def index(self, position: int) -> int:
        return 0

    @phase(GET_DATA)
    def get_data(
        self, object: ObjectName, carry: Successor | None = None
    ) -> Operation[tuple[Found, Cs]]:
        """Return the pair with the highest tag at a quorum, and nextC (as Alg. 3:9-22)."""
        replies = yield from self.query_list(object, carry)  # Alg. 3:10-11
        lists = [reply.entries for reply in replies.values()]
        cs: Cs = [reply.successor for reply in replies.values()]  # Alg. 3:12
        pairs = [entry for entries in lists for entry in entries]
        with self.measure(MAX_TAG):
            t_max = max((pair.tag for pair in pairs), default=TAG_ZERO)  # Alg. 3:14
        values = [pair.element for pair in pairs if pair.tag == t_max]  # Alg. 3:16
        found = [element for element in values if element is not None]
        v: Answered = BOTTOM  # Alg. 3:20; an empty List is of a server that has collected
        if found and len(found) == len(values) and all(lists):  # Alg. 3:17
            v = self.decode(found)  # Alg. 3:18
        return (t_max, v), cs  # Alg. 3:21
