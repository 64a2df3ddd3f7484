"""What is fuzzed, seen from outside: whether it answers, and, of a process on this machine, what it holds."""

import asyncio
import os
import re
import urllib.request
from pathlib import Path

from msgspec import Struct

from ares.model.identity import CallId, ServerId
from ares.model.messages import AnyMessage, Describe, DescribeConsensus, Description, Reason, Refused
from ares.net.zmq.zmq_client import ZmqConnections
from ares.security.keys import SecretKey, keyed

ANSWER_S = 30.0
_ASK_AGAIN_S = 0.05
_TARGET = ServerId("target")
_BAD_BATCHES = re.compile(r"^ares_bad_batches_total(?:{.*})? ([0-9.e+]+)$", re.MULTILINE)


class Target(Struct, frozen=True):
    """``address``: host:port. ``key``: its public one; empty where there are none. ``client``: a key that it knows. ``http``: its pages."""

    kind: str
    address: str
    key: str = ""
    client: SecretKey | None = None
    http: str = ""
    pid: int = 0


class Held(Struct, frozen=True):
    """What a process has at a moment; -1: not known."""

    memory_bytes: int = -1
    descriptors: int = -1
    bad_batches: int = -1


async def asked(target: Target, key: SecretKey | None, patience_s: float = ANSWER_S) -> AnyMessage | None:
    """What it answers to the question who it is; None: nothing within ``patience_s``. ``key``: the client's, None for one without."""
    answers: asyncio.Queue[AnyMessage] = asyncio.Queue()
    connections = ZmqConnections(key)
    connections.open(lambda _, messages: answers.put_nowait(messages[0]))
    connections.learn(_TARGET, keyed(target.address, target.key))
    question = DescribeConsensus(CallId(1)) if target.kind == "consensus" else Describe(CallId(1), True)
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


async def serves(target: Target, patience_s: float = ANSWER_S) -> AnyMessage | None:
    """Its description of itself, if it gives one."""
    answer = await asked(target, target.client, patience_s)
    return None if isinstance(answer, Refused) else answer


async def configuration_of(target: Target, patience_s: float = ANSWER_S) -> bytes | None:
    """The id of the first configuration of its cluster."""
    answer = await serves(target, patience_s)
    return answer.cluster if isinstance(answer, Description) else None


async def refuses(target: Target) -> bool:
    """Whether it has no service for a key made up just now."""
    answer = await asked(target, SecretKey.generate())
    return isinstance(answer, Refused) and answer.reason is Reason.NOT_AUTHORIZED


async def held(target: Target) -> Held:
    """What it holds now."""
    return Held(*(_of_process(target.pid) if target.pid else (-1, -1)), await asyncio.to_thread(_bad_batches, target.http) if target.http else -1)


def _of_process(pid: int) -> tuple[int, int]:
    """Resident memory, and how many descriptors."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def _bad_batches(http: str) -> int:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=ANSWER_S) as page:
        found = _BAD_BATCHES.search(page.read().decode())
    return -1 if found is None else int(float(found[1]))
