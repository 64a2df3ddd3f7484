"""Faults of a testbed during a round, at their times; each step and fault goes to events.jsonl."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ares.model.errors import AresError
from experiments.bench.etcd_leader import leads
from experiments.rounds.layout import (
    DISK,
    DISK_BYTES,
    MEMBER_PATTERN,
    PATTERNS,
    PORTS,
    Layout,
    RoundHost,
    store_name,
)
from experiments.rounds.playbook_runs import RoundFailed
from experiments.rounds.scenario import Fault, ScenarioRound
from experiments.testbeds.testbed_plan import Testbed


def ordered(faults: Sequence[Fault], expected_s: float) -> list[tuple[float, Fault]]:
    """Return the faults with the seconds after the beginning of the work at which they are due."""
    return sorted(((fault.after_s(expected_s), fault) for fault in faults), key=lambda due: due[0])


class RoundFaults:
    """The faults of a round.

    The thread that receives the playbooks' events calls ``begins`` and ``ends``.
    """

    def __init__(
        self,
        round: ScenarioRound,
        layout: Layout,
        testbed: Testbed,
        hosts: Mapping[str, RoundHost],
        events: Path,
    ) -> None:
        self._round, self._layout, self._testbed = round, layout, testbed
        self._hosts, self._events = hosts, events
        self._store = store_name(round.protocol)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._undone: list[tuple[Fault, str]] = []
        """Faults that end with the work, with the servers; the leader may have changed by the end.
        """
        self._failed: list[str] = []

    def note(self, event: str, server: str | None = None, detail: str = "") -> None:
        """Write a line of events.jsonl."""
        line = {"time": datetime.now(UTC).isoformat()}
        line |= {"event": event, "server": server, "detail": detail}
        with self._events.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def begins(self, after_s: float) -> None:
        """Note the begin of the work, in ``after_s`` seconds."""
        self._thread = threading.Thread(target=self._befall, args=(after_s,))
        self._thread.start()

    def ends(self) -> None:
        """Note the end of the work: no fault follows, and reversible faults are undone."""
        if self._thread is None or self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        self.note("phase", None, "work has ended")
        for fault, host in self._undone:
            # the host may be gone, and a round that needs the host reports an error
            with contextlib.suppress(AresError):
                self._undo(fault, host)

    def require_done(self) -> None:
        """Raise :class:`RoundFailed` after a fault that could not be made."""
        if self._failed:
            raise RoundFailed(self._failed[0])

    @contextlib.contextmanager
    def lasting(self) -> Iterator[None]:
        """End the faults with the round, on every way out."""
        try:
            yield
        finally:
            self.ends()

    def _befall(self, after_s: float) -> None:
        if not self._over.wait(after_s):
            self.note("phase", None, "work begins")
        past_s = 0.0
        for at_s, fault in ordered(self._round.faults, self._round.parameters.expected_s):
            if self._over.wait(at_s - past_s):
                self.note("phase", None, f"the work ended before its time: {fault.event}")
                if fault.event not in ("join", "free"):
                    self._failed.append(
                        f"the fault {fault.event} was due {at_s:.1f} s after the work began, and "
                        "the work ended before"
                    )
                return
            past_s = at_s
            try:
                self._do(fault)
            except (AresError, OSError, subprocess.SubprocessError) as error:
                self._failed.append(f"the fault {fault.event} could not be made: {error}")
                return

    def _do(self, fault: Fault) -> None:
        """Make a fault, and note the success; an impossible fault is no event."""
        pattern = PATTERNS[self._store]
        if fault.event in ("cut", "join"):
            act = self._testbed.cut if fault.event == "cut" else self._testbed.join
            act(*fault.sites)
            self._undone.append((fault, ""))
            return self.note(fault.event, None, f"{fault.sites[0]} and {fault.sites[1]}")
        percent = f"{fault.percent} % of a processor"
        if fault.server == "members":
            self._undone.append((fault, ""))
            self._slow_members(fault.percent)
            return self.note("slow", None, f"members of consensus: {percent}")
        host = self._victim(fault)
        if fault.event == "crash":
            self._testbed.kill(host, pattern)
            return self.note("crash", host, "kill -9")
        self._undone.append((fault, host))
        if fault.event == "slow":
            self._testbed.slow(host, pattern, fault.percent)
            return self.note("slow", host, percent)
        fills = fault.event == "fill"
        free_bytes = fault.free_bytes if fills else 2 * DISK_BYTES
        self._testbed.fill(host, DISK, free_bytes)
        free = f"{free_bytes} bytes of its disk are free"
        return self.note(fault.event, host, free if fills else "all of its disk is free again")

    def _slow_members(self, percent: int) -> None:
        for host in self._layout.consensus:
            self._testbed.slow(host, MEMBER_PATTERN, percent)

    def _undo(self, fault: Fault, host: str) -> None:
        if fault.event == "cut":
            self._testbed.join(*fault.sites)
        elif fault.server == "members":
            self._slow_members(100)
        elif fault.event == "slow":
            self._testbed.slow(host, PATTERNS[self._store], 100)
        elif fault.event == "fill":
            self._testbed.fill(host, DISK, 2 * DISK_BYTES)

    def _victim(self, fault: Fault) -> str:
        servers = self._layout.servers
        if isinstance(fault.server, int):
            return servers[fault.server % len(servers)]
        leader = self._leader()
        if leader is None and (fault.server == "leader" or self._store == "etcd"):
            raise RoundFailed(f"no leader was seen of {self._store}")
        if fault.server == "leader" and leader is not None:
            return leader
        return next(server for server in reversed(servers) if server != leader)

    def _leader(self) -> str | None:
        """Return the leader: of etcd the member that all members name; of Redis the first server.

        Other stores have no leader.
        """
        servers = self._layout.servers
        if self._store == "etcd":
            ports = {server: f"{self._hosts[server].address}:{PORTS['etcd']}" for server in servers}
            return next((server for server in servers if leads(ports[server])), None)
        return servers[0] if self._store == "redis" else None
