"""Jobs in a session: pauses, asks, Together, queues, deadlines and cancelling.

See ares/engine/session.py.
"""

import pytest

from ares.engine.effects import Agree, Announce, Pause, Report, Together
from ares.engine.session import ASK_GRACE_S
from ares.model.configuration import Status, Successor
from ares.model.errors import ConfigurationRefused, ConsensusUnavailable, Unavailable
from ares.model.messages import Ack

from .session_rig import C, Rig, gather, once, sleeper


@pytest.fixture
def rig():
    return Rig()


def answer_all(rig):
    """Let every server answer its requests."""
    for server, requests in rig.sent().items():
        rig.reply(server, *(Ack(request.call, None) for request in requests))


def test_an_operation_pauses_for_its_time(rig):
    def operation():
        yield Pause(1.0)
        yield Pause(0.5)
        return "rested"

    rig.start(operation())
    rig.tick(0.9)
    rig.tick(0.2)
    rig.tick(0.3)
    assert rig.ends == []
    rig.tick(0.3)
    assert rig.value == "rested"


def test_pauses_that_end_together_wake_in_the_order_they_began(rig):
    log = []
    for number in range(50):
        rig.start(sleeper(1, [], number))
    rig.tick(1.1)
    for number in range(50):
        rig.start(sleeper(1, log, number))
    rig.tick(1.1)
    assert log == list(range(50))


def test_a_pause_beyond_the_deadline(rig):
    def operation():
        try:
            yield Pause(10)
        except Unavailable as error:
            raise ConfigurationRefused("as told") from error

    rig.start(operation(), timeout_s=1)
    rig.tick(1.1)
    assert isinstance(rig.error, ConfigurationRefused)


def test_asks_are_answered_by_the_shell(rig):
    def operation():
        decided = yield Agree(C)
        try:
            yield Announce(C)
        except ConfigurationRefused:
            return decided

    rig.start(operation())
    [(what, task)], rig.session.asks = rig.session.asks, []
    assert what == Agree(C)
    rig.session.resume(task, "decided", 0.0)
    [(what, task)] = rig.session.asks
    assert what == Announce(C)
    rig.session.fail(task, ConfigurationRefused("no"), 0.0)
    assert rig.value == "decided"
    rig.session.resume(task, "late", 0.0)


def test_an_ask_that_is_never_answered_ends_at_the_deadline(rig):
    def operation():
        yield Agree(C)

    rig.start(operation(), timeout_s=5)
    rig.tick(5.1)
    assert rig.session.busy
    rig.tick(ASK_GRACE_S)
    assert str(rig.error) == "a job: it was still waiting after 5 s; nothing was changed"
    [(_, task)] = rig.session.asks
    rig.session.resume(task, "late", rig.now)


def test_the_consensus_service_may_say_at_the_deadline_why_it_does_not_decide(rig):
    def operation():
        yield Agree(C)

    rig.start(operation(), timeout_s=5)
    [(_, task)] = rig.session.asks
    rig.tick(5.1)
    rig.session.fail(task, ConsensusUnavailable("no server answers"), rig.now)
    assert isinstance(rig.error, ConsensusUnavailable)


def test_progress_is_reported(rig):
    def operation():
        for number in range(3):
            yield Report(number)

    seen = []
    rig.start(operation(), progress=seen.append)
    rig.start(operation())
    assert seen == [0, 1, 2]


def test_a_progress_callback_that_raises_fails_its_job_only(rig):
    def operation():
        yield gather()
        yield Report(1)

    rig.start(operation(), progress=lambda number: 1 / 0)
    for server in ("s0", "s1"):
        rig.reply(server, Ack(1, None))
    assert isinstance(rig.error, ZeroDivisionError)


def test_together_keeps_to_its_window(rig):
    log = []

    def operation():
        yield Together((sleeper(1, log, number) for number in range(5)), 2)
        return list(log)

    rig.start(operation())
    for expected in (2, 4, 5):
        rig.tick(1.01)
        assert len(log) == expected
    assert sorted(rig.value) == [0, 1, 2, 3, 4]


def test_together_of_nothing_and_of_what_ends_at_once(rig):
    def at_once():
        return
        yield

    def operation():
        yield Together(iter(()), 2)
        yield Together((at_once() for _ in range(1000)), 2)
        return "through"

    rig.start(operation())
    assert rig.value == "through"


