"""A simulated watcher: lives of a client that watches all objects, and the promises of watches.

A life ends at a planned time, and the next life goes on at the point of the last notice; or begins
without a point after a gap. Promises (rule R26): in a life no notice of an object goes back; no
operation that begins after a notice finds an older version; the last completed version of each
object, or a later one, is told at last in some life.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ares.compiled import fast_path
from ares.engine.session import Session
from ares.model.codec import encode
from ares.model.configuration import Configuration
from ares.model.errors import ObjectWatchGap
from ares.model.identity import ClientId, ObjectName, ServerId
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.view import View
from ares.registers.object_watch import ObjectNotice, ObjectWatch, point_of, watch_round
from ares.testing.sim.files import pair
from ares.testing.sim.invariants import PromiseBroken, SingleValues
from ares.testing.sim.plan import SimWatcherPlan
from ares.testing.sim.simulated_client import CLIENT_PATIENCE_S, LIFE, CallerRun, SimCaller
from ares.testing.sim.simulated_server import SimServer
from ares.testing.verify.history import Event

SIM_WATCH_PAUSE_S = 0.02


class WatcherRun(CallerRun, Protocol):
    """The parts of a run that a watcher uses."""

    values: SingleValues
    servers: list[SimServer]
    watching: "dict[str, WatcherLife]"

    def post(self, client: str, server: str, frames: list[bytes]) -> None: ...


class WatcherLife(SimCaller):
    """A process of a watcher. ``told``: the versions told in this life."""

    _run: WatcherRun

    def __init__(self, watcher: "SimWatcher", name: str, client: int, since: str | None) -> None:
        super().__init__(watcher.run, name)
        self.told: dict[str, Tag] = {}
        self._watcher = watcher
        self.session = self.asking = Session(fast_path=fast_path())
        plan = watcher.plan
        self.view = View(ClientId(client), watcher.c0, plan.switches, self.session.readiness)
        self._watch = ObjectWatch("", None if since is None else point_of(since))

    def begin_round(self) -> None:
        if not self.dead:
            self.session.start(
                watch_round(self.view, self._watch),
                "watch",
                self._world.now,
                CLIENT_PATIENCE_S,
                self._end_round,
            )
            self.flush()

    def _end_round(self, notices: Any, error: BaseException | None) -> None:
        if self.dead:
            return
        if isinstance(error, ObjectWatchGap):
            self._watcher.start_over()
            return
        if error is not None:
            raise PromiseBroken(f"{self.name} failed with {type(error).__name__}: {error}")
        for notice in notices:
            self._watcher.take(self, notice)
        self._world.after(0.0 if self._watch.more else SIM_WATCH_PAUSE_S, self.begin_round)

    def receive(self, server: str, frames: list[bytes]) -> None:
        if not self.dead:
            self.session.receive_frames(ServerId(server), frames, self._world.now)
            self.flush()

    def _post_all(self) -> None:
        for server, letter in self.session.take_letters().items():
            frames = [letter] if isinstance(letter, bytes) else encode(letter)
            self._run.post(self.name, server, frames)


class SimWatcher:
    """All lives of a watcher. ``told``: the newest version told of each object in any life."""

    def __init__(
        self, run: WatcherRun, plan: SimWatcherPlan, number: int, c0: Configuration
    ) -> None:
        self.run = run
        self.plan = plan
        self.c0 = c0
        self.told: dict[str, Tag] = {}
        self._number = number
        self._notices: list[tuple[float, ObjectNotice]] = []
        self._since: str | None = None
        self._lives = 0
        self._life = self._begin()
        for at in plan.restarts:
            run.world.after(at, self._restart)

    def _begin(self) -> WatcherLife:
        self._lives += 1
        name = f"{self.plan.name}.{self._lives}"
        self.run.world.narrate(f"{name} WATCHES" + (" from a point" if self._since else ""))
        life = WatcherLife(self, name, self._number + self._lives * LIFE, self._since)
        self.run.watching[name] = life
        self.run.world.after(0.0, life.begin_round)
        return life

    def _restart(self) -> None:
        if not self._life.dead:
            self._life.dead = True
            self._life = self._begin()

    def start_over(self) -> None:
        """Begin without a point, after a gap."""
        self._since = None
        self._restart()

    def stop(self) -> None:
        self._life.dead = True

    def take(self, life: WatcherLife, notice: ObjectNotice) -> None:
        """Judge a notice. Raises :class:`PromiseBroken`."""
        now, key, tag = self.run.world.now, notice.key, notice.tag
        self.run.world.narrate(f"{life.name} IS TOLD {key} {tag.number}.{tag.writer}")
        if key in life.told and tag <= life.told[key]:
            raise PromiseBroken(f"{life.name} is told {tag} of {key!r} after {life.told[key]}")
        value = self.run.values.of(life.view.domain, ObjectName(key), tag)
        if value is None or (value is TOMBSTONE) != notice.deleted:
            raise PromiseBroken(f"{life.name} is told a version of {key!r} that no client wrote")
        if not self._is_at_quorum(ObjectName(key), tag):
            raise PromiseBroken(f"{life.name} is told {tag} of {key!r}, which is at no quorum")
        life.told[key] = tag
        self.told[key] = max(tag, self.told.get(key, tag))
        self._since = notice.since
        self._notices.append((now, notice))

    def _is_at_quorum(self, key: ObjectName, tag: Tag) -> bool:
        """Return whether every quorum of some configuration has the version, or a newer one.

        With EC at least k servers of every quorum have it. A server that lost its disk is in no
        quorum.
        """
        replicas = {server.replica.server: server.replica for server in self.run.servers}
        known = {id: state for each in replicas.values() for id, state in each.hosted.items()}
        for id, state in known.items():
            configuration = state.configuration
            lacking = 0
            for member in configuration.servers:
                replica = replicas[member.id]
                held = replica.hosted.get(id)
                newest = None if held is None else held.objects.newest(key)
                if replica.identity == member.identity and (newest is None or newest < tag):
                    lacking += 1
            if lacking <= configuration.quorum_size - configuration.k:
                return True
        return False

    def judge(self, events: Sequence[Event]) -> None:
        """Check that no operation which began after a notice found an older version."""
        for told_at, notice in self._notices:
            for event in events:
                if (
                    event.key == notice.key
                    and event.tag is not None
                    and event.invoked > told_at
                    and event.tag < (notice.tag.number, notice.tag.writer)
                ):
                    raise PromiseBroken(
                        f"{self.plan.name} was told {notice.tag} of {notice.key!r} before this "
                        f"began: {event.describe()}"
                    )

    def missing(self, events: Iterable[Event]) -> list[str]:
        """Return the keys with a completed version newer than every notice."""
        return sorted(
            {
                event.key
                for event in events
                if event.operation != "read"
                and event.responded is not None
                and event.tag is not None
                and event.tag > (pair(self.told.get(event.key)) or (0, 0))
            }
        )
