"""The error taxonomy: what went wrong, what was not lost, what to do.

Everything that a user, a file or the network can cause derives from :class:`AresError`; ``assert`` is kept for our own invariants.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, dataclass_transform

from ares.model.identity import FILE_DOMAINS, RESERVED, ObjectName, ServerId, shown
from ares.model.tag import Tag

NAMED_MAX = 5
"""How many objects an error names."""


class AresError(Exception):
    """Base of every error that this package raises on purpose."""


@dataclass_transform(eq_default=False)
class _Detailed(AresError):
    """Base of errors with fields, given in the order of their declaration. ``text``: what it says; ``{name}`` is ``object`` as people know it."""

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
    """An argument, a file or a setting is not usable; nothing was sent and nothing changed."""


class BadMessage(AresError):
    """Bytes from the network are not a message of a version that this program speaks."""


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
    """A mirror has no such object: there was none at some moment since its copy was complete. ``site``: of the mirror."""

    site: str
    age_s: float
    text = "the mirror at {site} has no object {object!r} of domain {domain!r}; it is {age_s:.1f} s old, so the object may have been written since"


class MirrorNotFound(_Detailed, KeyError):
    """A domain has no mirror at a site."""

    domain: str
    site: str
    text = "domain {domain!r} has no mirror at {site!r}; `ares-cli domain ls` lists mirrors. Nothing was changed"


class MirrorTooOld(_Detailed):
    """A mirror was complete longer ago than the reader accepts. ``site``: of the mirror."""

    object: str
    domain: str
    site: str
    age_s: float
    max_age_s: float
    text = (
        "the mirror of domain {domain!r} at {site} is {age_s:.1f} s old, and no more than {max_age_s:g} s were asked for. Nothing was lost: accept "
        "an older copy, or read {object!r} without asking for a stale one; `ares-cli status` says what the autopilot cannot copy"
    )


class Uncertain(AresError):
    """Base of failures after which a write may or may not have taken effect.

    ``may_have_taken_effect`` is True when some server may already hold what was to be written: a later read may show it, or never. ``untouched``:
    each server that was asked in the end said at once that it did nothing.
    """

    may_have_taken_effect = False
    untouched = False
    advice = "the write may have taken effect: read the object before you write it again"

    def outcome(self) -> str:
        """One clause for a person about what became of the operation."""
        return f"; {self.advice}" if self.may_have_taken_effect else "; nothing was changed"


class Unavailable(_Detailed, Uncertain):
    """Too few servers answered in time. ``needed`` and ``heard`` count servers; ``missing`` maps each silent or refusing server to the reason."""

    needed: int
    heard: int
    missing: Mapping[ServerId, str]
    story: str = ""

    def __str__(self) -> str:
        if not self.needed:
            return self.story + self.outcome()
        who = ", ".join(f"{server} ({why})" for server, why in sorted(self.missing.items()))
        what = f" while {self.story}" if self.story else ""
        return f"{self.heard} of the {self.needed} servers needed answered{what}; missing: {who}{self.outcome()}"


class ElementRefused(Unavailable):
    """Servers refuse what was to be stored, each for the reason in ``missing``: mostly that no object gets to its tag by being written."""


class NotAuthorized(_Detailed, Uncertain):
    """Servers refuse what this client's key may not do, or do not know the key (any more).

    ``untouched``: each server that was asked said so at once, so it certainly had no effect.
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
    """No domain of that name was created in this cluster."""

    domain: str

    def __str__(self) -> str:
        if self.domain.startswith(FILE_DOMAINS):
            file = self.domain.removeprefix(FILE_DOMAINS)
            return f"there is no file {file!r}; `ares-cli put` makes files, and `ares-cli files` lists those that are domains of their own"
        return f"no domain {self.domain!r} in this cluster; `ares-cli domain create {shlex.quote(self.domain)}` makes it"


class LogNotFound(DomainNotFound):
    """No log of that name was created in this cluster."""

    def __str__(self) -> str:
        return f"no log {self.domain!r} in this cluster; `ares-cli log create {shlex.quote(self.domain)} --servers s0,s1,s2` makes one of these servers"


class DecodeFailed(_Detailed, Uncertain):
    """A quorum answered, but no version that may be returned could be put together (ARES II section 6.1; more than delta writers at once)."""

    object: str
    why: str

    def __str__(self) -> str:
        return (
            f"no version of {shown(self.object)} can be decoded now: {self.why}; nothing was lost. Try again when fewer writers run at once, "
            "write the object anew, or use a larger --delta"
            + (self.outcome() if self.may_have_taken_effect else "")
        )


