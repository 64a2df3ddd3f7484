"""Elements that the core reads and the erasure code's library refuses, met during a move.

Their seals are right, and a byte of the header of their fragments is wrong: a client with the role
`write` can store them.
"""

import pytest

from ares.compiled import CORE, fast_path, small_objects
from ares.dap.coding import coding_for
from ares.engine.session import Session
from ares.model.codec import encode
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.errors import ConnectionClosed, Undecodable
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ObjectName, ServerId
from ares.model.messages import PutData, WriteConfig
from ares.model.tag import Tag
from ares.reconfig.view import Switches, View
from ares.registers.operations import write
from ares.replica.replica import Replica

pytestmark = pytest.mark.skipif(CORE is None, reason="this tests the compiled core: make core")

ODD_PLACES = [20, 31, 39, 59, 67]
"""Places in the header: sums, versions, the magic number."""

OLD, NEW = (
    tuple(
        Server(ServerId(f"{letter}{i}"), f"h{letter}{i}:1", f"{i + first:032x}") for i in range(5)
    )
    for letter, first in (("s", 0), ("t", 9))
)
ODD, HONEST, MET = ObjectName("odd"), ObjectName("honest"), ObjectName("met")


class Reader:
    """A client in the middle of a move. ``ends``: results and errors of its reads, by name."""

    def __init__(self, place: int) -> None:
        first = Configuration.ec(OLD, 3).at(DEFAULT_DOMAIN, 0)
        pending = Successor(
            Configuration.ec(NEW, 3).at(DEFAULT_DOMAIN, 1, first.id), Status.PENDING
        )
        self.session = Session(3, fast_path=fast_path())
        view = View(ClientId(7), first, Switches(), self.session.readiness)
        self.small = small_objects(self.session, view)
        self.replicas = {each.id: Replica(each.id, each.identity, first) for each in OLD + NEW}
        self.ends: dict[ObjectName, tuple[object, BaseException | None]] = {}
        view.sequence.add(first, pending)
        for index, server in enumerate(OLD):
            replica, call, tag = self.replicas[server.id], CallId(1), Tag(5, ClientId(9))
            replica.handle(WriteConfig(call, first.id, pending))
            for name, value in ((ODD, b"odd"), (HONEST, b"honest")):
                part = bytearray(coding_for(first).encode(value)[index][0])
                if name is ODD:
                    part[place] ^= 0x41
                element = sealed(first.id, name, tag, index, len(value), (bytes(part),))
                replica.handle(PutData(call, first.id, name, tag, element))
        write_both = write(view, MET, b"")  # the core asks servers that were met
        self.session.start(write_both, "write", 0.0, 3.0, lambda *_: None)
        self.exchange()

    def read(self, name: ObjectName) -> None:
        def done(result: object, error: BaseException | None) -> None:
            self.ends[name] = (getattr(result, "value", None), error)

        assert self.small.read(name, done, 0.0, 3.0)

    def exchange(self, letter: str = "") -> None:
        """Bring messages to the servers whose names begin with ``letter``, and the answers back."""
        for _ in range(8):
            for server, messages in self.session.take_outbox().items():
                answers = [self.replicas[server].handle(message) for message in messages]
                if server.startswith(letter) and (told := [each for each in answers if each]):
                    self.session.receive_frames(server, encode(told), self.session.now)


@pytest.mark.parametrize("place", ODD_PLACES)
def test_an_undecodable_element_fails_the_read_of_its_object_alone(place):
    """The round of the old servers has ended when the core hands the reads over."""
    reader = Reader(place)
    for name in (ODD, HONEST):
        reader.read(name)
    reader.exchange("s")
    assert not reader.ends
    for tick in range(1, 4):
        reader.session.tick(0.6 * tick)
        reader.exchange()
    assert isinstance(reader.ends[ODD][1], Undecodable)
    assert reader.ends[HONEST] == (b"honest", None)
    assert not reader.session.jobs


def test_a_session_with_an_undecodable_element_can_be_closed():
    reader = Reader(ODD_PLACES[0])
    for name in (ODD, HONEST):
        reader.read(name)
    reader.exchange("s")
    reader.session.close(ConnectionClosed)
    assert isinstance(reader.ends[ODD][1], Undecodable)
    assert isinstance(reader.ends[HONEST][1], ConnectionClosed)
