"""What the answers to one get-data amount to: which version is it, and are its elements there (Alg. 3:9-21)?"""

from collections.abc import Mapping

from ares.configuration import Configuration, Successor
from ares.dap.decidable import newest_decodable
from ares.dap.element import intact
from ares.identity import ObjectName, ServerId
from ares.messages import DELETED, DataReply, Element
from ares.pointer import latest
from ares.tag import TAG_ZERO, Tag

PATIENCE_S = 0.05
BYTES_PER_S_EXPECTED = 200e6

DataReplies = Mapping[ServerId, DataReply]


class Reading:
    """Judges the answers of one round.

    ``needed``: how many elements the reader wants (0: the version and its length only). ``held``: the version whose value it has already.
    ``confirming``: a quorum's answers do not do until a quorum of all that answered holds the version.
    """

    __slots__ = ("_configuration", "_confirming", "_object", "elements", "held", "length", "needed", "successor", "tag")

    def __init__(self, configuration: Configuration, object: ObjectName, needed: int, held: Tag | None = None, confirming: bool = False) -> None:
        self._configuration = configuration
        self._object = object
        self.needed = needed
        self.held = held
        self._confirming = confirming
        self.tag: Tag | None = None
        self.length: int | None = None
        self.successor: Successor | None = None
        self.elements: dict[int, Element] = {}

    @property
    def withheld(self) -> bool:
        """The successor is finalized: it has the data, and this configuration need not be read."""
        return self.successor is not None and self.successor.finalized

    @property
    def complete(self) -> bool:
        """The version is settled, and what is wanted of it is here."""
        return self.length is not None and (self.length == DELETED or self.unchanged or len(self.elements) >= self.needed)

    @property
    def unchanged(self) -> bool:
        """The settled version is the one that the reader holds, or an older one (of a configuration that it left behind)."""
        return self.held is not None and self.tag is not None and self.tag <= self.held

    def settled(self, answers: DataReplies) -> bool:
        """Looks at the answers of a quorum or more, each time there are more; whether the round may end."""
        replies = answers.values()
        self.successor = latest([reply.successor for reply in replies])
        if self.withheld:
            return True
        tag = newest_decodable(list(replies), self._configuration.k)
        if tag != self.tag:
            self.elements.clear()
        self.tag = tag
        self.length = DELETED if tag == TAG_ZERO else next((element.length for element in self.elements.values()), None)
        if tag is not None:
            for reply in replies:
                if reply.tags and reply.tags[0] == self.tag:
                    self._learn(reply)
        return self.complete and (not self._confirming or self.confirmed(answers))

    def _learn(self, reply: DataReply) -> None:
        if self.length is None and (self.needed == 0 or self.unchanged):
            self.length = reply.length
        if reply.element is not None and len(self.elements) < self._configuration.k:
            self.keep(reply.element)
        elif reply.length == DELETED:
            self.length = DELETED

    def keep(self, element: Element) -> None:
        """Take an element of the settled tag, if it is intact: a bad one counts as missing."""
        assert self.tag is not None
        if element.index in self.elements:
            return
        if 0 <= element.index < self._configuration.n and intact(self._configuration.id, self._object, self.tag, element):
            self.elements.setdefault(element.index, element)
            self.length = element.length

    def holders(self, answers: DataReplies) -> tuple[ServerId, ...]:
        """Servers that list the settled tag and whose element is not here yet."""
        have = {self._configuration.server_ids[index] for index in self.elements}
        return tuple(server for server, reply in answers.items() if self.tag in reply.tags and server not in have)

    def confirmed(self, answers: DataReplies) -> bool:
        """Whether the version is known to be at a quorum already (t0 is at every server)."""
        if self.tag == TAG_ZERO:
            return True
        return sum(1 for reply in answers.values() if self.tag in reply.tags) >= self._configuration.quorum_size


def patience_s(answers: DataReplies) -> float:
    """How long elements may still be on their way once a quorum has answered."""
    return PATIENCE_S + max((reply.length for reply in answers.values()), default=0) / BYTES_PER_S_EXPECTED
