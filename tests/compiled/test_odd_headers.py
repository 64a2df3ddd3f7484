"""Elements with right seals around fragments with odd headers.

A client with the role `write` can store such elements. The library of the erasure code refuses some
headers; the core gives Python's answer for each.
"""

import struct
import zlib

import pytest

from ares.compiled import CORE, fast_path, small_objects
from ares.dap.coding import FRAGMENT_HEADER_BYTES, coding_for
from ares.engine.session import Session
from ares.model.codec import encode
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.errors import ConnectionClosed, Undecodable
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ObjectName, ServerId
from ares.model.messages import PutData, WriteConfig
from ares.model.tag import Tag
from ares.reconfig.view import Switches, View
from ares.registers.operations import read, write
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
    """The core hands over the other read when the round of the old servers has ended."""
    reader = Reader(place)
    for name in (ODD, HONEST):
        reader.read(name)
    reader.exchange("s")
    assert HONEST not in reader.ends
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


SUMMED_BYTES = 59
MAGIC_AT, VERSION_AT, SUM_AT = 59, 63, 67
VALUE = bytes(range(1, 101))


def _flipped(place, flip, is_summed):
    def change(part):
        part[place] ^= flip
        if is_summed:
            struct.pack_into("<I", part, SUM_AT, zlib.crc32(part[:SUMMED_BYTES]))

    return change


def _version(number, sum_bits=0):
    def change(part):
        struct.pack_into("<I", part, VERSION_AT, number)
        part[SUM_AT] ^= sum_bits

    return change


def _other_endian(part):
    for start in (MAGIC_AT, VERSION_AT, SUM_AT):
        part[start : start + 4] = part[start : start + 4][::-1]


def _cut(part):
    del part[-1]


def _longer(part):
    part.append(0)


CHANGES = {
    f"{place}^{flip}{'+sum' if is_summed else ''}": _flipped(place, flip, is_summed)
    for place in range(FRAGMENT_HEADER_BYTES)
    for flip in (1, 0x80)
    for is_summed in (False, True)
} | {
    "version 0": _version(0),
    "1.1.9, other sum": _version(0x10109, 1),
    "1.2.0": _version(0x10200),
    "1.2.0, other sum": _version(0x10200, 1),
    "newer": _version(0xFFFFFFFF),
    "other endian": _other_endian,
    "cut": _cut,
    "longer": _longer,
    "none": lambda part: None,
}
HONEST_CHANGES = {"none", "1.2.0", "newer"}
"""Changes after which the library takes a header, and the core, too."""


def _ends(silent, changed, is_compiled, monkeypatch):
    """Read values whose elements ``changed`` have odd headers, while a server is ``silent``.

    Return the ends by change, and the names of the objects read in Python.
    """
    first = Configuration.ec(OLD, 3).at(DEFAULT_DOMAIN, 0)
    session = Session(3, fast_path=fast_path() if is_compiled else None)
    view = View(ClientId(7), first, Switches(), session.readiness)
    replicas = {each.id: Replica(each.id, each.identity, first) for each in OLD}
    in_python, ends, tag = set(), {}, Tag(5, ClientId(9))

    def read_in_python(view, name):
        in_python.add(name)
        return read(view, name)

    monkeypatch.setattr("ares.compiled.read", read_in_python)
    parts = coding_for(first).encode(VALUE)
    for change in CHANGES:
        for index, server in enumerate(OLD):
            part = bytearray(parts[index][0])
            if index in changed:
                CHANGES[change](part)
            name = ObjectName(change)
            element = sealed(first.id, name, tag, index, len(VALUE), (bytes(part),))
            replicas[server.id].handle(PutData(CallId(1), first.id, name, tag, element))

    def exchange():
        for _ in range(8):
            for server, messages in session.take_outbox().items():
                if server != silent:
                    answers = [replicas[server].handle(message) for message in messages]
                    session.receive_frames(server, encode(answers), session.now)

    session.start(write(view, MET, b""), "write", 0.0, 9.0, lambda *_: None)
    exchange()
    small = small_objects(session, view) if is_compiled else None
    for change in CHANGES:

        def done(result, error, change=change):
            ends[change] = (getattr(result, "value", None), repr(error))

        name = ObjectName(change)
        if small is None or not small.read(name, done, session.now, session.now + 9.0):
            session.start(read(view, name), "read", session.now, session.now + 9.0, done)
    exchange()
    for tick in range(1, 12):
        session.tick(tick * 1.0)
        exchange()
    assert not session.jobs
    return ends, in_python


@pytest.mark.parametrize("silent", ["s0", "s4"], ids=["parity", "slices"])
@pytest.mark.parametrize("changed", [{2}, {0, 1, 2, 3, 4}], ids=["one", "all"])
def test_the_core_answers_odd_headers_as_python_does(silent, changed, monkeypatch):
    ends, in_python = _ends(silent, changed, True, monkeypatch)
    assert ends == _ends(silent, changed, False, monkeypatch)[0]
    assert {value for value, _ in ends.values()} == {VALUE, None}
    assert in_python.isdisjoint(HONEST_CHANGES)
