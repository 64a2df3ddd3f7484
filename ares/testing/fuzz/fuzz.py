"""``python -P -m ares.testing.fuzz``: garbage by the million on live ports.

The exit status is 1 if any check fails. Without --address the program makes small clusters of its
own, without keys and with keys, and attacks a storage server and a consensus member of each in
turn. Afterwards each process must run, answer, hold no more memory and no more descriptors than
before, and have counted unreadable batches.
"""

import argparse
import asyncio
import os
import random
import re
import secrets
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.configuration import Configuration, Server
from ares.model.identity import CallId, ServerId
from ares.model.messages import (
    AnyMessage,
    Describe,
    DescribeConsensus,
    Description,
    Reason,
    Refused,
)
from ares.net.libzmq import ZmqConnections
from ares.platform.loop import run
from ares.security.keys import SecretKey, keyed
from ares.testing.fuzz.fuzz_attacks import FUZZED_LOG, Attacker, BatchMaker
from ares.testing.torture.torture_cluster import TortureCluster

ATTACKS_AT_ONCE = 8
WARM_UP_SHARE = 0.05
"""The share of frames thrown before memory is first measured: the allocator has a full working set
by that time.
"""

SECURED_SHARE = 0.02
"""The share of frames for each port with keys: each frame takes a new connection."""

FUZZ_STRANGERS = 300
STRANGERS_AT_ONCE = 10
GROWN_BYTES_MAX = 64 * 1024 * 1024
DESCRIPTORS_MORE_MAX = 8
SETTLE_S = 30.0
FUZZ_SERVES_S = 30.0
ANSWER_S = 30.0
_ASK_AGAIN_S = 0.05
_TARGET = ServerId("target")
_NOBODY = Server(ServerId("nobody"), "127.0.0.1:9", "0" * 32)
_BAD_BATCHES = re.compile(r"^ares_bad_batches_total(?:{.*})? ([0-9.e+]+)$", re.MULTILINE)


class FuzzTarget(Struct, frozen=True):
    """A port to attack.

    ``address``: host:port. ``key``: the public key of the process; empty without keys. ``client``:
    a secret key known to the process. ``http``: the address of the pages.
    """

    kind: str
    address: str
    key: str = ""
    client: SecretKey | None = None
    http: str = ""
    pid: int = 0


class ProcessSize(Struct, frozen=True):
    """The resources of a process at a moment; -1: unknown."""

    memory_bytes: int = -1
    descriptors: int = -1
    bad_batches: int = -1


class PortReport(Struct, frozen=True):
    """The outcome for a port.

    ``strangers``: refused unknown keys. ``findings``: failed checks, in sentences.
    """

    target: str
    frames: int
    by_attack: dict[str, int]
    strangers: int
    seconds: float
    before: ProcessSize
    after: ProcessSize
    findings: list[str]


def judge(before: ProcessSize, after: ProcessSize, answers: bool, batches: int) -> list[str]:
    """Return the failed checks after ``batches`` frames of batches, in sentences."""
    findings = [] if answers else ["it does not answer any more"]
    grown = after.memory_bytes - before.memory_bytes
    if grown > GROWN_BYTES_MAX:
        findings.append(f"its memory grew by {grown} bytes")
    more = after.descriptors - before.descriptors
    if more > DESCRIPTORS_MORE_MAX:
        findings.append(f"it keeps {more} descriptors more")
    if batches and before.bad_batches >= 0 and after.bad_batches <= before.bad_batches:
        findings.append("it counted no bad batch")
    return findings


async def asked(
    target: FuzzTarget, key: SecretKey | None, patience_s: float = ANSWER_S
) -> AnyMessage | None:
    """Return the target's answer to Describe, or ``None`` if no answer comes within ``patience_s``.

    ``key``: the client's secret key; ``None`` for a client without a key.
    """
    answers: asyncio.Queue[AnyMessage] = asyncio.Queue()
    connections = ZmqConnections(key)
    connections.open(lambda _, messages: answers.put_nowait(messages[0]))
    connections.learn(_TARGET, keyed(target.address, target.key))
    question = (
        DescribeConsensus(CallId(1)) if target.kind == "consensus" else Describe(CallId(1), True)
    )
    try:
        async with asyncio.timeout(patience_s):
            while answers.empty():
                connections.post(_TARGET, [question])
                await asyncio.sleep(_ASK_AGAIN_S)
            return answers.get_nowait()
    except TimeoutError:
        return None
    finally:
        await connections.close()


