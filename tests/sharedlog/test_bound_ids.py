"""Client ids of logs, which are bound to a key and a secret.

A thief with a client's id, or the id's digest, has a separate row.
"""

from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import Struct, structs

from ares.model.codec import decode, encode
from ares.model.configuration import Configuration, Status, Successor
from ares.model.identity import NO_CALL, ClientId
from ares.model.log_messages import (
    SECRET_BYTES,
    Append,
    Appended,
    AppendOutcome,
    LogRecord,
    OfChain,
    Seal,
    seal_of,
)
from ares.model.messages import REQUEST_KINDS, Introduce, WriteConfig
from ares.model.tag import Tag
from ares.sharedlog.bound_ids import bound_id
from ares.sharedlog.log_facts import PieceFetched, RecordsTaken

from .chains import CLIENT, NAMES, Wired, call, chain

C0 = chain()
SECRET, GUESS = b"s" * SECRET_BYTES, b"t" * SECRET_BYTES
OWNER_KEY, THIEF_KEY = 32 * "0a", 32 * "0b"


@dataclass(frozen=True)
class Connection:
    """A sender as a transport names it. ``number`` changes with a reconnection."""

    key: str
    number: int = 0


KEYS = pytest.mark.parametrize("key", [OWNER_KEY, ""], ids=["keys", "no keys"])


def append(number, entry, of=C0, lowest=None, client=CLIENT, secret=SECRET):
    lowest = number if lowest is None else lowest
    return Append(call(number), of.id, client, number, lowest, 0, (entry,), None, secret)


class Chains(Wired):
    """The nodes of C0, which is introduced, and the nodes of C1."""

    def __init__(self) -> None:
        super().__init__(*NAMES, "s3", "s4", "s5")
        for name in NAMES:
            self.hand(name, Introduce(NO_CALL, C0))

    def ask(self, sender: Connection, request: Append, to: str = "s0") -> list[tuple[Any, int]]:
        """Return the outcomes and positions that are answered, all messages delivered."""
        self.hand(to, request, sender)
        return [(each.outcome, each.position) for each in self.run() if isinstance(each, Appended)]

    def move(self, start: int = 1) -> Configuration:
        """Seal C0 at every node, and begin the next chain at ``start``."""
        following = chain(1, start, ("s3", "s4", "s5"))
        for name in NAMES:
            self.hand(name, Seal(call(), C0.id))
            pending = Successor(following, Status.PENDING)
            self.hand(name, WriteConfig(call(), C0.id, pending))
        for name in following.server_ids:
            self.hand(name, Introduce(NO_CALL, following, (C0,)))
        return following

    def let_it_fetch(self) -> None:
        """Let time pass until the nodes of the next chain have all entries below the start."""
        for _ in range(20):
            self.tick()
            self.run()
        assert all(self.nodes[name].state.base_upto for name in ("s3", "s4", "s5"))

    def entries(self, of: Configuration = C0) -> list[bytes]:
        """Return all entries at the head of a chain."""
        state = self.nodes[of.server_ids[0]].state
        segment = state.segments[of.id]
        parts = (state.base.records(0, of.start), segment.entries.records(of.start, segment.length))
        return [entry for records in parts for each in records for entry in each.entries]


def done(position):
    return [(AppendOutcome.DONE, position)]


def thefts(key: str) -> list[tuple[Connection, ClientId, bytes]]:
    """Return a thief's possible messages.

    With keys the thief knows id and secret, without keys no secret.
    """
    digest = bound_id(CLIENT, SECRET, key)
    if key:
        thief = Connection(THIEF_KEY)
        return [(thief, name, secret) for name in (CLIENT, digest) for secret in (SECRET, b"")]
    return [(Connection(""), name, secret) for name in (CLIENT, digest) for secret in (GUESS, b"")]


# -- whose number it is ----------------------------------------------------------------------------


@KEYS
def test_a_thief_takes_no_number_of_the_owner(key):
    chains = Chains()
    assert chains.ask(Connection(key), append(1, b"first")) == done(0)
    for position, (thief, name, secret) in enumerate(thefts(key), 1):
        stolen = append(2, b"stolen", client=name, secret=secret)
        assert chains.ask(thief, stolen) == done(position)
    assert chains.ask(Connection(key), append(2, b"second")) == done(5)
    assert chains.entries()[5] == b"second"


@KEYS
def test_a_reconnection_with_the_same_key_goes_on(key):
    chains = Chains()
    assert chains.ask(Connection(key, 1), append(1, b"x")) == done(0)
    assert chains.ask(Connection(key, 2), append(1, b"x")) == done(0)
    assert chains.ask(Connection(key, 2), append(2, b"y")) == done(1)
    assert chains.entries() == [b"x", b"y"]


@KEYS
def test_a_restarted_node_knows_whose_number_it_is(key):
    chains = Chains()
    assert chains.ask(Connection(key), append(1, b"x")) == done(0)
    chains.restart("s0")
    chains.tick()
    chains.run()
    for position, (thief, name, secret) in enumerate(thefts(key), 1):
        assert chains.ask(thief, append(2, b"t", client=name, secret=secret)) == done(position)
    assert chains.ask(Connection(key, 1), append(1, b"x")) == done(0)
    assert chains.ask(Connection(key, 1), append(2, b"y")) == done(5)


