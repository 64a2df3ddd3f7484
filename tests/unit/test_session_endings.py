"""Ends of a waiting job: a deadline or the end of the connection is thrown into the job first.

See ares/engine/session.py.
"""

import pytest

from ares.engine.effects import Agree, Pause, Together
from ares.engine.session import ASK_GRACE_S
from ares.model.errors import ConnectionClosed, Unavailable, Uncertain
from ares.model.messages import Ack

from .session_rig import C, Rig, gather, once, sleeper


@pytest.fixture
def rig():
    return Rig()


def recording_errors(waits, seen):
    """Record the error at the end of a waiting job, as operations do."""
    try:
        yield waits
    except Uncertain as error:
        seen.append(type(error))
        error.may_have_taken_effect = True
        error.advice = "as told"
        raise


WAITS = {
    "a round": lambda seen: recording_errors(gather(), seen),
    "a pause": lambda seen: recording_errors(Pause(100), seen),
    "an ask": lambda seen: recording_errors(Agree(C), seen),
    "a Together": lambda seen: recording_errors(
        Together(iter([once(), sleeper(100, [], "it")]), 2), seen
    ),
    "within a Together": lambda seen: recording_errors(
        Together(iter([recording_errors(gather(), seen), once()]), 2), []
    ),
}


@pytest.mark.parametrize("waits", WAITS)
@pytest.mark.parametrize(("end", "kind"), [("close", ConnectionClosed), ("deadline", Unavailable)])
def test_what_ends_a_job_is_thrown_into_it_so_that_it_can_tell(rig, waits, end, kind):
    seen = []
    rig.start(WAITS[waits](seen), timeout_s=5)
    if end == "close":
        rig.session.close(ConnectionClosed)
    else:
        rig.tick(5.1 + ASK_GRACE_S)
    assert seen == [kind]
    assert isinstance(rig.error, kind)
    assert str(rig.error).endswith("; as told")
    assert not rig.session.busy


def test_every_job_is_closed_with_an_error_of_its_own(rig):
    seen, key = [], ("d", "k")
    rig.start(recording_errors(gather(), seen), label="told")
    rig.start(once(), label="a round")
    rig.start(sleeper(100, [], "it"), label="a pause")
    rig.start(once(), label="first", key=key)
    rig.start(once(), label="queued", key=key)
    rig.session.close(ConnectionClosed)
    assert {label: error.may_have_taken_effect for label, _, error in rig.ends} == {
        "told": True,
        "a round": False,
        "a pause": False,
        "first": False,
        "queued": False,
    }
    assert (len(rig.ends), rig.session.busy) == (5, False)


@pytest.mark.parametrize("waits", [gather(), Pause(100)])
def test_a_job_that_goes_on_all_the_same_is_ended(rig, waits):
    def stubborn():
        while True:
            try:
                yield waits
            except Uncertain:
                log.append("caught")

    log = []
    rig.start(stubborn())
    rig.session.close(ConnectionClosed)
    assert log == ["caught"]
    assert isinstance(rig.error, ConnectionClosed)
    assert not rig.session.busy
    rig.reply("s0", Ack(1, None), Ack(2, None))
    rig.reply("s1", Ack(1, None), Ack(2, None))
    rig.tick(200)
    assert len(rig.ends) == 1
