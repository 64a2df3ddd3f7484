"""A run of ARES II as printed in which a completed write is lost, message by message.

The servers are s0, s1 and s2. The write is stored at {s1, s2}, the mover tells {s0, s1} of the next
configuration, and asks {s0, s2} for the data.
"""

from typing import Any, NamedTuple

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN, ObjectName
from ares.model.messages import CollectConfig, PutData, QueryList, WriteConfig
from ares.model.value import TOMBSTONE
from ares.testing.published.ares2 import Ares2Client, Ares2Switches
from tests.paper.scripted_world import Script
from tests.protocol.protocol_world import ProtocolClient, ProtocolWorld, servers

C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
C1 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 1, C0.id)
X = ObjectName("x")


class DrawnRun(NamedTuple):
    """The value of the run's read, the diagram of all messages, and of the decisive messages."""

    value: Any
    lines: list[str]
    decisive: list[str]


def losing_run(r1: bool) -> DrawnRun:
    """Read after a completed write of b"new", with all modifications of ARES II.

    With rule R1 the same schedule goes on in the order of sending where the decisive messages end.
    """
    script = Script(ProtocolWorld(C0, range(3)), {C0.id: "c0", C1.id: "c1"})
    w, g, r = map(script.join, "wgr")
    writer, mover, reader = (
        Ares2Client(client.id, C0, Ares2Switches(r1=r1)) for client in (w, g, r)
    )
    writing = w.start(writer.write(X, b"new"))
    moving = g.start(mover.reconfig(C1, [X]))
    _first_rounds(script, w, g)
    script.clear()
    script.say(w, "has asked s0 and s1: t0, no successor")
    script.say(g, "has asked s0 and s1: no successor. Decided: c1")
    script.ask(w, "s1", PutData, decisive=True)
    for server in ("s0", "s1"):
        script.ask(g, server, WriteConfig, decisive=True)
    for server in ("s0", "s2"):
        script.ask(g, server, QueryList, decisive=True)
    for kind in (QueryList, PutData):
        for server in ("s0", "s1"):
            script.ask(g, server, kind)
    script.ask(w, "s2", PutData, decisive=True)
    if writing.ended:
        script.say(w, "the write is complete at s1 and s2")
    for kind in (WriteConfig, CollectConfig):
        for server in ("s0", "s1"):
            script.ask(g, server, kind, decisive=kind is WriteConfig)
    assert moving.ended
    script.say(g, "the reconfiguration is complete")
    script.end(writing)
    reading = script.begin(r, reader.read(X), "a read begins")
    for kind in (QueryList, WriteConfig, QueryList):
        for server in ("s0", "s1"):
            script.ask(r, server, kind, decisive=kind is QueryList and server == "s0")
    script.end(reading)
    value = reading.result()[1]
    script.say(r, f"returns {'v0, the value before the write' if value is TOMBSTONE else 'v1'}")
    return DrawnRun(value, script.lines, script.decisive)


def _first_rounds(script: Script, w: ProtocolClient, g: ProtocolClient) -> None:
    """Let the writer ask for tags, and the mover for the sequence."""
    for client in (w, g):
        for server in ("s0", "s1"):
            script.ask(client, server, object)
