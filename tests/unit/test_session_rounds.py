"""A round: expected answers, servers asked, times of resends (ares/engine/jobs.py)."""

import pytest

from ares.engine.effects import Gather
from ares.engine.jobs import ROUND_RESEND_S, SEND_BYTES_PER_S_EXPECTED, Job, Round, begin
from ares.model.configuration import Configuration
from ares.model.messages import REPLY_OF, Ack, DataReply, Element, GetData, PutData, ReadConfig
from ares.model.tag import Tag

C = Configuration.abd(["s0", "s1", "s2", "s3", "s4"]).at("d", 3)


def begun(requests, **more) -> Round:
    job = Job(
        iter(()),
        None,
        False,
        label="write of 'k'",
        timeout_s=30.0,
        deadline=100.0,
        done=lambda *_: None,
    )
    return begin(7, job, Gather(C, lambda call: requests, "get-data", **more), 10.0)


def put(size: int) -> PutData:
    return PutData(7, C.id, "k", Tag(1, 1), Element(0, size, 0, (b"x" * size,)))


def test_all_servers_are_asked_and_needed_by_default():
    round = begun(ReadConfig(7, C.id))
    assert (round.asked, round.needed, round.expected) == (C.server_ids, 3, Ack)
    assert round.give_up_at is None


def test_some_servers_and_another_number():
    round = begun(GetData(7, C.id, "k", True), to=("s3", "s1"), needed=1, give_up_s=2.5)
    assert (round.asked, round.needed, round.expected, round.give_up_at) == (
        ("s3", "s1"),
        1,
        DataReply,
        12.5,
    )


def test_a_request_for_each():
    requests = [GetData(7, C.id, "k", position == 1) for position in range(2)]
    round = begun(requests, to=("s3", "s1"))
    assert round.expected is DataReply
    assert [round.request_for(server).element for server in ("s3", "s1")] == [False, True]


@pytest.mark.parametrize("size", [0, 10**6])
def test_large_values_have_more_time_before_they_are_sent_again(size):
    round = begun(put(size))
    assert round.resend_at == pytest.approx(
        10.0 + ROUND_RESEND_S + 5 * size / SEND_BYTES_PER_S_EXPECTED
    )
    assert begun([put(size)] * 5).resend_at == round.resend_at


def test_the_story_of_a_round():
    assert (
        begun(ReadConfig(7, C.id)).story()
        == "write of 'k': get-data in configuration 3 of domain 'd'"
    )


def test_unknown_questions_have_no_reply():
    assert Ack not in REPLY_OF
    with pytest.raises(KeyError):
        begun(Ack(7, None))
