"""The registry: every message has a unique number, and every question its reply.

See ares/model/messages.py.
"""

from typing import get_args

import pytest

from ares.model import log_messages, messages
from ares.model.configuration import Configuration, Server
from ares.model.identity import ServerId
from ares.model.log_messages import ChainReply, ChainRequest, OfChain
from ares.model.messages import (
    REPLY_OF,
    REQUEST_KINDS,
    Adopt,
    AnyMessage,
    Carrier,
    ConsensusRequest,
    Describe,
    Element,
    GetTag,
    HandledBy,
    Introduce,
    Keyed,
    Message,
    NeededRoom,
    PullElement,
    PutAhead,
    Question,
    Reply,
    Request,
    SetLogLevel,
    Upkeep,
    Where,
)
from ares.replica.configuration_state import ConfigurationState
from ares.replica.replica import Pointing

KINDS = get_args(AnyMessage)


def test_every_message_is_in_the_registry():
    named = [*vars(messages).values(), *vars(log_messages).values()]
    defined = {kind for kind in named if isinstance(kind, type) and issubclass(kind, Message)} - {
        Message,
        OfChain,
    }
    assert defined == set(KINDS)


def test_numbers_are_unique():
    numbers = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(numbers)) == len(numbers)
    assert all(isinstance(number, int) for number in numbers)


def test_servers_and_members_speak_different_numbers():
    assert {
        kind.__struct_config__.tag < 64 for kind in get_args(Request | PullElement | Reply)
    } == {True}
    assert {
        kind.__struct_config__.tag >= 64
        for kind in set(KINDS) - set(get_args(Request | PullElement | Upkeep | Reply))
    } == {True}
    assert {
        96 <= kind.__struct_config__.tag < 128 for kind in get_args(ChainRequest | ChainReply)
    } == {True}


def test_every_question_has_a_reply():
    assert set(REPLY_OF) == set(get_args(Question))
    assert set(REPLY_OF.values()) < set(get_args(Reply))


def test_every_request_is_in_the_table_and_its_reply_is_none():
    assert set(REQUEST_KINDS) == set(
        get_args(Request | PullElement | ChainRequest | Upkeep | ConsensusRequest)
    )
    replies = {row.reply for row in REQUEST_KINDS.values()}
    assert replies.isdisjoint(REQUEST_KINDS)
    assert replies - {None} <= set(KINDS)


def test_the_table_names_the_handler_of_each_request():
    handlers = {
        HandledBy.LOGS: set(get_args(ChainRequest)),
        HandledBy.MEMBER: set(get_args(ConsensusRequest)) - {SetLogLevel},
        HandledBy.SERVER: {Describe, Where, PullElement, PutAhead, Adopt, *get_args(Upkeep)},
    }
    for part, kinds in handlers.items():
        assert {kind for kind, row in REQUEST_KINDS.items() if row.handled_by is part} == kinds
    rest = {HandledBy.OBJECTS, HandledBy.EITHER}
    of_configurations = {kind for kind, row in REQUEST_KINDS.items() if row.handled_by in rest}
    assert of_configurations == {Introduce, *get_args(Keyed)}


def test_a_request_needs_room_exactly_if_it_may_change_a_configuration():
    for kind, row in REQUEST_KINDS.items():
        if row.handled_by in (HandledBy.OBJECTS, HandledBy.EITHER):
            may_change = row.changes or kind in get_args(Carrier)
            assert (row.room is not NeededRoom.NONE) == may_change, kind
    rooms = {kind: row.room for kind, row in REQUEST_KINDS.items()}
    pointing = {kind for kind, room in rooms.items() if room is NeededRoom.POINTER}
    assert pointing == set(get_args(Pointing))


def test_carriers_are_what_has_room_for_a_successor():
    assert set(get_args(Carrier)) == {
        kind for kind in REQUEST_KINDS if "successor" in kind.__struct_fields__
    }


def test_every_request_about_a_configuration_is_answered():
    configuration = Configuration.abd(
        [Server(ServerId("s0"), "127.0.0.1:1", "0" * 32)], allow_no_faults=True
    )
    assert set(ConfigurationState(configuration, 0).answers) == set(get_args(Keyed))


def test_requests_about_a_configuration_name_it():
    for kind in get_args(Keyed):
        assert kind.__struct_fields__[:2] == ("call", "configuration")


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_frozen(kind):
    assert kind.__struct_config__.frozen


def test_a_field_of_a_message_cannot_be_set():
    with pytest.raises(AttributeError):
        GetTag(1, b"c", "k").call = 2


def test_size_of_an_element_counts_its_parts():
    assert [Element(0, 0, 0, parts).size for parts in [(), (b"",), (b"ab", b"", b"c")]] == [0, 0, 3]
