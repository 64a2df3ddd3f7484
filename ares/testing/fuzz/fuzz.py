"""``python -P -m ares.torture.fuzz``: garbage by the million on live ports. Exit status 1 if anything gave way.

Without --address it makes small clusters of its own, without keys and with, and attacks a storage server and a consensus member of each in turn.
Afterwards each must run, answer, hold no more memory and no more descriptors than before, and have counted the batches that it could not read.
"""

import argparse
import asyncio
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.cluster.cluster_file import Plan, create
from ares.cluster.settings import Settings
from ares.machine.loop import run
from ares.model.identity import ServerId
from ares.testing.fuzz.fuzz_attacks import Attacker
from ares.testing.fuzz.fuzz_frames import Mint
from ares.testing.fuzz.fuzz_target import Held, Target, configuration_of, held, refuses, serves
from ares.testing.torture.cluster import Cluster

AT_ONCE = 8
WARM_UP_SHARE = 0.05
"""What is thrown before memory is looked at for the first time: the allocator has its working set then."""

SECURED_SHARE = 0.02
"""Of the frames, on each port that asks for keys: there every frame takes a connection, for it is the last."""

STRANGERS = 300
STRANGERS_AT_ONCE = 10
GROWN_BYTES_MAX = 64 * 1024 * 1024
DESCRIPTORS_MORE_MAX = 8
SETTLE_S = 30.0
SERVES_S = 30.0


class Outcome(Struct, frozen=True):
    """Of one port. ``strangers``: keys that it did not know and had no service for. ``findings``: what gave way."""

    target: str
    frames: int
    by_attack: dict[str, int]
    strangers: int
    seconds: float
    before: Held
    after: Held
    findings: list[str]


def judge(before: Held, after: Held, answers: bool, batches: int) -> list[str]:
    """What gave way under ``batches`` frames of batches, in sentences."""
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


async def fuzz(target: Target, frames: int, seed: int, strangers: int = STRANGERS) -> Outcome:
    """Throw so many at one port; if it asks for keys, try so many of one's own making."""
    known = await configuration_of(target, SERVES_S)
    descriptors_max = (await held(target)).descriptors + DESCRIPTORS_MORE_MAX
    await _throw(target, max(1, round(frames * WARM_UP_SHARE)), seed, known)
    before = await _settled(target, descriptors_max)
    begin_s = time.monotonic()
    thrown = await _throw(target, frames, seed + 1, known)
    refused = await _strangers(target, strangers) if target.key else 0
    seconds = time.monotonic() - begin_s
    answers = await serves(target, SERVES_S) is not None
    after = await _settled(target, before.descriptors + DESCRIPTORS_MORE_MAX) if answers else Held()
    findings = judge(before, after, answers, thrown["batches"])
    if target.key and refused < strangers:
        findings.append(f"it refused {refused} of {strangers} unknown keys")
    return Outcome(f"{target.kind} at {target.address}", thrown.total(), dict(thrown), refused, round(seconds, 1), before, after, findings)


async def _throw(target: Target, frames: int, seed: int, known: bytes | None) -> Counter[str]:
    attackers = []
    for number in range(AT_ONCE):
        chance = random.Random(f"{seed} {number}")
        attackers.append(Attacker(target.address, chance, Mint(chance, known), bool(target.key)))
    results = await asyncio.gather(*(attacker.attack(frames // AT_ONCE + 1) for attacker in attackers), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, OSError | TimeoutError):  # those: it does not take connections any more
            raise result
    return sum((attacker.frames for attacker in attackers), Counter())


async def _strangers(target: Target, many: int) -> int:
    """How many of so many unknown keys were refused."""
    refused = 0
    for begun in range(0, many, STRANGERS_AT_ONCE):
        refused += sum(await asyncio.gather(*(refuses(target) for _ in range(min(STRANGERS_AT_ONCE, many - begun)))))
    return refused


async def _settled(target: Target, descriptors_max: int) -> Held:
    """What it holds, once it has had time to find out who has left."""
    deadline_s = time.monotonic() + SETTLE_S
    while (now := await held(target)).descriptors > descriptors_max and time.monotonic() < deadline_s:  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.1)
    return now


def targets(settings: Settings, cluster: Cluster) -> list[Target]:
    """What runs."""
    security = settings.security
    client = None if security is None else security.client_key(settings.client.key)
    servers = [Target("server", it.address, it.public_key, client, it.http, cluster.pid(it.id)) for it in settings.servers.values()]
    members = [Target("consensus", it.address, it.public_key, client, it.http, cluster.pid(it.id)) for it in settings.members.values()]
    return [*servers, *members]


def fuzz_processes(settings: Settings, frames: int, seed: int, strangers: int = STRANGERS) -> list[Outcome]:
    """Start the processes of a cluster file, and throw so many at each, one after the other."""
    return run(_fuzz_processes(settings, frames, seed, strangers))


async def _fuzz_processes(settings: Settings, frames: int, seed: int, strangers: int) -> list[Outcome]:
    cluster = Cluster(settings, None)
    try:
        await cluster.start()
        outcomes = []
        for target in targets(settings, cluster):
            outcomes.append(await fuzz(target, frames, seed, strangers))
            for ended in cluster.ended():
                outcomes[-1].findings.append(f"{ended} ended: {cluster.last_words(ServerId(ended))}")
        return outcomes
    finally:
        cluster.stop()


def fuzz_clusters(directory: Path, frames: int, seed: int) -> list[Outcome]:
    """So many at a server and a consensus member, half at each, and a share of them at two with keys."""
    outcomes: list[Outcome] = []
    for security, share in (("none", 0.5), ("curve", SECURED_SHARE)):
        plan = Plan(1, 1, base_port=0, security=security, allow_no_faults=True, durability="memory")
        outcomes += fuzz_processes(create(directory / security, plan), round(frames * share), seed)
    return outcomes


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(prog="python -P -m ares.torture.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many to throw (default 1000000)")
    parser.add_argument("--address", help="HOST:PORT of what to attack: a process without keys that nobody needs")
    parser.add_argument("--kind", choices=("server", "consensus"), default="server", help="what listens at --address")
    parser.add_argument("--pid", type=int, default=0, help="its process, if it is on this machine: then its memory is looked at")
    parser.add_argument("--seed", type=int, default=None, help="of what is thrown (default: one by chance)")
    words = parser.parse_args()
    if words.frames < 1 or words.pid < 0:
        parser.error("--frames is more than 0, and --pid the number of a process")
    seed = secrets.randbelow(1_000_000) if words.seed is None else words.seed
    if words.address is not None:
        outcomes = [run(fuzz(Target(words.kind, words.address, pid=words.pid), words.frames, seed))]
    else:
        home = Path(tempfile.mkdtemp(prefix="ares-fuzz-"))
        try:
            outcomes = fuzz_clusters(home, words.frames, seed)
        finally:
            shutil.rmtree(home)
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode({"seed": seed, "targets": outcomes})) + os.linesep.encode())
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    sys.exit(f"{len(findings)} findings" if findings else 0)


if __name__ == "__main__":
    main()
