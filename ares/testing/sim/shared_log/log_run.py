"""A run of the scenario `log`: chaos, healing, and an inspection from outside."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ares.engine.effects import Agree, Announce
from ares.model.codec import decode, encode
from ares.model.identity import CallId
from ares.model.log_messages import Append
from ares.model.messages import AnyMessage
from ares.sharedlog.bound_ids import bound_id
from ares.testing.sim.invariants import PromiseBroken, SinglePlaces
from ares.testing.sim.plan import PlannedFault
from ares.testing.sim.shared_log.log_client import LogClient
from ares.testing.sim.shared_log.log_disk_server import DiskLogServer
from ares.testing.sim.shared_log.log_plan import SIMULATED_LOG, LogClientPlan, LogPlan, LogStep
from ares.testing.sim.shared_log.log_server import LogServer, LogWatch
from ares.testing.sim.world import (
    SIM_HEALING_S,
    SIM_STEPS_MAX,
    SimConsensus,
    SimWorld,
    name_configuration,
)
from ares.testing.verify.log_history import LogEvent
from ares.testing.verify.log_order import check_log

THIEF = "thief"


class SimLogRun:
    """A run. ``events``: the history. ``uncommitted``: entries read before a known commit."""

    def __init__(self, plan: LogPlan, keep_story: bool) -> None:
        self.plan = plan
        self.world = SimWorld(plan, keep_story, decode)
        self.events: list[LogEvent] = []
        self.uncommitted: list[str] = []
        self._seen: tuple[str, Append] | None = None
        self.watch = LogWatch(lambda name: self.servers[name])
        self.consensus = SimConsensus(self.world, SinglePlaces())
        self.watch.decided[0] = plan.first_chain
        self.world.narrate(f"THE FIRST CHAIN IS {name_configuration(plan.first_chain)}")
        self.servers: dict[str, LogServer] = {}
        for number in range(plan.servers):
            server = DiskLogServer(self, number) if plan.place_bytes else LogServer(self, number)
            self.servers[server.name] = server
        self.clients: dict[str, LogClient] = {}
        for client in plan.clients:
            self._join(client)
            if client.dies_at is not None:
                self.world.after(client.dies_at, self.clients[client.name].die)
        for fault in plan.faults:
            self.world.after(fault.at, self._strike, fault)
        for at in plan.thefts:
            self.world.after(at, self._steal)
        if plan.dead is not None:
            self.world.after(plan.dead[1], self._bury, f"s{plan.dead[0]}")

    def _join(self, plan: LogClientPlan) -> LogClient:
        client = self.clients[plan.name] = LogClient(self, plan, len(self.clients) + 1)
        client.next()
        return client

    def post(self, sender: str, receiver: str, messages: list[AnyMessage]) -> None:
        """Send messages; the network does not double appends (docs/log.md, Each append once).

        Clients send appends again often enough.
        """
        if receiver == THIEF:
            return
        deliver = (
            self.servers[receiver].receive
            if receiver in self.servers
            else self.clients[receiver].receive
        )
        appends = [message for message in messages if isinstance(message, Append)]
        if appends and sender != THIEF:
            self._seen = (receiver, appends[-1])
        once = bool(appends)
        self.world.send(sender, receiver, encode(messages), deliver, once)

    def consult(
        self,
        client: LogClient,
        what: Agree | Announce,
        answer: Callable[[Any], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        if isinstance(what, Agree):
            self.consensus.propose(what.configuration, client.session.view.client, answer, refuse)
        else:
            self.consensus.tell_finalized(what.configuration, answer)

    def _steal(self) -> None:
        """Append in the place of the client that sent the last append.

        With keys, the thief knows the whole append and uses another key. Without keys, the thief
        knows the id, or the digest, and not the secret.
        """
        if self._seen is None:
            return
        head, seen = self._seen
        number, entry = seen.number + 1, f"{THIEF}-{len(self.events)}-{seen.client}-{seen.number}"
        if self.plan.keyless:
            names = (seen.client, bound_id(seen.client, seen.secret, ""))
            seen = replace(seen, client=self.world.rng.choice(names), secret=b"")
        self.events.append(
            LogEvent(
                entry,
                "append",
                SIMULATED_LOG,
                None,
                self.world.now,
                None,
                (entry,),
                "unknown",
                None,
            )
        )
        stolen = replace(
            seen,
            call=CallId(number),
            number=number,
            lowest=number,
            entries=(entry.encode(),),
            at=None,
        )
        self.post(THIEF, head, [stolen])

    # -- faults ------------------------------------------------------------------------------------

    def _strike(self, fault: PlannedFault) -> None:
        world = self.world
        if self.consensus.healed:
            return
        world.narrate(
            f"FAULT {fault.kind} {','.join(f's{number}' for number in fault.servers)} for "
            f"{fault.lasts_s:.3f} s"
        )
        struck = [self.servers[f"s{number}"] for number in fault.servers]
        match fault.kind:
            case "crash" | "kill":
                for server in struck:
                    server.crash(fault.kind == "crash")
                    world.after(fault.lasts_s, self._restart, server)
            case "cut" | "cut-in" | "cut-out":
                world.cuts.append(fault)
                world.after(fault.lasts_s, world.mend, fault)
            case "slow":
                names = {server.name for server in struck}
                world.slow |= names
                world.after(fault.lasts_s, world.slow.difference_update, names)
            case "full":
                for server in struck:
                    if isinstance(server, DiskLogServer):
                        server.fill()
                        world.after(fault.lasts_s, server.empty)
            case "rot":
                for server in struck:
                    if isinstance(server, DiskLogServer):
                        server.rot(fault.lasts_s)
            case "consensus":
                self.consensus.down_until = world.now + fault.lasts_s

    def _restart(self, server: LogServer) -> None:
        self.world.narrate(f"{server.name} RESTARTS")
        server.restart()

    def _bury(self, name: str) -> None:
        self.world.narrate(f"{name} IS DEAD FOR GOOD")
        self.servers[name].gone = True
        self.servers[name].crash(True)

    # -- the course of a run -----------------------------------------------------------------------

    def chaos(self) -> None:
        """Test safety: run the plan with all faults."""
        self._until(lambda: self.world.now >= self.plan.chaos_s or self._all_done())

    def heal(self) -> None:
        """Test liveness.

        Decide a chain of live servers, answer all clients, finalize the last chain.
        """
        self.world.narrate("HEALING")
        self.world.heal()
        self.consensus.healed, self.consensus.down_until = True, 0.0
        if self.plan.dead is not None:
            self._bury(f"s{self.plan.dead[0]}")
        for server in self.servers.values():
            if isinstance(server, DiskLogServer):
                server.empty()
            server.restart()
        living = tuple(server.number for server in self.servers.values() if not server.gone)[:4]
        mender = self._join(
            LogClientPlan("mender", (LogStep(0.001, "reconfigure", servers=living),))
        )
        self._wait(self._all_done, "did not finish")
        if mender.failures:
            raise PromiseBroken(f"the log could not be mended: {mender.failures[0]!r}")
        self._wait(self._finalized, "left chains that are not finalized")
        for client in self.clients.values():
            client.die()

    def look_back(self) -> None:
        """Read all entries that are not trimmed, from a new client, and judge all replies."""
        last = self._join(LogClientPlan("z", (LogStep(0.001, "tail"),)))
        self._wait(lambda: last.done, "could not be read")
        trimmed = max(server.node.state.trimmed for server in self.servers.values())
        if trimmed < last.tail:
            position = trimmed
            last.extend([LogStep(0.001, "follow", where=position / last.tail + 1e-9)])
            self._wait(lambda: last.done, "could not be read")
            while not last.has_all:
                last.extend([LogStep(0.001, "follow")])
                self._wait(lambda: last.done, "could not be read")
        report = check_log(self.events)
        if not report.ok:
            raise PromiseBroken(
                "; ".join(violation.describe() for violation in report.violations[:3])
            )
        appended = {
            entry for event in self.events if event.operation == "append" for entry in event.entries
        }
        if strange := [entry for entry in self.uncommitted if entry not in appended]:
            raise PromiseBroken(f"{strange[0]!r} was read, and no append stored it")

    def _finalized(self) -> bool:
        """Return whether the last decided chain is finalized."""
        decided = self.consensus.table.decisions.get(self.plan.first_chain.domain, {})
        hint = self.consensus.table.hint(self.plan.first_chain.domain)
        return not decided or (hint is not None and hint.index == max(decided))

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        end = self.world.now + SIM_HEALING_S
        self._until(lambda: done() or self.world.now > end)
        if not done():
            late = {
                client.name: list(client.running.values())
                for client in self.clients.values()
                if not client.dead and not client.done
            }
            raise PromiseBroken(
                f"{what} in {SIM_HEALING_S:g} s after all faults were healed: {late}"
            )

    def _all_done(self) -> bool:
        return all(client.dead or client.done for client in self.clients.values())

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(SIM_STEPS_MAX):
            decided = self.consensus.table.decisions.get(self.plan.first_chain.domain, {})
            if len(decided) >= len(self.watch.decided):
                self.watch.decided |= {
                    index: decision.content for index, decision in decided.items()
                }
            if done() or not self.world.step():
                return
        raise PromiseBroken(f"no end after {SIM_STEPS_MAX} steps")
