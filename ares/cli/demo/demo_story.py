"""The demo's story, step by step.

The story uses the Python API against real processes that really die.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ares.cli.buckets.gateway_command import missing_gateway_libraries
from ares.cli.demo.demo_traffic import DemoTraffic
from ares.cli.demo.narrator import DemoStep, Narrator
from ares.cli.local.supervisor import Supervisor, members_of
from ares.cli.local.up_commands import START_TIMEOUT_S
from ares.cli.terminal import size
from ares.client.connect import PendingConnection, connect
from ares.client.local_copy import cache_directory
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.cluster.settings import Settings
from ares.cluster.tables import TracingSettings
from ares.engine import session
from ares.fragment.report import WriteReport
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.model.identity import ServerId
from ares.model.numbers import plural
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import ReconfigurationResult
from ares.tracing.export import to_file
from ares.tracing.spans import Span
from ares.tracing.tracer import Tracer
from ares.tracing.tree import Tree

DEMO_DOMAIN = "demo"
DEMO_FILE = "film"
DEMO_FILE_MIB_MIN = 8
"""The least size of the edited file, in MiB: enough for several blocks."""

DEMO_LINE = b" (one line, edited) "
SMALL_OBJECTS = 300
SMALL_OBJECT_BYTES = 2048
LULL_S = 1.2
"""Seconds of undisturbed traffic between two disturbances, for comparison."""

ELECTION_S = 10.0
EVERYBODY = "all of them at once"


class DemoFailed(AresError):
    """A step of the demo did not have the required result."""


class DemoStory:
    """The story, while the processes run. ``mib``: the size of the generated file."""

    def __init__(self, narrator: Narrator, mib: int) -> None:
        self._narrator = narrator
        self._mib = mib
        self._file_bytes = max(mib, DEMO_FILE_MIB_MIN) * 2**20
        self._content = b""
        self._digests: dict[str, str] = {}
        self.traffic = DemoTraffic()
        self.phases: list[str] = []
        self.bytes = 0
        self.objects_read = 0
        self.killed: list[str] = []
        self.trace: Path | None = None

    async def run(self, settings: Settings, supervisor: Supervisor) -> None:
        """Narrate the whole story, with the processes started by ``supervisor``.

        Raises :class:`AresError` at the first failed step.
        """
        self._supervisor = supervisor
        self._members = {member.id: member for member in members_of(settings)}
        async with (
            connect(settings) as manager,
            connect(settings) as second,
            connect(settings) as third,
        ):
            store = await self._create(manager)
            await self._write_files(store)
            await self._read_files(store, "read all values back and compare SHA-256")
            await self._edit_file(manager)
            await self._edit_together(second, third)
            following = asyncio.create_task(self._narrator.follow(self.traffic.line))
            try:
                await self._begin_traffic(
                    await second.domain(DEMO_DOMAIN), await third.domain(DEMO_DOMAIN)
                )
                await self._kill_server("s0", store)
                await self._start_again("s0", manager)
                await self._erasure_code(store)
                await self._lose_the_leader(manager, store)
                await self._end_traffic()
            finally:
                following.cancel()
                await self.traffic.stop()
        await self._kill_everything()
        async with connect(settings) as newcomer:
            store = await newcomer.domain(DEMO_DOMAIN)
            self._digests |= {key: _digest(value) for key, value in self.traffic.expected.items()}
            await self._read_files(
                store,
                "a client that knows none of these configurations reads all values and "
                "compares SHA-256",
            )
            await self._compare_file(newcomer)
        await self._trace_a_read(settings)
        await self._race(settings)

    async def _create(self, manager: Manager) -> ObjectStore:
        with self._step(
            "make a domain whose objects are replicated on three of the five servers"
        ) as step:
            store = await manager.domain(DEMO_DOMAIN, create=Configuration.abd(["s0", "s1", "s2"]))
            step.note = store.configuration.describe()
            step.data = {"configuration": store.configuration.describe()}
        return store

    async def _write_files(self, store: ObjectStore) -> None:
        objects = _contents(self._mib)
        self._digests = {key: _digest(value) for key, value in objects.items()}
        total = sum(map(len, objects.values()))
        with self._step(
            f"write a file of {self._mib} MiB, a source file of this program and {SMALL_OBJECTS} "
            "small objects"
        ) as step:
            begin = time.perf_counter()
            await asyncio.gather(*(store.write(key, value) for key, value in objects.items()))
            seconds = time.perf_counter() - begin
            step.note = f"{size(total)} in {len(objects)} objects, {size(round(total / seconds))}/s"
            step.data = {
                "objects": len(objects),
                "bytes": total,
                "bytes_per_s": round(total / seconds),
            }
        self.bytes += total

    async def _read_files(self, store: ObjectStore, title: str) -> None:
        with self._step(title) as step:
            begin = time.perf_counter()
            values = await asyncio.gather(*(store.read(key) for key in self._digests))
            seconds = time.perf_counter() - begin
            wrong = [
                key
                for key, value in zip(self._digests, values, strict=True)
                if _digest(value) != self._digests[key]
            ]
            if wrong:
                raise DemoFailed(
                    f"{', '.join(wrong)} came back with another content than was written"
                )
            total = sum(map(len, values))
            step.note = (
                f"{len(values)} of {len(values)} digests are equal; {size(total)}, "
                f"{size(round(total / seconds))}/s"
            )
            step.data = {
                "objects": len(values),
                "bytes": total,
                "bytes_per_s": round(total / seconds),
            }
        self.bytes += total
        self.objects_read += len(values)

    async def _trace_a_read(self, settings: Settings) -> None:
        """Read the largest object, and keep the trace of the read for `ares-cli trace`."""
        with self._step(f"read the {self._mib} MiB once more, with a trace") as step:
            spans: list[Span] = []
            async with PendingConnection(
                settings, Tracer(TracingSettings(exporter="console", parent=False), spans.extend)
            ) as manager:
                value = await (await manager.domain(DEMO_DOMAIN)).read("files/random")
            last = max((span for span in spans if not span.parent), key=lambda span: span.began_ns)
            trace = [span for span in spans if span.trace == last.trace]
            self.bytes += len(value)
            step.note = Tree(trace).sentence()
            step.data = {"spans": len(trace)}
            if (directory := cache_directory(os.environ)) is not None:
                with suppress(OSError):  # the trace is only shown
                    directory.mkdir(parents=True, exist_ok=True)
                    path = directory / "demo.spans"
                    path.unlink(missing_ok=True)
                    to_file(path, "demo")(trace)
                    self.trace = path

    async def _edit_file(self, manager: Manager) -> None:
        """Put the file, change a line in the middle, put it again."""
        with self._step(
            f"put a file of {size(self._file_bytes)}, cut into blocks by its content, as a "
            "domain of its own"
        ) as step:
            self._content = os.urandom(self._file_bytes)
            async with manager.file(DEMO_FILE) as file:
                report = await file.write(self._content)
                step.note, step.data = _account(report, self._file_bytes)
        with self._step("insert a line in the middle of it and put it again") as step:
            async with manager.file(DEMO_FILE) as file:
                self._content = _inserted(self._content, self._file_bytes // 2)
                report = await file.write(self._content)
                step.note, step.data = _account(report, self._file_bytes)
            await self._compare_file(manager)

    async def _edit_together(self, manager: Manager, other: Manager) -> None:
        """Let two clients edit different parts of the same version, and later the same part."""
        with self._step(
            "two clients edit the same version of the file, near the beginning and near the end"
        ) as step:
            async with manager.file(DEMO_FILE) as ours, other.file(DEMO_FILE) as theirs:
                before = await ours.read()
                await theirs.read()
                near_begin, near_end = len(before) // 8, len(before) - len(before) // 8
                edited_by_them = _inserted(before, near_end)
                first, second = (
                    await ours.write(_inserted(before, near_begin)),
                    await theirs.write(edited_by_them),
                )
                self._content = _inserted(edited_by_them, near_begin)
                await self._compare_file(other)
                late = await theirs.write(_inserted(edited_by_them, near_begin + 1))
                if first.conflicts or second.conflicts or not late.conflicts:
                    raise DemoFailed(
                        "edits of different blocks conflicted, or edits of one block did not"
                    )
                conflict = late.conflicts[0]
                step.note = (
                    "both edits are in the file; a third edit met a newer version of its block, "
                    "overwrote nothing and reported a conflict:\n"
                    f"bytes {conflict.offset} to {conflict.offset + conflict.length} in "
                    "conflict, with the newer content of that block at hand"
                )
                step.data = {"conflicts": len(late.conflicts)}
            await self._compare_file(manager)

    async def _compare_file(self, manager: Manager) -> None:
        """Raise :class:`DemoFailed` unless the file has the expected content."""
        async with manager.file(DEMO_FILE) as file:
            if await file.read() != self._content:
                raise DemoFailed(
                    f"the file {DEMO_FILE!r} came back with another content than was put"
                )

    async def _begin_traffic(self, writer: ObjectStore, reader: ObjectStore) -> None:
        with self._step(
            "a reader and a writer begin, two more clients, and never pause from here on",
            phase="nothing happens",
        ) as step:
            await self.traffic.start(writer, reader)
            await asyncio.sleep(LULL_S)
            step.note = (
                "every value tells which write it is of: a wrong, torn or stale read is noticed"
            )

    async def _kill_server(self, server: str, store: ObjectStore) -> None:
        with self._step(
            f"kill -9 {server}, which holds every object", phase=f"{server} is dead"
        ) as step:
            self._kill(server)
            await asyncio.sleep(LULL_S)
            await store.read("files/random")
            step.note = (
                "reads and writes go on with "
                f"{' and '.join(store.configuration.server_ids[1:])}; one more crash would stop "
                "them"
            )

    async def _start_again(self, server: str, manager: Manager) -> None:
        with self._step(
            f"start {server} again: it reads all acknowledged data from its disk",
            phase=f"{server} is back",
        ) as step:
            await self._start([server])
            description = (await manager.status()).servers[ServerId(server)]
            hosted = description.hosted if description is not None else ()
            objects = sum(its.objects for its in hosted if its.configuration.domain == DEMO_DOMAIN)
            if objects < len(self._digests):
                raise DemoFailed(
                    f"{server} came back with {objects} objects, and it had acknowledged "
                    f"{len(self._digests)} at least"
                )
            await asyncio.sleep(LULL_S)
            step.note = (
                f"the same server as before, with all its {objects} objects: the quorums count "
                "it again, and one more crash is survived"
            )
            step.data = {"objects": objects}

    async def _erasure_code(self, store: ObjectStore) -> None:
        with self._step(
            "reconfigure: from replication to erasure coding, on four of the five servers",
            phase="moving to EC",
        ) as step:
            result = await store.reconfigure(Configuration.ec(["s1", "s2", "s3", "s4"], k=2))
            self._phase("on EC")
            step.note, step.data = _moved(result)
        await asyncio.sleep(LULL_S)

    async def _lose_the_leader(self, manager: Manager, store: ObjectStore) -> None:
        with self._step(
            "reconfigure again, and kill -9 the leader of the consensus service in the middle"
        ) as step:
            leader, term = await self._leader(manager, but_not="")
            self._phase("moving, leader dies")

            def progress(progress: Progress) -> None:
                if progress.stage == "read-config" and leader not in self.killed:
                    self._kill(leader)  # the reconfiguration's next action is to propose

            result = await store.reconfigure(
                Configuration.abd(["s2", "s3", "s4"]), progress=progress
            )
            self._phase("on ABD again")
            successor, successor_term = await self._leader(manager, but_not=leader)
            note, data = _moved(result)
            step.note = (
                f"{leader}, leader of term {term}, died before the decision; {successor} was "
                f"elected for term {successor_term}\n"
                f"{note}"
            )
            step.data = data | {
                "killed": leader,
                "term": term,
                "leader": successor,
                "leader_term": successor_term,
            }

    async def _end_traffic(self) -> None:
        with self._step("let the reader and the writer go on for a moment, then end") as step:
            await asyncio.sleep(LULL_S)
            await self.traffic.stop()
            self.bytes += self.traffic.bytes
            step.note = self.traffic.line()
            step.data = {
                "operations": len(self.traffic.samples),
                "failures": len(self.traffic.failures),
            }

    async def _kill_everything(self) -> None:
        with self._step(
            "kill -9 every server and every consensus member at once, and start them again"
        ) as step:
            everybody = list(self._members)
            self._supervisor.kill(everybody)
            self.killed.append(EVERYBODY)
            await self._start(everybody)
            step.note = (
                "as after a power cut: no process ran, and all acknowledged data is on the disks"
            )
            step.data = {"killed": everybody}

    async def _race(self, settings: Settings) -> None:
        """Let S3 clients put the same keys through a gateway while a server dies."""
        if missing := missing_gateway_libraries():
            with self._step("rivals through a gateway of S3: left out") as step:
                step.note = (
                    f"{' and '.join(missing)} is not installed: pip install 'ares-storage[gateway]'"
                )
            return
        from ares.cli.demo.demo_race import RACE_KEYS, RACE_KILLED, RACE_PUTTERS, race

        with self._step(
            f"{RACE_PUTTERS} S3 clients put the same {RACE_KEYS} keys, each if it is absent, and "
            f"{RACE_KILLED} is killed meanwhile"
        ) as step:
            async with connect(settings) as manager:
                result = await race(manager, settings.path, self._supervisor, self._kill)
            if not result.one_winner:
                raise DemoFailed("a key had no winner, several, or another value")
            step.note = (
                f"each key has one winner, whose value it holds; {result.losers} puts were told "
                f"412, in {result.seconds:.1f} s"
            )
            step.data = {"keys": RACE_KEYS, "losers": result.losers}

    @contextmanager
    def _step(self, title: str, phase: str = "") -> Iterator[DemoStep]:
        """Run a step, which fails if the traffic has failed at the step's end.

        ``phase``: the phase of the traffic that begins with the step.
        """
        with self._narrator.step(title) as step:
            if phase:
                self._phase(phase)
            yield step
            if self.traffic.failures:
                raise DemoFailed(
                    f"{len(self.traffic.failures)} operations failed or were wrong. The first: "
                    f"{self.traffic.failures[0]}"
                )

    def _phase(self, name: str) -> None:
        self.phases.append(name)
        self.traffic.phase = name

    def _kill(self, id: str) -> None:
        self._supervisor.kill([id])
        self.killed.append(id)

    async def _start(self, ids: Collection[str]) -> None:
        """Start stopped processes, and return when they serve. Raises :class:`NotStarted`.

        The traffic goes on meanwhile.
        """
        with self._supervisor.alone():
            await asyncio.to_thread(
                self._supervisor.start,
                [self._members[id] for id in ids],
                START_TIMEOUT_S,
                lambda: False,
            )

    async def _leader(self, manager: Manager, but_not: str) -> tuple[str, int]:
        """Return the member that claims to lead, with the term, as soon as a member does."""
        deadline = time.monotonic() + ELECTION_S
        while time.monotonic() < deadline:
            for member in (await manager.status()).members:
                if member.leader == member.member != but_not:
                    return member.member, member.term
        raise DemoFailed(f"no consensus member leads within {ELECTION_S:g} s")


def _inserted(content: bytes, at: int) -> bytes:
    return content[:at] + DEMO_LINE + content[at:]


def _account(report: WriteReport, whole: int) -> tuple[str, dict[str, Any]]:
    """Return the moved amounts, for people and for programs.

    Raises :class:`DemoFailed` if a part of the put is in conflict.
    """
    if report.conflicts:
        raise DemoFailed("a put conflicted, although no other client writes the file")
    blocks = report.modified + report.inserted
    note = (
        f"{blocks} of {blocks + report.kept} blocks moved: {size(report.moved_bytes)} of "
        f"{size(whole)}"
    )
    return note, {
        "blocks_moved": blocks,
        "blocks_kept": report.kept,
        "bytes_moved": report.moved_bytes,
    }


def _contents(mib: int) -> dict[str, bytes]:
    source = Path(session.__file__)
    files = {"files/random": os.urandom(mib * 2**20), f"files/{source.name}": source.read_bytes()}
    return files | {
        f"small/{number:03}": os.urandom(SMALL_OBJECT_BYTES) for number in range(SMALL_OBJECTS)
    }


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _moved(result: ReconfigurationResult) -> tuple[str, dict[str, Any]]:
    """Return the result of a reconfiguration, for people and for programs.

    Raises :class:`DemoFailed` if another client's configuration won.
    """
    after = result.configuration
    if not result.ours:
        raise DemoFailed(f"another client reconfigured the demo's domain to {after.describe()}")
    note = (
        f"{plural(result.moved, 'object')} moved, {size(result.bytes)}, in one decision; now "
        f"{after.describe()}"
    )
    return note, {
        "configuration": after.describe(),
        "index": after.index,
        "moved": result.moved,
        "bytes": result.bytes,
    }
