"""A run of a plan: chaos, healing, and an inspection; also many runs, and smaller failing plans.

Worker processes import this module: they cannot import from a package's ``__main__``.
"""

import itertools
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ares.engine.effects import Agree, Announce
from ares.model.codec import Outgoing, encode
from ares.model.errors import StoreDamaged
from ares.reconfig.view import Switches
from ares.testing.sim.asker import Asker
from ares.testing.sim.buckets.bucket_plan import BucketPlan, draw_bucket
from ares.testing.sim.buckets.bucket_run import SimBucketRun
from ares.testing.sim.files import FileChronicle
from ares.testing.sim.invariants import PromiseBroken, ServerWatch, SinglePlaces, SingleValues
from ares.testing.sim.journal_server import JournalServer, SimScrubber
from ares.testing.sim.judgement import judge_files, judge_history
from ares.testing.sim.name_oracle import NameOracle
from ares.testing.sim.plan import (
    OBJECT_SCENARIOS,
    PlannedFault,
    SimClientPlan,
    SimPlan,
    SimStep,
    draw,
)
from ares.testing.sim.published_client import SimPublishedClient
from ares.testing.sim.shared_log.log_plan import LogPlan, draw_log
from ares.testing.sim.shared_log.log_run import SimLogRun
from ares.testing.sim.simulated_client import SimClient
from ares.testing.sim.simulated_server import EarlierServer, LateServer, SimServer
from ares.testing.sim.simulated_watcher import SimWatcher, WatcherLife
from ares.testing.sim.world import (
    SIM_HEALING_S,
    SIM_STEPS_MAX,
    SimConsensus,
    SimWorld,
    name_configuration,
)
from ares.testing.verify.coverability import check_coverability
from ares.testing.verify.history import Event

LOG_SCENARIO = "log"
BUCKET_SCENARIO = "bucket"
ALL_SCENARIOS = (*OBJECT_SCENARIOS, LOG_SCENARIO, BUCKET_SCENARIO)
"""The scenarios of objects and files, of the shared log, and of buckets over both."""

AnyPlan = SimPlan | LogPlan | BucketPlan
Plan = TypeVar("Plan", bound=AnyPlan)


class SimVerdict(Struct, frozen=True):
    """The verdict on a run.

    ``violation``: the broken promise, or ``None``. ``digest``: of all events; equal plans give
    equal digests.
    """

    violation: str | None
    digest: str
    operations: int
    messages: int
    reconfigurations: int
    story: list[str]


def drawn(seed: int, scenario: str) -> AnyPlan:
    """Draw the plan of a seed, of any scenario."""
    if scenario == BUCKET_SCENARIO:
        return draw_bucket(seed)
    return draw_log(seed) if scenario == LOG_SCENARIO else draw(seed, scenario)


def _begun(plan: AnyPlan, keep_story: bool) -> "SimRun | SimLogRun | SimBucketRun":
    if isinstance(plan, BucketPlan):
        return SimBucketRun(plan, keep_story)
    return SimLogRun(plan, keep_story) if isinstance(plan, LogPlan) else SimRun(plan, keep_story)


def run_plan(plan: AnyPlan, keep_story: bool = False) -> SimVerdict:
    run = _begun(plan, keep_story)
    violation = None
    try:
        run.chaos()
        run.heal()
        run.look_back()
    except (PromiseBroken, AssertionError, StoreDamaged) as broken:
        violation = str(broken) or f"{type(broken).__name__}: {broken!r}"
        run.world.narrate(f"VIOLATION: {violation}")
    reconfigurations = run.consensus.table.count
    return SimVerdict(
        violation,
        run.world.digest,
        len(run.events),
        run.world.messages,
        reconfigurations,
        run.world.story or [],
    )


