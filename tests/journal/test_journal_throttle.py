"""A durable server with too many waiting facts: it accepts no more, and memory stays bounded.

Clients wait.
"""

import asyncio
import itertools

from ares.model.units import KIB
from ares.server.storage_server import ServerParts, StorageServer

from .journal_node import AtOnce, Node, log_journal, put


class Tap:
    """A transport's tap that records whether requests may pass."""

    def __init__(self) -> None:
        self.opened = True
        self.turned = 0

    def pause(self) -> None:
        self.turned += self.opened
        self.opened = False

    def resume(self) -> None:
        self.turned += not self.opened
        self.opened = True


async def test_requests_are_kept_away_while_much_waits_for_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("ares.server.storage_server.GATHERED_BYTES_MAX", 100 * KIB)
    background, tap, answered = AtOnce(waiting=True), Tap(), []
    node = Node(log_journal(tmp_path / "j", background=background))
    host = StorageServer(
        node.replica,
        node.journal,
        ServerParts(
            lambda sender, replies: answered.extend(replies), lambda error: None, throttle=tap
        ),
    )

    names = itertools.count()

    def take(count):
        for name in itertools.islice(names, count):
            assert host.handle("client", [put(f"{name}", 1, bytes(10 * KIB))]) == []

    take(5)
    await asyncio.sleep(0)  # they are being committed, and the next gather
    take(9)
    assert tap.opened
    take(2)
    assert not tap.opened
    background.step()
    await asyncio.sleep(0)
    assert tap.opened, "what had gathered is on its way"
    background.step()
    assert len(answered) == 16
    assert tap.turned == 2


async def test_little_data_at_a_time_stops_no_client(tmp_path, monkeypatch):
    """The control: little data at a time stops no client."""
    monkeypatch.setattr("ares.server.storage_server.GATHERED_BYTES_MAX", 100 * KIB)
    background, tap = AtOnce(waiting=True), Tap()
    node = Node(log_journal(tmp_path / "j", background=background))
    host = StorageServer(
        node.replica,
        node.journal,
        ServerParts(lambda sender, replies: None, lambda error: None, throttle=tap),
    )
    for number in range(50):
        host.handle("client", [put(f"{number}", 1, bytes(10 * KIB))])
        await asyncio.sleep(0)
        background.step()
    assert tap.turned == 0
