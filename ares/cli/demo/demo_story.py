"""The demo's story, step by step, told through the Python API against real processes that really die."""

import asyncio
import hashlib
import os
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

from ares.cli.command_connection import size
from ares.cli.demo.demo_show import Narrator
from ares.cli.demo.demo_traffic import DemoTraffic
from ares.cli.local.supervisor import Supervisor, members_of
from ares.cli.local.up_command import START_TIMEOUT_S
from ares.client.connect import connect
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.cluster.settings import Settings
from ares.fragment.report import WriteReport
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.model.identity import ServerId
from ares.operation import session
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import Reconfigured


class Processes:
    """The servers and consensus members of a cluster that ``supervisor`` started."""

    def __init__(self, settings: Settings, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._members = {member.id: member for member in members_of(settings)}

    @property
    def ids(self) -> list[str]:
        """Servers and consensus members, whether they run or not."""
        return list(self._members)

    def kill(self, ids: Collection[str]) -> None:
        """kill -9, all at once; they are gone when this returns."""
        self._supervisor.kill(ids)

    async def start(self, ids: Collection[str]) -> None:
        """Start processes that do not run; they serve when this returns, and everything else goes on meanwhile.

        Raises :class:`ares.cli.local.supervisor.NotStarted`.
        """
        members = [self._members[id] for id in ids]
        with self._supervisor.alone():
            await asyncio.to_thread(self._supervisor.start, members, START_TIMEOUT_S, lambda: False)


NAME = "film"
FILE_MIB_MIN = 8
LINE = b" (one line, edited) "


class FileLost(AresError):
    """The file did not become what it must."""


class SharedFile:
    """A file of ``mib`` MiB (at least FILE_MIB_MIN, so that it has enough blocks to edit) in the cluster, and what it must hold."""

    def __init__(self, narrator: Narrator, mib: int) -> None:
        self._tell = narrator
        self._bytes = max(mib, FILE_MIB_MIN) * 2**20
        self.content = b""

    async def edit(self, manager: Manager) -> None:
        """Put the file, change a line in the middle, put it again."""
        with self._tell.step(f"put a file of {size(self._bytes)}, cut into blocks by its content, as a domain of its own") as step:
            self.content = os.urandom(self._bytes)
            async with manager.file(NAME) as file:
                report = await file.write(self.content)
                step.note, step.data = _account(report, self._bytes)
        with self._tell.step("insert a line in the middle of it and put it again") as step:
            async with manager.file(NAME) as file:
                self.content = _inserted(self.content, self._bytes // 2)
                report = await file.write(self.content)
                step.note, step.data = _account(report, self._bytes)
            await self.compare(manager)

    async def edit_together(self, manager: Manager, other: Manager) -> None:
        """Two clients edit different parts of the same version, then one of them edits what the other has changed."""
        with self._tell.step("two clients edit the same version of the file, one near its beginning, one near its end") as step:
            async with manager.file(NAME) as ours, other.file(NAME) as theirs:
                before = await ours.read()
                await theirs.read()
                near_begin, near_end = len(before) // 8, len(before) - len(before) // 8
                edited_by_them = _inserted(before, near_end)
                first, second = await ours.write(_inserted(before, near_begin)), await theirs.write(edited_by_them)
                self.content = _inserted(edited_by_them, near_begin)
                await self.compare(other)
                late = await theirs.write(_inserted(edited_by_them, near_begin + 1))
                if first.conflicts or second.conflicts or not late.conflicts:
                    raise FileLost("edits of different blocks got in each other's way, or those of one block did not")
                conflict = late.conflicts[0]
                step.note = (
                    "both edits are in the file; a third, of a block that had changed meanwhile, overwrote nothing and was told so:\n"
                    f"bytes {conflict.offset} to {conflict.offset + conflict.length} in conflict, with the newer content of that block at hand"
                )
                step.data = {"conflicts": len(late.conflicts)}
            await self.compare(manager)

    async def compare(self, manager: Manager) -> None:
        """Raises :class:`FileLost` unless the file is what it must be."""
        async with manager.file(NAME) as file:
            if await file.read() != self.content:
                raise FileLost(f"the file {NAME!r} came back with another content than was put")


def _inserted(content: bytes, at: int) -> bytes:
    return content[:at] + LINE + content[at:]


def _account(report: WriteReport, whole: int) -> tuple[str, dict[str, Any]]:
    """What moved, for people and for programs. Raises :class:`FileLost` if not everything got in."""
    if report.conflicts:
        raise FileLost("a file that nobody else writes came to a conflict")
    blocks = report.modified + report.inserted
    note = f"{blocks} of {blocks + report.kept} blocks moved: {size(report.moved_bytes)} of {size(whole)}"
    return note, {"blocks_moved": blocks, "blocks_kept": report.kept, "bytes_moved": report.moved_bytes}


DOMAIN = "demo"
SMALL_OBJECTS = 300
SMALL_BYTES = 2048
LULL_S = 1.2
"""How long the traffic goes on undisturbed between two disturbances, to have something to compare with."""

ELECTION_S = 10.0
EVERYBODY = "all of them at once"


class DemoFailed(AresError):
    """Something did not happen as it must."""


class Story:
    """What happens while the processes run. ``mib``: the size of the generated file."""

    def __init__(self, narrator: Narrator, mib: int) -> None:
        self._tell = narrator
        self._mib = mib
        self._file = SharedFile(narrator, mib)
        self._digests: dict[str, str] = {}
        self.traffic = DemoTraffic()
        self.phases: list[str] = []
        self.bytes = 0
        self.objects_read = 0
        self.killed: list[str] = []

    async def run(self, settings: Settings, processes: Processes) -> None:
        """The whole story. Raises :class:`AresError` at the first step that fails."""
        self._processes = processes
        async with connect(settings) as manager, connect(settings) as second, connect(settings) as third:
            store = await self._create(manager)
            await self._write_files(store)
            await self._read_files(store, "read everything back and compare SHA-256")
            await self._file.edit(manager)
            await self._file.edit_together(second, third)
            async with Follower(self._tell, self.traffic):
                await self._begin_traffic(await second.domain(DOMAIN), await third.domain(DOMAIN))
                await self._kill_server("s0", store)
                await self._start_again("s0", manager)
                await self._erasure_code(store)
                await self._lose_the_leader(manager, store)
                await self._end_traffic()
        await self._kill_everything()
        async with connect(settings) as newcomer:
            store = await newcomer.domain(DOMAIN)
            self._digests |= {key: _digest(value) for key, value in self.traffic.expected.items()}
            await self._read_files(store, "a client that never heard of all this reads everything and compares SHA-256")
            await self._file.compare(newcomer)

    async def _create(self, manager: Manager) -> ObjectStore:
        with self._tell.step("make a domain whose objects are replicated on three of the five servers") as step:
            store = await manager.domain(DOMAIN, create=Configuration.abd(["s0", "s1", "s2"]))
            step.note = store.configuration.describe()
            step.data = {"configuration": store.configuration.describe()}
        return store

    async def _write_files(self, store: ObjectStore) -> None:
        objects = _contents(self._mib)
        self._digests = {key: _digest(value) for key, value in objects.items()}
        total = sum(map(len, objects.values()))
        with self._tell.step(f"write a file of {self._mib} MiB, a source file of this program and {SMALL_OBJECTS} small objects") as step:
            begin = time.perf_counter()
            await asyncio.gather(*(store.write(key, value) for key, value in objects.items()))
            seconds = time.perf_counter() - begin
            step.note = f"{size(total)} in {len(objects)} objects, {size(round(total / seconds))}/s"
            step.data = {"objects": len(objects), "bytes": total, "bytes_per_s": round(total / seconds)}
        self.bytes += total

    async def _read_files(self, store: ObjectStore, title: str) -> None:
        with self._tell.step(title) as step:
            begin = time.perf_counter()
            values = await asyncio.gather(*(store.read(key) for key in self._digests))
            seconds = time.perf_counter() - begin
            wrong = [key for key, value in zip(self._digests, values, strict=True) if _digest(value) != self._digests[key]]
            if wrong:
                raise DemoFailed(f"{', '.join(wrong)} came back with another content than was written")
            total = sum(map(len, values))
            step.note = f"{len(values)} of {len(values)} digests are equal; {size(total)}, {size(round(total / seconds))}/s"
            step.data = {"objects": len(values), "bytes": total, "bytes_per_s": round(total / seconds)}
        self.bytes += total
        self.objects_read += len(values)

    async def _begin_traffic(self, writer: ObjectStore, reader: ObjectStore) -> None:
        with self._tell.step("a reader and a writer begin, two more clients, and never pause from here on") as step:
            self._phase("nothing happens")
            await self.traffic.start(writer, reader)
            await asyncio.sleep(LULL_S)
            step.note = "every value tells which write it is of: a wrong, torn or stale read is noticed"
            self._check_traffic()

    async def _kill_server(self, server: str, store: ObjectStore) -> None:
        with self._tell.step(f"kill -9 {server}, which holds every object") as step:
            self._phase(f"{server} is dead")
            self._kill(server)
            await asyncio.sleep(LULL_S)
            await store.read("files/random")
            step.note = f"reads and writes go on with {' and '.join(store.configuration.server_ids[1:])}; one more crash would stop them"
            self._check_traffic()

    async def _start_again(self, server: str, manager: Manager) -> None:
        with self._tell.step(f"start {server} again: it has what it acknowledged, from its disk") as step:
            self._phase(f"{server} is back")
            await self._processes.start([server])
            description = (await manager.status()).servers[ServerId(server)]
            hosted = description.hosted if description is not None else ()
            objects = sum(its.objects for its in hosted if its.configuration.domain == DOMAIN)
            if objects < len(self._digests):
                raise DemoFailed(f"{server} came back with {objects} objects, and it had acknowledged {len(self._digests)} at least")
            await asyncio.sleep(LULL_S)
            step.note = f"the same server as before, with all of its {objects} objects: it counts, and one more crash is survived again"
            step.data = {"objects": objects}
            self._check_traffic()

    async def _erasure_code(self, store: ObjectStore) -> None:
        with self._tell.step("reconfigure: from replication to erasure coding, on four of the five servers") as step:
            self._phase("moving to EC")
            result = await store.reconfigure(Configuration.ec(["s1", "s2", "s3", "s4"], k=2))
            self._phase("on EC")
            step.note, step.data = _moved(result)
            self._check_traffic()
        await asyncio.sleep(LULL_S)

    async def _lose_the_leader(self, manager: Manager, store: ObjectStore) -> None:
        with self._tell.step("reconfigure again, and kill -9 the leader of the consensus service in the middle") as step:
            leader, term = await self._leader(manager, but_not="")
            self._phase("moving, leader dies")

            def progress(progress: Progress) -> None:
                if progress.stage == "read-config" and leader not in self.killed:
                    self._kill(leader)  # the next thing that the reconfiguration does is to propose

            result = await store.reconfigure(Configuration.abd(["s2", "s3", "s4"]), progress=progress)
            self._phase("on ABD again")
            successor, successor_term = await self._leader(manager, but_not=leader)
            note, data = _moved(result)
            step.note = f"{leader}, leader of term {term}, died before the decision; {successor} was elected for term {successor_term}\n{note}"
            step.data = data | {"killed": leader, "term": term, "leader": successor, "leader_term": successor_term}
            self._check_traffic()

    async def _end_traffic(self) -> None:
        with self._tell.step("let the reader and the writer go on for a moment, then end") as step:
            await asyncio.sleep(LULL_S)
            await self.traffic.stop()
            self.bytes += self.traffic.bytes
            step.note = self.traffic.line()
            step.data = {"operations": len(self.traffic.samples), "failures": len(self.traffic.failures)}
            self._check_traffic()

    async def _kill_everything(self) -> None:
        with self._tell.step("kill -9 every server and every consensus member at once, and start them again") as step:
            everybody = self._processes.ids
            self._processes.kill(everybody)
            self.killed.append(EVERYBODY)
            await self._processes.start(everybody)
            step.note = "as after a power cut: nothing ran, and what was acknowledged is on the disks"
            step.data = {"killed": everybody}

    def _phase(self, name: str) -> None:
        self.phases.append(name)
        self.traffic.phase = name

    def _check_traffic(self) -> None:
        if self.traffic.failures:
            raise DemoFailed(f"{len(self.traffic.failures)} operations failed or were wrong. The first: {self.traffic.failures[0]}")

    def _kill(self, id: str) -> None:
        self._processes.kill([id])
        self.killed.append(id)

    async def _leader(self, manager: Manager, but_not: str) -> tuple[str, int]:
        """The member that says itself that it leads, and its term, once there is one."""
        deadline = time.monotonic() + ELECTION_S
        while time.monotonic() < deadline:
            for member in (await manager.status()).members:
                if member.leader == member.member != but_not:
                    return member.member, member.term
        raise DemoFailed(f"no consensus member leads within {ELECTION_S:g} s")


class Follower:
    """Within it the narrator's live line follows the traffic; at the end of it no traffic is left."""

    def __init__(self, narrator: Narrator, traffic: DemoTraffic) -> None:
        self._narrator = narrator
        self._traffic = traffic

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._narrator.follow(self._traffic.line))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()
        await self._traffic.stop()


def _contents(mib: int) -> dict[str, bytes]:
    source = Path(session.__file__)
    files = {"files/random": os.urandom(mib * 2**20), f"files/{source.name}": source.read_bytes()}
    return files | {f"small/{number:03}": os.urandom(SMALL_BYTES) for number in range(SMALL_OBJECTS)}


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _moved(result: Reconfigured) -> tuple[str, dict[str, Any]]:
    """What became of a reconfiguration, for people and for programs. Raises :class:`DemoFailed` if it was somebody else's."""
    after = result.configuration
    if not result.ours:
        raise DemoFailed(f"somebody else reconfigured the demo's domain to {after.describe()}")
    note = f"{result.moved} objects moved, {size(result.bytes)}, in one decision; now {after.describe()}"
    return note, {"configuration": after.describe(), "index": after.index, "moved": result.moved, "bytes": result.bytes}