@KEYS
@pytest.mark.parametrize("fetched", [False, True], ids=["looked up", "handed over"])
def test_a_moved_log_knows_whose_number_it_is(key, fetched):
    """The row of an earlier chain is asked for under the digest, or comes with the records."""
    chains = Chains()
    assert chains.ask(Connection(key), append(1, b"x")) == done(0)
    c1 = chains.move()
    if fetched:
        chains.let_it_fetch()
    for position, (thief, name, secret) in enumerate(thefts(key), 1):
        stolen = append(2, b"t", c1, client=name, secret=secret)
        assert chains.ask(thief, stolen, "s3") == done(position)
    again = append(1, b"x", c1, lowest=1)
    assert chains.ask(Connection(key, 1), again, "s3") == done(0), "each append takes effect once"
    assert chains.ask(Connection(key, 1), append(2, b"y", c1), "s3") == done(5)
    chains.let_it_fetch()
    assert chains.entries(c1) == [b"x", b"t", b"t", b"t", b"t", b"y"]


# -- records of an earlier release -----------------------------------------------------------------


def stored_by_an_earlier_release(chains: Wired, count: int) -> None:
    """Let all nodes of C0 restart over records under the unchanged id."""
    records = []
    for first in range(count):
        fields = first, CLIENT, first + 1, 1, (b"%d" % first,)
        records.append(LogRecord(*fields, seal_of(*fields)))
    for name in NAMES:
        chains.disks[name] += [RecordsTaken(C0.id, tuple(records))]
        chains.restart(name)
    chains.tick()
    chains.run()


@KEYS
@pytest.mark.parametrize("secret", [SECRET, b""], ids=["client", "earlier client"])
@pytest.mark.parametrize("moved", ["", "looked up", "handed over"])
def test_an_append_that_an_earlier_release_stored_is_found(key, secret, moved):
    chains = Chains()
    stored_by_an_earlier_release(chains, 3)
    of, head = C0, "s0"
    if moved:
        of, head = chains.move(3), "s3"
        if moved == "handed over":
            chains.let_it_fetch()
    sender = Connection(key)
    for number in (2, 3):
        copy = append(number, b"%d" % (number - 1), of, lowest=2, secret=secret)
        assert chains.ask(sender, copy, head) == done(number - 1)
    assert chains.ask(sender, append(4, b"3", of, lowest=3, secret=secret), head) == done(3)
    again = append(3, b"2", of, lowest=3, secret=secret)
    assert chains.ask(sender, again, head) == done(2), "also when the client has a row of its own"
    chains.let_it_fetch() if moved else None
    assert chains.entries(of) == [b"0", b"1", b"2", b"3"]


def test_a_thief_finds_the_records_of_an_earlier_release_and_changes_nothing():
    """The thief learns the positions; the owner's next number stays the owner's."""
    chains = Chains()
    stored_by_an_earlier_release(chains, 1)
    assert chains.ask(Connection(THIEF_KEY), append(2, b"stolen", secret=b"")) == done(1)
    assert chains.ask(Connection(OWNER_KEY), append(2, b"mine")) == done(2)
    assert chains.entries() == [b"0", b"stolen", b"mine"]


class EarlierAppend(OfChain, frozen=True, tag=96):
    """The message in the form of earlier releases."""

    client: ClientId
    number: int
    lowest: int
    since: int
    entries: tuple[bytes, ...]
    at: int | None = None


def test_releases_understand_each_others_appends():
    ours = append(1, b"x")
    (packed,) = encode([ours])
    (fields,) = msgspec.msgpack.decode(packed[1:])
    theirs = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=EarlierAppend)
    assert theirs == EarlierAppend(*structs.astuple(ours)[:-1])
    header = packed[:1] + msgspec.msgpack.encode([theirs])
    assert decode([header]) == [structs.replace(ours, secret=b"")]


# -- who is shown an id ----------------------------------------------------------------------------


def shows_ids(kind: Any) -> bool:
    """Return whether values of a type hold client ids of a log, at any depth."""
    if kind is ClientId:
        return True
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Tag:
        return any(map(shows_ids, get_type_hints(kind, include_extras=True).values()))
    parts = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    return any(map(shows_ids, parts))


def test_no_reply_to_a_client_shows_an_id_of_a_log():
    """A client is shown ids in ``Fetched``, which takes a server's key, and as proposers."""
    showing = {request.__name__ for request, row in REQUEST_KINDS.items() if shows_ids(row.reply)}
    assert showing == {"Fetch", "Propose"}


@KEYS
def test_records_hold_neither_id_nor_secret(key):
    chains = Chains()
    assert chains.ask(Connection(key), append(1, b"x")) == done(0)
    chains.move()
    chains.let_it_fetch()
    digest = bound_id(CLIENT, SECRET, key)
    assert digest != CLIENT
    for name, facts in chains.disks.items():
        kept = [fact for fact in facts if isinstance(fact, RecordsTaken | PieceFetched)]
        assert {record.client for fact in kept for record in fact.records} == {digest}, name
