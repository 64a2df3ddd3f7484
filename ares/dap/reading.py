"""What the answers to a get-data amount to: which version is it, and are its elements there (Alg. 3:9-21)? If they are not: when does it stop?

A look is one round of get-data, and the elements that were asked for by name after it. One that fails may do so because writers are at work, because
servers are slow, or because no version can be decoded, now or ever. The last is proven when looks over more than two seconds have found the same,
and it does not depend on servers that said nothing:

- No version is settled (ares/dap/decidable.py), and none is with any answer of the silent servers, fewer than k of them: with none of the tags listed
  so far, or with any one of them (:func:`proves`). A server may help by having an element, and by not having what hides a version below it.
- A version is settled and lacks elements: a server lacks it for certain if it does not list the tag, or was asked for its element and had none that
  is intact. All the others together, silent ones among them, are fewer than k.

Then no version that may be returned can be put together from all that the configuration holds. What comes later is a write's: one that is under way
is seen, for it changes what the looks find; and one that ends without having changed it by then was told of the successor that a mover's looks
install (rule R1), and stores its version there.
"""

from collections.abc import Iterable, Mapping
from math import log2

from msgspec import Struct

from ares.dap.coding import Parts
from ares.dap.decidable import newest_decodable, newest_possible
from ares.model.configuration import Configuration, Successor, latest_named
from ares.model.element import intact
from ares.model.errors import Undecodable
from ares.model.identity import NO_CALL, ObjectName, ServerId
from ares.model.messages import DELETED, DataReply, Element
from ares.model.tag import TAG_ZERO, Tag

PATIENCE_S = 0.05
BYTES_PER_S_EXPECTED = 200e6
TRIP_S_MAX = 0.2
"""A quorum that took longer did so for another reason than the way."""

FIRST_BYTES = 16 * 1024
"""What TCP sends before the first of it is acknowledged, about."""

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
        return self.length is not None and (
            len(self.elements) >= self.needed or self.length < 0 or self.unchanged
        )

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
        if 0 <= element.index < self.configuration.n and intact(
            self.configuration.id, self.object, self.tag, element
        ):
            self.elements[element.index] = element.parts
            self.length = element.length

    def holders(self, answers: DataReplies) -> tuple[ServerId, ...]:
        """Servers that list the settled tag and whose element is not here yet."""
        have = {self.configuration.server_ids[index] for index in self.elements}
        return tuple(
            server
            for server, reply in answers.items()
            if self.tag in reply.tags and server not in have
        )

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
        before = [
            reply.tags for reply in answers.values() if reply.preceding or reply.successor is None
        ]
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


def patience_s(answers: DataReplies, waited_s: float) -> float:
    """How long elements may still be on their way once a quorum has answered, for which the round waited ``waited_s``.

    A connection that was idle begins slowly and sends twice as much with every round trip: without that, what a far server has begun to send would be
    asked of others, too.
    """
    length = max((reply.length for reply in answers.values()), default=0)
    turns = log2(length / FIRST_BYTES) if length > FIRST_BYTES else 0.0
    return PATIENCE_S + length / BYTES_PER_S_EXPECTED + turns * min(waited_s, TRIP_S_MAX)


LOOKS_ALIKE = 8
"""So many looks that find the same are taken for the truth; with the pauses between them they take more than 2 s."""

PAUSE_S_MAX = 1.0


class Effort(Struct, frozen=True):
    """``looks_max``: so many looks, proven or not; 0: until the deadline. ``wait_s``: how long a look waits for servers that are silent."""

    looks_max: int = 0
    wait_s: float = 0.0

    def patience_s(self, answers: DataReplies, waited_s: float) -> float:
        """How long elements may still be on their way once a quorum has answered."""
        return patience_s(answers, waited_s) + self.wait_s


UNTIL_DEADLINE = Effort()
BRIEF = Effort(3)
THOROUGH = Effort(12, 0.5)


class Finding(Struct, frozen=True):
    """What a look found. ``tag``: the version that is settled; None: none is. ``lacking``: servers that certainly have no element of it."""

    lists: dict[ServerId, tuple[tuple[Tag, ...], Tag]]
    tag: Tag | None
    lacking: frozenset[ServerId]