class ConnectionClosed(_Detailed, Uncertain):
    """The client was closed: while the operation was under way, or before it began (``begun`` False)."""

    begun: bool = True

    def __str__(self) -> str:
        if not self.begun:
            return "the client, or this log of it, is closed, and nothing was sent: open it again"
        return f"the connection was closed while this operation was under way{self.outcome()}"


class FileChanged(_Detailed):
    """A file was changed under a reader that wants it as it was when it was opened."""

    file: str
    text = "file {file!r} was changed since it was opened here; nothing was lost: open it again"


class NotWritten(_Detailed):
    """Nothing is at this position of a log yet. ``tail``: the log was committed up to there, a hint."""

    position: int
    tail: int
    text = "nothing is at position {position} of the log yet; it goes at least to {tail}. Follow it, or read again later"


class Trimmed(_Detailed):
    """The position was trimmed: everything below ``upto`` is gone."""

    upto: int
    text = "the log is trimmed up to position {upto}: what was below is gone, as somebody asked for; read from {upto} on"


class PositionTaken(_Detailed):
    """A conditional append did not get its position, and nothing was appended. ``tail``: the log was committed up to there, a hint."""

    position: int
    tail: int

    def __str__(self) -> str:
        if self.tail < self.position:
            why = f"the log ends at {self.tail}, so nothing can be at {self.position} yet. Nothing was appended"
            return f"{why}; append at {self.tail}, or without `at`"
        why = (
            f"the append did not get position {self.position}: the log goes at least to {self.tail}"
        )
        return f"{why}. Nothing was appended; read what is there and decide again"


class AppendUncertain(_Detailed, Uncertain):
    """An append that may be in the log or not. The client appends under another name from then on, so it cannot come in twice."""

    why: str
    may_have_taken_effect = True

    def __str__(self) -> str:
        return f"{self.why}: the append may be in the log or not, now or later. Nothing acknowledged is lost; read the log before you send it again"


class LogSealed(_Detailed, Uncertain):
    """The log's last chain is sealed and its successor is not decided: appends, tail() and "nothing there" wait for it."""

    domain: str
    index: int
    text = (
        "chain {index} of log {domain!r} is sealed, and nobody has decided yet which chain comes next. Nothing was lost and entries can be read; "
        "reconfigure the log, to the same servers if need be, and try again"
    )


class ConfigurationRefused(AresError):
    """A configuration is unusable, or servers refuse it; the one in force stays as it is."""


class ConsensusUnavailable(_Detailed, Uncertain):
    """The consensus service did not answer in time: reads and writes go on, creating domains and reconfiguring wait."""

    why: str

    def __str__(self) -> str:
        late = " The proposal may still be decided later." if self.may_have_taken_effect else ""
        return f"the consensus service did not decide: {self.why}.{late} Reads and writes go on; try again when a majority of its members runs"


class UnreadableDecision(ConsensusUnavailable):
    """What the consensus service keeps under ``key`` was not written by a release of ares that this one can read. It is left as it is."""

    key: str

    def __str__(self) -> str:
        return f"the consensus service keeps under {self.key!r} what cannot be used: {self.why}. It was left as it is. Reads and writes go on"


class Superseded(_Detailed):
    """Internal: the configuration being asked was retired; ``newer`` is finalized and holds its data. Caught by the traversal."""

    newer: object
    text = "superseded by {newer}"


class StoreDamaged(_Detailed):
    """A server's store lacks, or cannot read, what the server may have acknowledged: it must not serve under its identity any more."""

    path: object
    why: str
    text = (
        "the store {path} is damaged: {why}. The server was not started, for it may have forgotten what it acknowledged; nothing "
        "was changed. If files of it are elsewhere, bring all of them back as they were when it stopped, and no older copy; then start it again. "
        "Else `ares-cli prepare FILE ID --forget` sets it aside, then start the server: it begins empty, under a new identity, and reconfig "
        "takes it in again; the others have what it had"
    )


class StoreLost(_Detailed):
    """A server ran here before, and its store is gone."""

    path: object
    text = (
        "the store {path} is gone, although this server ran here before: it may not answer as the one that it was. Bring the store back; "
        "or `ares-cli prepare FILE ID --forget`, then start it: it begins empty, under a new identity, configurations that name the old one "
        "count it as crashed, and reconfig takes it in again. Nothing was changed"
    )


