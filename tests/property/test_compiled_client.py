"""The compiled core's half of a client, as a twin of the Python session.

After any events, both ask, know and return the same.
"""

import os
import random
import subprocess

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.compiled import CORE, fast_path, small_objects
from ares.dap.coding import coding_for
from ares.engine.session import Session
from ares.model.codec import WIRE_VERSION, decode_replies, encode
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.errors import BadMessage, ConnectionClosed
from ares.model.identity import (
    DEFAULT_DOMAIN,
    CallId,
    ClientId,
    DomainName,
    ObjectName,
    ServerId,
)
from ares.model.messages import (
    Ack,
    DataReply,
    Element,
    PutData,
    Reason,
    Refused,
    TagReply,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.platform.environment import PURE_VARIABLE
from ares.platform.interpreter import python
from ares.reconfig.view import Switches, View
from ares.registers.operations import delete, read, write
from ares.replica.replica import Replica

from ..fuzz.out_of_bounds import message, numbers

pytestmark = pytest.mark.skipif(CORE is None, reason="there is no compiled core")

N = 5
SERVERS = tuple(
    Server(ServerId(f"s{number}"), f"host{number}:1", f"{number:032x}") for number in range(N)
)
CONFIGURATIONS = [
    Configuration.abd(SERVERS).at(DEFAULT_DOMAIN, 0),
    Configuration.ec(SERVERS, 3).at(DEFAULT_DOMAIN, 0),
]
NEXT = Configuration.abd(SERVERS[:3]).at(DEFAULT_DOMAIN, 1, CONFIGURATIONS[0].id)
THIRD = Configuration.abd(SERVERS[2:]).at(DEFAULT_DOMAIN, 2, NEXT.id)
MOVES = [
    [CONFIGURATIONS[0], NEXT],
    [
        CONFIGURATIONS[1],
        Configuration.ec(SERVERS[::-1], 2).at(DEFAULT_DOMAIN, 1, CONFIGURATIONS[1].id),
    ],
]
"""Configurations known to a client while a domain moves; the last is pending."""

SEQUENCES = [[configuration] for configuration in CONFIGURATIONS] + MOVES
OF_SEQUENCES = ["abd", "ec", "abd to abd", "ec to ec"]
NAMES = [ObjectName("a"), ObjectName("ü" * 20)]
VALUES = [b"", b"0123456789", b"x" * 3000, b"y" * 8191, b"z" * 9000]
TIMEOUT_S = 3.0
SUCCESSORS_KNOWN_MAX = 64
"""Pending successors that the core remembers."""


class Twin:
    """A client of a session, with the outcomes of its operations."""

    def __init__(self, configuration, compiled):
        self.session = Session(3, fast_path=fast_path() if compiled else None)
        self.view = View(ClientId(7), configuration, Switches(), self.session.readiness)
        self.small = small_objects(self.session, self.view)
        self.ends, self.handles = [], []
        self.taken_ends = 0

    def start(self, kind, name, value, now):
        number = len(self.handles)
        timeout_s = 0.2 if number % 5 == 4 else TIMEOUT_S
        self.handles.append(lambda: None)

        def done(result, error):
            self.ends.append((number, result, repr(error)))
            if number % 4 == 3 and error is None:  # from within the session
                self.start("read", name, value, self.session.now)

        small = False
        if self.small is not None and kind == "read":
            small = self.small.read(name, done, now, timeout_s)
        elif self.small is not None and kind == "write":
            small = self.small.write(name, value, done, now, timeout_s)
        if small:
            self.handles[number] = lambda: self.session.cancel_small(done)
            return
        operation = (
            {"read": read, "delete": delete}[kind](self.view, name)
            if kind != "write"
            else write(self.view, name, value)
        )
        label = f"{kind} of {name!r}"
        job = self.session.start(
            operation,
            label,
            now,
            timeout_s,
            done,
            key=None if kind == "read" else (DEFAULT_DOMAIN, name),
        )
        self.handles[number] = lambda: self.session.cancel(job)

    def knows(self):
        """Return the present knowledge, and the operations that ended since the last call."""
        session = self.session
        readiness, taken = session.readiness, self.view.tags._taken
        tags = {name: (each.number, each.completed, each.writers) for name, each in taken.items()}
        servers = readiness.sent, readiness._heard, readiness.suspects, readiness.turn
        known = session.last_call, session.usual_round_s, session.busy, session.hints, servers
        fresh, self.taken_ends = self.ends[self.taken_ends :], len(self.ends)
        # reported at the same tick, in any order
        late = sorted(end for end in fresh if "still waiting" in end[2])
        return (
            [end for end in fresh if end not in late],
            late,
            known,
            tags,
            self.view.sequence.active,
        )


def odd(reply, kind, name, configuration):
    """Return another reply than a correct server would give."""
    successor = Successor(
        THIRD if kind == "third" else NEXT,
        Status.FINALIZED if kind == "finalized" else Status.PENDING,
    )
    match kind:
        case "refused" | "full" | "unknown":
            reason = {
                "refused": Reason.BAD_REQUEST,
                "full": Reason.STORAGE,
                "unknown": Reason.UNKNOWN_CONFIGURATION,
            }[kind]
            return Refused(reply.call, reason, "no")
        case "nobody's":
            return msgspec.structs.replace(reply, call=CallId(2**64 - 7))
        case "refused all":
            return Refused(CallId(0), Reason.BAD_REQUEST, "what?")
        case "other":
            return (
                TagReply(reply.call, Tag(5, ClientId(9)), None)
                if isinstance(reply, DataReply)
                else Ack(reply.call, None)
            )
        case "traced" if isinstance(reply, TagReply):
            return TagReply(reply.call, reply.tag, None, (0.5, 0.5))
        case "final" if getattr(reply, "successor", None) is not None:
            known = Successor(reply.successor.configuration, Status.FINALIZED)
            return msgspec.structs.replace(reply, successor=known)
        case "preceding" if isinstance(reply, DataReply):
            return msgspec.structs.replace(reply, preceding=not reply.preceding)
        case "pending" | "finalized" | "third" if isinstance(reply, TagReply):
            return TagReply(reply.call, reply.tag, successor)
        case "pending" | "finalized" | "third" if isinstance(reply, DataReply):
            return DataReply(
                reply.call, reply.tags, reply.length, reply.trimmed, reply.element, successor
            )
        case "pending" | "finalized" | "third":
            return Ack(reply.call, successor)
        case "bare" if isinstance(reply, DataReply):
            return DataReply(reply.call, reply.tags, reply.length, reply.trimmed, None, None)
        case "empty" if isinstance(reply, DataReply):
            # the answer of a List that has forgotten all its contents
            return DataReply(reply.call, (), reply.length, Tag(4, ClientId(9)), None, None)
        case "rotten" if isinstance(reply, DataReply) and reply.element is not None:
            bad = Element(
                reply.element.index,
                reply.element.length,
                reply.element.checksum ^ 1,
                reply.element.parts,
            )
            return DataReply(reply.call, reply.tags, reply.length, reply.trimmed, bad, None)
        case "strange" if isinstance(reply, DataReply):  # sealed, and no value
            tag = reply.tags[0] if reply.tags else TAG_ZERO
            return DataReply(
                reply.call,
                (tag,),
                4,
                TAG_ZERO,
                sealed(configuration.id, name, tag, 0, 4, (b"abcd",)),
                None,
            )
        case "huge" if isinstance(reply, TagReply):
            return TagReply(reply.call, Tag(2**64 - 1, ClientId(1)), None)
    return reply


ODD = [
    "refused",
    "full",
    "unknown",
    "refused all",
    "other",
    "traced",
    "pending",
    "finalized",
    "third",
    "final",
    "preceding",
    "bare",
    "empty",
    "rotten",
    "strange",
    "huge",
    "nobody's",
]
NEWS = ("pending", "finalized", "third", "final")
"""Kinds of replies that tell another configuration."""

EVENTS = st.one_of(
    st.tuples(
        st.just("start"),
        st.sampled_from(["read", "write", "write", "delete"]),
        st.sampled_from(NAMES),
        st.sampled_from(VALUES),
    ),
    st.tuples(st.just("post")),
    st.tuples(
        st.just("answer"), st.integers(0, N - 1), st.integers(1, 4), st.booleans(), st.just("")
    ),
    st.tuples(
        st.just("answer"), st.integers(0, N - 1), st.integers(1, 4), st.booleans(), st.just("")
    ),
    st.tuples(
        st.just("answer"),
        st.integers(0, N - 1),
        st.integers(1, 2),
        st.booleans(),
        st.sampled_from(ODD),
    ),
    st.tuples(st.just("tick"), st.sampled_from([0.001, 0.03, 0.3, 1.1])),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("lose"), st.integers(0, N - 1)),
    st.tuples(st.just("rival"), st.integers(0, N - 1), st.sampled_from(NAMES), st.integers(1, 30)),
)


