"""A run of EC-DAP with more than delta writers, in which a read goes back, message by message.

n is 4, k is 2, and delta is 1. Tag t2 is complete at s0, s1 and s2. Two incomplete writes push t2
out of the Lists of s0 and s1.
"""

from typing import Any, NamedTuple

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN, ObjectName
from ares.model.messages import GetData, PutData, QueryList
from ares.model.tag import Tag
from ares.registers.operations import read
from ares.testing.published.ares2 import Ares2Client
from tests.paper.scripted_world import Script
from tests.protocol.protocol_world import Pending, ProtocolClient, ProtocolWorld, servers

C0 = Configuration.ec(servers(0, 1, 2, 3), 2, 1).at(DEFAULT_DOMAIN, 0)
X = ObjectName("x")


class DrawnRead(NamedTuple):
    """The tag and the value of the run's read, and the run's diagram."""

    tag: Tag
    value: Any
    diagram: list[str]


class ReadGoingBack:
    """The schedule up to the read; ``completed``: the tag of the completed write of b"v2"."""

    def __init__(self) -> None:
        self.script = Script(ProtocolWorld(C0, range(4)), {C0.id: "c0"})
        w, x, y, self.r = map(self.script.join, "wxyr")
        self._write(w, b"v1", ("s0", "s1", "s2", "s3"))
        self.script.clear()
        self.script.say(w, "t1 is at every server")
        self.completed = self._write(w, b"v2", ("s0", "s1", "s2")).result()
        self.script.say(w, "the write of t2 is complete")
        for client, value in ((x, b"v3"), (y, b"v4")):
            assert not self._write(client, value, ("s0", "s1")).ended
        self.script.say(y, "x and y go no further for now")

    def _write(self, client: ProtocolClient, value: bytes, reached: tuple[str, ...]) -> Pending:
        """Write a value at some servers."""
        writer = Ares2Client(client.id, C0)
        writing = client.start(writer.write(X, value))
        drawn = list(self.script.lines), list(self.script.decisive)
        for server in ("s1", "s2", "s3"):
            self.script.ask(client, server, object)
        self.script.lines, self.script.decisive = drawn
        for server in reached:
            self.script.ask(client, server, PutData, decisive=True)
        return writing

    def as_published(self) -> DrawnRead:
        """Read by Alg. 1 and 3; s1, s2 and s3 answer."""
        script, r = self.script, self.r
        reading = script.begin(r, Ares2Client(r.id, C0).read(X), "a read begins")
        for server in ("s1", "s2", "s3"):
            script.ask(r, server, QueryList, decisive=True)
        for server in ("s1", "s2", "s3"):
            script.ask(r, server, PutData)
        tag, value = reading.result()
        script.say(r, f"returns t{tag.number}: the read goes back")
        return DrawnRead(tag, value, script.decisive)

    def with_r7(self) -> DrawnRead:
        """Read as clients of this project do; s1, s2 and s3 answer, and s0 later."""
        script, r = self.script, self.r
        reading = script.begin(r, read(r.view, X), "a read begins")
        for server in ("s1", "s2", "s3"):
            script.ask(r, server, GetData, decisive=True)
        assert not reading.ended
        script.say(r, "cannot decide: t2 may be complete")
        script.ask(r, "s0", GetData, decisive=True)
        script.end(reading)
        found = reading.result()
        script.say(r, f"returns t{found.tag.number}")
        return DrawnRead(found.tag, found.value, script.decisive)
