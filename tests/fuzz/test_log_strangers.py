"""Strangers at servers that host logs, over plain sockets.

The server answers other clients, with bounded memory. Sizes are small; each test says which
resource was unbounded before, or why it cannot be.
"""

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.configuration import Configuration
from ares.model.configuration import Server as Member
from ares.model.identity import CallId, ClientId, DomainName, ServerId
from ares.model.log_messages import (
    Append,
    AwaitAppend,
    Committed,
    Fetch,
    Forward,
    GivenBack,
    LookRow,
    ReadLog,
    Seal,
    TakeBack,
    Trim,
)
from ares.model.messages import REQUEST_KINDS, AnyMessage, Introduce, Reason, Refused
from ares.model.units import MIB
from ares.net.native import ZmtpConnections
from ares.security.keys import SecretKey, keyed
from ares.testing.torture.torture_cluster import TortureCluster

from ..process.command_line import Cli
from .out_of_bounds import message, numbers
from .stranger import (
    ACK,
    APPEND,
    APPENDED,
    COMMITTED,
    DESCRIBE,
    DONE,
    ENTRIES,
    FETCH,
    FETCHED,
    FINALIZED,
    FORWARD,
    GAP,
    INTRODUCE,
    LOOK,
    LOOK_ROW,
    LOOKED,
    READ,
    REFUSED,
    TRIM,
    TRIMMED,
    WRITE_CONFIG,
    Stranger,
    chain,
    id_of,
)

pytestmark = pytest.mark.process

HIGHEST = 2**63 - 1
ABSENT = ["absent", "127.0.0.1:9", "0" * 32]


class AttackedServer:
    """A server with all data in memory, without keys."""

    def __init__(self, home: Path) -> None:
        settings = create(
            home,
            InitPlan(1, 1, base_port=0, security="none", allow_no_faults=True, durability="memory"),
        )
        self.cluster = TortureCluster(settings, None)
        asyncio.run(self.cluster.start())
        self.address, self.pid = (
            settings.servers[ServerId("s0")].address,
            self.cluster.pid(ServerId("s0")),
        )
        self.itself = ["s0", self.address, self.cluster.identity(ServerId("s0"))]
        with Stranger(self.address) as stranger:
            description = stranger.ask([DESCRIBE, 1, True])
        self.name = next(
            field for field in description if isinstance(field, bytes) and len(field) == 16
        )

    def chain(self, name: str, *others: list, index: int = 0, start: int = 0) -> list:
        return chain(name, [self.itself, *others], self.name, index, start)

    def made(self, name: str, *others: list) -> bytes:
        """Make a log with this server as its head."""
        made = self.chain(name, *others)
        with Stranger(self.address) as stranger:
            stranger.send([INTRODUCE, 0, made, []])
            assert stranger.ask([LOOK, 1, id_of(made)])[0] == LOOKED
        return id_of(made)

    @property
    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def processor_s(self) -> float:
        """The processor time of the server, which a busy machine does not add to."""
        return time.clock_gettime((~self.pid << 3) | 2)  # the clock of a process

    def work_before_an_answer_s(self) -> float:
        """Return the processor time that the server takes until another client has an answer."""
        begin_s = self.processor_s
        with Stranger(self.address) as stranger:
            stranger.ask([DESCRIBE, 1, True])
        return self.processor_s - begin_s


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    server = AttackedServer(tmp_path_factory.mktemp("strangers") / "c")
    yield server
    assert server.cluster.ended() == []
    server.cluster.stop()


def append(
    log: bytes,
    number: int,
    entries: list,
    *,
    client: int = 7,
    lowest: int = 1,
    at: int | None = None,
) -> list:
    return [APPEND, number, log, client, number, lowest, 0, entries, at]


@pytest.mark.parametrize("kind", [READ, FETCH])
def test_answers_larger_than_what_asks_for_them_are_made_as_they_are_taken(
    server: AttackedServer, kind: int
) -> None:
    """Large answers are made as the client takes them.

    Earlier releases made gigabytes at once for a batch of a few kilobytes: no other client got an
    answer for minutes.
    """
    log = server.made(f"large-{kind}")
    with Stranger(server.address) as stranger:
        for number in range(1, 17):
            assert stranger.ask(append(log, number, [bytes(MIB)], lowest=number))[3] == DONE
        if kind == FETCH:  # only entries below a known end are handed over
            follower = server.chain(f"large-{kind}", ABSENT, index=1, start=16)
            assert stranger.ask([WRITE_CONFIG, 1, log, [follower, FINALIZED]])[0] == ACK
        before = server.memory_bytes
        question = (
            [READ, 1, log, 0, 65536, 16 * MIB, False, 0.0]
            if kind == READ
            else [FETCH, 1, log, 0, None]
        )
        stranger.send(*[question] * 512)
        assert server.work_before_an_answer_s() < 10
        assert server.memory_bytes - before < 400 * MIB
        assert stranger.answers(3)[0][0] == (ENTRIES if kind == READ else FETCHED)