class Both:
    """Twins with the same events, and servers.

    ``following``: the pending successor of ``configuration`` that all know, if any.
    """

    def __init__(self, configuration, following=None):
        self.configuration, self.following, self.now = configuration, following, 0.0
        self.twins = [Twin(configuration, compiled) for compiled in (True, False)]
        self.replicas = {
            server.id: Replica(server.id, server.identity, configuration)
            for server in configuration.servers
        }
        self.waiting = {server.id: [] for server in configuration.servers}
        self.start("write", NAMES[0], b"first")  # servers are met
        self.answer_all()
        if following is not None:
            self._follow(Successor(following, Status.PENDING))

    def _follow(self, successor):
        """Let all clients and servers know the successor, and use it once."""
        configuration = self.configuration
        for replica in self.replicas.values():
            replica.handle(WriteConfig(CallId(1), configuration.id, successor))
        for twin in self.twins:
            twin.view.sequence.add(configuration, successor)
        self.start("delete", NAMES[1], b"")
        self.answer_all()

    def start(self, kind, name, value):
        for twin in self.twins:
            twin.start(kind, name, value, self.now)

    def post(self):
        mine, pure = [twin.session.take_outbox() for twin in self.twins]
        assert list(mine) == list(pure)
        assert mine == pure
        for server, messages in pure.items():
            self.waiting[server] += messages

    def answer(self, number, count, twice=False, kind=""):
        self.post()
        server = self.configuration.server_ids[number]
        requests, self.waiting[server] = self.waiting[server][:count], self.waiting[server][count:]
        replies = [(request, self.replicas[server].handle(request)) for request in requests]
        answered = [(request, reply) for request, reply in replies if reply is not None]
        batch = [
            odd(reply, kind, getattr(request, "object", ""), self.configuration) if kind else reply
            for request, reply in answered
        ]
        for _ in range(2 if twice else 1):
            if batch:
                for twin in self.twins:
                    twin.session.receive_frames(server, encode(batch), self.now)

    def answer_all(self, numbers=()):
        """Answer all requests, in rounds; ``numbers`` are the first servers."""
        for _ in range(3):
            for number in [*numbers, *range(self.configuration.n)]:
                self.answer(number, 99)

    def rival(self, number, name, highest):
        """Bring another client's write to this server."""
        server, configuration = self.configuration.server_ids[number], self.configuration
        if self.following is not None and highest % 3:
            configuration = self.following
        if server not in configuration.server_ids:
            return
        position = configuration.server_ids.index(server)
        id, tag, value = configuration.id, Tag(highest, ClientId(9)), b"rival"
        parts, index = (
            coding_for(configuration).encode(value)[position],
            position if configuration.dap == "ec" else 0,
        )
        element = sealed(id, name, tag, index, len(value), parts)
        self.replicas[server].handle(PutData(CallId(1), id, name, tag, element))

    def do(self, event, *rest):
        match event:
            case "start":
                self.start(*rest)
            case "post":
                self.post()
            case "answer":
                self.answer(*rest)
            case "tick":
                self.now += rest[0]
                for twin in self.twins:
                    twin.session.tick(self.now)
            case "cancel":
                for twin in self.twins:
                    if -len(twin.handles) <= rest[0] < len(twin.handles):
                        twin.handles[rest[0]]()
            case "rival":
                self.rival(*rest)
            case "lose":
                self.waiting[SERVERS[rest[0]].id].clear()
        self.compare()

    def compare(self):
        mine, pure = self.twins
        assert mine.knows() == pure.knows()


