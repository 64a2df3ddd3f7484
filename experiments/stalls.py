"""Time that an honest client waits while other clients ask for much.

    .venv/bin/python -m experiments.stalls                     # about ten minutes
    .venv/bin/python -m experiments.stalls --only read-log --attackers 1 --seconds 3 --json

Each kind of attack runs from a single process and from ten. A cluster with a single server and a
single consensus member is started for each durability. Attackers are separate processes. They write
frames of ZMTP to plain sockets as fast as TCP takes them, and read every reply; for `http-slow`
they hold connections to the pages with requests that do not end. During the attack an honest client
writes and reads a small object, asks a member for a hint, or probes /health, every STALL_PAUSE_S.
The table has the longest time that a request of that client waited, and the most processor time
that the process under attack used while a request waited; other work on the machine does not
lengthen the latter. The remaining columns are the processor time and the largest memory of that
process, and its processor time after the attackers were gone.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ares.cluster.addresses import split_address
from ares.cluster.new_cluster import InitPlan, create
from ares.model.codec import decode_replies, encode
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import CallId, ClientId, DomainName, ObjectName, ServerId
from ares.model.log_messages import (
    Append,
    Committed,
    Fetch,
    Forward,
    Look,
    LookRow,
    ReadEach,
    ReadLog,
    Trim,
)
from ares.model.messages import (
    AnyMessage,
    Describe,
    DescribeConsensus,
    GetData,
    GetHint,
    Introduce,
    ListObjects,
    Propose,
    PullElement,
    PutData,
    TellFinalized,
    Where,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.model.units import MIB
from ares.platform.interpreter import python
from ares.testing.fuzz.fuzz_attacks import FUZZ_READY, framed, greeting
from ares.testing.torture.torture_cluster import TortureCluster, die_with_parent

STALL_PAUSE_S = 0.005
_SCHEDULED = 2
"""CPUCLOCK_SCHED of Linux: with a process number, gives the clock of the process."""

AFTER_S = 1.0
"""Seconds that the honest client continues after the attackers are gone."""

STALL_OBJECTS = 1_500
NAME_BYTES = 1_000
LARGE_APPENDS = 60
"""Number of 1 MiB entries in the log for reads."""

SMALL_APPENDS = 40
"""Number of appends of 4,096 empty entries in the log of small entries."""

HTTP = "http"
"""Beginning of the names of attacks on the pages of a server over HTTP."""

SLOW_CONNECTIONS = 64
PROBE = b"GET /health HTTP/1.1\r\nHost: ares\r\n\r\n"

MEMBER = "member"
"""Beginning of the names of attacks on a consensus member."""


class Target(msgspec.Struct):
    """The target of an attacker.

    ``number`` is the attacker's number; ``large`` and ``small`` are ids of logs that hold entries
    already.
    """

    address: str
    kind: str
    number: int
    configuration: Configuration
    log: Configuration
    large: bytes
    small: bytes


Frames = Iterator[bytes]


def batch(messages: Sequence[AnyMessage]) -> bytes:
    """Return the frames of a batch, as sent over the wire."""
    frames = encode(messages)
    return b"".join(framed(frame, frame is not frames[-1]) for frame in frames)


def again(messages: Sequence[AnyMessage]) -> Frames:
    """Return the same batch for ever."""
    return itertools.repeat(batch(messages))


def _appends(target: Target) -> Frames:
    """Yield batches of 500 appends of 4,096 empty entries, each with new numbers."""
    client = ClientId(1000 + target.number)
    for first in itertools.count(1, 500):
        numbers = range(first, first + 500)
        yield batch([_append(target.log.id, client, number, (b"",) * 4096) for number in numbers])


def _small_appends(target: Target) -> Frames:
    client = ClientId(3000 + target.number)
    for first in itertools.count(1, 4096):
        numbers = range(first, first + 4096)
        yield batch([_append(target.log.id, client, number, (b"x",)) for number in numbers])


def _append(log: bytes, client: int, number: int, entries: tuple[bytes, ...]) -> AnyMessage:
    return Append(CallId(number), log, ClientId(client), number, number, 0, entries)


def _puts(target: Target) -> Frames:
    id, name = target.configuration.id, ObjectName(f"put {target.number}")
    for first in itertools.count(1, 4096):
        yield batch([_put(id, name, number, b"x") for number in range(first, first + 4096)])


def _put(id: bytes, name: ObjectName, number: int, *parts: bytes) -> PutData:
    tag = Tag(number, ClientId(5))
    return PutData(CallId(1), id, name, tag, sealed(id, name, tag, 0, len(b"".join(parts)), parts))


def _chains(target: Target, count: int) -> list[Configuration]:
    """Return chains of a log, each with 31 absent servers and the server under attack."""
    absent = [Server(ServerId(f"z{each}"), "127.0.0.1:9", "0" * 32) for each in range(31)]
    chain = Configuration.chain([*target.log.servers, *absent])
    name, cluster = DomainName(f"many {target.number}"), target.configuration.cluster_id
    return [chain.at(name, index, cluster) for index in range(count)]


def _introductions(target: Target) -> Frames:
    chains = _chains(target, 65)
    return again([Introduce(CallId(1), chains[-1], tuple(chains[:-1]))] * 64)


def _proposals(target: Target) -> Frames:
    for index in itertools.count(1, 1000):
        name = DomainName(f"new {target.number}-{index}")
        new = target.configuration.at(name, 0, target.configuration.cluster_id)
        yield batch([Propose(CallId(1), new, ClientId(7))] * 1000)


def _looks_at_rows(target: Target) -> Frames:
    following = target.log.at(target.log.domain, 1, target.configuration.cluster_id)
    successor = Successor(
        msgspec.structs.replace(following, start=SMALL_APPENDS * 4096), Status.PENDING
    )
    return again([LookRow(CallId(1), target.small, ClientId(1), 0, successor)] * 4096)


def _brought(target: Target) -> Frames:
    id, tag = target.configuration.id, Tag(9, ClientId(9))
    asked = PullElement(CallId(1), id, ObjectName("brought"), tag, 10, target.configuration)
    return again([asked] * 4096)


def _forwards(target: Target) -> Frames:
    return again([Forward(CallId(1), target.small, ServerId("s0"), 0, (), 0)] * 4096)


def _trims(target: Target) -> Frames:
    """Yield batches that fill a log with many records, and trim each record separately."""
    log, client = target.log.id, ClientId(2000 + target.number)
    for number in itertools.count(1):
        yield batch([_append(log, client, number, (b"",) * 4096), Trim(CallId(1), log, 1)])
        yield batch([Trim(CallId(1), log, upto) for upto in range(4096 * number)[-4096:]])


ATTACKS: dict[str, Callable[[Target], Frames]] = {
    "nothing": lambda target: iter(()),
    "read-log": lambda target: again([ReadLog(CallId(1), target.large, 0, 60, 16 * MIB)] * 128),
    "read-small": lambda target: again(
        [ReadLog(CallId(1), target.small, 0, 65_536, 16 * MIB)] * 4096
    ),
    "read-held": lambda target: again(
        [ReadLog(CallId(1), target.log.id, 10**9, 65_536, 16 * MIB, wait_s=60.0)] * 4096
    ),
    "append-empty": _appends,
    "append-small": _small_appends,
    "read-each": lambda target: again(
        [
            ReadEach(
                CallId(1), target.small, tuple(range(0, SMALL_APPENDS * 4096, SMALL_APPENDS * 64))
            )
        ]
        * 4096
    ),
    "look": lambda target: again([Look(CallId(1), target.small)] * 4096),
    "look-row": _looks_at_rows,
    "fetch": lambda target: again([Fetch(CallId(1), target.small, 0, None)] * 4096),
    "trim": _trims,
    "forward": _forwards,
    "committed": lambda target: again(
        [Committed(CallId(1), target.small, ServerId("s0"), 0, 0, 0)] * 4096
    ),
    "empty-frames": lambda target: itertools.repeat(b"\1\0" * 65_535 + b"\0\0"),
    "empty-batches": lambda target: itertools.repeat(b"\0\0" * 65_536),
    "no-messages": lambda target: itertools.repeat(b"\0\2\1\x90" * 16_384),
    "pings": lambda target: itertools.repeat(b"\4\7\4PING\0\0" * 20_000),
    "describe": lambda target: again([Describe(CallId(1))] * 4096),
    "list": lambda target: again(
        [ListObjects(CallId(1), target.configuration.id, "", 1000)] * 4096
    ),
    "where": lambda target: again([Where(CallId(1), DomainName("nowhere"))] * 4096),
    "get": lambda target: again(
        [GetData(CallId(1), target.configuration.id, ObjectName("8 KB"), True)] * 4096
    ),
    "get-large": lambda target: again(
        [GetData(CallId(1), target.configuration.id, ObjectName("16 MiB"), True)] * 4096
    ),
    "put": _puts,
    "bring": _brought,
    "introduce": _introductions,
    "write-config": lambda target: again(
        [WriteConfig(CallId(1), target.small, Successor(_chains(target, 2)[1], Status.PENDING))]
        * 4096
    ),
    f"{MEMBER}-hint": lambda target: again(
        [GetHint(CallId(1), target.configuration.domain)] * 4096
    ),
    f"{MEMBER}-propose": _proposals,
    f"{MEMBER}-finalized": lambda target: again(
        [TellFinalized(CallId(1), target.configuration)] * 1000
    ),
    f"{MEMBER}-describe": lambda target: again([DescribeConsensus(CallId(1))] * 4096),
    f"{MEMBER}-frames": lambda target: itertools.repeat(b"\1\0" * 65_535 + b"\0\0"),
    f"{MEMBER}-look": lambda target: again([Look(CallId(1), target.small)] * 4096),
    f"{HTTP}-slow": lambda target: iter(()),
}


class RawSocket:
    """A plain socket on which ZMTP is spoken."""

    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(split_address(address), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(greeting() + FUZZ_READY)
        self._got = bytearray()
        self._take(64)
        self._frame()

    def ask(self, *messages: AnyMessage) -> list[AnyMessage]:
        """Send a batch, and return as many answers as messages."""
        self.socket.sendall(batch(messages))
        answers: list[AnyMessage] = []
        while len(answers) < len(messages):
            answers += decode_replies([self._frame()])
        return answers

    def _take(self, count: int) -> bytes:
        while len(self._got) < count:
            more = self.socket.recv(MIB)
            if not more:
                raise ConnectionError("hung up")
            self._got += more
        taken = bytes(self._got[:count])
        del self._got[:count]
        return taken

    def _frame(self) -> bytes:
        flags = self._take(1)[0]
        size = struct.unpack(">Q", self._take(8))[0] if flags & 2 else self._take(1)[0]
        return self._take(size)


def attack(target: Target) -> None:
    """Write until the process is killed; reconnect when the server hangs up."""
    if target.kind.startswith(HTTP):
        _hold_open(target.address)
    frames = ATTACKS[target.kind](target)
    while True:
        with contextlib.suppress(OSError):
            raw = RawSocket(target.address)
            threading.Thread(target=_read_all, args=(raw.socket,), daemon=True).start()
            print("attacking", flush=True)
            for each in frames:
                raw.socket.sendall(each)
        time.sleep(0.05 if target.kind != "nothing" else 60)


def _hold_open(address: str) -> None:
    """Hold connections with half a request, and open new ones when the server closes some."""
    held: deque[socket.socket] = deque()
    while True:
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(split_address(address), timeout=60))
            held[-1].sendall(PROBE[:-2])
        if len(held) == SLOW_CONNECTIONS:
            print("attacking", flush=True)
        if len(held) >= SLOW_CONNECTIONS:
            held.popleft().close()
            time.sleep(0.01)


def probe(address: str) -> None:
    """Ask for /health. Raises OSError when the connection is refused or reset."""
    with socket.create_connection(split_address(address), timeout=60) as connection:
        connection.sendall(PROBE)
        answer = b"".join(iter(lambda: connection.recv(MIB), b""))
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ConnectionError("no answer")


def _read_all(reader: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while reader.recv(MIB):
            pass


class AttackedProcess:
    """The process under attack, seen from outside."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")

    def peak_mib(self) -> float:
        """Return the most memory since this object was made."""
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii").splitlines()
        [line] = [line for line in status if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024

    def processor_s(self) -> float:
        return time.clock_gettime((~self._pid << 3) | _SCHEDULED)


class HonestClient(threading.Thread):
    """The honest client: calls ``ask`` sequentially until ``ended``."""

    def __init__(self, process: AttackedProcess, ask: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.waits_s: list[float] = []
        self.busy_s: list[float] = []
        self.failed = 0
        self._process = process
        self.ended = threading.Event()
        self._ask = ask

    def run(self) -> None:
        while not self.ended.wait(STALL_PAUSE_S):
            begin_s, busy_s = time.perf_counter(), self._process.processor_s()
            try:
                self._ask()
            except OSError:
                self.failed += 1
            self.waits_s.append(time.perf_counter() - begin_s)
            self.busy_s.append(self._process.processor_s() - busy_s)


class Line(msgspec.Struct):
    """A line of the table."""

    durability: str
    kind: str
    attackers: int
    longest_ms: float
    busy_ms: float
    median_ms: float
    processor_s: float
    after_s: float
    peak_mib: float
    failed: int
    """Number of the honest client's requests that were refused or reset."""


class AttackScene:
    """A running cluster with objects and logs for requests."""

    def __init__(self, cluster: TortureCluster, durability: str) -> None:
        settings = cluster.settings
        self.durability = durability
        self.cluster = cluster
        self._server = settings.servers[ServerId("s0")]
        self._member = settings.members[ServerId("r0")]
        self.configuration = settings.initial
        server = settings.servers[ServerId("s0")]
        itself = Server(server.id, server.address, cluster.identity(server.id))
        self._chain = Configuration.chain([itself], allow_no_faults=True)

    def prepare(self) -> None:
        """Store the objects and logs that requests ask for."""
        raw = RawSocket(self._server.address)
        id = self.configuration.id
        for first in range(0, STALL_OBJECTS, 100):
            names = [f"{n:06}".ljust(NAME_BYTES, "n") for n in range(first, first + 100)]
            raw.ask(*[_put(id, ObjectName(name), 1, b"x") for name in names])
        raw.ask(_put(id, ObjectName("8 KB"), 1, bytes(8_000)))
        raw.ask(_put(id, ObjectName("16 MiB"), 1, *[bytes(MIB)] * 16))
        raw.ask(_put(id, ObjectName("small"), 1, b"0123456789"))
        self.large, self.small = (self.log(raw, name) for name in ("large", "small"))
        for number in range(1, LARGE_APPENDS + 1):
            raw.ask(_append(self.large.id, 1, number, (bytes(MIB),)))
        for number in range(1, SMALL_APPENDS + 1):
            raw.ask(_append(self.small.id, 1, number, (b"",) * 4096))

    def log(self, raw: RawSocket, name: str) -> Configuration:
        """Make a new log on this server alone."""
        chain = self._chain.at(DomainName(name), 0, self.configuration.cluster_id)
        raw.socket.sendall(batch([Introduce(CallId(0), chain)]))
        raw.ask(Look(CallId(1), chain.id))
        return chain

    def measure(self, kind: str, attackers: int, seconds: float) -> Line:
        """Attack for ``seconds``, and measure."""
        on_member = kind.startswith(MEMBER)
        attacked = self._member if on_member else self._server
        address = attacked.http if kind.startswith(HTTP) else attacked.address
        log = self.log(RawSocket(self._server.address), f"{kind} {attackers}")
        process = AttackedProcess(self.cluster.pid(ServerId("r0" if on_member else "s0")))
        targets = [
            Target(
                address,
                kind,
                number,
                self.configuration,
                log,
                self.large.id,
                self.small.id,
            )
            for number in range(attackers)
        ]
        before_s = process.processor_s()
        other = HonestClient(process, self._asking(kind, address))
        other.start()
        running = [_started(target) for target in targets]
        try:
            time.sleep(seconds)
            spent_s = process.processor_s() - before_s
        finally:
            for each in running:
                each.kill()
                each.wait()
        after_s = process.processor_s()
        time.sleep(AFTER_S)
        other.ended.set()
        other.join(60)
        waits_ms = sorted(1e3 * wait for wait in other.waits_s)
        return Line(
            self.durability,
            kind,
            attackers,
            waits_ms[-1],
            1e3 * max(other.busy_s),
            waits_ms[len(waits_ms) // 2],
            spent_s,
            process.processor_s() - after_s,
            process.peak_mib(),
            other.failed,
        )

    def _asking(self, kind: str, address: str) -> Callable[[], object]:
        """Return the next request of the honest client."""
        if kind.startswith(HTTP):
            return partial(probe, address)
        id, raw = self.configuration.id, RawSocket(address)
        put = _put(id, ObjectName("small"), 1, b"0123456789")
        asked: list[AnyMessage] = [put, GetData(CallId(2), id, ObjectName("small"), True)]
        if kind.startswith(MEMBER):
            asked = [GetHint(CallId(1), self.configuration.domain)]
        requests = itertools.cycle(asked)
        return lambda: raw.ask(next(requests))


def _started(target: Target) -> subprocess.Popen[bytes]:
    """Start an attacker, and return the process after the attacker has connected."""
    process = subprocess.Popen(
        [*python("-m", "experiments.stalls"), "--attack"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.msgpack.encode(target))
    process.stdin.close()
    process.stdout.readline()
    return process


def scenes(
    durability: str, kinds: Sequence[str], crowds: Sequence[int], seconds: float
) -> Iterator[Line]:
    """Yield all lines for servers of this durability."""
    with tempfile.TemporaryDirectory(prefix="ares-experiment-") as directory:
        plan = InitPlan(
            1, 1, base_port=0, security="none", allow_no_faults=True, durability=durability
        )  # type: ignore[arg-type]
        for kind, attackers in itertools.product(kinds, crowds):
            home = Path(directory) / f"{kind}-{attackers}"
            cluster = TortureCluster(create(home, plan), None)
            try:
                asyncio.run(cluster.start())
                scene = AttackScene(cluster, durability)
                scene.prepare()
                yield scene.measure(kind, attackers, seconds)
            finally:
                cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--attackers", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--durability", nargs="+", default=["memory", "fsync"])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each measurement")
    parser.add_argument("--attack", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        attack(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Target))
        return
    for durability in options.durability:
        for line in scenes(durability, options.only, options.attackers, options.seconds):
            print(_line_text(line, options.json), flush=True)


def _line_text(line: Line, as_json: bool) -> str:
    if as_json:
        return json.dumps(msgspec.to_builtins(line))
    return (
        f"{line.durability:6} {line.kind:17} x {line.attackers:<2} the other client waited at "
        f"most {line.longest_ms:7.1f} ms, of processor {line.busy_ms:7.1f} ms (median "
        f"{line.median_ms:6.1f}); {line.processor_s:5.1f} s of processor, {line.after_s:4.1f} s "
        f"afterwards, {line.peak_mib:6.0f} MiB at most"
        + (f"; {line.failed} requests failed" if line.failed else "")
    )


if __name__ == "__main__":
    main()
