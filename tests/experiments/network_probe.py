"""Probes of the network between two hosts; each prints a single number.

`serve ADDRESS` runs on a host, and `rtt`, `lost` or `rate` ADDRESS PORT COUNT on the other.
"""

import contextlib
import socket
import sys
import threading
import time

DATAGRAMS_AT_ONCE = 20
SO_RCVBUFFORCE, DATAGRAM_ROOM_BYTES = 33, 1 << 22
"""A thousand datagrams fit into the room, also while their reader waits for a processor."""

PATIENCE_S = 5.0
"""Time until a host counts as cut off, and a datagram as lost."""
PIECE = b"x" * 65536


def serve(address: str) -> None:
    """Return all data that comes by TCP or UDP on a printed port.

    After an "s", data by TCP is only counted.
    """
    streams, datagrams = (
        socket.create_server((address, 0)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    )
    _give_room(datagrams)
    datagrams.bind(streams.getsockname())
    threading.Thread(target=_echo_datagrams, args=(datagrams,), daemon=True).start()
    sys.stdout.write(f"{streams.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        threading.Thread(target=_answer, args=(streams.accept()[0],), daemon=True).start()


def _give_room(datagrams: socket.socket) -> None:
    with contextlib.suppress(PermissionError):  # without root the testbed loses no datagrams
        datagrams.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, DATAGRAM_ROOM_BYTES)


def _echo_datagrams(datagrams: socket.socket) -> None:
    while True:
        data, sender = datagrams.recvfrom(2048)
        datagrams.sendto(data, sender)


def _answer(stream: socket.socket) -> None:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with stream:
        kind = stream.recv(1)
        while data := stream.recv(65536):
            if kind == b"e":
                stream.sendall(data)
        stream.sendall(b"end")


def rtt(address: tuple[str, int], count: int) -> float:
    """Return the shortest of `count` round trips, in milliseconds: the machine's load only adds."""
    best = 1e9
    with socket.create_connection(address, timeout=PATIENCE_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(b"e")
        for _ in range(count):
            begin = time.perf_counter()
            stream.sendall(b"x")
            stream.recv(1)
            best = min(best, time.perf_counter() - begin)
    return best * 1000


def lost(address: tuple[str, int], count: int) -> float:
    """Return the share of datagrams that did not come back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        _give_room(datagrams)
        datagrams.connect(address)
        sending = threading.Thread(target=_send, args=(datagrams, count))
        sending.start()
        back = 0
        datagrams.settimeout(PATIENCE_S)
        with contextlib.suppress(TimeoutError):
            while back < count:
                back += len(datagrams.recv(2048))
        sending.join()
    return 1 - back / count


def _send(datagrams: socket.socket, count: int) -> None:
    for _ in range(0, count, DATAGRAMS_AT_ONCE):
        for _ in range(DATAGRAMS_AT_ONCE):
            datagrams.send(b"x")
        time.sleep(0.002)


def rate(address: tuple[str, int], count: int) -> float:
    """Return bits a second, for `count` bytes that all arrived."""
    begin = time.perf_counter()
    with socket.create_connection(address, timeout=30) as stream:
        stream.sendall(b"s")
        for _ in range(count // len(PIECE)):
            stream.sendall(PIECE)
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(3) == b"end"
    return count // len(PIECE) * len(PIECE) * 8 / (time.perf_counter() - begin)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        tried = {"rtt": rtt, "lost": lost, "rate": rate}[sys.argv[1]](
            (sys.argv[2], int(sys.argv[3])), int(sys.argv[4])
        )
        sys.stdout.write(f"{tried}\n")