@pytest.mark.parametrize("sequence", SEQUENCES, ids=OF_SEQUENCES)
@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, max_size=60))
def test_it_does_what_the_session_does(sequence, events):
    both = Both(*sequence)
    for event in events:
        both.do(*event)
    both.post()
    for twin in both.twins:
        twin.session.close(ConnectionClosed)
    mine, pure = both.twins
    assert sorted(mine.ends, key=repr) == sorted(pure.ends, key=repr)
    assert mine.session.busy == pure.session.busy


def drawn(rng):
    """Draw an event of a long run, in which most operations complete."""
    server, name = rng.randrange(N), rng.choice(NAMES)
    return rng.choices(
        [
            (
                "start",
                rng.choice(["read", "read", "write", "write", "delete"]),
                name,
                rng.choice(VALUES),
            ),
            ("answer", server, rng.choice([1, 1, 2, 9]), rng.random() < 0.1, ""),
            (
                "answer",
                server,
                1,
                False,
                rng.choice([kind for kind in ODD if kind not in (*NEWS, "huge", "refused all")]),
            ),
            ("rival", server, name, rng.randrange(1, 60)),
            ("tick", rng.choice([0.001, 0.03, 0.3])),
            ("cancel", -rng.randint(1, 4)),
            ("lose", server),
        ],
        [20, 70, 3, 4, 8, 4, 4],
    )[0]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("sequence", SEQUENCES, ids=OF_SEQUENCES)
