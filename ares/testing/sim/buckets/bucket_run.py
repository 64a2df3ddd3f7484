"""A run of the scenario `bucket`: users, gateways, a real log, real blobs; chaos and healing."""

from collections.abc import Callable, Sequence
from typing import Any

from ares.bucket.row_keys import GARBAGE_CONTENT_ROWS, after
from ares.engine.effects import Agree, Announce
from ares.model.codec import Outgoing, decode, encode
from ares.model.identity import ClientId
from ares.model.log_messages import Append
from ares.model.messages import AnyMessage
from ares.reconfig.listing import PAGE_OBJECTS
from ares.reconfig.view import Switches
from ares.testing.sim.asker import Asker
from ares.testing.sim.buckets.bucket_oracle import AskedRequest, BucketOracle
from ares.testing.sim.buckets.bucket_plan import (
    BLOB_SERVERS,
    BUCKET_LOG_SERVERS,
    BucketMove,
    BucketPlan,
    BucketStep,
    BucketUserPlan,
    GatewayFault,
)
from ares.testing.sim.buckets.bucket_user import BucketUser
from ares.testing.sim.buckets.gateway_ports import BlobPort, LogPort
from ares.testing.sim.buckets.gateway_process import GatewayProcess, blob_of
from ares.testing.sim.buckets.simulated_table import SimTable
from ares.testing.sim.files import FileChronicle
from ares.testing.sim.invariants import PromiseBroken, ServerWatch, SinglePlaces, SingleValues
from ares.testing.sim.name_oracle import NameOracle
from ares.testing.sim.plan import PlannedFault, SimClientPlan, SimStep
from ares.testing.sim.shared_log.log_client import LogClient
from ares.testing.sim.shared_log.log_plan import LogClientPlan, LogStep
from ares.testing.sim.shared_log.log_server import LogServer, LogWatch
from ares.testing.sim.simulated_client import SimClient
from ares.testing.sim.simulated_server import LateServer
from ares.testing.sim.world import SIM_HEALING_S, SIM_STEPS_MAX, SimConsensus, SimWorld

CLIENTS_FROM = 1000
"""The first id of the clients of gateways: far above the ids of movers."""

CLEANING_S = 60.0
"""Seconds in which garbage and litter go."""


class LogHalf:
    """The log's servers, and the clients that move the log."""

    def __init__(self, run: "SimBucketRun") -> None:
        self.plan = run.plan.of_log
        self.world = run.world
        self.consensus = run.consensus
        self.consult = run.consult
        self.post = run.post_to_log
        self.events: list[Any] = []
        self.uncommitted: list[str] = []
        self.watch = LogWatch(lambda name: self.servers[name])
        self.watch.decided[0] = self.plan.first_chain
        self.servers = {f"s{number}": LogServer(self, number) for number in BUCKET_LOG_SERVERS}

    def learn(self) -> None:
        """Tell the invariants of the log the decided chains."""
        decided = self.consensus.table.decisions.get(self.plan.first_chain.domain, {})
        if len(decided) >= len(self.watch.decided):
            self.watch.decided |= {i: decision.content for i, decision in decided.items()}


class BlobHalf:
    """The servers of blobs, and the clients that move the blobs."""

    def __init__(self, run: "SimBucketRun", places: SinglePlaces) -> None:
        self.plan = run.plan.of_blobs
        self.world = run.world
        self.consensus = run.consensus
        self.consult = run.consult
        self.post = run.post_to_blobs
        self.events: list[Any] = []
        self.chronicle = FileChronicle()
        self.values = SingleValues()
        self.names = NameOracle()
        first = run.plan.first_blobs
        places.see(first)
        self.servers: list[Any] = [
            LateServer(
                run.world, number, first, ServerWatch(places, self.values), run.respond_of_blobs
            )
            for number in range(BLOB_SERVERS)
        ]


