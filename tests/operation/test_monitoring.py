"""/health and /metrics of servers and members in this process, with the reasons for 503.

See ares/server/monitor.py.
"""

import threading
import time

import pytest

from ares.metrics import DISK_S_BUCKETS, Histogram, ListenerTraffic
from ares.model.errors import ConsensusUnavailable
from ares.model.messages import ConsensusDescription
from ares.net.transports import listener_at
from ares.server import monitor as monitoring
from ares.server.monitor import Monitor, WatchedMember, WatchedServer
from ares.server.storage_server import StorageServer
from tests.journal.journal_node import KIB, Node, log_journal, plain, put, requests
from tests.journal.test_journal_full_disk import SmallDisk, fill, host_of
from tests.ports import free_addresses

from .pages import elsewhere, fetch, health, samples


@pytest.fixture
async def monitor():
    [address] = free_addresses(1)
    traffic = ListenerTraffic()
    listener = listener_at("127.0.0.1:0", traffic=traffic)
    await listener.serve(lambda sender, messages: [])
    made = Monitor("s1", address, traffic, listener)
    made.start()
    made.address = address
    yield made
    made.close()
    await listener.close()


async def test_pages_of_a_server_from_start_to_end(monitor):
    status, told = await elsewhere(health, monitor.address)
    assert (status, told) == (503, {"id": "s1", "serving": False, "why": "it is starting"})
    assert (await elsewhere(fetch, monitor.address, "/metrics"))[0] == 503
    percents = iter([10, 20, 30])
    monitor.starting(lambda: f"starting: {next(percents)} % of its journal is read")
    for percent in (10, 20):
        status, told = await elsewhere(health, monitor.address)
        assert (status, told["serving"]) == (503, False)
        assert told["why"] == f"starting: {percent} % of its journal is read"
    status, page = await elsewhere(fetch, monitor.address, "/metrics")
    assert (status, page) == (503, "starting: 30 % of its journal is read\n")
    monitor.watch(WatchedServer(StorageServer(plain(requests(20))), Histogram(DISK_S_BUCKETS)))
    status, told = await elsewhere(health, monitor.address)
    assert status == 200
    assert (told["serving"], told["kind"], told["durable"], told["configurations"]) == (
        True,
        "server",
        False,
        2,
    )
    status, page = await elsewhere(fetch, monitor.address, "/metrics")
    assert (status, samples(page)["ares_serving"]) == (200, 1)
    monitor.ending()
    status, told = await elsewhere(health, monitor.address)
    assert (status, told["why"]) == (503, "it is stopping")
    assert samples((await elsewhere(fetch, monitor.address, "/metrics"))[1])["ares_serving"] == 0


async def test_an_event_loop_that_is_stuck_is_told(monitor, monkeypatch):
    monkeypatch.setattr(monitoring, "LOOP_ANSWER_S", 0.05)
    monitor.watch(WatchedServer(StorageServer(plain([])), Histogram(DISK_S_BUCKETS)))
    told, done = [], threading.Event()

    def ask():
        for _ in range(3):
            told.append(health(monitor.address))
        told.append(fetch(monitor.address, "/metrics"))
        done.set()

    asking = threading.Thread(target=ask)
    asking.start()
    while not done.is_set():
        time.sleep(0.01)  # noqa: ASYNC251 (the loop is held up on purpose)
    asking.join()
    assert [status for status, _ in told] == [503, 503, 503, 200]
    assert "its event loop has not answered" in told[0][1]["why"]
    assert samples(told[3][1])["ares_serving"] == 0
    monkeypatch.undo()  # otherwise a loop that is late for a moment counts as stuck
    status, _ = await elsewhere(health, monitor.address)
    assert status == 200


async def test_a_full_disk_is_told_and_told_to_be_over(monitor, tmp_path):
    disk = SmallDisk(400 * KIB)
    node = Node(log_journal(tmp_path / "j", disk))
    host, later, failures = host_of(node)
    monitor.watch(WatchedServer(host, Histogram(DISK_S_BUCKETS)))
    assert (await elsewhere(health, monitor.address))[0] == 200
    taken = await fill(host, later)
    status, told = await elsewhere(health, monitor.address)
    assert status == 503
    assert "its disk is full" in told["why"]
    disk.room += 200 * KIB
    assert (await elsewhere(health, monitor.address))[0] == 200
    assert await fill(host, later) > 0
    assert (taken > 0, failures) == (True, [])


async def test_the_look_at_the_disk_leaves_nothing_behind(tmp_path):
    node = Node(log_journal(tmp_path / "j"))
    host, _, _ = host_of(node)
    for number in range(1, 100):
        assert host.vitals().trouble == ""
        host.handle("client", [put("a", number, b"d" * 3 * KIB)])
        await host.settle()
    assert Node(log_journal(tmp_path / "j")).state == node.state


class Member:
    def __init__(self):
        self.leader = "r0"

    async def describe(self):
        if self.leader is None:
            raise ConsensusUnavailable("member r0 stopped because its disk failed")
        return ConsensusDescription(0, "r0", self.leader, 1, 2, 3, 3), 0, 0


async def test_a_member_serves_if_it_knows_a_leader(monitor):
    member = Member()
    monitor.watch(WatchedMember(member))
    status, told = await elsewhere(health, monitor.address)
    assert (status, told["leader"], told["members"]) == (200, "r0", 3)
    member.leader = ""
    status, told = await elsewhere(health, monitor.address)
    assert status == 503
    assert "knows no leader" in told["why"]
    member.leader = None
    status, told = await elsewhere(health, monitor.address)
    assert status == 503
    assert "disk failed" in told["why"]
    status, page = await elsewhere(fetch, monitor.address, "/metrics")
    assert (status, samples(page)["ares_serving"]) == (200, 0)