def test_it_does_what_the_session_does_for_long(sequence, seed):
    rng, both = random.Random(seed), Both(*sequence)
    for _ in range(500):
        both.do(*drawn(rng))


@pytest.mark.parametrize(
    "unusual", ["", *ODD, "tick", "cancel", "close", "redirect", "other write"]
)
@pytest.mark.parametrize("answers", range(10))
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("sequence", SEQUENCES, ids=OF_SEQUENCES)
def test_an_operation_goes_on_in_the_session_wherever_it_was(sequence, kind, answers, unusual):
    both = Both(*sequence)
    both.start(kind, NAMES[0], b"second")
    for number in range(answers):
        both.answer(number % N, 1)
        both.compare()
    if unusual == "tick":
        both.do("tick", 0.6)
    elif unusual == "cancel":
        both.do("cancel", 1)
    elif unusual == "close":
        for twin in both.twins:
            twin.session.close(ConnectionClosed)
    elif unusual == "redirect":
        for twin in both.twins:
            twin.session.redirect(DEFAULT_DOMAIN, NEXT, both.now)
    elif unusual == "other write":
        both.do("start", "delete", NAMES[0], b"")
    else:
        for number in range(N):
            both.do("answer", (answers + number) % N, 1, False, unusual)
    both.compare()
    for _ in range(4):
        for number in range(N):
            both.do("answer", number, 9, False, "")
    both.do("tick", 5.0)


@settings(max_examples=300, deadline=None)
@given(
    data=st.data(),
    n=st.integers(2, 12),
    value=st.one_of(
        st.binary(max_size=40),
        st.integers(0, 3000).map(lambda size: (bytes(range(1, 251)) * 12)[:size]),
    ),
)
def test_values_are_coded_as_the_library_does(data, n, value):
    k = data.draw(st.integers(1, n - 1))
    servers = tuple(
        Server(ServerId(f"s{number}"), f"host{number}:1", f"{number:032x}") for number in range(n)
    )
    both = Both(Configuration.ec(servers, k, allow_no_faults=True).at(DEFAULT_DOMAIN, 0))
    for _ in range(2):  # the second time from the knowledge of the first
        both.start("write", NAMES[0], value)
        both.answer_all()
        both.start("read", NAMES[0], b"")
        both.answer_all(data.draw(st.permutations(range(n))))
        both.compare()
    assert [
        getattr(result, "value", None)
        for _, result, _ in both.twins[0].ends
        if not isinstance(result, Tag)
    ][-1] == value


def test_most_operations_are_the_cores_from_beginning_to_end():
    both = Both(CONFIGURATIONS[0])
    both.twins[0].session.take_over = None  # the session gets no letters
    for kind in ("read", "write", "write", "read"):
        both.start(kind, NAMES[1], b"value")
    for _ in range(6):
        for number in range(N):
            both.do("answer", number, 9, False, "")
    assert len(both.twins[0].ends) == 6  # with a message from within
    assert all(error == "None" for _, _, error in both.twins[0].ends)


