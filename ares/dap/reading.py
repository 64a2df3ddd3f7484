"""The judgement of get-data's answers: version, elements, end of attempts (Alg. 3:13-20).

A look is a round of get-data, with the elements asked for by tag after the round. A look may fail
because writers are at work, because servers are slow, or because no version can be decoded, now or
ever. The last reason is proven when looks over more than two seconds have found the same result,
and the result does not depend on silent servers:

- No version is settled (ares/dap/decidable.py), and no answer of the silent servers, fewer than k
  of them, would settle a version: neither an answer without any tag listed so far, nor an answer
  with any single listed tag (:func:`proves`). A silent server may help by holding an element, or
  by the lack of a tag that hides a lower version.
- A version is settled and lacks elements. A server certainly lacks the element if the server does
  not list the tag, or was asked for the element and had no intact one. The remaining servers,
  silent servers included, are fewer than k.

No returnable version can be put together from the whole contents of the configuration. Later
versions come from writes. A write under way is seen, because the write changes the result of the
looks. A write may end without a change of the result. Such a write has heard of the successor that
a mover's looks install (rule R1), and stores the version in the successor.
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
from ares.model.messages import DELETED_LENGTH, DataReply, Element
from ares.model.tag import TAG_ZERO, Tag

GET_DATA_PATIENCE_S = 0.05
GET_DATA_BYTES_PER_S_EXPECTED = 200e6
TRIP_S_MAX = 0.2
"""Longest round trip counted, in seconds; a longer wait has another reason than the network."""

FIRST_BYTES = 16 * 1024
"""Bytes TCP sends before the first acknowledgement, about."""

DataReplies = Mapping[ServerId, DataReply]


class Reading(Struct, eq=False):
    """The judgement of the answers of a round.

    ``needed``: number of elements the reader wants (0: only the version and its length). ``held``:
    the version whose value the reader has already. ``confirming``: a quorum's answers do not end
    the round until a quorum of all answering servers holds the version. Results: the ``tag`` of the
    version, if settled, its ``length``, and data of intact ``elements``. ``agreed``: the newest
    version of every answering server is that version. ``withheld``: the ``successor`` is finalized;
    the successor has the data, and this configuration need not be read.
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
        """Return whether the version is settled and its wanted elements are here."""
        return self.length is not None and (
            len(self.elements) >= self.needed or self.length < 0 or self.unchanged
        )

    @property
    def unchanged(self) -> bool:
        """Return whether the settled version is ``held`` or older.

        An older version comes from a configuration which the reader left.
        """
        return self.held is not None and self.tag is not None and self.tag <= self.held

    def settled(self, answers: DataReplies) -> bool:
        """Judge the answers of a quorum or more; return whether the round may end.

        A finalized successor ends the round, where Alg. 3:17-20 return bottom. Called after each
        new answer.
        """
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
            self.tag, self.length = tag, DELETED_LENGTH if tag == TAG_ZERO else None
            self.elements.clear()
        if tag is not None:
            self._learn(replies, tag)
        return self.complete and (not self.confirming or self.confirmed(answers))

    def _learn(self, replies: Iterable[DataReply], tag: Tag) -> None:
        """Take from replies with newest version ``tag`` its length and elements.

        No more elements are taken than wanted.
        """
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
        """Keep an element of the settled tag (Alg. 3:16), if intact: else it counts as missing."""
        assert self.tag is not None
        if element.index in self.elements:
            return
        if 0 <= element.index < self.configuration.n and intact(
            self.configuration.id, self.object, self.tag, element
        ):
            self.elements[element.index] = element.parts
            self.length = element.length

    def holders(self, answers: DataReplies) -> tuple[ServerId, ...]:
        """Return the servers which list the settled tag and whose element is still missing."""
        have = {self.configuration.server_ids[index] for index in self.elements}
        return tuple(
            server
            for server, reply in answers.items()
            if self.tag in reply.tags and server not in have
        )

    def confirmed(self, answers: DataReplies) -> bool:
        """Return whether the version is known to be at a quorum already (t0 is at every server)."""
        if self.agreed or self.tag == TAG_ZERO:
            return True
        holding = 0
        for reply in answers.values():
            if self.tag in reply.tags:
                holding += 1
        return holding >= self.configuration.quorum_size

    def lasting(self, answers: DataReplies) -> bool:
        """Return whether the version was at a quorum before the quorum heard of a successor.

        Most quorums never heard of a successor.
        """
        if self.successor is None or self.tag == TAG_ZERO:
            return self.confirmed(answers)
        before = [
            reply.tags for reply in answers.values() if reply.preceding or reply.successor is None
        ]
        return sum(1 for tags in before if self.tag in tags) >= self.configuration.quorum_size

    def highest(self, answers: DataReplies) -> Tag:
        """Return the highest tag listed by any server."""
        if self.agreed and self.tag is not None:
            return self.tag
        return max([reply.tags[0] for reply in answers.values() if reply.tags], default=TAG_ZERO)