@pytest.mark.parametrize("caught", [True, False])
def test_the_first_failure_of_together_ends_all_and_is_thrown(rig, caught):
    log = []

    def operation():
        try:
            yield Together(
                iter(
                    [
                        sleeper(3, log, "slow"),
                        sleeper(1, log, "fails", fails=True),
                        sleeper(1, log, "never begun"),
                    ]
                ),
                2,
            )
        except ConfigurationRefused:
            if not caught:
                raise
        yield Pause(10)
        return "went on"

    rig.start(operation())
    rig.tick(1.1)
    assert log == ["fails", "slow closed"]
    if caught:
        rig.tick(5)
        assert (rig.ends, log) == ([], ["fails", "slow closed"])
        rig.tick(6)
        assert rig.value == "went on"
    else:
        assert isinstance(rig.error, ConfigurationRefused)
        assert not rig.session.busy


def test_cancel_ends_a_job_without_a_word(rig):
    log = []
    job = rig.start(sleeper(1, log, "it"))
    waiting = rig.start(once())
    rig.session.cancel(job)
    rig.session.cancel(waiting)
    rig.session.cancel(waiting)
    rig.reply("s0", Ack(1, None))
    rig.reply("s1", Ack(1, None))
    rig.tick(2)
    assert log == ["it closed"]
    assert (rig.ends, rig.session.busy) == ([], False)


def test_jobs_with_one_key_run_one_after_the_other(rig):
    log = []
    key = ("d", "k")
    first = rig.start(sleeper(1, log, "first"), key=key)
    second = rig.start(sleeper(1, log, "second"), key=key)
    rig.start(sleeper(1, log, "third", fails=True), key=key)
    rig.start(sleeper(1, log, "fourth"), key=key)
    rig.start(sleeper(1, log, "other"), key=("d", "other"))
    rig.session.cancel(second)
    rig.tick(1.1)
    assert sorted(log) == ["first", "other"]
    rig.session.cancel(first)
    rig.tick(1.1)
    rig.tick(1.1)
    assert log[2:] == ["third", "fourth"]
    assert [type(error) for _, _, error in rig.ends] == [
        type(None),
        type(None),
        ConfigurationRefused,
        type(None),
    ]


def test_an_idle_deadline_moves_with_every_step(rig):
    def operation():
        while True:
            yield gather()

    rig.start(operation(), timeout_s=1, idle=True, label="idle")
    rig.start(operation(), timeout_s=1, label="plain")
    for _ in range(5):
        answer_all(rig)
        rig.tick(0.81)
    assert [label for label, _, _ in rig.ends] == ["plain"]
    rig.tick(1.1)
    assert [label for label, _, _ in rig.ends] == ["plain", "idle"]


def test_an_idle_deadline_does_not_move_for_a_task_that_tries_again(rig):
    def operation():
        while True:
            yield Pause(0.1)
            yield gather()

    def beside(rounds):
        yield Together(iter([operation(), *(once() for _ in range(rounds))]), 2)

    rig.start(operation(), timeout_s=1, idle=True, label="stands still")
    rig.start(beside(10), timeout_s=1, idle=True, label="moves beside it")
    for _ in range(10):
        rig.tick(0.11)
        answer_all(rig)
    assert [label for label, _, _ in rig.ends] == ["stands still"]
    assert isinstance(rig.error, Unavailable)
    for _ in range(10):
        rig.tick(0.11)
        answer_all(rig)
    assert [label for label, _, _ in rig.ends] == ["stands still", "moves beside it"], (
        "nobody moves any more"
    )


def test_a_queued_job_that_waits_too_long_fails_and_leaves_the_queue(rig):
    key = ("d", "k")
    rig.start(once(), timeout_s=10, label="first", key=key)
    rig.start(once(), timeout_s=1, label="second", key=key)
    rig.start(once(), timeout_s=10, label="third", key=key)
    rig.tick(1.1)
    assert [(label, "still waiting after 1 s" in str(error)) for label, _, error in rig.ends] == [
        ("second", True)
    ]
    for call in (1, 2):
        for server in ("s0", "s1"):
            rig.reply(server, Ack(call, Successor(C.at("d", 2, C.cluster_id), Status.PENDING)))
    assert [label for label, _, _ in rig.ends] == ["second", "first", "third"]
