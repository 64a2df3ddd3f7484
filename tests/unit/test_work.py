"""The work of each message beyond the work of a small message (ares/model/work.py)."""

from typing import get_args

import pytest
from msgspec import inspect

from ares.model.configuration import Configuration, Server
from ares.model.identity import CallId, ClientId, ConfigurationId, DomainName, ServerId
from ares.model.log_messages import (
    ANSWER_BYTES_MAX,
    Append,
    LogEntries,
    LogRecord,
    ReadEach,
    ReadLog,
)
from ares.model.message import Message
from ares.model.messages import REQUEST_KINDS, AnyMessage, Introduce
from ares.model.work import ENTRY_BYTES_MIN, LISTED_WORK, Meter, entries_bulk
from ares.sharedlog.entries import TAKEN_BYTES_MAX, first_piece
from ares.sharedlog.node import LogNode

ID = ConfigurationId(b"c" * 16)


def _is_large(type_: inspect.Type, is_request: bool) -> bool:
    """Return whether a field of that type may hold much."""
    match type_:
        case inspect.UnionType():
            return any(_is_large(each, is_request) for each in type_.types)
        case inspect.TupleType():
            return False
        case inspect.VarTupleType():
            return True
        case inspect.StructType():
            names = ["Element"] + is_request * ["Configuration", "Successor"]
            return type_.cls.__name__ in names
    return False


@pytest.mark.parametrize("kind", get_args(AnyMessage), ids=lambda kind: kind.__name__)
def test_a_kind_of_message_that_may_be_large_says_so(kind: type[Message]) -> None:
    """An earlier list of kinds that ended a turn lacked reads of logs."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    fields = [
        field.name for field in described.fields if _is_large(field.type, kind in REQUEST_KINDS)
    ]
    of_few = {"followed", "elsewhere"}  # at most a hundred small items
    if set(fields) - of_few:
        assert isinstance(kind.bulk, property), f"{kind.__name__} has {', '.join(fields)}"


def test_entries_count_64_bytes_at_least() -> None:
    assert ENTRY_BYTES_MIN == 64
    empty = (b"",) * 4096
    assert entries_bulk(empty) == 4096 * 64
    assert entries_bulk((b"x" * 10,)) == 74
    assert Append(CallId(1), ID, ClientId(1), 1, 1, 0, empty).bulk == 4096 * 64
    assert LogEntries(CallId(1), 0, (b"12", b""), 0, 0, (), None).bulk == 130
    assert LogRecord(0, ClientId(1), 1, 1, (b"12", b"")).bulk == 130
    assert ReadEach(CallId(1), ID, (1, 2, 3)).bulk == 3 * LISTED_WORK


def test_a_node_counts_what_it_answers_and_answers_no_more_than_a_turn_has() -> None:
    """Earlier releases counted an answer of 16 MiB like a small answer."""
    meter = Meter()
    node = LogNode(ServerId("s0"), "s0", meter=meter)
    itself = Server(ServerId("s0"), "s0:1", "s0")
    chain = Configuration.chain([itself], allow_no_faults=True)
    chain = chain.at(DomainName("log"), 0, b"cluster")
    node.handle("client", Introduce(CallId(0), chain), 0.0)
    for number in range(1, 41):
        append = Append(CallId(1), chain.id, ClientId(1), number, number, 0, (b"",) * 4096)
        node.handle("client", append, 0.0)
        node.take()
        node.stored(node.fact_count, 0.0)
    node.take()
    meter.spent = 0
    node.handle("client", ReadLog(CallId(1), chain.id, 0, 65_536, 16 * 1024 * 1024), 0.0)
    [(_, answer)] = node.take()[1]
    assert isinstance(answer, LogEntries)
    assert 0 < answer.bulk <= ANSWER_BYTES_MAX + 4096 * 64
    assert meter.spent == answer.bulk


def test_a_node_takes_so_much_of_what_is_forwarded() -> None:
    records = [LogRecord(n, ClientId(1), 1, 1, (b"",) * 4096) for n in range(100)]
    assert first_piece(records) == records[: TAKEN_BYTES_MAX // (4096 * 64)]
    assert first_piece(records[:1]) == records[:1]
    assert first_piece([]) == []
