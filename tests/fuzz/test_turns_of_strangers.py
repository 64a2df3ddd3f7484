"""A real server answers honest clients during an expensive batch, sent over a plain socket.

Speed does not matter. The attacker's batch begins and ends with a question, and each answer has the
server's uptime. The server's own clock therefore tells how many questions of honest clients were
answered during the batch: zero without turns. The longest wait is logged (`pytest -rP`), and not
judged.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from .stranger import DESCRIBE, DESCRIPTION, DONE, READ, Stranger
from .test_log_strangers import AttackedServer, append

pytestmark = pytest.mark.process

OTHERS = 3
BETWEEN_MIN = 3
ATTEMPTS = 5
UPTIME = 6
"""Place of `uptime_s` in a description."""

_log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    server = AttackedServer(tmp_path_factory.mktemp("turns") / "c")
    yield server
    assert server.cluster.ended() == []
    server.cluster.stop()


class Other(threading.Thread):
    """An honest client: a question after each answer, with the times of answers and the waits."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.answered_s: list[float] = []
        self.longest_s = 0.0
        self.ended = threading.Event()
        self._stranger = Stranger(address)

    def run(self) -> None:
        with self._stranger as stranger:
            while not self.ended.is_set():
                begin_s = time.monotonic()
                answer = stranger.ask([DESCRIBE, 1, True])
                self.longest_s = max(self.longest_s, time.monotonic() - begin_s)
                self.answered_s.append(answer[UPTIME])


def framed(body: bytes) -> bytes:
    return b"\2" + len(body).to_bytes(8) + body


def batch(*messages: list) -> bytes:
    return framed(b"\1" + msgspec.msgpack.encode(messages))


def reads(server: AttackedServer, attempt: int) -> bytes:
    """Return a batch with 200 reads of 40,960 empty entries.

    The role `read` may send such a batch.
    """
    log = server.made(f"reads {attempt}")
    with Stranger(server.address) as stranger:
        for number in range(1, 11):
            assert stranger.ask(append(log, number, [b""] * 4096))[3] == DONE
    question = [DESCRIBE, 1, True]
    return batch(question, *[[READ, 2, log, 0, 65_536, 1 << 20]] * 200, [DESCRIBE, 3, True])


def appends(server: AttackedServer, attempt: int) -> bytes:
    """Return a batch with 500 appends of 4,096 empty entries.

    The role `write` may send such a batch.
    """
    log = server.made(f"appends {attempt}")
    heavy = [append(log, number, [b""] * 4096) for number in range(1, 501)]
    return batch([DESCRIBE, 1, True], *heavy, [DESCRIBE, 3, True])


def empty_frames(server: AttackedServer, attempt: int) -> bytes:
    """Return messages of 65,535 empty frames each; no role is needed."""
    heavy = (b"\1\0" * 65_535 + b"\0\0") * 8
    return batch([DESCRIBE, 1, True]) + heavy + batch([DESCRIBE, 3, True])


@pytest.mark.parametrize("make", [reads, appends, empty_frames])
def test_others_are_answered_while_an_expensive_batch_is(
    server: AttackedServer, make: Callable[[AttackedServer, int], bytes]
) -> None:
    between = 0
    for attempt in range(ATTEMPTS):
        content = make(server, attempt)
        others = [Other(server.address) for _ in range(OTHERS)]
        for other in others:
            other.start()
        with Stranger(server.address) as attacker:
            begin_s, end_s = attacked(attacker, content)
        for other in others:
            other.ended.set()
        for other in others:
            other.join(60)
        longest_s = max(other.longest_s for other in others)
        _log.warning("a batch of %.3f s: others waited %.3f s", end_s - begin_s, longest_s)
        answered = [at_s for other in others for at_s in other.answered_s]
        between = sum(begin_s < at_s < end_s for at_s in answered)
        if between >= BETWEEN_MIN:
            break
    assert between >= BETWEEN_MIN


def attacked(attacker: Stranger, content: bytes) -> tuple[float, float]:
    """Send the batch; return the times of its first and last answer by the server's clock."""
    sending = threading.Thread(target=attacker.socket.sendall, args=(content,), daemon=True)
    sending.start()
    at_s: dict[int, float] = {}
    while 3 not in at_s:
        for answer in attacker.answers(1, 120):
            if answer[0] == DESCRIPTION:
                at_s[answer[1]] = answer[UPTIME]
    sending.join()
    return at_s[1], at_s[3]


def test_requests_in_line_are_carried_out_after_their_client_has_left(
    server: AttackedServer,
) -> None:
    """Before, the first reply to a closed connection dropped the rest: 1,200 of 4,000 writes."""
    log = server.made("left")
    heavy = [append(log, number, [b""] * 4096) for number in range(1, 501)]
    with Stranger(server.address) as client:
        client.socket.sendall(batch(*heavy))
        assert client.answers(1)
    last = 500 * 4096 - 1
    with Stranger(server.address) as other:
        for call in range(1, 12):
            answer = other.ask([READ, call, log, last, 1, 1 << 20, False, 5.0])
            if answer[3]:
                break
    assert answer[3] == [b""]
