"""What the answers to one get-data amount to: which version is it, and are its elements there (Alg. 3:9-21)?"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ares.dap.coding import Parts
from ares.dap.decidable import newest_decodable
from ares.model.configuration import Configuration, Successor, latest_named
from ares.model.element import intact
from ares.model.identity import ObjectName, ServerId
from ares.model.messages import DELETED, DataReply, Element
from ares.model.tag import TAG_ZERO, Tag

PATIENCE_S = 0.05
BYTES_PER_S_EXPECTED = 200e6

DataReplies = Mapping[ServerId, DataReply]


class Reading(Struct, eq=False):
    """Judges the answers of one round.

    ``needed``: how many elements the reader wants (0: the version and its length only). ``held``: the version whose value it has already.
    ``confirming``: a quorum's answers do not do until a quorum of all that answered holds the version. What it finds: the ``tag`` of the version, if
    that is settled, its ``length``, and data of intact ``elements``. ``agreed``: everybody's newest is that version. ``withheld``: the ``successor``
    is finalized; it has the data, and this configuration need not be read.
    """

    configuration: Configuration
    object: ObjectName
    needed: int
    held: Tag | None = None
    confirming: bool = False
    tag: Tag | None = None
    length: int | None = None
    elements: dict[int, Parts] = {}
    successor: Successor | None = None
    agreed: bool = False
    withheld: bool = False

    @property
    def complete(self) -> bool:
        """The version is settled, and what is wanted of it is here."""
        return self.length is not None and (len(self.elements) >= self.needed or self.length < 0 or self.unchanged)

    @property
    def unchanged(self) -> bool:
        """The settled version is the one that the reader holds, or an older one (of a configuration that it left behind)."""
        return self.held is not None and self.tag is not None and self.tag <= self.held

    def settled(self, answers: DataReplies) -> bool:
        """Looks at the answers of a quorum or more, each time there are more; whether the round may end."""
        replies = answers.values()
        successor = latest_named(replies)
        if successor is not None:
            self.successor, self.withheld = successor, successor.finalized
            if successor.finalized:
                return True
        tag = _newest_of_all(replies)
        if tag is not None:
            self.agreed = True
        else:
            self.agreed, tag = False, newest_decodable(list(replies), self.configuration.k)
        if tag != self.tag:
            self.tag, self.length = tag, DELETED if tag == TAG_ZERO else None
            self.elements.clear()
        if tag is not None:
            self._learn(replies, tag)
        return self.complete and (not self.confirming or self.confirmed(answers))

    def _learn(self, replies: Iterable[DataReply], tag: Tag) -> None:
        """What those say of the version whose newest it is; no more than is wanted."""
        k, bare = self.configuration.k, self.needed == 0 or self.unchanged
        for reply in replies:
            if len(self.elements) >= k:
                return
            if not reply.tags or reply.tags[0] != tag:
                continue
            if bare and self.length is None:
                self.length = reply.length
            if reply.element is not None:
                self.keep(reply.element)
            elif reply.length < 0:
                self.length = reply.length

    def keep(self, element: Element) -> None:
        """Take an element of the settled tag, if it is intact: a bad one counts as missing."""
        assert self.tag is not None
        if element.index in self.elements:
            return
        if 0 <= element.index < self.configuration.n and intact(self.configuration.id, self.object, self.tag, element):
            self.elements[element.index] = element.parts
            self.length = element.length

    def holders(self, answers: DataReplies) -> tuple[ServerId, ...]:
        """Servers that list the settled tag and whose element is not here yet."""
        have = {self.configuration.server_ids[index] for index in self.elements}
        return tuple(server for server, reply in answers.items() if self.tag in reply.tags and server not in have)

    def confirmed(self, answers: DataReplies) -> bool:
        """Whether the version is known to be at a quorum already (t0 is at every server)."""
        if self.agreed or self.tag == TAG_ZERO:
            return True
        holding = 0
        for reply in answers.values():
            if self.tag in reply.tags:
                holding += 1
        return holding >= self.configuration.quorum_size

    def lasting(self, answers: DataReplies) -> bool:
        """Whether that was so before the quorum heard of a successor (most never did)."""
        if self.successor is None or self.tag == TAG_ZERO:
            return self.confirmed(answers)
        before = [reply.tags for reply in answers.values() if reply.preceding or reply.successor is None]
        return sum(1 for tags in before if self.tag in tags) >= self.configuration.quorum_size

    def highest(self, answers: DataReplies) -> Tag:
        """The highest tag that any server lists."""
        if self.agreed and self.tag is not None:
            return self.tag
        return max([reply.tags[0] for reply in answers.values() if reply.tags], default=TAG_ZERO)


def _newest_of_all(replies: Iterable[DataReply]) -> Tag | None:
    """The tag that all these Lists begin with, if there is one. What everybody lists as the newest is at a quorum, and nothing can be newer."""
    newest: Tag | None = None
    for reply in replies:
        if not reply.tags:
            return None
        if newest is None:
            newest = reply.tags[0]
        elif reply.tags[0] != newest:
            return None
    return newest


def patience_s(answers: DataReplies) -> float:
    """How long elements may still be on their way once a quorum has answered."""
    return PATIENCE_S + max((reply.length for reply in answers.values()), default=0) / BYTES_PER_S_EXPECTED
