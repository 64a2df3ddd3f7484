"""Division of messages into batches, and the queue for a peer that reads no messages."""

from collections.abc import Callable

import pytest

from ares.model.codec import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, decode
from ares.model.identity import CallId, ClientId, ConfigurationId, ObjectName, ServerId
from ares.model.log_messages import Append, Forward, LogRecord
from ares.model.messages import AnyMessage, Element, PutData
from ares.model.tag import Tag
from ares.model.units import MIB
from ares.model.work import ENTRY_BYTES_MIN
from ares.net.batching import (
    LARGE_BYTES_MAX,
    PEER_WAITING_BYTES_MAX,
    PEER_WAITING_MESSAGES_MAX,
    PeerQueue,
    batches,
)

from .wires import get_tag


def put(call: int, data: bytes) -> PutData:
    return PutData(
        CallId(call),
        ConfigurationId(b"c" * 16),
        ObjectName("k"),
        Tag(1, ClientId(2)),
        Element(0, len(data), 1, (data,)),
    )


def test_nothing_is_no_batch() -> None:
    assert list(batches([])) == []


@pytest.mark.parametrize(
    "count", [1, BATCH_MESSAGES_MAX, BATCH_MESSAGES_MAX + 1, 3 * BATCH_MESSAGES_MAX]
)
def test_many_messages_are_cut_by_number(count: int) -> None:
    messages = [get_tag(call) for call in range(count)]
    cut = list(batches(messages))
    assert len(cut) == -(-count // BATCH_MESSAGES_MAX)
    assert [message for _, frames in cut for message in decode(frames)] == messages
    assert [size for size, _ in cut] == [len(decode(frames)) for _, frames in cut]


@pytest.mark.parametrize(
    "data_bytes", [8000, MIB, 5 * MIB, 20 * MIB], ids=["inlined", "1 MiB", "5 MiB", "20 MiB"]
)
def test_large_messages_are_cut_by_bytes(data_bytes: int) -> None:
    data = bytes(data_bytes)
    messages = [put(call, data) for call in range(2 * BATCH_BYTES_MAX // data_bytes + 3)]
    cut = list(batches(messages))
    assert len(cut) > 1
    assert all(size == 1 or sum(map(len, frames)) <= BATCH_BYTES_MAX for size, frames in cut)
    assert [message for _, frames in cut for message in decode(frames)] == messages


def test_waiting_keeps_the_oldest_messages() -> None:
    waiting = PeerQueue()
    waiting.admit([get_tag(call) for call in range(PEER_WAITING_MESSAGES_MAX - 1)])
    waiting.admit(
        [
            get_tag(call)
            for call in range(PEER_WAITING_MESSAGES_MAX - 1, PEER_WAITING_MESSAGES_MAX + 9)
        ]
    )
    assert [message.call for message in waiting.take()] == list(range(PEER_WAITING_MESSAGES_MAX))


def append(call: int, data: bytes) -> Append:
    return Append(CallId(call), ConfigurationId(b"c" * 16), ClientId(2), 1, 1, 0, (data,))


def forward(call: int, data: bytes) -> Forward:
    return Forward(
        CallId(call),
        ConfigurationId(b"c" * 16),
        ServerId("s0"),
        0,
        (LogRecord(0, ClientId(2), 1, 1, (data,)),),
        0,
    )


@pytest.mark.parametrize("make", [put, append, forward])
def test_waiting_is_bounded_in_bytes_and_empties_when_taken(
    make: Callable[[int, bytes], AnyMessage],
) -> None:
    data = bytes(64 * MIB - ENTRY_BYTES_MIN)
    waiting = PeerQueue()
    for _ in range(2):
        waiting.admit([make(call, data) for call in range(20)])
        assert len(waiting.take()) == PEER_WAITING_BYTES_MAX // len(data)
        assert len(waiting) == 0


def test_one_message_waits_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ares.net.batching.PEER_WAITING_BYTES_MAX", 1000)
    waiting = PeerQueue()
    waiting.admit([put(1, bytes(5000)), put(2, b"")])
    assert [message.call for message in waiting.take()] == [1]


def calls_of(messages: list[AnyMessage]) -> list[int]:
    return [message.call for message in messages]


def test_small_messages_are_next_and_then_large_ones_within_a_bound() -> None:
    waiting, data = PeerQueue(), bytes(LARGE_BYTES_MAX // 4)
    waiting.admit([put(1, data), get_tag(2), put(3, bytes(100)), put(4, bytes(5 * MIB))])
    waiting.admit([put(call, data) for call in range(5, 12)])
    waiting.admit([get_tag(12)])
    taken = []
    while waiting:
        taken.append(calls_of(waiting.take_next()))
    assert taken == [[2, 3, 12], [1], [4], [5, 6, 7, 8], [9, 10, 11]]
    assert waiting._bytes == 0


def test_a_copy_takes_the_place_of_the_message_that_waits() -> None:
    waiting = PeerQueue()
    for _ in range(100):
        waiting.admit([put(1, bytes(MIB)), get_tag(2), put(3, bytes(MIB)), get_tag(4)])
    assert len(waiting) == 4
    assert waiting._bytes == 2 * MIB
    assert calls_of(waiting.take()) == [2, 4, 1, 3]


def test_messages_given_back_are_next_again() -> None:
    waiting = PeerQueue()
    waiting.admit([put(call, bytes(MIB)) for call in range(3)])
    first = waiting.take_next()
    waiting.admit([get_tag(9)])
    waiting.give_back(first)
    assert waiting._bytes == 3 * MIB
    assert calls_of(waiting.take()) == [9, 0, 1, 2]
    waiting.admit([get_tag(1), get_tag(2)])
    small = waiting.take_next()
    waiting.admit([get_tag(3)])
    waiting.give_back(small[1:])
    assert calls_of(waiting.take_next()) == [2, 3]