def _newest_of_all(replies: Iterable[DataReply]) -> Tag | None:
    """Return the common first tag of all these Lists, or None.

    A tag listed as the newest by every server of a quorum is at a quorum, and no newer version
    exists.
    """
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
    """Return the seconds elements may be on their way after a quorum answered in ``waited_s``.

    An idle connection begins slowly and sends twice as much with every round trip. Without this
    allowance, elements already on their way from a far server would be asked of other servers, too.
    """
    length = max((reply.length for reply in answers.values()), default=0)
    turns = log2(length / FIRST_BYTES) if length > FIRST_BYTES else 0.0
    return (
        GET_DATA_PATIENCE_S
        + length / GET_DATA_BYTES_PER_S_EXPECTED
        + turns * min(waited_s, TRIP_S_MAX)
    )


LOOKS_ALIKE = 8
"""Number of identical looks after which their result is final; with pauses, more than 2 s."""

READ_PAUSE_S_MAX = 1.0


class RetryPolicy(Struct, frozen=True):
    """The limits of the looks of a get-data.

    ``looks_max``: number of looks, proven or not; 0: until the deadline. ``wait_s``: seconds a look
    waits for silent servers.
    """

    looks_max: int = 0
    wait_s: float = 0.0

    def patience_s(self, answers: DataReplies, waited_s: float) -> float:
        """Return the seconds elements may still be on their way once a quorum has answered."""
        return patience_s(answers, waited_s) + self.wait_s


UNTIL_DEADLINE = RetryPolicy()
BRIEF = RetryPolicy(3)
THOROUGH = RetryPolicy(12, 0.5)


class AttemptResult(Struct, frozen=True):
    """The result of a look.

    ``tag``: the settled version, or None. ``lacking``: servers certainly without an element of that
    version.
    """

    lists: dict[ServerId, tuple[tuple[Tag, ...], Tag]]
    tag: Tag | None
    lacking: frozenset[ServerId]


class DecodeAttempts(Struct, eq=False):
    """Failed looks of a get-data: ``failed`` in all, the last ``alike`` with the same finding."""

    effort: RetryPolicy
    failed: int = 0
    alike: int = 0
    finding: AttemptResult | None = None

    def fail(
        self, reading: Reading, answers: DataReplies, named: Mapping[ServerId, DataReply]
    ) -> float:
        """Record another failed look and return the seconds to pause.

        ``named``: answers of the servers asked for their element by tag. Raises
        :class:`ares.model.errors.Undecodable` when another look is proven to fail, too, or no look
        is left.
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
            raise Undecodable(
                reading.object,
                describe(configuration, finding),
                newest,
                proven,
                is_below_quorum(configuration, finding),
            )
        return min(0.01 * 2.0 ** min(self.failed, 10), READ_PAUSE_S_MAX)


def found(
    reading: Reading, answers: DataReplies, named: Mapping[ServerId, DataReply]
) -> AttemptResult:
    """Return the finding of this look."""
    lists = {server: (reply.tags, reply.trimmed) for server, reply in sorted(answers.items())}
    if reading.tag is None:
        return AttemptResult(lists, None, frozenset())
    position = {server: index for index, server in enumerate(reading.configuration.server_ids)}
    lacking = {server for server, (tags, _) in lists.items() if reading.tag not in tags}
    lacking |= {server for server in named if position[server] not in reading.elements}
    return AttemptResult(lists, reading.tag, frozenset(lacking))


def proves(configuration: Configuration, finding: AttemptResult) -> bool:
    """Return whether no returnable version can be put together, whatever the silent servers hold.

    With fewer than k silent servers, only a version which some server listed can be decodable.
    Silent servers help that version most if they list only its tag: a higher listed tag could only
    be taken for complete, and hide the version.
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


def is_below_quorum(configuration: Configuration, finding: AttemptResult) -> bool:
    """Return whether fewer servers than a quorum list the settled version, or did not answer."""
    without = sum(finding.tag not in tags for tags, _ in finding.lists.values())
    return finding.tag is not None and configuration.n - without < configuration.quorum_size


def describe(configuration: Configuration, finding: AttemptResult) -> str:
    """Describe for a person the elements each server has."""
    silent = [server for server in configuration.server_ids if server not in finding.lists]
    said_nothing = (
        f"; {', '.join(silent)} did not answer, and may have the missing elements" if silent else ""
    )
    where = f"configuration {configuration.index}"
    if finding.tag is not None:
        having = [
            server
            for server in configuration.server_ids
            if server not in finding.lacking and server in finding.lists
        ]
        return (
            f"of the {configuration.k} elements that version {finding.tag} takes in {where}, "
            f"{', '.join(having) or 'no server'} can have one, and "
            f"{', '.join(sorted(finding.lacking)) or 'nobody'} has none that can be "
            f"used{said_nothing}"
        )
    newest = ", ".join(
        f"{server} has {tags[0] if tags else 'nothing'}"
        for server, (tags, _) in finding.lists.items()
    )
    return (
        f"no version has the {configuration.k} elements that it takes in {where}, of the newest "
        f"ones {newest}{said_nothing}"
    )


def _replies(lists: Iterable[tuple[tuple[Tag, ...], Tag]]) -> list[DataReply]:
    return [
        DataReply(NO_CALL, tags, DELETED_LENGTH, trimmed, None, None) for tags, trimmed in lists
    ]
