"""The errors: each tells the failure, the data that is safe, and the remedy.

Every failure caused by a user, a file or the network derives from :class:`AresError`; ``assert`` is
kept for invariants of this package.
"""

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, dataclass_transform

from ares.model.identity import FILE_DOMAINS, RESERVED, ObjectName, ServerId, shown
from ares.model.tag import Tag

OBJECTS_NAMED_MAX = 5
"""Number of objects named in an error."""

STARTING = "starting: "
"""Begin of the reason given by a server that has not read its journals yet."""

NO_ANSWER = "no answer"
NO_TROUBLES: Mapping[ServerId, str] = MappingProxyType({})


class AresError(Exception):
    """Base of every error raised on purpose by this package."""


@dataclass_transform(eq_default=False)
class _Detailed(AresError):
    """Base of errors with fields, given in the order of their declaration.

    ``text``: the message, a format of the fields; ``{name}`` is ``object`` as people know the
    object.
    """

    text: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields += tuple(cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(zip(self._fields, values, strict=False), **named)
        super().__init__(*(getattr(self, name) for name in self._fields))

    def __str__(self) -> str:
        return self.text.format(**self.__dict__, name=shown(self.__dict__.get("object", "")))


class BadInput(AresError, ValueError):
    """An argument, a file or a setting is not usable; no message was sent and no state changed."""


class WriteOnceRefusal(BadInput):
    """The domain is write-once and the operation is not for it, or the other way round."""

    def __init__(self, domain: str, write_once: bool) -> None:
        self.domain = domain
        super().__init__(
            f"domain {domain!r} is write-once: its names are created and dropped, and never "
            "written again nor deleted; nothing was changed"
            if write_once
            else f"domain {domain!r} is not write-once: its objects are written and deleted; "
            "nothing was changed"
        )


class BadMessage(AresError):
    """Bytes from the network are not a message of a version which this program speaks."""


class BadBlock(_Detailed):
    """The bytes of a block of a file, or of its genesis block, are not readable."""

    object: str
    why: str
    text = "{name} is not readable as part of a file: {why}; nothing was changed"


class ObjectNotFound(_Detailed, KeyError):
    """The object was never written, or was deleted."""

    object: str
    domain: str
    text = "no object {object!r} in domain {domain!r}"

    def __str__(self) -> str:
        """Name a file as its user does: its domain is an affair of this package."""
        if self.domain.startswith(FILE_DOMAINS):
            return f"there is no file {self.domain.removeprefix(FILE_DOMAINS)!r}"
        return super().__str__()


class NotInMirror(ObjectNotFound):
    """The mirror at ``site`` lacked the object at some moment since its copy was complete."""

    site: str
    age_s: float
    text = (
        "the mirror at {site} has no object {object!r} of domain {domain!r}; it is {age_s:.1f} s "
        "old, so the object may have been written since"
    )


class MirrorNotFound(_Detailed, KeyError):
    """A domain has no mirror at a site."""

    domain: str
    site: str
    text = (
        "domain {domain!r} has no mirror at {site!r}; `ares-cli domain ls` lists mirrors. Nothing "
        "was changed"
    )


class MirrorTooOld(_Detailed):
    """The copy of the mirror at ``site`` is older than the reader accepts."""

    object: str
    domain: str
    site: str
    age_s: float
    max_age_s: float
    text = (
        "the mirror of domain {domain!r} at {site} is {age_s:.1f} s old, and at most "
        "{max_age_s:g} s were asked for. Nothing was lost: accept an older copy, or read "
        "{object!r} without a mirror; `ares-cli status` says what the autopilot cannot copy"
    )


class Uncertain(AresError):
    """Base of failures after which a write may or may not have taken effect.

    ``may_have_taken_effect`` is True when some server may already hold the write: a later read may
    show the write, or never. ``untouched``: each server asked in the end replied at once with a
    refusal, without effect.
    """

    may_have_taken_effect = False
    untouched = False
    advice = "the write may have taken effect: read the object before you write it again"

    def outcome(self) -> str:
        """Return a clause for a person about the outcome of the operation."""
        return f"; {self.advice}" if self.may_have_taken_effect else "; nothing was changed"


class Unavailable(_Detailed, Uncertain):
    """Too few servers answered in time.

    ``needed`` and ``heard`` count servers; ``missing`` maps each silent or refusing server to the
    reason.
    """

    needed: int
    heard: int
    missing: Mapping[ServerId, str]
    story: str = ""

    def __str__(self) -> str:
        if not self.needed:
            return self.story + self.outcome()
        servers = ", ".join(f"{server} ({why})" for server, why in sorted(self.missing.items()))
        what = f" while {self.story}" if self.story else ""
        return (
            f"{self.heard} of the {self.needed} servers needed answered{what}; missing: "
            f"{servers}{self.outcome()}"
        )


class ElementRefused(Unavailable):
    """Servers refuse the element, each for the reason in ``missing``.

    The tag is too high to be reached by writing, or the value is larger than the servers' limit.
    """


class NotAuthorized(_Detailed, Uncertain):
    """Servers refuse an action beyond this client's key, or do not know the key (any more).

    ``untouched``: each server asked refused at once, hence the operation certainly had no effect.
    """

    why: str
    story: str
    untouched: bool
    _uncertain = False

    @property
    def may_have_taken_effect(self) -> bool:
        return self._uncertain and not self.untouched

    @may_have_taken_effect.setter
    def may_have_taken_effect(self, uncertain: bool) -> None:
        self._uncertain = uncertain

    def __str__(self) -> str:
        return f"not authorized: {self.why} ({self.story}){self.outcome()}"


class DomainNotFound(_Detailed, KeyError):
    """No domain of this name was created in this cluster."""

    domain: str

    def __str__(self) -> str:
        if self.domain.startswith(FILE_DOMAINS):
            file = self.domain.removeprefix(FILE_DOMAINS)
            return (
                f"there is no file {file!r}; `ares-cli put` makes files, and `ares-cli files` "
                "lists the files that are domains of their own"
            )
        return (
            f"no domain {self.domain!r} in this cluster; `ares-cli domain create "
            f"{shlex.quote(self.domain)}` makes it"
        )


class LogNotFound(DomainNotFound):
    """No log of this name was created in this cluster."""

    def __str__(self) -> str:
        return (
            f"no log {self.domain!r} in this cluster; `ares-cli log create "
            f"{shlex.quote(self.domain)} --servers s0,s1,s2` makes one of these servers"
        )


class DecodeFailed(_Detailed, Uncertain):
    """A quorum answered, but no returnable version could be put together.

    See ARES II section 6.1; the cause is more than delta writers at a time.
    """

    object: str
    why: str

    def __str__(self) -> str:
        return (
            f"no version of {shown(self.object)} can be decoded now: {self.why}; nothing was "
            "lost. Try again when fewer writers run at once, write the object anew, or use a "
            "larger --delta" + (self.outcome() if self.may_have_taken_effect else "")
        )


class ConnectionClosed(_Detailed, Uncertain):
    """The client was closed: during the operation, or before its start (``begun`` False)."""

    begun: bool = True

    def __str__(self) -> str:
        if not self.begun:
            return "the client, or its log, is closed, and nothing was sent: open it again"
        return f"the connection was closed while this operation was under way{self.outcome()}"


class FileChanged(_Detailed):
    """A file was changed under a reader of the file as opened."""

    file: str
    text = "file {file!r} was changed since it was opened here; nothing was lost: open it again"


class NotWritten(_Detailed):
    """The position of a log is still empty.

    ``tail``: the log was committed up to ``tail``, a hint.
    """

    position: int
    tail: int
    text = (
        "nothing is at position {position} of the log yet; it goes at least to {tail}. Follow it, "
        "or read again later"
    )


class Trimmed(_Detailed):
    """The position was trimmed: every entry below ``upto`` is gone."""

    upto: int
    text = (
        "the log is trimmed up to position {upto}: the entries below were removed by a trim; read "
        "from {upto} on"
    )


class PositionTaken(_Detailed):
    """A conditional append did not get its position, and appended no entry.

    ``tail``: the log was committed up to ``tail``, a hint.
    """

    position: int
    tail: int

    def __str__(self) -> str:
        if self.tail < self.position:
            why = (
                f"the log ends at {self.tail}, so nothing can be at {self.position} yet. Nothing "
                "was appended"
            )
            return f"{why}; append at {self.tail}, or without `at`"
        why = (
            f"the append did not get position {self.position}: the log goes at least to {self.tail}"
        )
        return f"{why}. Nothing was appended; read the log and decide again"


class AppendUncertain(_Detailed, Uncertain):
    """An append may be in the log or not.

    The client appends under another name from now on, hence the entries cannot come in twice.
    """

    why: str
    may_have_taken_effect = True

    def __str__(self) -> str:
        return (
            f"{self.why}: the append may be in the log or not, now or later. Nothing "
            "acknowledged is lost; read the log before you send it again"
        )


class LogSealed(_Detailed, Uncertain):
    """The log's last chain is sealed and its successor undecided.

    Appends, tail() and the answer "still empty" wait for the successor.
    """

    domain: str
    index: int
    text = (
        "chain {index} of log {domain!r} is sealed, and the next chain is not decided yet. "
        "Nothing was lost and entries can be read; reconfigure the log, to the same servers if "
        "need be, and try again"
    )


class ObjectWatchGap(AresError):
    """The changes since a point cannot be told any more; no object is lost."""

    def __init__(self) -> None:
        super().__init__(
            "the changes since this point are no longer known to a quorum: the domain moved, "
            "servers were restarted, or too many changes came. Nothing is lost: watch again "
            "without a point, which begins with every object"
        )


class ConfigurationRefused(AresError):
    """A configuration is unusable, or servers refuse it; the configuration in force stays as is."""


class ConsensusUnavailable(_Detailed, Uncertain):
    """The consensus service did not answer in time.

    Reads and writes go on, creating domains and reconfiguring wait.
    """

    why: str

    def __str__(self) -> str:
        late = " The proposal may still be decided later." if self.may_have_taken_effect else ""
        return (
            f"the consensus service did not decide: {self.why}.{late} Reads and writes go on; "
            "try again when a majority of its members runs"
        )


class UnreadableDecision(ConsensusUnavailable):
    """A record of the consensus service is unreadable.

    The record under ``key`` was written by no release known to this program, and is left as is.
    """

    key: str

    def __str__(self) -> str:
        return (
            f"the consensus service keeps under {self.key!r} an entry that cannot be used: "
            f"{self.why}. The entry was not changed. Reads and writes go on"
        )


class Superseded(_Detailed):
    """Internal: the configuration asked was retired; ``newer`` is finalized and holds its data.

    Caught by the traversal.
    """

    newer: object
    text = "superseded by {newer}"


class StoreDamaged(_Detailed):
    """A server's store lacks, or cannot read, data which the server may have acknowledged.

    The server must not serve under its identity any more.
    """

    path: object
    why: str
    text = (
        "the store {path} is damaged: {why}. The server was not started, because it may have lost "
        "acknowledged data; nothing was changed. If files of it are elsewhere, bring all of them "
        "back as they were when it stopped, and no older copy; then start it again. Else "
        "`ares-cli prepare FILE ID --forget` sets it aside, then start the server: the server "
        "begins empty, under a new identity, and reconfig takes it in again; the other servers "
        "have its data"
    )


class StoreLost(_Detailed):
    """The store of a server that ran here before is gone."""

    path: object
    text = (
        "the store {path} is gone, although this server ran here before: it may not answer under "
        "its old identity. Bring the store back; or `ares-cli prepare FILE ID --forget`, then "
        "start it: it begins empty, under a new identity, configurations that name the old one "
        "count it as crashed, and reconfig takes it in again. Nothing was changed"
    )


class DirectoryLost(_Detailed):
    """The directories of servers or consensus members are empty, but not new.

    ``ids``, ``file``: the processes, and their cluster file. ``votes``: the processes are consensus
    members. ``record``: the file which remembers that they ran in ``directory``, if any.
    """

    directory: object
    ids: Sequence[str] = ("ID",)
    file: object = "FILE"
    votes: bool = False
    record: object = None

    def __str__(self) -> str:
        servers, what = ", ".join(self.ids), "server"
        fear, others = (
            "answer as if it had never acknowledged anything",
            "the other servers have its data",
        )
        if self.votes:
            what, fear, others = (
                "member",
                "vote a second time",
                "the other members have all decisions",
            )
        lost = f"the disk is lost or not mounted, or {servers} never ran"
        if self.record is not None:
            lost = (
                f"{servers} ran there before, says {self.record}, so the disk is lost or not "
                "mounted"
            )
        return (
            f"nothing is in {self.directory}: {lost}. A {what} with nothing might {fear}, so it "
            f"was not started; {others}. {self.advice()}"
        )

    def advice(self) -> str:
        """Return the remedy."""
        servers, prepare = (
            ", ".join(self.ids),
            f"`ares-cli prepare {self.file} {' '.join(self.ids)}",
        )
        lost = (
            f"{prepare} --forget` lets it begin empty and under a new identity, and after its "
            "start `ares-cli reconfig` takes it in again"
        )
        if self.votes:
            lost = (
                f"{prepare} --forget`, while all other members run, lets it copy the decisions "
                "from them"
            )
        never = f"If {servers} never ran on any machine, {prepare}` says so. "
        if self.record is not None:
            never = (
                f"If the process that ran there belonged to another cluster, remove {self.record}. "
                if self.votes
                else ""
            )
        return f"If the disk is not mounted, mount it. {never}If the disk is lost, {lost}"


class ForeignStore(_Detailed):
    """A store is another server's, another cluster's, or of an unknown release."""

    path: object
    why: str
    text = (
        "the store {path} is not a store that this server may use: {why}. The server was not "
        "started, and nothing was changed"
    )


class StoreFailed(_Detailed):
    """The disk failed under a running server.

    The disk's contents are unknown now, hence the server ends. Acknowledged data was durable
    before.
    """

    path: object
    why: str
    text = (
        "the store {path} failed: {why}. The server ends, because its disk may hold any part of "
        "the last requests; none of these was acknowledged, and no acknowledged data is lost. "
        "Check the disk, then start the server again"
    )


class Undecodable(DecodeFailed):
    """A version that stays undecodable for every reader, as long as no client writes the object.

    ``newest``: no completed write has a higher tag. ``proven``: the answers show the result final,
    whatever the silent servers hold. ``below_quorum``: fewer servers than a quorum may list the
    version, whatever the silent servers hold.
    """

    newest: Tag
    proven: bool
    below_quorum: bool


class LeftBehind(DecodeFailed):
    """The object could not be decoded when its domain was moved, and was left behind by request.

    ``tag``: the tag of the mark.
    """

    def __init__(self, object: str, tag: Tag) -> None:
        super().__init__(object, f"it was left behind at {tag}")
        self.tag = tag

    def __str__(self) -> str:
        return (
            f"{shown(self.object)} could not be decoded when its domain was moved, and was left "
            "behind, since --skip-undecodable was given. Its value is gone; a write or a delete "
            f"replaces the rest of the object (version {self.tag})"
        )


class ObjectsStuck(_Detailed, Uncertain):
    """A move ended without these objects, and is therefore not final.

    ``objects``: maps each object to the reason why it cannot be moved, naming servers.
    """

    domain: str
    objects: Mapping[ObjectName, str]

    def __str__(self) -> str:
        named = [
            f"{shown(object)}: {why}"
            for object, why in list(self.objects.items())[:OBJECTS_NAMED_MAX]
        ]
        more = (
            [f"and {len(self.objects) - len(named)} more"] if len(self.objects) > len(named) else []
        )
        return (
            f"{len(self.objects)} objects of domain {self.domain!r} cannot be moved, and all "
            f"other objects were; nothing was lost. {'; '.join(named + more)}. Write or delete "
            f"them{self._raw()} and reconfigure again, or reconfigure with --skip-undecodable, "
            f"which leaves them behind{self.outcome()}"
        )

    def _raw(self) -> str:
        """Return the command which deletes an object whose name is no key."""
        name = next((name for name in self.objects if name.startswith(RESERVED)), None)
        if name is None:
            return ""
        words = map(shlex.quote, (self.domain, repr(name)[1:-1]))
        return f" (`ares-cli delete --raw --domain {' '.join(words)}`, as it is no key)"


class NoTagLeft(_Detailed):
    """A server answered with a tag above which no tag exists."""

    object: str
    number: int
    text = (
        "a server holds {name} under a tag with the number {number}, and no number can be above "
        "it. No client reaches it by writing: that server or its store is faulty. Nothing was "
        "sent and nothing was lost; reconfigure without it"
    )
