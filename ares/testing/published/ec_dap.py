"""EC-DAP II, the client half (Alg. 3).

A List is never empty (Alg. 4:2). A server of ours sends an empty List after the collection of a
configuration; the published server sends all tags with bottom. The empty List counts as such a
List.
"""

from collections import Counter

from ares.engine.effects import Operation
from ares.engine.phases import FIND_TAG, GET_DATA, MAX_TAG, MAX_VALUE, phase
from ares.model.configuration import Successor
from ares.model.errors import Undecodable
from ares.model.identity import ObjectName
from ares.model.messages import Element
from ares.model.tag import TAG_ZERO
from ares.model.value import Answered
from ares.testing.published.data_access import BOTTOM, Cs, Found, PublishedDap


class EcDap(PublishedDap):
    """EC-DAP II: server i holds element i of an [n, k] code, for delta + 1 tags."""

    def index(self, position: int) -> int:
        return position

    @phase(GET_DATA)
    def get_data(
        self, object: ObjectName, carry: Successor | None = None
    ) -> Operation[tuple[Found, Cs]]:
        """Return the highest tag in k Lists, the tag's value, and nextC (Alg. 3:9-22).

        Raises :class:`Undecodable` when no tag is in k Lists, after more than delta writers.
        """
        replies = yield from self.query_list(object, carry)  # Alg. 3:10-11
        lists = [reply.entries for reply in replies.values()]
        cs: Cs = [reply.successor for reply in replies.values()]  # Alg. 3:12
        with self.measure(FIND_TAG):  # Alg. 3:13: tags that appear in k Lists
            counts = Counter(entry.tag for entries in lists for entry in entries)
            tags_dec = {tag for tag, count in counts.items() if count >= self.c.k}
        if not tags_dec and not all(lists):  # a collected server: every tag is with bottom
            return (TAG_ZERO, BOTTOM), cs
        if not tags_dec:  # Alg. 3:15: no else is printed, and is read as a failure
            raise Undecodable(
                object, f"no tag is in {self.c.k} of {len(lists)} Lists", max(counts), False, False
            )
        with self.measure(MAX_TAG):
            t_max_dec = max(tags_dec)  # Alg. 3:14
        with self.measure(MAX_VALUE):
            fragments: list[Element | None] = [  # Alg. 3:16
                entry.element for entries in lists for entry in entries if entry.tag == t_max_dec
            ]
            elements = [element for element in fragments if element is not None]
            v: Answered = BOTTOM  # Alg. 3:19-20
            if len(elements) == len(fragments) and all(lists):  # Alg. 3:17: no bottom in fragments
                v = self.decode(elements)  # Alg. 3:18
        return (t_max_dec, v), cs  # Alg. 3:21