async def serves(target: FuzzTarget, patience_s: float = ANSWER_S) -> AnyMessage | None:
    """Return the target's description; ``None`` after a refusal or silence."""
    answer = await asked(target, target.client, patience_s)
    return None if isinstance(answer, Refused) else answer


async def refuses(target: FuzzTarget) -> bool:
    """Return whether the target refuses a client with a newly made key."""
    answer = await asked(target, SecretKey.generate())
    return isinstance(answer, Refused) and answer.reason is Reason.NOT_AUTHORIZED


def held(target: FuzzTarget) -> ProcessSize:
    """Return the present resources of the target; memory means resident memory."""
    memory_bytes = descriptors = bad_batches = -1
    if target.pid:
        pages = int(Path(f"/proc/{target.pid}/statm").read_text(encoding="ascii").split()[1])
        memory_bytes, descriptors = (
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(os.listdir(f"/proc/{target.pid}/fd")),
        )
    if target.http:
        with urllib.request.urlopen(f"http://{target.http}/metrics", timeout=ANSWER_S) as page:
            if found := _BAD_BATCHES.search(page.read().decode()):
                bad_batches = int(float(found[1]))
    return ProcessSize(memory_bytes, descriptors, bad_batches)


async def fuzz(
    target: FuzzTarget, frames: int, seed: int, strangers: int = FUZZ_STRANGERS
) -> PortReport:
    """Throw ``frames`` at a port; on a port with keys, try ``strangers`` newly made keys."""
    description = await serves(target, FUZZ_SERVES_S)
    known = log = None
    if isinstance(description, Description):
        itself = Server(description.server, target.address, description.identity)
        known, chain = (
            description.cluster,
            Configuration.chain([itself, _NOBODY], allow_no_faults=True),
        )
        log = chain.at(FUZZED_LOG, 0, known)
    descriptors_max = (await asyncio.to_thread(held, target)).descriptors + DESCRIPTORS_MORE_MAX
    await _throw(target, max(1, round(frames * WARM_UP_SHARE)), seed, known, log)
    before = await asyncio.to_thread(_settled, target, descriptors_max)
    begin_s = time.monotonic()
    thrown = await _throw(target, frames, seed + 1, known, log)
    refused = await _strangers(target, strangers) if target.key else 0
    seconds = time.monotonic() - begin_s
    answers = await serves(target, FUZZ_SERVES_S) is not None
    after = (
        await asyncio.to_thread(_settled, target, before.descriptors + DESCRIPTORS_MORE_MAX)
        if answers
        else ProcessSize()
    )
    findings = judge(before, after, answers, thrown["batches"])
    if target.key and refused < strangers:
        findings.append(f"it refused {refused} of {strangers} unknown keys")
    return PortReport(
        f"{target.kind} at {target.address}",
        thrown.total(),
        dict(thrown),
        refused,
        round(seconds, 1),
        before,
        after,
        findings,
    )


