"""Processor time of a small operation without I/O, in microseconds, by layer.

    .venv/bin/python -m experiments.budget                # half a minute
    .venv/bin/python -m experiments.budget --dap ec

The client's session and operations, the codec of both sides, and all servers' state machines run in
this process. Work of the compiled core includes its codec (ARES_PURE=1 shows the Python path). The
bench prints the processor time of an operation with I/O, of generators and servers:

    .venv/bin/python -m experiments.bench --only ares-abd --workloads '10 B' --processes 1

The difference is the load itself, the event loop, the transport, the kernel, and caches that went
cold between two processes. Other work on the machine changes processor time less than rates, but
does change both.
"""

import argparse
import random
import time
from collections import Counter
from typing import Any

from ares.compiled import CORE_NAME, fast_path, server_core, small_objects
from ares.engine.session import Session
from ares.model.codec import decode, encode
from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, ClientId, ObjectName, ServerId
from ares.reconfig.view import Switches, View
from ares.registers.operations import read, write
from ares.replica.replica import Replica

BUDGET_SERVERS, BUDGET_K = 5, 3
BUDGET_OBJECTS = [ObjectName(f"key-{number:020d}") for number in range(1000)]
BUDGET_VALUE = b"0123456789"
BUDGET_AT_ONCE = 100
WAVES = 60


class Layers:
    """A client and its servers in a single process; every step is timed by layer."""

    def __init__(self, dap: str) -> None:
        servers = tuple(
            Server(ServerId(f"s{number}"), f"127.0.0.1:{7000 + number}", f"{number:032x}")
            for number in range(BUDGET_SERVERS)
        )
        made = Configuration.ec(servers, BUDGET_K) if dap == "ec" else Configuration.abd(servers)
        initial = made.at(DEFAULT_DOMAIN, 0)
        self._replicas = {
            server.id: Replica(server.id, server.identity, initial) for server in servers
        }
        cores = {id: server_core(replica.hosted) for id, replica in self._replicas.items()}
        self._cores = {id: core for id, core in cores.items() if core is not None}
        self._session = Session(fast_path=fast_path())
        self._view = View(ClientId(7), initial, Switches(), self._session.readiness)
        self._small = small_objects(self._session, self._view)
        self._done = 0
        self._spent: Counter[str] = Counter()
        self._since = 0.0

    def _charge(self, layer: str) -> None:
        """Charge the time since the last charge to `layer`."""
        now = time.perf_counter()
        self._spent[layer] += now - self._since
        self._since = now

    def _ended(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._done += 1

    def wave(self, operations: list[tuple[bool, ObjectName]]) -> Counter[str]:
        """Start all `operations` at once, and return the seconds that they took, by layer."""
        self._spent, self._done, self._since = Counter(), 0, time.perf_counter()
        for reads, object in operations:
            if not self._starts_small(reads, object):
                operation = (
                    read(self._view, object) if reads else write(self._view, object, BUDGET_VALUE)
                )
                self._session.start(
                    operation,
                    "an operation",
                    0.0,
                    30.0,
                    self._ended,
                    key=None if reads else (DEFAULT_DOMAIN, object),
                )
        while self._done < len(operations):
            self._turn()
        return self._spent

    def _starts_small(self, reads: bool, object: ObjectName) -> bool:
        small = self._small
        if small is None:
            return False
        begun = (
            small.read(object, self._ended, 0.0, 30.0)
            if reads
            else small.write(object, BUDGET_VALUE, self._ended, 0.0, 30.0)
        )
        return begun is not None

    def _turn(self) -> None:
        letters = self._session.take_letters()
        self._charge("client")
        answers = {}
        for server, letter in letters.items():
            if isinstance(letter, bytes) and self._cores:
                served = self._cores[server].serve([[letter]], True)
                self._charge("servers")
                if served is not None and served.reply is not None:
                    answers[server] = [served.reply]
                    continue
            requests = decode([letter] if isinstance(letter, bytes) else encode(letter))
            self._charge("codec")
            replies = [
                reply
                for request in requests
                if (reply := self._replicas[server].handle(request)) is not None
            ]  # type: ignore[arg-type]
            self._charge("servers")
            answers[server] = encode(replies)
            self._charge("codec")
        for server, frames in answers.items():
            if self._small is not None:
                self._session.receive_frames(server, frames, 0.0)
            else:
                messages = decode(frames)
                self._charge("codec")
                self._session.receive(server, messages, 0.0)
            self._charge("client")


def layers(dap: str) -> None:
    there, rng = Layers(dap), random.Random(1)
    there.wave([(False, object) for object in BUDGET_OBJECTS])
    for label, share in (("writes", 0.0), ("half reads", 0.5), ("reads", 1.0)):
        waves = [
            there.wave(
                [(rng.random() < share, rng.choice(BUDGET_OBJECTS)) for _ in range(BUDGET_AT_ONCE)]
            )
            for _ in range(WAVES)
        ]
        quickest = {
            layer: min(spent[layer] for spent in waves) / BUDGET_AT_ONCE * 1e6
            for layer in ("client", "codec", "servers")
        }
        parts = "   ".join(f"{layer} {cost:5.1f}" for layer, cost in quickest.items())
        print(
            f"without I/O, {label:10}: {parts}   in all {sum(quickest.values()):5.1f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dap", choices=("abd", "ec"), default="abd")
    dap = parser.parse_args().dap
    print(f"core: {CORE_NAME}")
    print(
        f"{dap}, n={BUDGET_SERVERS}, 10-byte values, 24-byte keys; microseconds of processor for "
        f"an operation; servers: all {BUDGET_SERVERS} together"
    )
    layers(dap)


if __name__ == "__main__":
    main()