class Looks(Struct, eq=False):
    """The looks of one get-data, of which none has put a version together. ``alike``: so many of the last ones, ``failed`` in all, had one
    finding."""

    effort: Effort
    failed: int = 0
    alike: int = 0
    finding: Finding | None = None

    def fail(
        self, reading: Reading, answers: DataReplies, named: Mapping[ServerId, DataReply]
    ) -> float:
        """Another look failed; ``named``: the servers that were asked for their element by name, and answered. Returns for how long to pause.

        Raises :class:`ares.model.errors.Undecodable` when it is proven that another look would fail, too, or there are to be no more.
        """
        configuration, finding = reading.configuration, found(reading, answers, named)
        self.alike = self.alike + 1 if finding == self.finding else 1
        self.finding = finding
        self.failed += 1
        proven = self.alike >= LOOKS_ALIKE and proves(configuration, finding)
        if proven or self.failed == self.effort.looks_max:
            newest = (
                finding.tag
                if finding.tag is not None
                else newest_possible(_replies(finding.lists.values()), configuration.k)
            )
            raise Undecodable(reading.object, describe(configuration, finding), newest, proven)
        return min(0.01 * 2.0 ** min(self.failed, 10), PAUSE_S_MAX)


def found(reading: Reading, answers: DataReplies, named: Mapping[ServerId, DataReply]) -> Finding:
    """What this look shows."""
    lists = {server: (reply.tags, reply.trimmed) for server, reply in sorted(answers.items())}
    if reading.tag is None:
        return Finding(lists, None, frozenset())
    position = {server: index for index, server in enumerate(reading.configuration.server_ids)}
    lacking = {server for server, (tags, _) in lists.items() if reading.tag not in tags}
    lacking |= {server for server in named if position[server] not in reading.elements}
    return Finding(lists, reading.tag, frozenset(lacking))


def proves(configuration: Configuration, finding: Finding) -> bool:
    """Whether no version that may be returned can be put together, whatever the servers hold that said nothing.

    With fewer than k of them, only a version that a server listed can be decodable. Silent servers that list that one and nothing else help it most:
    a tag above it that they listed, too, could only be taken for complete, and hide it.
    """
    if finding.tag is not None:
        return configuration.n - len(finding.lacking) < configuration.k
    silent = configuration.n - len(finding.lists)
    listed = {tag for tags, _ in finding.lists.values() for tag in tags}
    helpful: list[tuple[Tag, ...]] = [(), *((tag,) for tag in listed)] if silent else [()]
    lists = list(finding.lists.values())
    return silent < configuration.k and all(
        newest_decodable(_replies([*lists, *[(tags, TAG_ZERO)] * silent]), configuration.k) is None
        for tags in helpful
    )


def describe(configuration: Configuration, finding: Finding) -> str:
    """For a person: which servers have what."""
    silent = [server for server in configuration.server_ids if server not in finding.lists]
    said_nothing = f"; {', '.join(silent)} said nothing, and may have what lacks" if silent else ""
    where = f"configuration {configuration.index}"
    if finding.tag is not None:
        having = [
            server
            for server in configuration.server_ids
            if server not in finding.lacking and server in finding.lists
        ]
        return (
            f"of the {configuration.k} elements that version {finding.tag} takes in {where}, {', '.join(having) or 'no server'} can have one, and "
            f"{', '.join(sorted(finding.lacking)) or 'nobody'} has none that can be used{said_nothing}"
        )
    newest = ", ".join(
        f"{server} has {tags[0] if tags else 'nothing'}"
        for server, (tags, _) in finding.lists.items()
    )
    return f"no version has the {configuration.k} elements that it takes in {where}, of the newest ones {newest}{said_nothing}"


def _replies(lists: Iterable[tuple[tuple[Tag, ...], Tag]]) -> list[DataReply]:
    return [DataReply(NO_CALL, tags, DELETED, trimmed, None, None) for tags, trimmed in lists]