class SimBucketRun:
    """A run. ``events``: the requests of users."""

    def __init__(self, plan: BucketPlan, keep_story: bool) -> None:
        self.plan = plan
        self.world = SimWorld(plan, keep_story, decode)
        self.oracle = BucketOracle(plan.kept)
        self.events: list[AskedRequest] = []
        self.answer_loss = plan.answer_loss
        places = SinglePlaces()
        self.consensus = SimConsensus(self.world, places)
        self._receivers: dict[str, Callable[[str, list[bytes]], None]] = {}
        self._clients = CLIENTS_FROM
        self.log = LogHalf(self)
        self.blobs = BlobHalf(self, places)
        self._receivers |= {name: server.receive for name, server in self.log.servers.items()}
        for server in self.blobs.servers:
            self._receivers[server.name] = server.receive
            asker = Asker(self.world, self.post_to_blobs, server)
            server.fetch = asker.fetch
            self._receivers[asker.name] = asker.receive
        self._gateways: list[GatewayProcess | None] = [None] * len(plan.skews_ms)
        self._lives = 0
        self._files: dict[int, SimTable] = {}
        for number in range(len(plan.skews_ms)):
            self._start_gateway(number)
        self.users: list[BucketUser] = []
        self._movers: list[LogClient | SimClient] = []
        for fault in plan.faults:
            self.world.after(fault.at, self._strike, fault)
        for struck in plan.gateway_faults:
            self.world.after(struck.at, self._strike_gateway, struck)
        for number, move in enumerate(plan.moves):
            self.world.after(move.at, self._move_in_chaos, number, move)

    # -- the network -------------------------------------------------------------------------------

    def connect(self, port: LogPort | BlobPort) -> None:
        self._receivers[port.name] = port.receive

    def new_client(self) -> ClientId:
        self._clients += 1
        return ClientId(self._clients)

    def post_to_log(self, sender: str, receiver: str, messages: list[AnyMessage]) -> None:
        once = any(isinstance(message, Append) for message in messages)
        self.world.send(sender, receiver, encode(messages), self._receivers[receiver], once)

    def post_to_blobs(self, sender: str, receiver: str, frames: list[bytes]) -> None:
        self.world.send(sender, receiver, frames, self._receivers[receiver])

    def respond_of_blobs(self, server: str, client: str, replies: Sequence[Outgoing]) -> None:
        frames = [bytes(frame) for frame in encode(replies)]
        self.world.send(server, client, frames, self._receivers[client])

    def consult(
        self,
        client: Any,
        what: Agree | Announce,
        answer: Callable[[Any], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        if isinstance(what, Agree):
            view = client.view if isinstance(client, SimClient) else client.session.view
            self.consensus.propose(what.configuration, view.client, answer, refuse)
        else:
            self.consensus.tell_finalized(what.configuration, answer)

    # -- gateways ----------------------------------------------------------------------------------

    def gateway(self, number: int) -> GatewayProcess | None:
        """Return the gateway if the process runs."""
        return self._gateways[number]

    def _start_gateway(self, number: int) -> None:
        if self._gateways[number] is None:
            self._lives += 1
            name = f"g{number}.{self._lives}"
            table = self._files.pop(number, SimTable())
            pace = self.plan.skews_ms[number], self.plan.lags_s[number]
            self._gateways[number] = GatewayProcess(self, name, *pace, table)

    def _strike_gateway(self, fault: GatewayFault) -> None:
        gateway = self._gateways[fault.gateway]
        if self.consensus.healed or gateway is None:
            return
        self.world.narrate(f"FAULT {fault.kind} {gateway.name} for {fault.lasts_s:.3f} s")
        if fault.kind == "kill":
            gateway.die()
            self._gateways[fault.gateway] = None
            if self.world.rng.random() < 0.5:  # else its file is lost
                self._files[fault.gateway] = gateway.table.reopened()
            self.world.after(fault.lasts_s, self._start_gateway, fault.gateway)
        elif fault.kind == "full":
            gateway.table.full = True
            self.world.after(fault.lasts_s, self._make_room, gateway)
        else:
            gateway.stopped = True
            self.world.after(fault.lasts_s, self._go_on, gateway)

    def _make_room(self, gateway: GatewayProcess) -> None:
        gateway.table.full = False

    def _go_on(self, gateway: GatewayProcess) -> None:
        self.world.narrate(f"{gateway.name} GOES ON")
        gateway.stopped = False

    # -- faults and moves --------------------------------------------------------------------------

    def _strike(self, fault: PlannedFault) -> None:
        world = self.world
        if self.consensus.healed:
            return
        names = [f"s{number}" for number in fault.servers]
        world.narrate(f"FAULT {fault.kind} {','.join(names)} for {fault.lasts_s:.3f} s")
        match fault.kind:
            case "crash" | "kill":
                for server in map(self._server, names):
                    server.crash(fault.kind == "crash")
                    world.after(fault.lasts_s, server.restart)
            case "cut" | "cut-in":
                world.cuts.append(fault)
                world.after(fault.lasts_s, world.mend, fault)
            case "slow":
                world.slow |= set(names)
                world.after(fault.lasts_s, world.slow.difference_update, set(names))
            case "consensus":
                self.consensus.down_until = world.now + fault.lasts_s

    def _server(self, name: str) -> Any:
        log = self.log.servers.get(name)
        return log if log is not None else self.blobs.servers[int(name[1:])]

    def _move_in_chaos(self, number: int, move: BucketMove) -> None:
        if not self.consensus.healed:
            self._move(f"m{number}", number, move)

    def _move(self, name: str, number: int, move: BucketMove) -> None:
        mover: LogClient | SimClient
        if move.wish is None:
            step = LogStep(0.001, "reconfigure", servers=move.servers)
            mover = LogClient(self.log, LogClientPlan(name, (step,)), number + 1)
            self._receivers[name] = mover.receive
            mover.next()
        else:
            moving = SimStep(0.001, "reconfigure", wish=move.wish)
            plan = SimClientPlan(name, Switches(), (moving,))
            mover = SimClient(self.blobs, plan, number + 1, self.plan.first_blobs)
            self._receivers[name] = mover.receive
            mover.begin()
        self._movers.append(mover)

    # -- the course of a run -----------------------------------------------------------------------

    def chaos(self) -> None:
        """Test safety: make the bucket, and run the plan with all faults."""
        maker = self._join(BucketUserPlan("maker", (BucketStep(0.1, "create", "-", 0),)))
        self._until(lambda: maker.done or self.world.now >= self.plan.chaos_s)
        for plan in self.plan.clients:
            user = self._join(plan)
            if plan.dies_at is not None:
                self.world.after(plan.dies_at, user.die)
        self._until(lambda: self.world.now >= self.plan.chaos_s or self._all_done())

    def _join(self, plan: BucketUserPlan) -> BucketUser:
        user = BucketUser(self, plan)
        self.users.append(user)
        return user

    def heal(self) -> None:
        """Test liveness: every request and every move ends."""
        self.world.narrate("HEALING")
        self.world.heal()
        self.answer_loss = 0.0
        self.consensus.healed, self.consensus.down_until = True, 0.0
        for server in [*self.log.servers.values(), *self.blobs.servers]:
            server.restart()
        for number, gateway in enumerate(self._gateways):
            self._start_gateway(number)
            if gateway is not None:
                gateway.stopped = gateway.table.full = False
        self._move("mender", len(self.plan.moves), BucketMove(0.0, BUCKET_LOG_SERVERS[:3]))
        self._wait(self._moved, "moves did not finish")
        self._wait(self._all_done, "users did not finish")

    def look_back(self) -> None:
        """Read every key through every gateway; collect and sweep; look for litter."""
        keys = sorted({step.key for user in self.plan.clients for step in user.steps})
        looks = tuple(
            BucketStep(0.001, "get", key, number)
            for number in range(len(self._gateways))
            for key in keys
        )
        last = self._join(BucketUserPlan("z", looks))
        self._wait(lambda: last.done, "keys could not be read")
        self._wait(self._clean, "garbage or litter is left", CLEANING_S)
        self.oracle.last_look(self._present())
        for gateway in self._gateways:
            if gateway is not None:
                gateway.die()

    def _clean(self) -> bool:
        """Return whether all garbage is collected, and every blob has a place."""
        state = self.oracle.truth.state
        contents = state.table.scan(GARBAGE_CONTENT_ROWS, after(GARBAGE_CONTENT_ROWS), 1)
        return (
            not contents
            and not state.garbage(1)
            and all(state.place(blob) for blob in self._present())
        )

    def _present(self) -> set[Any]:
        """Return the blobs with a name at any server of the last configuration."""
        decided = self.consensus.table.decisions.get(self.plan.first_blobs.domain, {})
        last = decided[max(decided)].content if decided else self.plan.first_blobs
        names: set[str] = set()
        for server in self.blobs.servers:
            hosting = server.replica.hosted.get(last.id)
            page = () if hosting is None else hosting.objects.page("", "", PAGE_OBJECTS)[0]
            names.update(listed.name for listed in page)
        return set(map(blob_of, names))

    def _moved(self) -> bool:
        return all(mover.done for mover in self._movers)

    def _wait(self, done: Callable[[], bool], what: str, within_s: float = SIM_HEALING_S) -> None:
        end = self.world.now + within_s
        self._until(lambda: done() or self.world.now > end)
        if not done():
            left = self.oracle.truth.state.garbage(3), sorted(self._present(), key=repr)[:3]
            self.world.narrate(f"garbage {left[0]}, blobs {left[1]}")
            raise PromiseBroken(f"{what} in {within_s:g} s after all faults were healed")

    def _all_done(self) -> bool:
        return all(user.dead or user.done for user in self.users)

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(SIM_STEPS_MAX):
            self.log.learn()
            if done() or not self.world.step():
                return
        raise PromiseBroken(f"no end after {SIM_STEPS_MAX} steps")