class _Counted:
    """Operations taken over by a session."""

    def __init__(self, session):
        self._session, self._take_over, self.count = session, session.take_over, 0
        session.take_over = self

    def __call__(self, begun):
        self.count += 1
        self._take_over(begun)


@pytest.mark.parametrize("move", MOVES, ids=OF_SEQUENCES[2:])
def test_operations_are_the_cores_while_a_domain_moves(move):
    both = Both(*move)
    twin, _ = both.twins
    before, taken = len(twin.ends), _Counted(twin.session)
    for kind, name in (("read", NAMES[0]), ("write", NAMES[0]), ("read", NAMES[0])):
        both.start(kind, name, b"second")
        assert not twin.session.jobs
        both.answer_all()
        both.compare()
    assert taken.count == 0
    [first, tag, *_, second] = [result for _, result, _ in twin.ends[before:]]
    assert (first.value, first.configuration) == (b"first", move[0].id)
    assert (second.value, second.configuration, second.tag) == (b"second", move[1].id, tag)
    assert tag > first.tag


def _move_elsewhere(twin, number):
    """Let a client know of the move of another domain, whose servers it has not met."""
    domain = DomainName(f"d{number}")
    first = Configuration.abd(SERVERS).at(domain, 0)
    view = View(ClientId(7), first, Switches(), twin.session.readiness)
    pending = Configuration.abd(SERVERS[:3]).at(domain, 1, first.id)
    view.sequence.add(first, Successor(pending, Status.PENDING))
    small = small_objects(twin.session, view)
    assert small.read(NAMES[0], lambda *_: None, 0.0, TIMEOUT_S) is None


@pytest.mark.parametrize("move", MOVES, ids=OF_SEQUENCES[2:])
def test_successors_are_known_to_the_core_after_many_moves(move, monkeypatch):
    """Replies with an unknown successor are decoded in Python, too."""
    in_python = []

    def counted(frames):
        in_python.append(frames)
        return decode_replies(frames)

    monkeypatch.setattr("ares.compiled.decode_replies", counted)
    both = Both(move[0])
    twin, _ = both.twins
    for number in range(1, SUCCESSORS_KNOWN_MAX):
        _move_elsewhere(twin, -number)
    both.following = move[1]
    both._follow(Successor(move[1], Status.PENDING))
    for _ in range(2):
        in_python.clear()
        both.start("read", NAMES[0], b"")
        both.answer_all()
        both.compare()
        for number in range(1, SUCCESSORS_KNOWN_MAX):
            _move_elsewhere(twin, number)
    assert not in_python


@pytest.mark.parametrize("move", MOVES, ids=OF_SEQUENCES[2:])
@pytest.mark.parametrize("late", [False, True])
def test_a_version_that_a_mover_may_have_missed_is_written_back(move, late):
    """Servers of the old configuration store a version before, or after, they hear of the move."""
    both = Both(move[0])
    if not late:
        both.start("write", NAMES[0], b"second")
        both.answer_all()
    both.following = move[1]
    both._follow(Successor(move[1], Status.PENDING))
    if late:
        for number in range(N):
            both.rival(number, NAMES[0], 30)  # in the old configuration
    [twin, _] = both.twins
    taken = _Counted(twin.session)
    both.start("read", NAMES[0], b"")
    both.answer_all()
    both.compare()
    assert taken.count == late
    assert twin.ends[-1][1].value == (b"rival" if late else b"second")


@pytest.mark.parametrize("move", MOVES, ids=OF_SEQUENCES[2:])
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("news", ["third", "final"])
def test_news_of_another_configuration_end_the_cores_part(move, kind, news):
    both = Both(*move)
    [twin, _] = both.twins
    taken = _Counted(twin.session)
    both.start(kind, NAMES[0], b"second")
    for number in range(N):
        both.do("answer", number, 1, False, news)
    assert taken.count == 1
    both.answer_all()
    both.compare()


@pytest.mark.parametrize(("kind", "count", "size"), [("read", 4097, 0), ("write", 4200, 8000)])
@pytest.mark.parametrize("precedes", [False, True])
def test_more_than_a_batch_has_room_for(kind, count, size, precedes):
    both = Both(CONFIGURATIONS[0])
    for number in range(count):
        both.start(kind, ObjectName(f"many {number}"), bytes(size))
    for round in range(2):
        if precedes:
            both.start("delete", NAMES[1], b"")
        both.post()
        for number in range(N if round == 0 else 0):
            both.answer(number, 4096)
            both.answer(number, 4096)
    both.compare()