class DirectoryLost(_Detailed):
    """The directory of a server or consensus member is empty, and is not new; or those of several.

    ``ids``, ``file``: of the processes, and their cluster file. ``votes``: they are consensus members. ``record``: what remembers that they ran
    there, if anything does.
    """

    directory: object
    ids: Sequence[str] = ("ID",)
    file: object = "FILE"
    votes: bool = False
    record: object = None

    def __str__(self) -> str:
        who, what = ", ".join(self.ids), "server"
        fear, others = (
            "answer as if it had never acknowledged anything",
            "the other servers have what it had",
        )
        if self.votes:
            what, fear, others = (
                "member",
                "vote a second time",
                "the other members have what was decided",
            )
        lost = f"the disk is lost or not mounted, or {who} never ran"
        if self.record is not None:
            lost = f"{who} ran there before, says {self.record}, so the disk is lost or not mounted"
        return f"nothing is in {self.directory}: {lost}. A {what} with nothing might {fear}, so it was not started; {others}. {self.advice()}"

    def advice(self) -> str:
        """What to do."""
        who, prepare = ", ".join(self.ids), f"`ares-cli prepare {self.file} {' '.join(self.ids)}"
        lost = f"{prepare} --forget` lets it begin empty and under a new identity, and after its start `ares-cli reconfig` takes it in again"
        if self.votes:
            lost = f"{prepare} --forget`, while all other members run, lets it copy that from them"
        never = f"If {who} never ran on any machine, {prepare}` says so. "
        if self.record is not None:
            never = (
                f"If what ran there was of another cluster, remove {self.record}. "
                if self.votes
                else ""
            )
        return f"If the disk is not mounted, mount it. {never}If the disk is lost, {lost}"


class ForeignStore(_Detailed):
    """A store is another server's, another cluster's, or of a release that this one does not know."""

    path: object
    why: str
    text = "the store {path} is none that this server may use: {why}. The server was not started, and nothing was changed"


class StoreFailed(_Detailed):
    """The disk failed under a running server: what it holds now is not known, so the server ends. What it acknowledged was durable before."""

    path: object
    why: str
    text = (
        "the store {path} failed: {why}. The server ends, because nobody can know what its disk holds of the last requests; none of "
        "them was acknowledged, and nothing that was is lost. Check the disk, then start the server again"
    )


class Undecodable(DecodeFailed):
    """So it is whenever one looks, as long as nobody writes the object.

    ``newest``: nothing that was completed has a higher tag. ``proven``: the servers that answered show that it stays so, whatever the silent ones
    hold.
    """

    newest: Tag
    proven: bool


class LeftBehind(DecodeFailed):
    """The object could not be decoded when its domain was moved, and was left behind because somebody asked for that. ``tag``: of the mark."""

    def __init__(self, object: str, tag: Tag) -> None:
        super().__init__(object, f"it was left behind at {tag}")
        self.tag = tag

    def __str__(self) -> str:
        return (
            f"{shown(self.object)} could not be decoded when its domain was moved, and was left behind, since --skip-undecodable was given. "
            f"Its value is gone; writing or deleting it replaces what is left (version {self.tag})"
        )


class ObjectsStuck(_Detailed, Uncertain):
    """A move ended without these objects, so it is not final. ``objects``: why each of them cannot be moved, naming servers."""

    domain: str
    objects: Mapping[ObjectName, str]

    def __str__(self) -> str:
        named = [
            f"{shown(object)}: {why}" for object, why in list(self.objects.items())[:NAMED_MAX]
        ]
        more = (
            [f"and {len(self.objects) - len(named)} more"] if len(self.objects) > len(named) else []
        )
        return (
            f"{len(self.objects)} objects of domain {self.domain!r} cannot be moved, and everything else was; nothing was lost. "
            f"{'; '.join(named + more)}. Write or delete them{self._raw()} and reconfigure again, or reconfigure with --skip-undecodable, which leaves them "
            f"behind{self.outcome()}"
        )

    def _raw(self) -> str:
        """Say how to delete an object whose name is no key."""
        name = next((name for name in self.objects if name.startswith(RESERVED)), None)
        if name is None:
            return ""
        words = map(shlex.quote, (self.domain, repr(name)[1:-1]))
        return f" (`ares-cli delete --raw --domain {' '.join(words)}`, as it is no key)"


class NoTagLeft(_Detailed):
    """A server answered with a tag that nothing can be above."""

    object: str
    number: int
    text = (
        "a server holds {name} under a tag with the number {number}, and none can be above it. No client gets there by "
        "writing: that server, or its store, is not what it should be. Nothing was sent and nothing was lost; reconfigure without it"
    )
