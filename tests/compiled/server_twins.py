"""Two hosts with the same input bytes: with the compiled core, and with the Python path only."""

from collections import defaultdict
from operator import length_hint

import msgspec

from ares.compiled import CORE, replica_parts
from ares.model.codec import Encoded, decode_requests, encode, encode_array
from ares.model.configuration import Configuration, Server
from ares.model.errors import BadMessage
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import Introduce, Role
from ares.net.zmtp.frames import head
from ares.replica.port import lists_of
from ares.replica.replica import USUAL_PARTS, Replica
from ares.security.clients_file import AuthorisedClient, KeyedSender
from ares.security.roles import Admission
from ares.server.storage_server import ServerParts, StorageServer
from tests.journal.memory_journal import Kept, MemoryJournal

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(5)]
INITIAL = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
CODED = Configuration.ec(MEMBERS, 3, 1).at("photos", 0, INITIAL.id)
DEEP = Configuration.ec(MEMBERS, 2, 4).at("films", 0, INITIAL.id)
FOREIGN = Configuration.abd(MEMBERS[:3]).at("elsewhere", 0, INITIAL.id)
HOSTED = [INITIAL, CODED, DEEP]
ME = MEMBERS[1]
_encode = msgspec.msgpack.Encoder().encode


class Keyed(KeyedSender):
    """A client with a key of this role; `None` means that the key is no longer known."""

    def __init__(self, role: Role | None, site: str = "") -> None:
        self.role = role
        self.site = site


class _Everybody:
    unknown_keys = 0

    def client(self, sender):
        return None if sender.role is None else AuthorisedClient("somebody", "", sender.role)


class Steps:
    """An event loop with steps taken by a test."""

    def __init__(self) -> None:
        self._waiting = []

    def call_soon(self, callback) -> None:
        self._waiting.append(callback)

    def time(self) -> float:
        return 0.0

    def step(self) -> None:
        """Take the next step, if any."""
        if self._waiting:
            self._waiting.pop(0)()

    def take(self) -> None:
        """Take all waiting steps."""
        for _ in range(len(self._waiting)):
            self.step()


class _Recording(MemoryJournal):
    """``noted``: the bytes of all facts, by where they are; ``count``: how many they are."""

    def __init__(self, *arguments, **named) -> None:
        super().__init__(*arguments, **named)
        self.noted = defaultdict(bytes)
        self.count = 0

    def append(self, fact, bytes):
        self._note_facts(Encoded(1, _encode(fact)))
        super().append(fact, bytes)

    def extend(self, facts, bytes):
        self._note_facts(facts)
        super().extend(facts, bytes)

    def _note_facts(self, facts):
        self.noted[self._place] += facts.bytes
        self.count += facts.count


class Half:
    """A half of the twins.

    ``sent`` has the bytes of the replies, in order; ``quick`` counts the core's batches.
    """

    def __init__(
        self,
        compiled: bool,
        replica: Replica,
        admission: Admission | None,
        server=None,
        place_bytes: int = 1 << 16,
    ) -> None:
        self.loop, self.disk = Steps(), Steps()
        self.journal = (
            _Recording(Kept(), self.disk.call_soon, place_bytes) if replica.journaled else None
        )
        self.replica = replica
        self.sent = []
        self.quick = 0
        self.host = StorageServer(
            self.replica,
            self.journal,
            ServerParts(self._respond, admission=admission, loop=self.loop, sites=["here"]),
        )
        if not compiled:
            self.host._core = None
        elif server is not None:
            self.host._core = server(self.host._core)
        self._handle = self.host.handler

    def _respond(self, sender, replies) -> None:
        self.sent.append((sender, [bytes(frame) for frame in encode(replies)]))

    def receive(self, sender, frames, raw=False) -> None:
        """Receive batches of a single frame each, at once; ``raw``: as a read of a connection."""
        self.receive_batches(sender, [[frame] for frame in frames], raw)

    def receive_batches(self, sender, batches, raw) -> None:
        """Receive as in :meth:`receive`, with all frames of each batch."""
        came = (
            memoryview(b"".join(head(len(frame)) + frame for [frame] in batches))
            if raw
            else batches
        )
        served = self.host.serve(sender, came)
        if served is not None:
            self.quick += 1
            if served.reply is not None:
                self.sent.append((sender, [served.reply]))
            return
        requests = []
        for frames in batches:
            try:
                requests += decode_requests(frames)
            except BadMessage as error:
                self.sent.append((sender, type(error)))
        rest = iter(requests)
        while length_hint(rest):  # a turn may end before all is taken
            if replies := self._handle(sender, rest):
                self._respond(sender, replies)

    def take_steps(self) -> None:
        """Take steps until every commit is done."""
        for _ in range(6):
            self.loop.take()
            self.disk.take()

    @property
    def state(self):
        """Return all state with an effect on later replies, and all reports about it."""
        commits = [
            commit for commit in (self.host._gathering, self.host._syncing) if commit is not None
        ]
        return (
            {id: _table(hosting) for id, hosting in self.replica.hosted.items()},
            dict(self.replica.account.live) if self.journal is not None else None,
            (self.replica.account.died, self.replica.account.repaired, self.replica.account.hollows)
            if self.journal is not None
            else None,
            (self.journal.noted, self.journal.count, self.journal._sizes)
            if self.journal is not None
            else None,
            [
                (commit.objects, commit.pointers, commit.appended, commit.bytes, commit._rows)
                for commit in commits
            ],
            [
                {sender: encode_array(replies) for sender, replies in commit.replies.items()}
                for commit in commits
            ],
            [
                [sum(numbers) for numbers in list(zip(*commit.waited, strict=True))[1:]]
                for commit in commits
            ],
        )


def _table(hosting):
    rows = {
        name: (
            versions.trimmed,
            versions.trimmed_place if hosting._journaled else None,
            list(map(tuple, versions.entries)),
        )
        for name, versions in lists_of(hosting.objects)
    }
    return (
        hosting.describe(),
        hosting.elements,
        hosting.bytes,
        hosting.carried,
        [name for name, _ in lists_of(hosting.objects) if hosting.objects.follows(name)],
        rows,
    )


def twins(journaled=False, keyed=False, server=None) -> tuple[Half, Half]:
    assert CORE is not None
    admission = Admission(_Everybody(), lambda configuration: True) if keyed else None
    halves = [
        Half(compiled, Replica(ME.id, ME.identity, INITIAL, journaled, parts), admission, server)
        for compiled, parts in ((True, replica_parts()), (False, USUAL_PARTS))
    ]
    for half in halves:
        half.host.handle(None, [Introduce(1, configuration) for configuration in HOSTED[1:]])
        half.take_steps()
    return halves[0], halves[1]