@pytest.mark.parametrize(("kind", "begun"), [("read", 0), ("write", 0), ("write", 1)])
def test_what_cannot_begin_in_the_core_is_the_sessions(kind, begun):
    both = Both(CONFIGURATIONS[0])
    [twin, _] = both.twins
    for _ in range(begun):
        twin.start("write", NAMES[0], b"before", both.now)
    if begun:
        twin.start(kind, NAMES[0], b"value", both.now)
    readiness, order = twin.session.readiness, twin.session.readiness.order

    def failing_once(*arguments):
        readiness.order = order
        raise MemoryError

    letters = twin.session.take_outbox()
    readiness.order = failing_once
    if not begun:
        twin.start(kind, NAMES[0], b"value", both.now)
    for _ in range(8):
        for server, messages in (letters or twin.session.take_outbox()).items():
            twin.session.receive_frames(
                server, encode([both.replicas[server].handle(each) for each in messages]), both.now
            )
        letters = {}
    assert len(twin.ends) == 2 + begun
    assert all(error == "None" for _, _, error in twin.ends)
    assert not twin.session.busy


@pytest.mark.parametrize(
    "harm",
    [
        lambda frame: frame[:-1],
        lambda frame: frame + b"\0",
        lambda frame: b"\2" + frame[1:],
        lambda frame: b"\1\xc1",
    ],
)
def test_nothing_of_a_bad_batch_is_used(harm):
    both = Both(CONFIGURATIONS[0])
    both.start("read", NAMES[0], b"")
    both.post()
    [twin, _] = both.twins
    twin.knows()
    before = repr(twin.knows())
    server = next(server for server, waiting in both.waiting.items() if waiting)
    [request] = both.waiting[server]
    [frame] = encode([both.replicas[server].handle(request)])
    with pytest.raises(BadMessage):
        twin.session.receive_frames(server, [harm(frame)], 0.0)
    with pytest.raises(BadMessage):
        twin.session.receive_frames(server, [], 0.0)
    assert repr(twin.knows()) == before


@pytest.mark.parametrize("late", [False, True])
def test_a_batch_with_an_invalid_successor_is_refused_by_both(late):
    """``late``: no operation waits for the reply any more."""
    both = Both(*MOVES[0])
    both.start("read", NAMES[0], b"")
    both.post()
    server = next(server for server, waiting in both.waiting.items() if waiting)
    [frame] = encode([both.replicas[server].handle(both.waiting[server][0])])
    known = msgspec.msgpack.encode(Successor(both.following, Status.PENDING))
    assert frame.count(known) == 1
    if late:
        both.answer_all()
    for twin in both.twins:
        twin.knows()
        before = repr(twin.knows())
        with pytest.raises(BadMessage):
            twin.session.receive_frames(
                server, [frame.replace(known, known[:-1] + b"\x7f")], both.now
            )
        assert repr(twin.knows()) == before


@pytest.mark.parametrize("kind", ["TagReply", "DataReply", "Ack", "Refused"])
def test_a_number_out_of_bounds_is_refused_by_both(kind):
    for field in numbers(kind):
        for value in field.beyond:
            both = Both(CONFIGURATIONS[0])
            frame = bytes([WIRE_VERSION]) + msgspec.msgpack.encode([message(kind, field, value)])
            for twin in both.twins:
                before = repr(twin.session.last_call)
                with pytest.raises(BadMessage):
                    twin.session.receive_frames(SERVERS[0].id, [frame], 0.0)
                assert repr(twin.session.last_call) == before


DIGESTS = """
from ares.testing.sim.run import drawn, run_plan
for scenario in ("general", "moving", "deaths", "crash", "calm", "listing"):
    for seed in range(900, 904):
        print(scenario, seed, run_plan(drawn(seed, scenario)).digest)
"""


def test_simulated_runs_are_the_same_without_it():
    runs = [
        subprocess.run(
            python("-c", DIGESTS),
            env={**os.environ, PURE_VARIABLE: pure},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for pure in ("0", "1")
    ]
    assert runs[0].count("\n") == 24
    assert runs[0] == runs[1]
