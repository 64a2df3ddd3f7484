"""Bounds of every number of every message, checked during decoding.

At its bounds a batch is accepted, beyond them it is refused.
"""

from typing import Any, get_args

import msgspec
import pytest

from ares.consensus.etcd import ETCD_FORMAT as ETCD_FORMAT
from ares.consensus.etcd import ETCD_MAGIC as ETCD_MAGIC
from ares.consensus.etcd import UnreadableDecision
from ares.consensus.etcd import _read as of_etcd
from ares.consensus.raft.member import _decode as of_raft
from ares.fragment.block import BLOCK_FORMAT, BlockId, Genesis, decode_genesis, encode_genesis
from ares.fragment.divide import Sizes
from ares.model.codec import WIRE_VERSION, decode, decode_replies, decode_requests, encode
from ares.model.configuration import Configuration
from ares.model.decision import Decision
from ares.model.errors import BadBlock, BadMessage
from ares.model.identity import DEFAULT_DOMAIN, NO_CALL
from ares.model.messages import REQUEST_KINDS, AnyMessage, Decided
from ares.model.numbers import INSTANT_MAX, POSITION_MAX
from ares.registers.mirroring import UnreadableRecord, decode_as_of, encode_as_of

from .out_of_bounds import KINDS, MOST, Field, message, numbers

EVERY = [
    pytest.param(kind, field, id=field.name.replace("][", ","))
    for kind in KINDS
    for field in numbers(kind)
]
ASKED = {kind.__name__ for kind in REQUEST_KINDS}


def batch(content: list[Any]) -> list[bytes]:
    return [bytes([WIRE_VERSION]) + msgspec.msgpack.encode([content])]


def test_every_kind_of_message_is_looked_at() -> None:
    assert set(KINDS) == {kind.__name__ for kind in get_args(AnyMessage)}
    assert len(EVERY) > 250


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_each_kind_is_taken(kind: str) -> None:
    content = message(kind)
    assert [type(taken).__name__ for taken in decode(batch(content))] == [kind]


@pytest.mark.parametrize(("kind", "field"), EVERY)
def test_a_number_at_its_bounds_is_taken_and_one_beyond_is_not(kind: str, field: Field) -> None:
    taken = msgspec.msgpack.Decoder(list[AnyMessage])
    unplaced = kind == "Introduce" and field.name.endswith(".index")
    for value in field.within[unplaced:]:
        taken.decode(batch(message(kind, field, value))[0][1:])
    for value in field.beyond:
        for door in (decode, decode_requests if kind in ASKED else decode_replies):
            with pytest.raises(BadMessage, match=r"Expected `(int|float)`|nan"):
                door(batch(message(kind, field, value)))


# -- input from peers by another way ---------------------------------------------------------------


def changed(content: Any, path: tuple[int, ...], value: int) -> bytes:
    """Encode ``content`` with ``value`` at ``path``."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(content))
    place = plain
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return msgspec.msgpack.encode(plain)


INDEX = Configuration.__struct_fields__.index("index")


def test_a_decided_configuration_out_of_bounds_is_unreadable_wherever_it_was_decided() -> None:
    decided = Configuration.abd(["s0", "s1", "s2"]).at(DEFAULT_DOMAIN, 1)
    for index in (-2, POSITION_MAX + 1, MOST):
        with pytest.raises(BadMessage, match="Expected `int`"):
            of_raft(changed(decided, (INDEX,), index))
        kept = ETCD_MAGIC + bytes([ETCD_FORMAT]) + changed(Decision(decided, 1), (0, INDEX), index)
        with pytest.raises(UnreadableDecision, match="Expected `int`"):
            of_etcd("a key", kept, Decision[Configuration])


def test_a_proposer_that_is_no_client_stops_no_decision() -> None:
    """Members of an earlier release decided such proposals; their domains go on."""
    decided = Decided(
        NO_CALL, Configuration.abd(["s0", "s1", "s2"]).at("d", 1), Decision(b"", -7).client
    )
    assert decode_replies(encode([decided])) == [decided]


@pytest.mark.parametrize("modified_s", [-1, INSTANT_MAX + 1, MOST])
def test_a_file_whose_time_no_calendar_has_is_not_read(modified_s: int) -> None:
    """`ares-cli ls` ended with an OverflowError."""
    genesis = Genesis(BlockId(1, 1), False, Sizes(), None, ())
    assert decode_genesis(encode_genesis(genesis), "f") == genesis
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(genesis)) | {"modified_s": modified_s}
    with pytest.raises(BadBlock, match="Expected `int`"):
        decode_genesis(bytes([BLOCK_FORMAT]) + msgspec.msgpack.encode(fields), "f")


@pytest.mark.parametrize("began_s", [-1.0, 1e300, float("nan"), float("inf")])
def test_an_age_that_no_mirror_has_is_not_read(began_s: float) -> None:
    assert decode_as_of(encode_as_of(1.5)) == 1.5
    with pytest.raises(UnreadableRecord):
        decode_as_of(encode_as_of(began_s))
