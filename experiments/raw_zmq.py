"""The yardstick for large values: raw ZeroMQ moves given bytes to n processes, acknowledged.

All run on this machine, as close to the wire as pyzmq gets: a blocking socket for each peer, zero
copies on the way out, no encoding, no storage.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq


def _sink(pipe: "multiprocessing.connection.Connection") -> None:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    pipe.send(router.bind_to_random_port("tcp://127.0.0.1"))
    held: list[bytes] = []
    while True:
        sender, head, body = router.recv_multipart()
        if not head:
            return
        if head == b"get":
            router.send(sender, zmq.SNDMORE)
            router.send(held[0], copy=False)
        else:
            held[:] = [body]
            router.send_multipart([sender, b"ok"])


class RawPeers:
    """Connections to the peers; both methods return seconds.

    ``write`` moves a part to every peer; ``read`` moves a part back from each of the first
    ``count``.
    """

    def __init__(self, dealers: "list[zmq.Socket[bytes]]") -> None:
        self._dealers = dealers

    def write(self, part: bytes) -> float:
        begin = time.perf_counter()
        for dealer in self._dealers:
            dealer.send(b"put", zmq.SNDMORE)
            dealer.send(part, copy=False)
        for dealer in self._dealers:
            dealer.recv()
        return time.perf_counter() - begin

    def read(self, count: int) -> float:
        begin = time.perf_counter()
        for dealer in self._dealers[:count]:
            dealer.send_multipart([b"get", b""])
        for dealer in self._dealers[:count]:
            dealer.recv()
        return time.perf_counter() - begin


@contextmanager
def raw_peers(n: int) -> Iterator[RawPeers]:
    """Run n processes that discard the bytes they receive and return bytes on request."""
    start = multiprocessing.get_context("spawn")
    context = zmq.Context()
    dealers, processes = [], []
    for _ in range(n):
        ours, theirs = start.Pipe()
        process = start.Process(target=_sink, args=(theirs,), daemon=True)
        process.start()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(f"tcp://127.0.0.1:{ours.recv()}")
        dealers.append(dealer)
        processes.append(process)
    try:
        yield RawPeers(dealers)
    finally:
        for dealer in dealers:
            dealer.send_multipart([b"", b""])
        for process in processes:
            process.join()
        context.destroy(linger=0)
