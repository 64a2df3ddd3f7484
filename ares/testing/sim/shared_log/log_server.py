"""Simulated servers of a log: the real node over a disk with late syncs; and the invariants."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import structs

from ares.model.codec import decode
from ares.model.configuration import Configuration
from ares.model.identity import ConfigurationId
from ares.model.log_messages import (
    Append,
    Appended,
    AppendOutcome,
    AwaitAppend,
    LogRecord,
    SealDone,
)
from ares.model.messages import AnyMessage, Describe, Description
from ares.sharedlog.bound_ids import BoundAppend, bound_append
from ares.sharedlog.chain_segment import ChainSegment
from ares.sharedlog.log_facts import LogFact
from ares.sharedlog.node import LogNode
from ares.testing.sim.invariants import PromiseBroken
from ares.testing.sim.plan import member
from ares.testing.sim.shared_log.log_plan import LogPlan
from ares.testing.sim.world import SimWorld

LOG_SERVER_TICK_S = 0.05


class SimSender(NamedTuple):
    """The name of a client in a server's transport."""

    name: str
    key: str
    """The key that the connection proved, in hex. Empty in a cluster without keys."""


def unbound(append: Append) -> BoundAppend:
    """Return ``append`` under the id that the client sent."""
    return structs.replace(bound_append(None, append), client=append.client)


class LogServerRun(Protocol):
    """The parts of a run for a server of a log."""

    plan: LogPlan
    world: SimWorld
    watch: "LogWatch"

    def post(self, sender: str, receiver: str, messages: list[AnyMessage]) -> None: ...


class LogServer:
    """A server of a log.

    ``node``: the present knowledge; while the server is down, the knowledge on disk. ``disk``: the
    facts in the order of writing.
    """

    def __init__(self, run: LogServerRun, number: int) -> None:
        self.number = number
        self.name = f"s{number}"
        self.up = True
        self.gone = False
        self.disk: list[LogFact] = []
        self._run = run
        self._world = run.world
        self._synced = 0
        self._life = 0
        self._syncing = False
        self._begin()
        self._world.after(LOG_SERVER_TICK_S * self._world.rng.random(), self._tick, 0)

    def _begin(self) -> None:
        server = member(self.number)
        self.node = LogNode(server.id, server.identity)
        self.node.life = self._life + 1
        self.node.fetcher.pause_s = self._run.plan.fetch_pause_s
        del self.disk[self._synced :]
        self.node.restore(self.disk)

    def receive(self, sender: str, frames: list[bytes]) -> None:
        if not self.up:
            return
        for message in decode(frames):
            if isinstance(message, Describe):
                self._describe(sender, message)
            elif isinstance(message, Append):
                earlier = self._world.now < self._run.plan.upgraded_at
                append = unbound(message) if earlier else message
                self.node.handle(self._client(sender), append, self._world.now)
            elif isinstance(message, AwaitAppend):
                self.node.handle(self._client(sender), message, self._world.now)
            else:
                self.node.handle(sender, message, self._world.now)
        self._put_out()

    def _client(self, name: str) -> SimSender:
        return SimSender(name, "" if self._run.plan.keyless else name.encode().hex())

    def _describe(self, sender: str, request: Describe) -> None:
        own = member(self.number)
        self._run.post(
            self.name,
            sender,
            [
                Description(
                    *(request.call, own.id, own.identity, b"cluster", "", 0.0, 0, ()),
                    side_by_side=True,
                )
            ],
        )

    def _tick(self, life: int) -> None:
        if self.up and life == self._life:
            self.node.tick(self._world.now)
            self._put_out()
            self._world.after(LOG_SERVER_TICK_S, self._tick, life)

    def _put_out(self) -> None:
        facts, messages = self.node.take()
        self.disk += facts
        by_receiver: dict[str, list[AnyMessage]] = {}
        for to, message in messages:
            name = to.name if isinstance(to, SimSender) else str(to)
            by_receiver.setdefault(name, []).append(message)
        for to, batch in by_receiver.items():
            self._run.watch.check_replies(self, batch)
            self._run.post(self.name, to, batch)
        self._run.watch.look(self)
        if not self._syncing and self._synced < len(self.disk):
            self._syncing = True
            self._world.after(
                self._world.chances.sync_s * self._world.rng.random(),
                self._sync,
                self._life,
                len(self.disk),
            )

    def _sync(self, life: int, count: int) -> None:
        if self.up and life == self._life:
            self._syncing = False
            self._synced = count
            self.node.stored(count, self._world.now)
            self._put_out()

    def crash(self, lose_unsynced: bool) -> None:
        """Kill the process, and lose all unsynced facts, or only a part."""
        if self.up:
            self.up, self._syncing = False, False
            self._life += 1
            if not lose_unsynced:
                self._synced = self._world.rng.randint(self._synced, len(self.disk))
            self._begin()
            self._run.watch.restarted(self)

    def restart(self) -> None:
        if not self.up and not self.gone:
            self.up = True
            self._tick(self._life)