def test_one_append_that_ends_many_waiting_reads_makes_few_large_answers(
    server: AttackedServer,
) -> None:
    log = server.made("held")
    with Stranger(server.address) as followers, Stranger(server.address) as writer:
        followers.send(
            *[[READ, number, log, 0, 65536, 16 * MIB, False, 60.0] for number in range(1, 2001)]
        )
        at_once = followers.answers(1000)
        assert len(at_once) == 1000, "a thousand wait, and no more"
        before = server.memory_bytes
        assert writer.ask(append(log, 1, [bytes(MIB)] * 4))[3] == DONE
        assert server.work_before_an_answer_s() < 10
        assert server.memory_bytes - before < 200 * MIB
        told = followers.answers(1000)
        assert len(told) == 1000
        assert 1 <= sum(bool(answer[3]) for answer in told) <= 3, "the others ask again, in turn"


def test_numbers_that_a_client_leaves_unanswered_are_bounded(server: AttackedServer) -> None:
    """A row has a place for each number from ``lowest`` on.

    In earlier releases the row grew with every append, beyond the size of an answer to LookRow.
    """
    log = server.made("rows")
    with Stranger(server.address) as stranger:
        assert stranger.ask(append(log, HIGHEST, [b""]))[0] == REFUSED
        assert stranger.ask(append(log, 65_536, [b""]))[3:5] == [GAP, 1]
        assert stranger.ask(append(log, 65_537, [b""]))[0] == REFUSED
        assert stranger.ask(append(log, 5, [b""], lowest=HIGHEST))[0] == REFUSED
        assert stranger.ask(append(log, HIGHEST, [b"x"], lowest=HIGHEST, client=8))[3] == DONE
        assert stranger.ask([TRIM, 1, log, HIGHEST])[:3] == [TRIMMED, 1, False]
        assert stranger.ask([TRIM, 2, log, 1])[2] is True


def test_appends_that_wait_for_what_never_comes_are_bounded(server: AttackedServer) -> None:
    """Conditional appends wait for a dirty position, for the chain's tail does not exist.

    Other appends wait for rows that no node can send.
    """
    dirty = server.made("dirty", ABSENT)
    below = chain("below", [ABSENT, ["absent-too", "127.0.0.1:9", "1" * 32]], server.name)
    above = server.chain("below", ABSENT, index=1, start=10)
    with Stranger(server.address) as stranger:
        stranger.send([INTRODUCE, 0, above, [below]], append(dirty, 1, [b"x"]))
        before = server.memory_bytes
        waiting = [Stranger(server.address) for _ in range(60)]
        for number, other in enumerate(waiting):
            other.send(append(dirty, 1, [bytes(MIB)] * 3, client=100 + number, at=0))
        for number in range(60):
            stranger.send(append(id_of(above), 1, [bytes(MIB)] * 3, client=200 + number))
        assert server.work_before_an_answer_s() < 5
        assert server.memory_bytes - before < 200 * MIB
        for other in waiting:
            other.__exit__()


def test_numbers_out_of_bounds_end_neither_a_log_nor_its_timer(server: AttackedServer) -> None:
    """An append by a client with an id below 0 stopped the timer: held reads got no answers."""
    log = server.made("bounds")
    with Stranger(server.address) as reader, Stranger(server.address) as stranger:
        held = [READ, 1, log, 0, 1, MIB, False, 5.0]
        reader.send(held)
        batches = [
            message(kind.__name__, field, value)
            for kind in REQUEST_KINDS
            for field in numbers(kind.__name__)
            for value in field.beyond
        ]
        for batch in batches:
            if batch[0] in range(APPEND, APPEND + 11):
                batch[2] = log
            stranger.send(batch)
        refusals = stranger.answers(len(batches))
        assert {(answer[0], answer[1]) for answer in refusals} == {(REFUSED, 0)}
        assert len(refusals) == len(batches) > 300
        stranger.send(append(log, 1, [b""], client=-1), append(log, 1, [b""]))
        assert stranger.answers(1)[0][:2] == [REFUSED, 0], "nothing of a bad batch is used"
        assert reader.answers(1)[0][:4] == [ENTRIES, 1, 0, []], "the timer goes on"


def test_names_of_servers_that_are_in_no_chain_are_not_kept(server: AttackedServer) -> None:
    log = server.made("names")
    with Stranger(server.address) as stranger:
        before = server.memory_bytes
        for batch in range(100):
            stranger.send(
                *[
                    [COMMITTED, 1, log, f"{batch}-{number}-{'x' * 500}", 0, 0, 0, False]
                    for number in range(1000)
                ]
            )
        stranger.send([FORWARD, 1, log, "absent", 0, [], HIGHEST])
        assert stranger.ask([LOOK, 2, log])[:5] == [LOOKED, 2, False, 0, 0]
        assert server.memory_bytes - before < 20 * MIB


