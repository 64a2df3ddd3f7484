"""Waits of reads and writes while a client behind a slow link moves a domain.

    sudo .venv/bin/python -m experiments.slow_mover                # about a minute, Linux
    sudo .venv/bin/python -m experiments.slow_mover --transport zmq --cut 0 --json

Two network namespaces are joined by a link of RATE_MBIT each way, with queues for
SLOW_MOVER_QUEUE_S of bytes. Six servers without disks, and a client near the servers, are on the
first side. The mover is on the second side, moves a domain of large objects from three servers to
three new servers, and reads and writes a small object at the same time. The link is cut
for some seconds while the domain moves. The result has the longest read and write of each client
and the duration of the move, all in seconds; a move cannot be faster than its bytes.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from ares.client.domain_directory import ClientParts
from ares.client.manager import Manager
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration, Server
from ares.model.errors import AresError
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.port import Connections
from ares.platform.interpreter import python
from ares.platform.loop import run
from ares.reconfig.view import Switches
from ares.server.storage_process import ServingParts, run_server
from ares.testing.namespaces import add, inside, obstacle, remove
from ares.testing.namespaces import run as call
from experiments import ENVIRONMENT

RATE_MBIT = 16
SLOW_MOVER_QUEUE_S = 0.5
SLOW_MOVER_OBJECTS, OBJECT_BYTES = 24, 256 * 1024
CUT_AFTER_S = 3.0
SLOW_MOVER_PAUSE_S = 0.02
SLOW_MOVER_TIMEOUT_S = 300.0
BOOK = [
    Server(f"s{number}", f"10.213.0.1:{7400 + number}", f"{number:032x}") for number in range(6)
]
SLOW_MOVER_TOOLS = {"ip": "iproute2", "tc": "iproute2"}


def first_configuration() -> Configuration:
    return Configuration.abd(BOOK[:3]).at(DEFAULT_DOMAIN, 0)


def connect(transport: str, number: int) -> Manager:
    def connections() -> Connections:
        if transport == "zmq":
            from ares.net.libzmq import ZmqConnections

            return ZmqConnections()
        return ZmtpConnections()

    known = {server.id: server for server in BOOK}
    return Manager(
        ClientParts(
            connections,
            LocalConsensus(),
            first_configuration(),
            known,
            ClientId(number),
            Switches(),
            SLOW_MOVER_TIMEOUT_S,
        )
    )


async def serve(_: str) -> None:
    initial = first_configuration()
    await asyncio.gather(
        *(
            run_server(
                ServingParts(
                    server.id,
                    server.identity,
                    initial,
                    ZmtpListener(server.address),
                    asyncio.Event(),
                    links=ZmtpConnections(),
                )
            )
            for server in BOOK
        )
    )


async def use(store: Manager, key: str, ended: asyncio.Event, longest: dict[str, float]) -> None:
    """Read and write a small object until `ended`; note how long the slowest of each took."""
    await store.write(key, b"small")
    reads, writes = 0.0, 0.0
    while not ended.is_set():
        began = time.monotonic()
        await store.write(key, b"small")
        wrote = time.monotonic()
        await store.read(key)
        writes, reads = max(writes, wrote - began), max(reads, time.monotonic() - wrote)
        longest |= {"write_s": round(writes, 2), "read_s": round(reads, 2)}
        await asyncio.sleep(SLOW_MOVER_PAUSE_S)


async def near(transport: str) -> None:
    """Fill the domain, print a line, and use the domain until the standard input ends."""
    store, ended, longest = connect(transport, 1), asyncio.Event(), dict[str, float]()
    for number in range(SLOW_MOVER_OBJECTS):
        await store.write(f"large{number}", os.urandom(OBJECT_BYTES))
    print("filled", flush=True)
    using = asyncio.create_task(use(store, "near", ended, longest))
    await asyncio.to_thread(sys.stdin.read)
    ended.set()
    await using
    print(json.dumps(longest), flush=True)
    await store.close()


async def move(transport: str) -> None:
    """Move the domain, and use it at the same time."""
    store, ended, longest = connect(transport, 2), asyncio.Event(), dict[str, float]()
    using = asyncio.create_task(use(store, "far", ended, longest))
    await asyncio.sleep(1.0)
    began = time.monotonic()
    print("moving", flush=True)
    await store.reconfigure(Configuration.abd(BOOK[3:]), timeout_s=SLOW_MOVER_TIMEOUT_S)
    longest["move_s"] = round(time.monotonic() - began, 1)
    ended.set()
    await using
    print(json.dumps(longest), flush=True)
    await store.close()


SLOW_MOVER_PROCESSES = {"serve": serve, "near": near, "move": move}


@contextlib.contextmanager
def slow_link(rate_mbit: float) -> Iterator[tuple[str, str]]:
    """Two namespaces joined by a link; yields their names."""
    here, there = f"ares{os.getpid()}-near", f"ares{os.getpid()}-far"
    add(here)
    add(there)
    try:
        call(
            *("ip", "-n", here, "link", "add", "eth0", "type", "veth"),
            "peer",
            "eth0",
            "netns",
            there,
        )
        for namespace, address in ((here, "10.213.0.1/24"), (there, "10.213.0.2/24")):
            call("ip", "-n", namespace, "addr", "add", address, "dev", "eth0")
            for name in ("lo", "eth0"):
                call("ip", "-n", namespace, "link", "set", name, "up")
            device = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf")
            shape = (
                "rate",
                f"{rate_mbit}mbit",
                "burst",
                "64kb",
                "latency",
                f"{SLOW_MOVER_QUEUE_S}s",
            )
            call(*inside(namespace), *device, *shape)
        yield here, there
    finally:
        remove(here)
        remove(there)


def start(namespace: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*inside(namespace), *python("-m", "experiments.slow_mover"), *arguments],
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None, "it is a pipe"
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended early: {process.args}")
    return line


def measure(transport: str, rate_mbit: float, cut_s: float) -> dict[str, dict[str, float]]:
    processes: list[subprocess.Popen[str]] = []
    with slow_link(rate_mbit) as (here, there):
        try:
            processes.append(start(here, "--role", "serve"))
            time.sleep(2.0)
            processes.append(near := start(here, "--role", "near", "--transport", transport))
            heard(near)
            processes.append(mover := start(there, "--role", "move", "--transport", transport))
            heard(mover)
            if cut_s:
                time.sleep(CUT_AFTER_S)
                call("ip", "-n", here, "link", "set", "eth0", "down")
                time.sleep(cut_s)
                call("ip", "-n", here, "link", "set", "eth0", "up")
            moved = json.loads(heard(mover))
            assert near.stdin is not None, "it is a pipe"
            near.stdin.close()
            return {"mover": moved, "near": json.loads(heard(near))}
        finally:
            for process in processes:
                process.kill()
                process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--transport", choices=["native", "zmq"], default="native")
    parser.add_argument("--rate-mbit", type=float, default=RATE_MBIT)
    parser.add_argument("--cut", type=float, default=5.0, help="seconds without the link")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", choices=SLOW_MOVER_PROCESSES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is not None:
        run(SLOW_MOVER_PROCESSES[options.role](options.transport))
    else:
        report(options)


def report(options: argparse.Namespace) -> None:
    """Measure, and print the figures. Raises SystemExit where no slow link can be made."""
    if (why := obstacle(SLOW_MOVER_TOOLS)) is not None:
        raise SystemExit(why)
    try:
        found = measure(options.transport, options.rate_mbit, options.cut)
    except AresError as error:
        raise SystemExit(str(error)) from error
    if options.json:
        print(json.dumps(found))
    else:
        for client, figures in found.items():
            print(client, " ".join(f"{name} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
