"""A session's report on an operation: phases under their given names, rounds, and answers."""

from collections import deque
from pathlib import Path

import pytest

import ares
from ares.dap.primitives import DataAccess
from ares.engine import recording as subject
from ares.engine.effects import Agree, Pause, Together
from ares.engine.phases import (
    CHAIN,
    CONSENSUS,
    DECODE,
    ENCODE,
    LOAD,
    PAUSE,
    PHASE_1,
    PHASE_2,
    PHASES,
    PUT_DATA,
    QUEUE,
    READ_OBJECT,
    ROUND,
    SETTLED,
    WRITE_OBJECT,
    phase,
)
from ares.engine.recording import Recording
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import Unavailable
from ares.model.identity import DEFAULT_DOMAIN, ClientId, ConfigurationId
from ares.model.message import TRACE_BYTES
from ares.model.messages import (
    Describe,
    Description,
    GetTag,
    Introduce,
    PutData,
    Reason,
    Refused,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.reconfig import copy_ahead
from ares.reconfig.traversal import get_next_config
from ares.reconfig.view import Switches, View
from ares.registers.operations import propagate, query, read, write, write_above
from ares.registers.survey import describe_servers
from ares.replica.replica import Replica
from ares.testing.published.ec_dap import EcDap

from ..unit.session_rig import Rig, once

EC = Configuration.ec([f"s{number}" for number in range(5)], 3, 2).at(DEFAULT_DOMAIN, 0)


class Traced(Rig):
    """A rig whose servers answer at a call of the test, sequentially, a second apart."""

    def __init__(self, contexts=None):
        super().__init__()
        self.computed = deque()
        self.recording = Recording("an operation", lambda: self.now, self.computed, contexts)
        self.replicas = {
            server.id: Replica(server.id, server.identity, EC) for server in EC.servers
        }
        self.view = View(ClientId(7), EC, Switches(), self.session.readiness)

    def run(self, operation, **more):
        self.start(operation, recording=self.recording, **more)

    def answer(self):
        for server, messages in self.sent().items():
            self.now += 1.0
            replies = [
                self.replicas[server].handle(message)
                for message in messages
                if not isinstance(message, Introduce)
            ]
            self.reply(server, *replies)

    def names(self):
        """Return the name of every part, under its parents' names."""

        def path(part):
            return part.name if part.parent is None else f"{path(part.parent)}/{part.name}"

        return [path(part).removeprefix("an operation/") for part in self.recording.parts[1:]]

    def part(self, name):
        [part] = [part for part in self.recording.parts if part.name == name]
        return part


def test_a_write_is_its_two_phases_and_a_round_in_each():
    rig = Traced()
    rig.run(write(rig.view, "x", b"value"))
    rig.answer()
    rig.answer()
    assert rig.value.number == 1
    assert rig.names() == [
        WRITE_OBJECT,
        f"{WRITE_OBJECT}/Phase1",
        f"{WRITE_OBJECT}/Phase1/GetTag",
        f"{WRITE_OBJECT}/Phase1/GetTag/CommunicationLatency",
        f"{WRITE_OBJECT}/Phase2",
        f"{WRITE_OBJECT}/Phase2/PutData",
        f"{WRITE_OBJECT}/Phase2/PutData/CommunicationLatency",
    ]
    whole, query, put = (rig.part(name) for name in (WRITE_OBJECT, PHASE_1, PHASE_2))
    assert (whole.began_s, query.began_s, query.ended_s, put.began_s) == (0.0, 0.0, 4.0, 4.0)
    assert put.ended_s == whole.ended_s == 9.0  # the fifth answer to get-tag came in between


def test_the_newest_tag_of_a_list_is_recorded():
    rig = Traced()
    element = sealed(EC.id, "x", Tag(3, 1), 0, 5, (b"12",))
    rig.replicas["s0"].handle(PutData(1, EC.id, "x", Tag(3, 1), element))
    rig.run(EcDap(EC).get_data("x"))
    rig.answer()
    heard = {reply.server: reply.tag for reply in rig.part(ROUND).heard}
    assert (heard["s0"], heard["s1"]) == (Tag(3, 1), TAG_ZERO)


def test_a_renamed_function_keeps_the_names_of_its_phases(monkeypatch):
    names = []
    for renamed in ("query", "search"):
        for function in (write, query, write_above, propagate, DataAccess.get_tag):
            monkeypatch.setattr(function, "__name__", renamed)
        rig = Traced()
        rig.run(write(rig.view, "x", b"value"))
        rig.answer()
        names.append(rig.names())
    assert names[0] == names[1]
    assert names[0][2] == f"{WRITE_OBJECT}/Phase1/GetTag"


def test_the_page_about_traces_names_every_phase():
    package = Path(ares.__file__).parent
    page = (package.parent / "docs/tracing.md").read_text(encoding="utf-8")
    assert copy_ahead.__file__, "modules with phases are imported, whichever tests run"
    table = page[page.index("| span |") :]
    given = {PHASES[function.__code__] for function in (write, read, query, DataAccess.put_data)}
    assert given == {WRITE_OBJECT, READ_OBJECT, PHASE_1, PUT_DATA}
    waits = {ROUND, SETTLED, LOAD, ENCODE, DECODE, CONSENSUS, PAUSE, QUEUE, CHAIN}
    names = {
        name for code, name in PHASES.items() if Path(code.co_filename).is_relative_to(package)
    }
    assert [name for name in sorted(names | waits) if f"`{name}`" not in table] == []


def test_a_round_records_the_answering_servers_and_times():
    rig = Traced()
    rig.run(read(rig.view, "x"))
    rig.answer()
    part = rig.part(ROUND)
    assert (part.what, part.configuration, part.needed, len(part.asked)) == ("get-data", EC, 4, 5)
    assert [heard.at_s for heard in part.heard] == [1.0, 2.0, 3.0, 4.0]
    assert (part.began_s, part.ended_s, part.failed) == (0.0, 4.0, "")
    assert rig.part(SETTLED).began_s == 4.0


def test_a_round_that_fails_says_why_and_what_was_sent_again():
    rig = Traced()
    rig.run(once(give_up_s=3.0), timeout_s=10.0)
    for _ in range(4):
        rig.tick(1.0)
    assert isinstance(rig.error, Unavailable)
    part = rig.part(ROUND)
    assert (part.failed, part.sent_again, part.heard) == ("Unavailable", 2, [])
    assert all(part.ended_s is not None for part in rig.recording.parts)


def test_a_round_tells_when_it_asked_the_servers_that_it_spared_and_which_refused():
    rig = Traced()
    rig.session.readiness.turn = 1  # no probe
    rig.run(read(rig.view, "x"))
    first = rig.sent()
    [spared] = set(EC.server_ids) - set(first)
    *answering, refusing, silent = first
    rig.session.connected_s = {answering[0]: 0.5}
    rig.now = 1.0
    for server in answering:
        rig.reply(server, *map(rig.replicas[server].handle, first[server]))
    rig.reply(refusing, Refused(first[refusing][0].call, Reason.STORAGE, "a full disk"))
    part = rig.part(ROUND)
    assert (part.spared, part.spared_asked_s, part.refused) == ((spared,), 1.0, (refusing,))
    assert [heard.connected_s for heard in part.heard] == [0.5, None]
    assert silent not in {heard.server for heard in part.heard}


def test_a_server_that_was_spared_is_asked_with_what_is_sent_again():
    rig = Traced()
    rig.session.readiness.turn = 1  # no probe
    rig.run(read(rig.view, "x"), timeout_s=10.0)
    rig.tick(1.0)
    part = rig.part(ROUND)
    assert (len(part.spared), part.spared_asked_s) == (1, 1.0)


def test_a_round_lasts_until_it_goes_on_without_silent_servers():
    """The wait for them was taken for the judgement of the replies."""
    rig = Traced()
    rig.run(describe_servers(EC.servers, 2.0))
    sent = rig.sent()
    for server in EC.server_ids[:4]:
        [call] = [message.call for message in sent[server] if isinstance(message, Describe)]
        rig.reply(server, Description(call, server, server, b"", "1.0", 0.0, 0, ()))
    for _ in range(3):
        rig.tick(1.0)
    assert set(rig.value) == set(EC.server_ids[:4])
    part = rig.part(ROUND)
    assert (part.silent_s, part.ended_s) == (2.0, 2.0)
    assert rig.part(SETTLED).began_s == 2.0


def test_an_operation_on_a_log_waits_for_its_chain_until_it_is_over():
    now = 1.0
    recording = Recording("append", lambda: now, deque())
    chain = Configuration.chain(["s0", "s1", "s2"]).at("events", 0)
    recording.waits_for_chain("append", chain)
    now = 3.0
    recording.close()
    whole, part = recording.parts
    assert (whole.ended_s, part.name, part.began_s, part.ended_s) == (3.0, CHAIN, 1.0, 3.0)
    assert (part.what, part.asked) == ("append", ("s0", "s1", "s2"))


def test_requests_carry_the_context_of_their_round_where_servers_are_to_know():
    contexts = iter([b"a" * TRACE_BYTES, b"b" * TRACE_BYTES])
    rig = Traced(lambda: next(contexts))
    rig.run(write(rig.view, "x", b"value"))
    sent = [message for messages in rig.sent().values() for message in messages]
    assert {(type(message), message.trace) for message in sent} == {(GetTag, b"a" * TRACE_BYTES)}
    for server in EC.server_ids:
        rig.reply(server, rig.replicas[server].handle(GetTag(1, ConfigurationId(EC.id), "x")))
    sent = [message for messages in rig.sent().values() for message in messages]
    assert {(type(message), message.trace) for message in sent} == {(PutData, b"b" * TRACE_BYTES)}


def test_without_a_context_servers_are_told_nothing():
    rig = Traced()
    rig.run(write(rig.view, "x", b"value"))
    assert {message.trace for messages in rig.sent().values() for message in messages} == {None}


def test_what_was_computed_belongs_to_the_primitive_that_needed_it():
    rig = Traced()
    rig.run(write(rig.view, "x", b"value"))
    encode = rig.view.dap(EC).coding.encode
    rig.view.dap(EC).coding = type(
        "Timed",
        (),
        {
            "k": 3,
            "encode": lambda self, value: rig.computed.append((ENCODE, 4.0, 4.0)) or encode(value),
        },
    )()
    rig.computed.append((ENCODE, 0.0, 0.0))  # another client's work, before this goes on
    rig.answer()
    assert [name for name in rig.names() if name.endswith(ENCODE)] == [
        f"{WRITE_OBJECT}/Phase2/PutData/EncodeLatency"
    ]


def test_pauses_decisions_and_operations_side_by_side():
    @phase("pausing")
    def pausing():
        yield Pause(1.0)
        yield from get_next_config(EC)

    @phase("both")
    def both():
        yield Together(iter([get_next_config(EC), pausing()]), 2)
        yield Agree(EC)

    rig = Traced()
    rig.run(both())
    for _ in range(2):
        rig.answer()
        rig.tick(1.0)
    rig.answer()
    rig.session.resume(rig.session.asks[0][1], None, rig.now)
    one, other = [f"both/{ROUND}"], [f"both/pausing{name}" for name in ("", "/Pause", f"/{ROUND}")]
    assert rig.names() == ["both", *one, *other, "both/Consensus"]
    assert rig.error is None


def test_a_write_that_waits_for_another_says_so():
    rig = Traced()
    rig.start(write(rig.view, "x", b"first"), key=(DEFAULT_DOMAIN, "x"))
    rig.run(write(rig.view, "x", b"second"), key=(DEFAULT_DOMAIN, "x"))
    rig.answer()
    rig.answer()
    queue = rig.part(QUEUE)
    assert (queue.began_s, queue.ended_s) == (0.0, 9.0)


def test_what_is_cancelled_ends_there():
    rig = Traced()
    job = rig.session.start(
        once(), "a job", 0.0, 30.0, lambda value, error: None, recording=rig.recording
    )
    rig.now = 2.0
    rig.session.cancel(job)
    assert {part.ended_s for part in rig.recording.parts} == {2.0}


@pytest.mark.parametrize("most", [1, 4, 6])
def test_a_long_operation_is_recorded_up_to_a_bound(monkeypatch, most):
    monkeypatch.setattr(subject, "RECORDED_PARTS_MAX", most)
    rig = Traced()
    rig.run(write(rig.view, "x", b"value"))
    rig.answer()
    rig.answer()
    assert rig.value.number == 1
    assert len(rig.recording.parts) == most
    assert rig.recording.dropped == 8 - most


def test_a_long_operation_keeps_nothing_of_what_has_ended(monkeypatch):
    monkeypatch.setattr(subject, "RECORDED_PARTS_MAX", 50)

    def reads():
        for _ in range(100):
            yield Together(iter([read(rig.view, "x"), read(rig.view, "y")]), 2)

    rig = Traced()
    rig.run(reads())
    for _ in range(100):
        rig.answer()
        assert (
            sum(1 + len(standing.stack) for standing in rig.recording._standing.values())
            + len(rig.recording._rounds)
            < 20
        )
    assert rig.value is None
    assert (len(rig.recording.parts), rig.recording._standing, rig.recording._rounds) == (
        50,
        {},
        {},
    )