async def _throw(
    target: FuzzTarget, frames: int, seed: int, known: bytes | None, log: Configuration | None
) -> Counter[str]:
    attackers = []
    for number in range(ATTACKS_AT_ONCE):
        chance = random.Random(f"{seed} {number}")
        attackers.append(
            Attacker(target.address, chance, BatchMaker(chance, known, log), bool(target.key))
        )
    results = await asyncio.gather(
        *(attacker.attack(frames // ATTACKS_AT_ONCE + 1) for attacker in attackers),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, OSError | TimeoutError):
            # OSError, TimeoutError: the target takes no more connections
            raise result
    return sum((attacker.frames for attacker in attackers), Counter())


async def _strangers(target: FuzzTarget, many: int) -> int:
    """Return how many of ``many`` unknown keys the target refused."""
    refused = 0
    for begun in range(0, many, STRANGERS_AT_ONCE):
        refused += sum(
            await asyncio.gather(
                *(refuses(target) for _ in range(min(STRANGERS_AT_ONCE, many - begun)))
            )
        )
    return refused


def _settled(target: FuzzTarget, descriptors_max: int) -> ProcessSize:
    """Return the target's resources, with time to notice closed connections."""
    deadline_s = time.monotonic() + SETTLE_S
    while (now := held(target)).descriptors > descriptors_max and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return now


def targets(settings: Settings, cluster: TortureCluster) -> list[FuzzTarget]:
    """Return the servers and consensus members of the running cluster."""
    security = settings.security
    client = None if security is None else security.client_key(settings.client.key)
    servers = [
        FuzzTarget("server", it.address, it.public_key, client, it.http, cluster.pid(it.id))
        for it in settings.servers.values()
    ]
    members = [
        FuzzTarget("consensus", it.address, it.public_key, client, it.http, cluster.pid(it.id))
        for it in settings.members.values()
    ]
    return [*servers, *members]


def fuzz_processes(
    settings: Settings, frames: int, seed: int, strangers: int = FUZZ_STRANGERS
) -> list[PortReport]:
    """Start the processes of a cluster file and throw ``frames`` at each in turn."""
    return run(_fuzz_processes(settings, frames, seed, strangers))


async def _fuzz_processes(
    settings: Settings, frames: int, seed: int, strangers: int
) -> list[PortReport]:
    cluster = TortureCluster(settings, None)
    try:
        await cluster.start()
        outcomes = []
        for target in targets(settings, cluster):
            outcomes.append(await fuzz(target, frames, seed, strangers))
            for ended in cluster.ended():
                outcomes[-1].findings.append(
                    f"{ended} ended: {cluster.last_words(ServerId(ended))}"
                )
        return outcomes
    finally:
        cluster.stop()


def fuzz_clusters(directory: Path, frames: int, seed: int) -> list[PortReport]:
    """Attack a server and a consensus member with half the frames each; few frames with keys."""
    outcomes: list[PortReport] = []
    for security, share in (("none", 0.5), ("curve", SECURED_SHARE)):
        plan = InitPlan(
            1, 1, base_port=0, security=security, allow_no_faults=True, durability="memory"
        )
        outcomes += fuzz_processes(create(directory / security, plan), round(frames * share), seed)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -P -m ares.testing.fuzz",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--frames", type=int, default=1_000_000, help="how many to throw (default 1000000)"
    )
    parser.add_argument(
        "--address",
        help="HOST:PORT of the process to attack: a process without keys and without valuable data",
    )
    parser.add_argument(
        "--kind",
        choices=("server", "consensus"),
        default="server",
        help="the kind of process that listens at --address",
    )
    parser.add_argument(
        "--pid",
        type=int,
        default=0,
        help="the pid of the process, if it runs on this machine: its memory is watched",
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the thrown messages (default: random)"
    )
    words = parser.parse_args()
    if words.frames < 1 or words.pid < 0:
        parser.error("--frames is more than 0, and --pid the number of a process")
    seed = secrets.randbelow(1_000_000) if words.seed is None else words.seed
    if words.address is not None:
        outcomes = [
            run(fuzz(FuzzTarget(words.kind, words.address, pid=words.pid), words.frames, seed))
        ]
    else:
        home = Path(tempfile.mkdtemp(prefix="ares-fuzz-"))
        try:
            outcomes = fuzz_clusters(home, words.frames, seed)
        finally:
            shutil.rmtree(home)
    sys.stdout.buffer.write(
        msgspec.json.format(msgspec.json.encode({"seed": seed, "targets": outcomes}))
        + os.linesep.encode()
    )
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    sys.exit(f"{len(findings)} findings" if findings else 0)
