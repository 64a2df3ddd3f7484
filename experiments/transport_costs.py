"""Cost of a batch with ZeroMQ's protocol spoken by libzmq and by the event loop itself.

    .venv/bin/python -m experiments.transport_costs              # a minute
    .venv/bin/python -m experiments.transport_costs --rounds 5

Both run without keys and with keys. A client process sends every batch to five servers, as a round
of a quorum operation does, and sends the next after three answers. Processor time is the time of
whole processes, threads of libzmq included. All are measured in turn in the same run: quote ratios.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from ares.cluster.tables import TransportName
from ares.model.element import sealed
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import AnyMessage, DataReply, GetTag, PutData
from ares.model.tag import TAG_ZERO, Tag
from ares.model.units import MIB
from ares.net.port import Connections
from ares.net.transports import connections as connections_with
from ares.net.transports import listener_at
from ares.platform.interpreter import python
from ares.platform.loop import run
from ares.platform.memory import SERVER_BYTES, keep_freed_memory
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey, keyed
from experiments import ENVIRONMENT, TICKS_PER_S

TRANSPORT_SERVERS, TRANSPORT_NEEDED = 5, 3
TRANSPORT_S = 1.5
TRANSPORT_KINDS = ("libzmq", "own", "libzmq, keys", "own, keys")
RATIOS = [
    ("own", "libzmq"),
    ("libzmq, keys", "libzmq"),
    ("own, keys", "own"),
    ("own, keys", "libzmq, keys"),
]
CONFIGURATION = ConfigurationId(b"c" * 16)


class EveryKey:
    """A policy that admits every key."""

    def admits(self, key: str, address: str) -> bool:
        return True


def transport(kind: str) -> TransportName:
    return "libzmq" if kind.startswith("libzmq") else "native"


def connections(kind: str) -> Connections:
    return connections_with(SecretKey.generate() if "keys" in kind else None, transport(kind))


def answer(message: AnyMessage) -> AnyMessage:
    """Reply to a small request with a small message, and to a put with the value put."""
    element = message.element if isinstance(message, PutData) else None
    return DataReply(message.call, (), -1, TAG_ZERO, element, None)


async def serve(kind: str) -> None:
    key = SecretKey.generate() if "keys" in kind else None
    made = listener_at(
        "127.0.0.1:0", None if key is None else Lock(key, EveryKey()), transport=transport(kind)
    )
    address = await made.serve(lambda _, messages: [answer(message) for message in messages])
    print(keyed(address, "" if key is None else key.public), flush=True)
    await asyncio.Event().wait()


def processor_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def servers(kind: str) -> Any:
    command = python("-m", "experiments.transport_costs", "--serve", kind)
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        for _ in range(TRANSPORT_SERVERS)
    ]
    try:
        yield (
            [process.pid for process in processes],
            [process.stdout.readline().strip() for process in processes if process.stdout],
        )
    finally:
        for process in processes:
            process.terminate()
            process.wait()


async def waves(kind: str, make: Callable[[int], list[AnyMessage]]) -> tuple[float, float, float]:
    """Return waves a second, and microseconds of processor for a batch and for a wave.

    The server is charged for a batch, the client for a wave.
    """
    with servers(kind) as (pids, addresses):
        loop, to = asyncio.get_running_loop(), connections(kind)
        done, answered, count = loop.create_future(), 0, 0
        end = time.perf_counter() + TRANSPORT_S

        def deliver(_: ServerId, messages: Any) -> None:
            nonlocal answered, count
            if messages[0].call != count:
                return
            answered += 1
            if answered == TRANSPORT_NEEDED:
                answered, count = 0, count + 1
                if time.perf_counter() < end:
                    send()
                elif not done.done():
                    done.set_result(None)

        def send() -> None:
            batch = make(count)
            for number in range(TRANSPORT_SERVERS):
                to.post(ServerId(f"s{number}"), batch)

        to.open(deliver)
        for number, address in enumerate(addresses):
            to.learn(ServerId(f"s{number}"), address)
        begin, own, theirs = time.perf_counter(), time.process_time(), sum(map(processor_s, pids))
        send()
        await done
        elapsed = time.perf_counter() - begin
        own, theirs = time.process_time() - own, sum(map(processor_s, pids)) - theirs
        await to.close()
    return count / elapsed, theirs / count / TRANSPORT_SERVERS * 1e6, own / count * 1e6


def small(requests: int) -> Callable[[int], list[AnyMessage]]:
    return lambda count: [
        GetTag(CallId(count), CONFIGURATION, ObjectName(f"key-{number:020}"))
        for number in range(requests)
    ]


def large(size: int) -> Callable[[int], list[AnyMessage]]:
    tag, name = Tag(1, 1), ObjectName("large")
    element = sealed(CONFIGURATION, name, tag, 0, size, (os.urandom(size),))
    return lambda count: [PutData(CallId(count), CONFIGURATION, name, tag, element)]


TRANSPORT_CASES = [
    ("1 request a batch", small(1)),
    ("40 requests a batch", small(40)),
    ("1 MiB there and back", large(MIB)),
    ("8 MiB there and back", large(8 * MIB)),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="repetitions, of which the medians are shown"
    )
    parser.add_argument("--serve", choices=TRANSPORT_KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    keep_freed_memory(SERVER_BYTES)
    if arguments.serve:
        run(serve(arguments.serve))
        return
    for label, make in TRANSPORT_CASES:
        rows: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in TRANSPORT_KINDS}
        for _ in range(arguments.rounds):
            for kind in TRANSPORT_KINDS:
                rows[kind].append(run(waves(kind, make)))
        medians = {
            kind: [statistics.median(column) for column in zip(*results, strict=True)]
            for kind, results in rows.items()
        }
        for kind in TRANSPORT_KINDS:
            rate, server, client = medians[kind]
            print(
                f"{label:22} {kind:13} {rate:8,.0f} waves/s   server {server:7,.0f} us a batch   "
                f"client {client:7,.0f} us a wave",
                flush=True,
            )
        for one, other in RATIOS:
            gain = [mine / its for mine, its in zip(medians[one], medians[other], strict=True)]
            print(
                f"  {one + ' : ' + other:34} {gain[0]:8.2f}           server "
                f"{gain[1]:7.2f}              client {gain[2]:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
