"""Random schedules over the world of tests/protocol, their histories, and checkers of histories.

A client runs a single operation at a time. Time is a counter of deliveries: an operation precedes
another if it ended before the other began.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.operations import read, write
from tests.protocol.protocol_world import Pending, ProtocolClient, ProtocolWorld, servers

PLANS = [
    Configuration.abd(servers(0, 1, 2)),
    Configuration.ec(servers(2, 3, 4, 5, 6), 3, 4),
    Configuration.ec(servers(3, 4, 5, 6), 2, 4),
    Configuration.abd(servers(4, 5, 6)),
    Configuration.ec(servers(0, 1, 2, 3, 4), 2, 4),
]
C0 = PLANS[0].at(DEFAULT_DOMAIN, 0)

STEPS_MAX = 100_000


class Cseq(NamedTuple):
    """A client's configuration sequence at a moment (Table 1).

    The fields are ids by index, and the index of the last finalized entry.
    """

    entries: dict[int, bytes]
    mu: int

    @property
    def lambda_(self) -> int:
        return max(self.entries)


class Done(NamedTuple):
    """A completed operation.

    ``tag`` and ``value`` were read or written; for a reconfiguration ``value`` is the result.
    """

    client: int
    kind: str
    object: str
    began: int
    ended: int
    tag: Tag
    value: Any
    cseq: Cseq


def cseq(client: ProtocolClient) -> Cseq:
    sequence = client.view.sequence
    return Cseq(
        {entry.index: entry.id for entry in (*sequence.retired, *sequence.active)},
        sequence.last_finalized.index,
    )


class Schedule:
    """A schedule: ``reconfigurers`` of the ``clients`` reconfigure, the others read and write.

    ``inspect`` is called after every delivery.
    """

    def __init__(
        self,
        seed: int,
        clients: int = 5,
        reconfigurers: int = 2,
        operations: int = 4,
        initial: Configuration = C0,
    ) -> None:
        self.world = ProtocolWorld(initial, range(7), seed)
        self.rng = self.world.rng
        self.clients = [self.world.client(self._switches()) for _ in range(clients)]
        self.reconfigurers = set(self.clients[:reconfigurers])
        self.left = dict.fromkeys(self.clients, operations)
        self.running: dict[ProtocolClient, tuple[str, str, Any, int, Pending]] = {}
        self.history: list[Done] = []
        self.moment = 0
        self.inspect: Callable[[], None] = lambda: None

    def _switches(self) -> Switches:
        flags = [self.rng.random() < 0.7 for _ in range(4)]
        return Switches(*flags, ahead=self.rng.random() < 0.5)

    def run(self) -> list[Done]:
        """Run until every client has done its operations."""
        for _ in range(STEPS_MAX):
            self._begin()
            if not self.world.step() or self.rng.random() < 0.01:
                self.world.tick()
            self.moment += 1
            self.inspect()
            self._reap()
            if not self.running and not any(self.left.values()):
                return self.history
        raise AssertionError("the schedule does not end")

    def _begin(self) -> None:
        idle = [
            client for client in self.clients if self.left[client] and client not in self.running
        ]
        if not idle or self.rng.random() > 0.1:
            return
        client = self.rng.choice(idle)
        self.left[client] -= 1
        object = self.rng.choice(["x", "y"])
        if client in self.reconfigurers:
            kind, value, operation = (
                "reconfigure",
                None,
                reconfigure(client.view, self.rng.choice(PLANS)),
            )
        elif self.rng.random() < 0.5:
            value = f"{client.id}.{self.left[client]}".encode()
            kind, operation = "write", write(client.view, object, value)
        else:
            kind, value, operation = "read", None, read(client.view, object)
        self.running[client] = (
            kind,
            object,
            value,
            self.moment,
            client.start(operation, idle=True),
        )

    def _reap(self) -> None:
        for client, (kind, object, value, began, pending) in list(self.running.items()):
            if not pending.ended:
                continue
            del self.running[client]
            result = pending.result()
            tag = TAG_ZERO
            if kind == "read":
                tag, value = result.tag, result.value
            elif kind == "write":
                tag = result
            else:
                value = result
            self.history.append(
                Done(client.id, kind, object, began, self.moment, tag, value, cseq(client))
            )


def precede(history: list[Done]) -> Iterator[tuple[Done, Done]]:
    """Yield every pair of operations of which the first ended before the second began."""
    return (
        (first, second) for first in history for second in history if first.ended < second.began
    )


def broken_uniqueness(history: list[Done]) -> list[str]:
    """Check Lemma 8: all clients know the same configuration for an index."""
    known: dict[int, bytes] = {}
    return [
        f"index {index}"
        for done in history
        for index, id in done.cseq.entries.items()
        if known.setdefault(index, id) != id
    ]


def broken_subsequence(history: list[Done]) -> list[str]:
    """Check Definition 5 and Lemma 10: a later operation's knowledge reaches at least as far."""
    return [
        f"{first} then {second}"
        for first, second in precede(history)
        if first.cseq.lambda_ > second.cseq.lambda_
    ]


def broken_progress(history: list[Done]) -> list[str]:
    """Check Lemma 12: the last finalized index never goes back between operations.

    This holds from each operation to each later operation.
    """
    return [
        f"{first} then {second}"
        for first, second in precede(history)
        if first.cseq.mu > second.cseq.mu
    ]


def broken_atomicity(history: list[Done]) -> list[str]:
    """Check Theorem 16, by tags and for each object: the order of tags is a linearization.

    Writes have unique tags. A read returns the value written under its tag, not before this write
    began. An operation that follows another has at least its tag, a write a higher tag.
    """
    broken = []
    writes: dict[tuple[str, Tag], Done] = {}
    for done in history:
        if done.kind == "write" and writes.setdefault((done.object, done.tag), done) is not done:
            broken.append(f"two writes with one tag: {done}")
    for done in history:
        if done.kind == "read" and done.tag != TAG_ZERO:
            source = writes.get((done.object, done.tag))
            if source is None or source.value != done.value or source.began > done.ended:
                broken.append(f"a value that was not written: {done}")
        if done.kind == "read" and done.tag == TAG_ZERO and done.value is not TOMBSTONE:
            broken.append(f"a value out of nothing: {done}")
    for first, second in precede(history):
        if "reconfigure" in (first.kind, second.kind) or first.object != second.object:
            continue
        if second.tag < first.tag or (second.kind == "write" and second.tag == first.tag):
            broken.append(f"{second} goes back behind {first}")
    return broken