class SimRun:
    """A run of a plan: the simulated world, its processes, and their judgement."""

    def __init__(self, plan: SimPlan, keep_story: bool) -> None:
        self.plan = plan
        self.world = SimWorld(plan, keep_story)
        self.world.changes_kept = plan.changes_kept
        self.events: list[Event] = []
        self.chronicle = FileChronicle()
        places = SinglePlaces()
        self.consensus = SimConsensus(self.world, places)
        self._c0 = plan.c0
        places.see(self._c0)
        self.world.narrate(f"c0 IS {name_configuration(self._c0)}")
        self.values = SingleValues()
        self.names = NameOracle()
        watches = [ServerWatch(places, self.values) for _ in range(plan.servers)]
        self.servers = [self._server(number, watch) for number, watch in enumerate(watches)]
        scrubbers = [
            SimScrubber(self.world, self.post, server)
            for server in self.servers
            if isinstance(server, JournalServer) and plan.scrubs
        ]
        askers = [Asker(self.world, self.post, server) for server in self.servers]
        for server, asker in zip(self.servers, askers, strict=True):
            server.fetch = asker.fetch
        self._scrubbers = scrubbers
        self._askers = {asker.name: asker for asker in (*askers, *scrubbers)}
        self._by_name = {server.name: server for server in self.servers}
        self.clients: dict[str, SimClient] = {}
        self.watching: dict[str, WatcherLife] = {}
        for client in plan.clients:
            self._join(client)
            if client.dies_at is not None:
                self.world.after(client.dies_at, self.clients[client.name].die)
        numbers = itertools.count(len(plan.clients) + 1)
        self._watchers = [
            SimWatcher(self, watcher, next(numbers), self._c0) for watcher in plan.watchers
        ]
        for fault in plan.faults:
            self.world.after(fault.at, self._strike, fault)

    def _server(self, number: int, watch: ServerWatch) -> SimServer:
        if self.plan.segment_bytes:
            return JournalServer(
                self.world, number, self._c0, watch, self._respond, self.plan.segment_bytes
            )
        kind = EarlierServer if number in self.plan.earlier else LateServer
        return kind(self.world, number, self._c0, watch, self._respond)

    def _join(self, plan: SimClientPlan) -> SimClient:
        kind = SimPublishedClient if self.plan.published else SimClient
        client = kind(self, plan, len(self.clients) + 1, self._c0)
        self.clients[plan.name] = client
        client.begin()
        return client

    # -- services for clients ----------------------------------------------------------------------

    def post(self, client: str, server: str, frames: list[bytes]) -> None:
        self.world.send(client, server, frames, self._by_name[server].receive)

    def _respond(self, server: str, client: str, replies: Sequence[Outgoing]) -> None:
        # A network copies its messages: the parts of elements may be views of a store.
        receivers: list[Mapping[str, Any]] = [self.clients, self.watching, self._askers]
        receive = next(named[client].receive for named in receivers if client in named)
        self.world.send(server, client, [bytes(frame) for frame in encode(replies)], receive)

    def consult(
        self,
        client: SimClient | WatcherLife,
        what: Agree | Announce,
        answer: Callable[[Any], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        if isinstance(what, Agree):
            self.consensus.propose(what.configuration, client.view.client, answer, refuse)
        else:
            self.consensus.tell_finalized(what.configuration, answer)

    # -- faults ------------------------------------------------------------------------------------

    def _strike(self, fault: PlannedFault) -> None:
        if self.consensus.healed:
            return
        world = self.world
        world.narrate(
            f"FAULT {fault.kind} {','.join(f's{number}' for number in fault.servers)} for "
            f"{fault.lasts_s:.3f} s"
        )
        struck = [self.servers[number] for number in fault.servers]
        journals = [server for server in struck if isinstance(server, JournalServer)]
        names = {server.name for server in struck}
        match fault.kind:
            case "crash" | "kill":
                for server in struck:
                    server.crash(fault.kind == "crash")
                    world.after(fault.lasts_s, self._restart, server)
            case "disk":
                for server in struck:
                    server.lose_disk()
            case "cut" | "cut-in" | "cut-out":
                world.cuts.append(fault)
                world.after(fault.lasts_s, world.mend, fault)
            case "slow":
                world.slow |= names
                world.after(fault.lasts_s, world.slow.difference_update, names)
            case "full":
                for server in journals:
                    server.fill()
                    world.after(fault.lasts_s, server.empty)
            case "rot":
                for server in journals:
                    server.rot()
            case "broken" | "gone":
                for server in journals:
                    server.break_down() if fault.kind == "broken" else server.lose_segments()
                    world.after(fault.lasts_s, self._restart, server)
            case "consensus":
                self.consensus.down_until = world.now + fault.lasts_s

    def _restart(self, server: SimServer) -> None:
        if not self.consensus.healed:
            self.world.narrate(f"{server.name} RESTARTS")
            server.restart()

    # -- the course of a run -----------------------------------------------------------------------

    def chaos(self) -> None:
        """Test safety: run the plan with all faults."""
        self._until(lambda: self.world.now >= self.plan.chaos_s or self._all_done())

    def heal(self) -> None:
        """Test liveness: with all servers back and a good network, every operation completes."""
        self.world.narrate("HEALING")
        self.world.heal()
        self.consensus.healed = True
        self.consensus.down_until = 0.0
        for server in self.servers:
            server.heal()
        end = self.world.now + SIM_HEALING_S
        self._until(lambda: self._all_done() or self.world.now > end)
        stuck = [
            client.name for client in self.clients.values() if not client.dead and not client.done
        ]
        if stuck and self.plan.live:
            raise PromiseBroken(
                f"{', '.join(stuck)} did not finish in {SIM_HEALING_S:g} s after all faults "
                "were healed"
            )
        self._await_notices()
        for client in self.clients.values():
            client.die()

    def _await_notices(self) -> None:
        """Wait until every watcher was told the last version of each object."""
        end = self.world.now + NOTICES_S

        def missing() -> list[str]:
            return [
                f"{watcher.plan.name} is not told of {key}"
                for watcher in self._watchers
                for key in watcher.missing(self.events)
            ]

        if self.plan.live:
            self._until(lambda: self.world.now > end or not missing())
            if late := missing():
                raise PromiseBroken("; ".join(late))
        for watcher in self._watchers:
            watcher.stop()

    def look_back(self) -> None:
        """Read every key, crash as many servers as can be survived, and read again.

        As many servers crash as each live configuration survives. Files are read again after a
        collection; no operation under way may need the deleted blocks. A write-once domain is swept
        before.
        """
        if self.plan.initial.write_once:
            self._look_back_at_names()
            return
        steps = {
            step.key: step for client in self.plan.clients for step in client.steps if step.key
        }
        looks = [_look(steps[key]) for key in sorted(steps)]
        if self.plan.live:
            last = self._join(SimClientPlan("z", Switches(), tuple(looks)))
            self._finish(last)
            self._await_repairs()
            self._crash_for_good(last)
            last.extend(looks)
            self._finish(last)
            if any(look.operation == "get-file" for look in looks):
                self._until(lambda: False)
                last.extend([SimStep(0.001, "collect-files"), *looks])
                self._finish(last)
        self._judge()

    def _look_back_at_names(self) -> None:
        """Sweep, restart all servers, and fetch the completed names; then drop these, too (R25).

        No message is on its way: a late one might bring a name back.
        """
        completed = self.names.completed()
        self._sweep()
        looks = [SimStep(0.001, "fetch", name) for name in completed]
        last = self._join(SimClientPlan("z", Switches(), tuple(looks)))
        self._finish(last)
        self._crash_for_good(last)
        last.extend(looks)
        self._finish(last)
        self.names.judge()
        for server in self.servers:
            server.restart()
        self.names.forget()
        self._sweep()

    def _sweep(self) -> None:
        """Drop all names that the index lacks, restart all servers, and look for these names.

        The client that drops the names knows the first configuration only.
        """
        self._until(lambda: False)
        litter: list[str] = []
        for operation in ("list-names", "drop-names", "list-names"):
            name = f"s{len(self.clients)}"
            step = SimStep(0.001, operation, names=tuple(litter))
            client = self._join(SimClientPlan(name, Switches(), (step,)))
            self._finish(client)
            self._until(lambda: False)
            litter = client.litter
            for server in self.servers if operation == "drop-names" else ():
                server.crash(True)
                server.restart()
        if litter:
            raise PromiseBroken(f"dropped names are back: {', '.join(litter)}")

    def _await_repairs(self) -> None:
        end = self.world.now + SIM_HEALING_S
        self._until(
            lambda: (
                all(scrubber.done(self.servers) for scrubber in self._scrubbers)
                or self.world.now > end
            )
        )
        if self.world.now > end:
            raise PromiseBroken(
                f"not everything was repaired in {SIM_HEALING_S:g} s after all faults were healed"
            )

    def _crash_for_good(self, client: SimClient) -> None:
        finalized = client.last_finalized
        decided = self.consensus.table.decisions.get(finalized.domain, {})
        active = [
            finalized,
            *(decision.content for index, decision in decided.items() if index > finalized.index),
        ]
        identities = {server.name: server.replica.identity for server in self.servers}
        present = {
            each.id: [
                member.id for member in each.servers if member.identity == identities[member.id]
            ]
            for each in active
        }
        left = {each.id: each.crashes_survived - each.n + len(present[each.id]) for each in active}
        for server in self.world.rng.sample(self.servers, len(self.servers)):
            touched = [id for id, members in present.items() if server.name in members]
            if all(left[id] > 0 for id in touched):
                self.world.narrate(f"{server.name} CRASHES FOR GOOD")
                server.crash(True)
                for id in touched:
                    left[id] -= 1

    def _finish(self, client: SimClient) -> None:
        end = self.world.now + SIM_HEALING_S
        self._until(lambda: client.done or self.world.now > end)
        if not client.done:
            raise PromiseBroken(f"{client.name} could not read {list(client.running.values())}")

    def _all_done(self) -> bool:
        return all(client.dead or client.done for client in self.clients.values())

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(SIM_STEPS_MAX):
            if done() or not self.world.step():
                return
        raise PromiseBroken(f"no end after {SIM_STEPS_MAX} steps")

    def _judge(self) -> None:
        events = [*self.events, *self.chronicle.events()]
        judge_history(events, "the history could not be judged")
        coverable = check_coverability(events)
        if not coverable.ok:
            raise PromiseBroken(
                "; ".join(violation.describe() for violation in coverable.violations[:3])
            )
        judge_files(self.chronicle)
        for watcher in self._watchers:
            watcher.judge(events)


def _look(step: SimStep) -> SimStep:
    """Return the read of the step's key or file."""
    if step.operation.endswith("-file"):
        return SimStep(0.001, "get-file", step.key)
    return SimStep(0.001, "read-versioned" if "versioned" in step.operation else "read", step.key)


NOTICES_S = 60.0
"""Time for the last notices after healing, beyond the longest pause between two reads."""

CHUNK = 25

Named = tuple[str, int]


def run_many(
    scenarios: list[str], first: int, runs: int | None, until: float | None, jobs: int
) -> Iterator[tuple[Named, SimVerdict]]:
    """Yield the verdicts of seeds from ``first`` on, in any order.

    The end: ``runs`` seeds, or the monotonic time ``until``.
    """
    ahead = threading.Semaphore(jobs * 2)
    with multiprocessing.get_context("spawn").Pool(jobs, quiet) as pool:
        for verdicts in pool.imap_unordered(
            _run_chunk, _chunks(scenarios, first, runs, until, ahead)
        ):
            ahead.release()
            yield from verdicts


def quiet() -> None:
    """Silence the log of servers with failing disks: thousands of lines without use."""
    logging.getLogger("ares").addHandler(logging.NullHandler())


def _chunks(
    scenarios: list[str],
    first: int,
    runs: int | None,
    until: float | None,
    ahead: threading.Semaphore,
) -> Iterator[list[Named]]:
    """Yield work in small portions, little ``ahead`` of the results.

    The pool would take an endless supply at once.
    """
    names = itertools.islice(
        ((scenario, seed) for seed in itertools.count(first) for scenario in scenarios), runs
    )
    while chunk := list(itertools.islice(names, CHUNK)):
        ahead.acquire()
        if until is not None and time.monotonic() > until:
            return
        yield chunk


def _run_chunk(chunk: list[Named]) -> list[tuple[Named, SimVerdict]]:
    return [((scenario, seed), run_plan(drawn(seed, scenario))) for scenario, seed in chunk]


ATTEMPTS_MAX = 2000


def shrink(plan: Plan) -> Plan:
    """Return the smallest plan that still breaks a promise, by leaving out parts in turn."""
    attempts = 0
    smaller = True
    while smaller and attempts < ATTEMPTS_MAX:
        smaller = False
        for candidate in _smaller(plan):
            attempts += 1
            if run_plan(candidate).violation is not None:
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield every plan without a single part; large parts first."""
    replace = msgspec.structs.replace
    for index in range(len(plan.clients)):
        yield replace(plan, clients=plan.clients[:index] + plan.clients[index + 1 :])
    for index in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])
    if plan.chances.loss or plan.chances.double or plan.chances.bad_links:
        yield replace(plan, chances=replace(plan.chances, loss=0.0, double=0.0, bad_links=0.0))
    clients: tuple[Any, ...] = plan.clients
    for index, client in enumerate(clients):
        less: list[Any] = [] if client.dies_at is None else [replace(client, dies_at=None)]
        less += [
            replace(client, steps=client.steps[:step] + client.steps[step + 1 :])
            for step in range(len(client.steps))
        ]
        for other in less:
            yield replace(plan, clients=(*plan.clients[:index], other, *plan.clients[index + 1 :]))
