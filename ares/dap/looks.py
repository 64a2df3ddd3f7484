"""When does a get-data that cannot put a version together stop, and what has it shown by then?

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

from msgspec import Struct

from ares.dap.decidable import newest_decodable, newest_possible
from ares.dap.reading import DataReplies, Reading, patience_s
from ares.model.configuration import Configuration
from ares.model.errors import Undecodable
from ares.model.identity import CallId, ObjectName, ServerId
from ares.model.messages import DELETED, DataReply
from ares.model.tag import TAG_ZERO, Tag

LOOKS_ALIKE = 8
"""So many looks that find the same are taken for the truth; with the pauses between them they take more than 2 s."""

PAUSE_S_MAX = 1.0
_NO_CALL = CallId(0)


class Effort(Struct, frozen=True):
    """``looks_max``: so many looks, proven or not; 0: until the deadline. ``wait_s``: how long a look waits for servers that are silent."""

    looks_max: int = 0
    wait_s: float = 0.0

    def patience_s(self, answers: DataReplies) -> float:
        """How long elements may still be on their way once a quorum has answered."""
        return patience_s(answers) + self.wait_s


UNTIL_DEADLINE = Effort()
BRIEF = Effort(3)
THOROUGH = Effort(12, 0.5)


class Finding(Struct, frozen=True):
    """What a look found. ``tag``: the version that is settled; None: none is. ``lacking``: servers that certainly have no element of it."""

    lists: dict[ServerId, tuple[tuple[Tag, ...], Tag]]
    tag: Tag | None
    lacking: frozenset[ServerId]


class Looks:
    """The looks of one get-data, of which none has put a version together."""

    def __init__(self, configuration: Configuration, object: ObjectName, effort: Effort) -> None:
        self.failed = 0
        self._configuration = configuration
        self._object = object
        self._effort = effort
        self._finding: Finding | None = None
        self._alike = 0

    def fail(self, reading: Reading, answers: DataReplies, named: Mapping[ServerId, DataReply]) -> float:
        """Another look failed; ``named``: who was asked for its element by name, and answered. Returns for how long to pause.

        Raises :class:`ares.model.errors.Undecodable` when it is proven that another look would fail, too, or there are to be no more.
        """
        finding = found(reading, answers, named)
        self._alike = self._alike + 1 if finding == self._finding else 1
        self._finding = finding
        self.failed += 1
        proven = self._alike >= LOOKS_ALIKE and proves(self._configuration, finding)
        if proven or self.failed == self._effort.looks_max:
            newest = finding.tag if finding.tag is not None else newest_possible(_replies(finding.lists.values()), self._configuration.k)
            raise Undecodable(self._object, describe(self._configuration, finding), newest, proven)
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

    With fewer than k of them, only a version that somebody listed can be decodable. Silent servers that list that one and nothing else help it most:
    a tag above it that they listed, too, could only be taken for complete, and hide it.
    """
    if finding.tag is not None:
        return configuration.n - len(finding.lacking) < configuration.k
    silent = configuration.n - len(finding.lists)
    listed = {tag for tags, _ in finding.lists.values() for tag in tags}
    helpful: list[tuple[Tag, ...]] = [(), *((tag,) for tag in listed)] if silent else [()]
    lists = list(finding.lists.values())
    return silent < configuration.k and all(
        newest_decodable(_replies([*lists, *[(tags, TAG_ZERO)] * silent]), configuration.k) is None for tags in helpful
    )


def describe(configuration: Configuration, finding: Finding) -> str:
    """For a person: which servers have what."""
    silent = [server for server in configuration.server_ids if server not in finding.lists]
    said_nothing = f"; {', '.join(silent)} said nothing, and may have what lacks" if silent else ""
    where = f"configuration {configuration.index}"
    if finding.tag is not None:
        having = [server for server in configuration.server_ids if server not in finding.lacking and server in finding.lists]
        return (
            f"of the {configuration.k} elements that version {finding.tag} takes in {where}, {', '.join(having) or 'no server'} can have one, and "
            f"{', '.join(sorted(finding.lacking)) or 'nobody'} has none that can be used{said_nothing}"
        )
    newest = ", ".join(f"{server} has {tags[0] if tags else 'nothing'}" for server, (tags, _) in finding.lists.items())
    return f"no version has the {configuration.k} elements that it takes in {where}, of the newest ones {newest}{said_nothing}"


def _replies(lists: Iterable[tuple[tuple[Tag, ...], Tag]]) -> list[DataReply]:
    return [DataReply(_NO_CALL, tags, DELETED, trimmed, None, None) for tags, trimmed in lists]
