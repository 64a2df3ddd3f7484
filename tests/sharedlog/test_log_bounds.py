"""Bounds of a log's message, checked during decoding; no part of a bad batch is used."""

import msgspec
import pytest

import ares
from ares.model.codec import decode, decode_replies, encode
from ares.model.configuration import Configuration
from ares.model.identity import NO_CALL, CallId, ConfigurationId
from ares.model.log_messages import (
    BATCH_ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    RECORD_BYTES_MAX,
    Append,
    Fetched,
    LogRecord,
    Look,
    LookDone,
    ReadLog,
    Trim,
)
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.entries import check_batch
from ares.sharedlog.log_operations import check_position

ID = ConfigurationId(b"0" * 16)


def an_append(**more):
    fields = {"client": 1, "number": 1, "lowest": 1, "since": 0, "entries": (b"x",)} | more
    return Append(CallId(1), ID, **fields)


@pytest.mark.parametrize(
    "message",
    [
        an_append(since=-1),
        an_append(since=POSITION_MAX + 1),
        an_append(at=-1),
        an_append(number=0),
        an_append(lowest=0),
        an_append(entries=()),
        an_append(entries=(b"",) * (BATCH_ENTRIES_MAX + 1)),
        an_append(entries=(bytes(ENTRY_BYTES_MAX + 1),)),
        ReadLog(CallId(1), ID, -1),
        ReadLog(CallId(1), ID, POSITION_MAX + 1),
        ReadLog(CallId(1), ID, 0, 1 << 20),
        ReadLog(CallId(1), ID, 0, wait_s=1e9),
        Trim(CallId(1), ID, 2**63),
        Fetched(CallId(1), 0, (LogRecord(0, 1, 1, 1, (b"",), 0),) * 5000, 0),
        Fetched(CallId(1), 0, (LogRecord(-1, 1, 1, 1, (b"",), 0),), 0),
        LookDone(CallId(1), False, -5, 0, None),
    ],
    ids=str,
)
def test_numbers_and_lengths_out_of_bounds_are_no_message(message):
    with pytest.raises(ares.BadMessage):
        decode(encode([Look(CallId(1), ID), message]))


def test_what_is_in_bounds_comes_back():
    messages = [
        an_append(since=POSITION_MAX, at=POSITION_MAX),
        ReadLog(CallId(1), ID, POSITION_MAX),
        Fetched(NO_CALL, 0, (LogRecord(0, 2**64 - 1, 1, 1, (b"",)),), 0),
    ]
    assert decode(encode(messages)) == messages


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\x01", b""],
        [b"\x02\x90"],
        [b"\x01\x91"],
        [b"\x01" + msgspec.msgpack.encode([["x"]])],
    ],
)
def test_garbage_is_no_batch(frames):
    with pytest.raises(ares.BadMessage):
        decode(frames)


def test_a_client_takes_no_requests():
    with pytest.raises(ares.BadMessage):
        decode_replies(encode([Look(CallId(1), ID)]))


@pytest.mark.parametrize("position", [-1, POSITION_MAX + 1, "7", 1.5])
def test_what_is_no_position(position):
    with pytest.raises(ares.BadInput):
        check_position(position)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [b""] * (BATCH_ENTRIES_MAX + 1),
        [bytes(ENTRY_BYTES_MAX + 1)],
        [bytes(ENTRY_BYTES_MAX)] * (RECORD_BYTES_MAX // ENTRY_BYTES_MAX + 1),
    ],
)
def test_what_cannot_be_appended(entries):
    with pytest.raises(ares.BadInput):
        check_batch(entries)


@pytest.mark.parametrize("servers", [["s0"], ["s0", "s1"]])
def test_chains_that_survive_no_crash_are_refused_unless_that_is_said(servers):
    with pytest.raises(ares.ConfigurationRefused):
        Configuration.chain(servers)
    assert Configuration.chain(servers, allow_no_faults=True).dap == "chain"


def test_the_start_is_part_of_what_is_decided():
    one = Configuration.chain(["s0", "s1", "s2"]).at("events", 1)
    other = msgspec.structs.replace(one, start=5)
    assert one.id != other.id
    with pytest.raises(ares.BadInput):
        msgspec.structs.replace(one, start=-1)
    with pytest.raises(ares.BadInput):
        Configuration("abd", one.servers, start=1)