def test_many_successors_cost_each_the_same(server: AttackedServer) -> None:
    """Each new successor was compared with all known successors and their servers.

    4000 successors took a minute.
    """
    log, others = (
        server.made("bombs"),
        [[f"z{number}", "127.0.0.1:9", "0" * 32] for number in range(31)],
    )
    spent = []
    with Stranger(server.address) as stranger:
        for batch in range(15):
            begin_s = server.processor_s
            bombs = [
                server.chain("bombs", *others, index=1 + 100 * batch + number)
                for number in range(100)
            ]
            stranger.send(*[[WRITE_CONFIG, 1, log, [bomb, FINALIZED]] for bomb in bombs])
            assert {answer[0] for answer in stranger.answers(100)} == {ACK}
            spent.append(server.processor_s - begin_s)
    assert min(spent[-5:]) < 5 * min(spent[:5]) + 0.05


def test_a_server_speaks_to_the_neighbours_of_a_chain_only_when_there_is_something_to_say(
    server: AttackedServer,
) -> None:
    """Check that the server connects only to its successor in the chain, after an append.

    The chain names 32 servers at invented addresses.
    """
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.settimeout(0.5)
        address = f"127.0.0.1:{trap.getsockname()[1]}"
        log = server.made("far", *[[f"far{number}", address, "0" * 32] for number in range(31)])
        with pytest.raises(TimeoutError):
            trap.accept()
        with Stranger(server.address) as stranger:
            stranger.send(append(log, 1, [b"x"]))
            trap.settimeout(60)
            trap.accept()[0].close()
            trap.settimeout(0.3)
            assert server.work_before_an_answer_s() < 5


def test_a_name_of_the_cluster_stays_where_the_cluster_file_has_it(server: AttackedServer) -> None:
    """A chain with another address for a server of the cluster diverts no message.

    The first address that was learned stands.
    """
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.settimeout(1)
        diverted = ["s0", f"127.0.0.1:{trap.getsockname()[1]}", server.itself[2]]
        log = chain("diverted", [["absent", "127.0.0.1:9", "0" * 32], diverted], server.name)
        with Stranger(server.address) as stranger:
            stranger.send([INTRODUCE, 0, log, []], [LOOK_ROW, 1, id_of(log), 7, 0, None])
            assert server.work_before_an_answer_s() < 5
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_sender_that_vanishes_leaves_nothing_that_stops_others(server: AttackedServer) -> None:
    log = server.made("gone")
    for number in range(1, 21):
        with Stranger(server.address) as stranger:
            stranger.send(
                append(log, number, [bytes(1000)], lowest=number),
                [READ, 1, log, 1000, 1, 1, False, 60.0],
            )
    with Stranger(server.address) as stranger:
        answer = stranger.ask(append(log, 21, [b"x"], lowest=21))
        while answer[3] == GAP:
            answer = stranger.ask(append(log, answer[4], [b"x"], lowest=answer[4]))
        assert (answer[0], answer[3]) == (APPENDED, DONE)


def test_a_key_that_only_reads_makes_no_log_and_changes_none(tmp_path: Path) -> None:
    """With keys, forged server messages, undecided successors and changes to a log are refused.

    This holds for every sender.
    """
    settings = create(
        tmp_path / "c",
        InitPlan(1, 1, base_port=0, security="curve", allow_no_faults=True, durability="memory"),
    )
    assert settings.security is not None
    made = Cli(tmp_path / "c").json("keys", "new", "reader", "--role", "read")
    secret = settings.security.client_key(made["secret"])
    asyncio.run(_refused_a_reader(settings, secret))


async def _refused_a_reader(settings: Settings, secret: SecretKey) -> None:
    cluster, server = TortureCluster(settings, None), settings.servers[ServerId("s0")]
    try:
        await cluster.start()
        log = Configuration.chain(
            [Member(server.id, server.address, cluster.identity(server.id))], allow_no_faults=True
        )
        log = log.at(DomainName("stolen"), 0, settings.initial.id)
        told: asyncio.Queue[AnyMessage] = asyncio.Queue()
        connections = ZmtpConnections(secret)
        connections.open(
            lambda _, messages: [told.put_nowait(message) for message in messages] and None
        )
        connections.learn(server.id, keyed(server.address, server.public_key))
        questions = {
            Reason.NOT_CERTIFIED: [Introduce(CallId(1), log)],
            Reason.NOT_AUTHORIZED: [
                Forward(CallId(2), log.id, server.id, 0, (), 0),
                Committed(CallId(3), log.id, server.id, 0, 0, 0),
                TakeBack(CallId(10), log.id, server.id, 1, 0),
                GivenBack(CallId(11), log.id, server.id, 1, 1, (), 0),
                AwaitAppend(CallId(12), log.id, ClientId(1), 1),
                Append(CallId(4), log.id, ClientId(1), 1, 1, 0, (b"x",)),
                Trim(CallId(5), log.id, 1),
                Seal(CallId(6), log.id),
                Fetch(CallId(8), log.id, 0, None),
                LookRow(CallId(9), log.id, 1, 0, None),
            ],
            Reason.UNKNOWN_CONFIGURATION: [ReadLog(CallId(7), log.id, 0)],
        }
        for reason, asked in questions.items():
            for question in asked:
                connections.post(server.id, [question])
                refusal = await asyncio.wait_for(told.get(), 60)
                assert isinstance(refusal, Refused), question
                assert (refusal.call, refusal.reason) == (question.call, reason), question
        await connections.close()
        assert cluster.ended() == []
    finally:
        cluster.stop()
