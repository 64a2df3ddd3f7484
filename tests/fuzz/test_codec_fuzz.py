"""The codec under arbitrary input: messages, or BadMessage and no other error.

An accepted batch can be sent again.
"""

import random
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ares.model.codec import WIRE_VERSION, decode, encode
from ares.model.configuration import Configuration, Server
from ares.model.errors import BadMessage
from ares.model.identity import DomainName, ServerId
from ares.model.log_messages import ChainRequest, Seal
from ares.model.messages import Introduce
from ares.testing.fuzz.fuzz_attacks import BatchMaker

from ..property.strategies import messages

PREFIX = bytes([WIRE_VERSION])
RUNS = 5_000


def taken(frames: list[bytes]) -> bool:
    """Return whether the frames are a batch; raise any error except BadMessage."""
    try:
        decode(frames)
    except BadMessage:
        return False
    return True


@given(st.lists(st.binary(max_size=300), max_size=4))
@example([])
@example([PREFIX])
@example([PREFIX + b"\x91" * 300])
@example([PREFIX + b"\xdd\xff\xff\xff\xff"])
@example([PREFIX + b"\xdc\xff\xff" + b"\x91\x09" * 9])
def test_any_frames_are_decoded_or_refused(frames: list[bytes]) -> None:
    taken(frames)
    taken([PREFIX + b"".join(frames[:1]), *frames[1:]])


@settings(max_examples=100)
@given(st.lists(messages, max_size=4), st.data())
def test_any_batch_with_any_part_of_it_replaced(batch: list, data: st.DataObject) -> None:
    frames = encode(batch)
    assert decode(frames) == batch
    place = data.draw(st.integers(0, len(frames) - 1))
    begin = data.draw(st.integers(0, len(frames[place])))
    end = data.draw(st.integers(begin, min(begin + 8, len(frames[place]))))
    frames[place] = frames[place][:begin] + data.draw(st.binary(max_size=8)) + frames[place][end:]
    taken(frames)


def test_what_the_fuzzer_makes_is_mostly_refused_and_now_and_then_taken() -> None:
    """With a single kind, the test would cover only the door, or only the rooms behind it."""
    mint = BatchMaker(random.Random(11), b"c" * 16)
    good = 0
    for _ in range(RUNS):
        batch = mint.batch()
        if taken(batch):
            good += 1
            decoded = decode(batch)
            assert decode(encode(decoded)) == decoded or "nan" in repr(decoded)
    assert 0.05 * RUNS < good < 0.6 * RUNS


def test_every_kind_of_message_is_made() -> None:
    mint = BatchMaker(random.Random(12))
    kinds = set()
    for _ in range(RUNS):
        batch = mint.batch()
        if taken(batch):
            kinds |= {type(message) for message in decode(batch)}
    assert len(kinds) > 20


def test_every_request_about_logs_is_made_of_a_chain_that_the_server_takes() -> None:
    chain = Configuration.chain(
        [Server(ServerId(name), "127.0.0.1:9", "0" * 32) for name in ("s0", "s1", "s2")]
    ).at(DomainName("x"), 0, b"c" * 16)
    mint, kinds = BatchMaker(random.Random(13), b"c" * 16, chain), set()
    for _ in range(RUNS):
        batch = mint.batch()
        if taken(batch):
            kinds |= {
                type(message)
                for message in decode(batch)
                if getattr(message, "configuration", None) in (chain, chain.id)
            }
    assert kinds >= {Introduce, *get_args(ChainRequest)} - {Seal}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_makes_the_same(seed: int) -> None:
    one, two = BatchMaker(random.Random(seed)), BatchMaker(random.Random(seed))
    assert [one.batch() for _ in range(200)] == [two.batch() for _ in range(200)]