class SegmentSeen(NamedTuple):
    """The state of a segment at the last look."""

    length: int
    committed: int
    durable: int
    ahead: int = 0
    informed: bool = True
    took_back: bool = True

    @classmethod
    def of(cls, segment: ChainSegment) -> "SegmentSeen":
        return cls(
            segment.length,
            segment.committed,
            segment.durable,
            segment.ahead,
            segment.informed,
            segment.took_back,
        )


def _is_cut(copy: ChainSegment) -> bool:
    """Return whether the node knows the successor, and may have cut the copy."""
    return copy.successor is not None or copy.collected


class LogWatch:
    """The invariants of every node at every step.

    ``decided``: the chains that consensus decided, by index.

    - Any two copies of a chain agree as far as both reach, below its end.
    - Every node holds a prefix of the records of the previous node, unless records of either node
      are not back yet. With these records the sentence holds for all nodes.
    - The committed position of a node is durable at the node, and durable records stay, also in a
      restart.
    - A record known as committed is durable at every node, and keeps the place for ever, over all
      chains.
    - An informed node has reached all that the tail ever knew as committed.
    - A chain is finalized only when all nodes have every record below the chain's start.
    - An append is answered only when a majority of the previous chain knows the chain. A node that
      reported a seal stays sealed.
    """

    def __init__(self, server_of: Callable[[str], LogServer]) -> None:
        self.decided: dict[int, Configuration] = {}
        self.final: dict[int, LogRecord] = {}
        self._places: dict[tuple[int, int, tuple[bytes, ...]], int] = {}
        self._server_of = server_of
        self._seen: dict[tuple[str, ConfigurationId], SegmentSeen] = {}
        self._told: dict[ConfigurationId, int] = {}
        self._base_seen: dict[str, int] = {}
        self._sealed: dict[tuple[str, ConfigurationId], bool] = {}
        self._complete: dict[ConfigurationId, bool] = {}

    def look(self, server: LogServer) -> None:
        """Check the state after any event that may have changed this server."""
        state = server.node.state
        for id, segment in state.segments.items():
            start = segment.start
            seen = self._seen.get((server.name, id), SegmentSeen(start, start, start))
            if segment.successor is not None and segment.successor.finalized:
                self._look_at_finalized(server, segment.successor.configuration)
            now = SegmentSeen.of(segment)
            if now == seen:
                continue
            self._seen[server.name, id] = now
            if segment.end is None and not segment.collected:
                if segment.successor is None:
                    self._look_at_numbers(server, segment, seen)
                    self._look_at_order(segment)
                self._look_at_copies(server, segment, seen.length)
                self._look_at_commit(server, segment, seen.committed)
        seen_base = self._base_seen.get(server.name, 0)
        if state.base_upto != seen_base:
            self._base_seen[server.name] = state.base_upto
            for record in state.base.records(seen_base, state.base_upto):
                self._finalize(server, record)

    def _look_at_finalized(self, server: LogServer, chain: Configuration) -> None:
        """Check that all nodes of a finalized chain have every record below the start.

        A later collection of a server does not matter.
        """
        if chain.id in self._complete:
            return
        self._complete[chain.id] = True
        for id in chain.server_ids:
            state = self._server_of(id).node.state
            if state.base_upto < chain.start and not all(
                segment.collected for segment in state.segments.values()
            ):
                raise PromiseBroken(
                    f"{server.name} knows chain {chain.index} as finalized, and {id} has only "
                    f"what is below {state.base_upto}"
                )

    def _copies(self, segment: ChainSegment) -> list[ChainSegment | None]:
        """Return the copies of a chain from the head on, or None for a node without the chain."""
        id = segment.configuration.id
        return [self._server_of(name).node.state.segments.get(id) for name in segment.servers]

    def _look_at_numbers(
        self, server: LogServer, segment: ChainSegment, seen: "SegmentSeen"
    ) -> None:
        """Check the node's positions, and the informed nodes of its chain."""
        if not segment.committed <= segment.durable <= segment.length:
            raise PromiseBroken(
                f"{server.name} takes the log to be committed up to {segment.committed}, holds it "
                f"up to {segment.length} and durably up to {segment.durable}"
            )
        if segment.durable < seen.durable:
            raise PromiseBroken(
                f"{server.name} has {segment.durable} in place of {seen.durable} durable positions"
            )
        told = self._told.get(segment.configuration.id, segment.start)
        if segment.is_tail:
            told = self._told[segment.configuration.id] = max(told, segment.committed)
        for copy in self._copies(segment):
            if copy is not None and copy.informed and not _is_cut(copy) and copy.reached < told:
                raise PromiseBroken(
                    f"the node at place {copy.place} is informed, and has reached {copy.reached}; "
                    f"the tail committed {told}"
                )

    def _look_at_order(self, segment: ChainSegment) -> None:
        """Check that every node has a prefix of the copy of the node before.

        A returning node counts with the records of the node behind, if these are more. A node that
        knows the successor is not compared.
        """
        behind = segment.start
        for copy in reversed(self._copies(segment)):
            if copy is not None and _is_cut(copy):
                behind = segment.start
                continue
            length = segment.start if copy is None else copy.length
            if copy is not None and not copy.took_back:
                length = max(length, behind)
            if length < behind:
                raise PromiseBroken(
                    f"the node at place {segment.place if copy is None else copy.place} of a chain "
                    f"has the log up to {length}, and the node behind up to {behind}"
                )
            behind = length
        for before in self._copies(segment)[segment.place - 1 : segment.place]:
            if before is not None and _is_cut(before):
                continue
            forwarded = segment.length if before is None or segment.side_by_side else before.durable
            if segment.length > forwarded:
                raise PromiseBroken(
                    f"a node holds the log up to {segment.length}, and the node before durably up "
                    f"to {forwarded}"
                )

    def _look_at_copies(self, server: LogServer, segment: ChainSegment, since: int) -> None:
        """Check that the new records are the same in all copies."""
        own = {record.first: record for record in segment.entries.records(since, segment.length)}
        for name in segment.servers:
            other = self._server_of(name).node.state.segments.get(segment.configuration.id)
            if not own or other is None or other is segment or other.collected or other.merged:
                continue
            upto = min(segment.length, other.length)
            for record in other.entries.records(since, upto) if since < upto else ():
                if own.get(record.first, record) != record:
                    raise PromiseBroken(
                        f"{server.name} and {name} hold different records at {record.first}"
                    )

    def _look_at_commit(self, server: LogServer, segment: ChainSegment, since: int) -> None:
        if segment.committed <= since:
            return
        for id in segment.servers:
            other = self._server_of(id).node.state.segments.get(segment.configuration.id)
            if other is None or (
                other.end is None
                and not other.collected
                and other.successor is None
                and other.durable < segment.committed
            ):
                raise PromiseBroken(
                    f"{server.name} takes the log to be committed up to {segment.committed}, and "
                    f"{id} does not have that"
                )
        for record in segment.entries.records(since, segment.committed):
            self._finalize(server, record)

    def _finalize(self, server: LogServer, record: LogRecord) -> None:
        if self.final.setdefault(record.first, record) != record:
            raise PromiseBroken(
                f"two records are committed at position {record.first}, one at {server.name}"
            )
        if (
            self._places.setdefault((record.client, record.number, record.entries), record.first)
            != record.first
        ):
            raise PromiseBroken(
                f"append {record.number} of client {record.client} is committed twice"
            )

    def check_replies(self, server: LogServer, messages: Sequence[AnyMessage]) -> None:
        """Check the replies of a server."""
        for message in messages:
            if isinstance(message, Appended) and message.outcome is AppendOutcome.DONE:
                self._look_at_answer(server, message.position)
            elif isinstance(message, SealDone):
                for id, segment in server.node.state.segments.items():
                    if not segment.live:
                        self._sealed[server.name, id] = True

    def _look_at_answer(self, server: LogServer, position: int) -> None:
        chains = [chain for chain in server.node.state.chains.values() if chain.start <= position]
        if not chains:  # a repetition of a record in earlier chains
            return
        chain = max(chains, key=lambda chain: chain.index)
        before = self.decided.get(chain.index - 1)
        if chain.id not in server.node.state.segments or before is None:
            return
        knowing = 0
        for id in before.server_ids:
            segment = self._server_of(id).node.state.segments.get(before.id)
            knowing += segment is not None and segment.successor is not None
        if knowing < before.quorum_size:
            raise PromiseBroken(
                f"{server.name} acknowledged position {position} of chain {chain.index}, which a "
                "majority of the one before does not know"
            )

    def restarted(self, server: LogServer) -> None:
        """Forget unsynced facts: no client was told of them."""
        for id, segment in server.node.state.segments.items():
            seen = self._seen.get((server.name, id))
            known = segment.successor is not None or segment.collected
            if seen is not None and not known and segment.durable < seen.durable:
                raise PromiseBroken(
                    f"{server.name} came back with {segment.durable} durable positions in place of "
                    f"{seen.durable}"
                )
            self._seen[server.name, id] = SegmentSeen.of(segment)
            if segment.live and self._sealed.get((server.name, id)):
                raise PromiseBroken(
                    f"{server.name} forgot that chain {segment.configuration.index} is sealed"
                )
            if segment.end is None and not segment.collected:
                self._look_at_commit(server, segment, segment.start)
        self._base_seen[server.name] = server.node.state.base_upto
