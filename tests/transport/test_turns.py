"""Turns of clients at a server (ares/net/batching.py).

A client with many requests at a time does not keep other clients waiting.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import SimpleNamespace

import msgspec
import pytest

from ares.compiled import replica_parts
from ares.model.codec import PORTION_BYTES, Frame, decode_replies, encode
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ObjectName, ServerId
from ares.model.log_messages import Append
from ares.model.messages import (
    PAGE_OBJECTS_MAX,
    Ack,
    AnyMessage,
    Describe,
    Description,
    ListObjects,
    ObjectsReply,
    PutData,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.work import CONFIGURATION_WORK, REQUEST_WORK, TURN_WORK
from ares.net import batching
from ares.net.batching import (
    FIRST_WORK,
    LEFT_MAX,
    LINE_BATCHES_MAX,
    LOOK_WORK,
    TURN_S,
    BatchListener,
    UnansweredRequests,
    batches,
)
from ares.net.port import Sender
from ares.replica.port import PAGE_CHARACTERS_MAX
from ares.replica.replica import Replica
from ares.server.storage_server import ServerParts, StorageServer

from .wires import S0, ZmqWire, get_tag, until

SLOWLY_S = 0.001
MUCH = 600
IN_A_TURN = int(TURN_S / SLOWLY_S) + LOOK_WORK // REQUEST_WORK


ME = Server(ServerId("s0"), "h:1", f"{0:032x}")
C0 = Configuration.abd([ME], allow_no_faults=True).at(DEFAULT_DOMAIN, 0)
AHEAD = Successor(C0.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)


class Steps:
    """A loop with steps made by the test, and a clock moved on by each answer."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.now_s = 0.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def time(self) -> float:
        return self.now_s

    def step(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class RecordingBatches(BatchListener):
    """A listener with a record of replies by sender, a list for each sending."""

    def __init__(
        self, loop: Steps, handle: Callable[[Sender, Iterable[AnyMessage]], Sequence[AnyMessage]]
    ) -> None:
        super().__init__()
        self.sent: list[tuple[Sender, Sequence[AnyMessage]]] = []
        self._handle, self._loop, self._serving = handle, loop, True  # type: ignore[assignment]

    def _drain(self) -> None: ...

    def _send_batch(self, sender: Sender, frames: Sequence[Frame]) -> None:
        self.sent.append((sender, decode_replies(frames)))

    def receive(self, sender: Sender, *came: Sequence[AnyMessage]) -> None:
        self._receive(sender, [encode(messages) for messages in came])

    def calls(self, sender: Sender) -> list[list[int]]:
        return [
            [message.call for message in messages]
            for receiver, messages in self.sent
            if receiver == sender
        ]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    monkeypatch.setattr(batching, "time", SimpleNamespace(perf_counter=steps.time))
    return steps


@pytest.fixture
def listener(loop: Steps) -> RecordingBatches:
    def slowly(sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        replies: list[AnyMessage] = []
        for message in messages:
            loop.now_s += SLOWLY_S
            replies.append(Ack(message.call, None))
        return replies

    return RecordingBatches(loop, slowly)


def asks(first: int, count: int) -> list[AnyMessage]:
    return [get_tag(call) for call in range(first, first + count)]


def describe(call: int) -> AnyMessage:
    return Describe(CallId(call), brief=True)


def test_others_are_served_between(loop: Steps, listener: RecordingBatches) -> None:
    listener.receive("greedy", asks(0, MUCH))
    for call in range(MUCH):
        if not loop.soon:
            break
        before_s = loop.now_s
        listener.receive("other", asks(call, 1))
        assert listener.sent[-1] == ("other", [Ack(CallId(call), None)])
        loop.step()
        assert loop.now_s - before_s <= (IN_A_TURN + 1) * SLOWLY_S
    answered = listener.calls("greedy")
    assert [call for calls in answered for call in calls] == list(range(MUCH)), (
        "in order, and nothing is lost"
    )
    assert max(map(len, answered)) <= IN_A_TURN
    assert listener._standing_bytes == 0


@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "batches"])
@pytest.mark.parametrize("kind", [get_tag, describe], ids=["tags", "descriptions"])
def test_the_work_that_a_server_counts_ends_a_turn(
    loop: Steps, kind: Callable[[int], AnyMessage], apart: bool
) -> None:
    """Earlier releases ended a turn after slow requests of some kinds, and not of all kinds."""

    def counts(sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        replies: list[AnyMessage] = []
        for message in messages:
            listener.meter.spent += TURN_WORK // 2
            replies.append(Ack(message.call, None))
        return replies

    listener = RecordingBatches(loop, counts)
    asked = [kind(call) for call in range(10)]
    listener.receive("greedy", *([message] for message in asked) if apart else [asked])
    while loop.soon:
        loop.step()
    assert listener.calls("greedy") == [[call, call + 1] for call in range(0, 10, 2)]


def test_what_requests_bring_counts(loop: Steps) -> None:
    listener = RecordingBatches(
        loop, lambda sender, messages: [Ack(message.call, None) for message in messages]
    )
    listener.receive("greedy", [WriteConfig(CallId(n), C0.id, AHEAD) for n in range(200)])
    while loop.soon:
        loop.step()
    most = TURN_WORK // CONFIGURATION_WORK
    assert [len(calls) for calls in listener.calls("greedy")] == [57, 57, 57, 29]
    assert most > 57, "the requests themselves, and decoding them, count as well"


def test_many_clients_that_come_at_once_share_a_round(loop: Steps) -> None:
    """Earlier releases gave each batch a turn at once, and the next client waited for all."""
    listener = RecordingBatches(
        loop, lambda sender, messages: [Ack(message.call, None) for message in messages]
    )
    for number in range(20):
        listener.receive(f"greedy {number}", asks(0, MUCH))
    assert listener.meter.spent <= TURN_WORK + 20 * (FIRST_WORK + LOOK_WORK)
    listener.receive("other", asks(7, FIRST_WORK // REQUEST_WORK - 1))
    assert len(listener.calls("other")[0]) == FIRST_WORK // REQUEST_WORK - 1
    while loop.soon:
        loop.step()
        assert listener.meter.spent <= TURN_WORK + LOOK_WORK
    for number in range(20):
        answered = listener.calls(f"greedy {number}")
        assert [call for calls in answered for call in calls] == list(range(MUCH))
    assert listener._standing_bytes == 0


def appends(count: int) -> list[AnyMessage]:
    return [
        Append(CallId(n), C0.id, ClientId(1), n + 1, n + 1, 0, (b"x",) * 4096) for n in range(count)
    ]


def test_a_large_batch_is_decoded_in_the_turns_in_which_it_is_answered(
    loop: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier releases decoded the whole batch before the answer to the first message."""
    decoded: list[int] = []
    listener = RecordingBatches(
        loop, lambda sender, messages: [Ack(message.call, None) for message in messages]
    )
    listener.seen = lambda sender, messages: decoded.append(len(messages))
    listener.receive("greedy", appends(200))
    assert sum(decoded) < 20
    while loop.soon:
        before = sum(decoded)
        loop.step()
        assert sum(decoded) - before < 20
    assert [call for calls in listener.calls("greedy") for call in calls] == list(range(200))
    assert sum(decoded) == 200


def test_what_comes_before_a_bad_request_in_a_large_batch_is_answered(loop: Steps) -> None:
    listener = RecordingBatches(
        loop, lambda sender, messages: [Ack(message.call, None) for message in messages]
    )
    [good] = encode(appends(1))
    unknown = msgspec.msgpack.encode([123, 1, bytes(PORTION_BYTES)])
    damaged = good[:1] + b"\x92" + good[2:] + unknown
    listener._receive("greedy", [[damaged]])
    listener.receive("greedy", asks(90, 1))
    while loop.soon:
        loop.step()
    assert [call for calls in listener.calls("greedy") for call in calls][-2:] == [0, 90]
    assert listener.bad_batches == 1
    refused = [reply for _, sent in listener.sent for reply in sent if isinstance(reply, Refused)]
    assert [reply.reason for reply in refused] == [Reason.BAD_REQUEST]


def test_those_in_line_take_turns(loop: Steps, listener: RecordingBatches) -> None:
    for sender in ("a", "b", "c"):
        listener.receive(sender, asks(0, MUCH))
    listener.sent.clear()
    for _ in range(6):
        loop.step()
    assert [sender for sender, _ in listener.sent] == ["a", "b", "c", "a", "b", "c"]


def test_a_turn_spans_all_that_came_together(loop: Steps, listener: RecordingBatches) -> None:
    """Otherwise a client with thousands of small batches would have thousands of turns at once."""
    listener.receive("greedy", *[asks(call, 1) for call in range(MUCH)])
    assert len(listener.calls("greedy")[0]) <= IN_A_TURN
    while loop.soon:
        loop.step()
    assert [call for calls in listener.calls("greedy") for call in calls] == list(range(MUCH))


def test_a_turn_has_so_many_messages_however_fast_they_are_answered(loop: Steps) -> None:
    listener = RecordingBatches(
        loop, lambda sender, messages: [Ack(message.call, None) for message in messages]
    )
    listener.receive("greedy", asks(0, 4096))
    while loop.soon:
        loop.step()
    in_turns = [len(calls) for calls in listener.calls("greedy")]
    assert sum(in_turns) == 4096
    assert set(in_turns[1:-1]) == {TURN_WORK // REQUEST_WORK}


def test_what_comes_from_one_in_line_waits_its_turn_and_is_dropped_beyond_the_bound(
    loop: Steps, listener: RecordingBatches
) -> None:
    listener.receive("greedy", asks(0, MUCH))
    for number in range(LINE_BATCHES_MAX + 10):
        listener.receive("greedy", asks(MUCH + number, 1))
    while loop.soon:
        loop.step()
    assert [call for calls in listener.calls("greedy") for call in calls] == list(
        range(MUCH + LINE_BATCHES_MAX)
    )
    listener.receive("greedy", asks(5, 1))
    assert listener.calls("greedy")[-1] == [5]


def test_no_client_has_a_turn_while_requests_are_kept_away(
    loop: Steps, listener: RecordingBatches
) -> None:
    listener.receive("greedy", asks(0, MUCH))
    listener.pause()
    for _ in range(3):
        loop.step()
    assert len(listener.sent) == 1
    listener.resume()
    while loop.soon:
        loop.step()
    assert sum(map(len, listener.calls("greedy"))) == MUCH


def test_what_a_client_that_left_had_in_line_is_carried_out(
    loop: Steps, listener: RecordingBatches
) -> None:
    listener.receive("greedy", asks(0, MUCH))
    assert listener._standing_bytes > 0
    listener._leave("greedy")
    while loop.soon:
        loop.step()
    assert [call for calls in listener.calls("greedy") for call in calls] == list(range(MUCH))
    assert (listener._left, listener._standing_bytes) == ({}, 0)


def test_of_too_many_clients_that_left_the_oldest_are_forgotten(
    loop: Steps, listener: RecordingBatches
) -> None:
    clients = [f"client {number}" for number in range(LEFT_MAX + 3)]
    for client in clients:
        listener.receive(client, asks(0, MUCH))
        listener._leave(client)
    assert list(listener._lines) == list(listener._left) == clients[3:]
    while loop.soon:
        loop.step()
    assert [len(listener.calls(client)) for client in clients[:3]] == [1] * 3
    assert all(sum(map(len, listener.calls(client))) == MUCH for client in clients[3:])
    assert (listener._left, listener._standing_bytes) == ({}, 0)


class Overtaking(RecordingBatches):
    """A control: later batches are answered before the batches in line."""

    def _join(
        self, sender: Sender, line: UnansweredRequests, came: Sequence[Sequence[Frame]]
    ) -> None:
        waiting = self._lines.pop(sender)
        self._take_turn(sender, UnansweredRequests(came))
        self._lines[sender] = waiting


class Forgetful(RecordingBatches):
    """A control: the requests in line are lost when their client leaves."""

    def _leave(self, sender: Sender) -> None:
        self._give_up(sender)


class Repeating(RecordingBatches):
    """A control: the rest of a turn begins with an already answered request."""

    def _line_up(self, sender: Sender, line: UnansweredRequests) -> None:
        rest = list(line.messages)
        if rest:
            line.messages = iter([get_tag(rest[0].call - 1), *rest])
        super()._line_up(sender, line)


@pytest.mark.parametrize("kind", [RecordingBatches, Overtaking, Forgetful, Repeating])
def test_deferred_requests_keep_their_order_and_none_is_lost_or_repeated(
    loop: Steps, kind: type[RecordingBatches]
) -> None:
    """Random batches of several clients, some of which leave; controls break the rule."""
    broken = sum(not keeps_order(loop, kind, random.Random(seed)) for seed in range(40))
    assert (broken > 0) is (kind is not RecordingBatches)


def keeps_order(loop: Steps, kind: type[RecordingBatches], rng: random.Random) -> bool:
    order: dict[Sender, list[int]] = defaultdict(list)

    def handle(sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        for message in messages:
            loop.now_s += rng.choice([0.0, 0.0, SLOWLY_S])
            order[sender].append(message.call)
        return []

    listener = kind(loop, handle)
    sent: Counter[Sender] = Counter()
    there = [f"client {number}" for number in range(4)]
    for _ in range(30):
        client = rng.choice(there)
        came = []
        for count in rng.choices([1, 3, 40, 300], k=rng.randint(1, 3)):
            came.append(asks(sent[client], count))
            sent[client] += count
        listener.receive(client, *came)
        for _ in range(rng.randint(0, 2)):
            loop.step()
        if len(there) > 1 and rng.random() < 0.1:
            there.remove(client)
            listener._leave(client)
    while loop.soon:
        loop.step()
    whole = all(order[client] == list(range(count)) for client, count in sent.items())
    return whole and listener._standing_bytes == 0


@pytest.mark.parametrize("kind", [get_tag, describe], ids=["quick", "others"])
def test_a_handler_that_fails_has_dropped_the_rest(
    loop: Steps, kind: Callable[[int], AnyMessage]
) -> None:
    taken: list[int] = []

    def handle(sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        for message in messages:
            taken.append(message.call)
            if len(taken) == 3:
                raise ZeroDivisionError
        return []

    listener = RecordingBatches(loop, handle)
    listener.receive("client", [kind(call) for call in range(40)])
    while loop.soon:
        loop.step()
    assert (taken, listener._standing_bytes) == ([0, 1, 2], 0)


@pytest.mark.parametrize("kind", [get_tag, describe], ids=["quick", "others"])
def test_what_a_handler_does_not_take_is_for_the_next_turn(
    loop: Steps, kind: Callable[[int], AnyMessage]
) -> None:
    listener = RecordingBatches(
        loop, lambda sender, messages: [Ack(message.call, None) for message in islice(messages, 3)]
    )
    listener.receive("client", [kind(call) for call in range(8)])
    assert listener.calls("client") == [[0, 1, 2]]
    while loop.soon:
        listener.receive("other", [get_tag(77)])
        loop.step()
    assert [call for calls in listener.calls("client") for call in calls] == list(range(8))
    assert listener.calls("other") == [[77]] * (len(listener.sent) - len(listener.calls("client")))
    assert listener._standing_bytes == 0


# -- the most that a server says at a time ---------------------------------------------------------


def crowded() -> Replica:
    """Return a replica with many domains, and more objects than a page, with the longest names."""
    replica = Replica(ME.id, ME.identity, C0, parts=replica_parts())
    for number in range(PAGE_OBJECTS_MAX + 10):
        name, tag = ObjectName(f"{number:04d}".ljust(1024, "n")), Tag(1, TAG_ZERO.writer)
        assert isinstance(
            replica.answer(
                PutData(CallId(1), C0.id, name, tag, sealed(C0.id, name, tag, 0, 1, (b"x",)))
            ),
            Ack,
        )
    for number in range(300):
        assert replica.introduce(C0.at(f"domain {number}", 0, C0.id)) is None  # type: ignore[arg-type]
    return replica


@pytest.mark.parametrize(
    ("request_", "kind"),
    [(ListObjects(CallId(1), C0.id, "", 1000), ObjectsReply), (Describe(CallId(1)), Description)],
)
def test_a_batch_of_requests_with_large_replies_is_answered_in_pieces(
    loop: Steps, request_: AnyMessage, kind: type
) -> None:
    host = StorageServer(crowded(), parts=ServerParts(loop=loop))  # type: ignore[arg-type]

    def handle(sender: Sender, messages: Iterable[AnyMessage]) -> Sequence[AnyMessage]:
        def slowly() -> Iterator[AnyMessage]:
            for message in messages:
                loop.now_s += SLOWLY_S
                yield message

        return host.handle(sender, slowly())

    listener = RecordingBatches(loop, handle)
    listener.receive("greedy", [request_] * 64)
    while loop.soon:
        loop.step()
    replies = [message for _, messages in listener.sent for message in messages]
    assert [type(reply) for reply in replies] == [kind] * 64
    for _, messages in listener.sent:
        assert len(messages) <= IN_A_TURN
        assert (
            sum(len(frame) for _, frames in batches(messages) for frame in frames)
            <= IN_A_TURN * 2 * PAGE_CHARACTERS_MAX
        )


# -- over sockets ----------------------------------------------------------------------------------


async def test_over_a_wire_others_are_served_between(zmq_wire: ZmqWire) -> None:
    order: list[int] = []

    def slowly(sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        replies: list[AnyMessage] = []
        for message in messages:
            time.sleep(SLOWLY_S)
            order.append(message.call)
            replies.append(Ack(message.call, None))
        return replies

    listener = zmq_wire.make_listener(zmq_wire.fresh_address())
    address = await listener.serve(slowly)
    try:
        greedy, other = zmq_wire.connect(address), zmq_wire.connect(address)
        for client, call in ((greedy, 90_001), (other, 90_002)):
            await client.insist(S0, call)
        greedy.connections.post(S0, asks(0, MUCH))
        greedy.connections.post(S0, asks(MUCH, 10))
        await until(lambda: 0 in order)
        other.connections.post(S0, asks(90_003, 1))
        await until(lambda: {90_003} <= other.calls() and MUCH + 9 in greedy.calls())
        assert [call for call in order if call < 90_000] == list(range(MUCH + 10))
        assert order.index(90_003) < order.index(MUCH - 1), (
            "before the first batch was answered to its end"
        )
        await greedy.insist(S0, 90_004)
        await asyncio.sleep(0)
    finally:
        await listener.close()
