"""Rounds in a session: quorums, resends, deadlines, refusals and hints.

See ares/engine/session.py.
"""

import itertools

import pytest

from ares.engine.jobs import ROUND_RESEND_S
from ares.engine.session import HINT_AGAIN_S, ROUND_RESEND_S_MAX, ROUND_STALL_S, SESSION_TICK_S
from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused, NotAuthorized, Superseded, Unavailable
from ares.model.messages import Ack, Introduce, ReadConfig, Reason, Refused, TagReply
from ares.model.tag import TAG_ZERO

from .session_rig import C, Rig, gather, once


@pytest.fixture
def rig():
    return Rig()


def test_a_quorum_ends_the_round_and_late_replies_are_dropped(rig):
    rig.start(once())
    assert rig.sent() == {server: [ReadConfig(1, C.id)] for server in ("s0", "s1", "s2")}
    assert rig.sent() == {}
    rig.reply("s2", Ack(1, None))
    rig.reply("s2", Ack(1, None))
    rig.reply("s9", Ack(1, None))
    rig.reply("s1", TagReply(1, TAG_ZERO, None), Ack(99, None))
    assert rig.ends == []
    rig.reply("s0", Ack(1, None))
    assert rig.value == ["s0", "s2"]
    rig.reply("s1", Ack(1, None))
    assert not rig.session.busy


def test_calls_are_numbered_and_answered_apart(rig):
    rig.start(once(), label="first")
    rig.start(once(), label="second")
    for server in ("s0", "s1"):
        rig.reply(server, Ack(2, None))
    assert [label for label, _, _ in rig.ends] == ["second"]


def test_the_shell_is_wanted_when_there_is_something_to_take(rig):
    assert not rig.session.has_orders
    rig.start(once())
    assert rig.session.has_orders
    rig.sent()
    rig.reply("s0", Ack(1, None))
    assert not rig.session.has_orders


def test_servers_are_introduced_to_the_shell_once(rig):
    rig.start(once())
    rig.start(once())
    assert rig.session.contacts == list(C.servers)


def test_settled_goes_on_beyond_a_quorum_until_it_is_satisfied(rig):
    rig.start(once(settled=lambda answers: "s2" in answers, patience_s=lambda *_: 1.0))
    for server in ("s0", "s1"):
        rig.reply(server, Ack(1, None))
    assert rig.ends == []
    rig.reply("s2", Ack(1, None))
    assert rig.value == ["s0", "s1", "s2"]


def test_a_server_whose_reply_is_arriving_is_not_asked_again(rig):
    rig.session.receiving = lambda server: server == "s1"
    rig.start(once())
    rig.session.take_outbox()
    rig.tick(ROUND_RESEND_S + SESSION_TICK_S)
    assert sorted(rig.session.take_outbox()) == ["s0", "s2"]
    assert rig.session.readiness.suspects == {"s0", "s2"}
    rig.session.receiving = lambda server: False
    rig.tick(2 * ROUND_RESEND_S + SESSION_TICK_S)
    assert sorted(rig.session.take_outbox()) == ["s0", "s1", "s2"]


def test_a_server_to_which_the_request_is_still_leaving_gets_no_copy(rig):
    rig.start(once())
    (call,) = {message.call for message in rig.session.take_outbox()["s0"]}
    rig.session.sending = lambda server, asked: (server, asked) == ("s1", call)
    rig.tick(ROUND_RESEND_S + SESSION_TICK_S)
    assert sorted(rig.session.take_outbox()) == ["s0", "s2"]
    rig.session.sending = lambda server, asked: False
    rig.tick(2 * ROUND_RESEND_S + SESSION_TICK_S)
    assert sorted(rig.session.take_outbox()) == ["s0", "s1", "s2"]


@pytest.mark.parametrize("last", ["patience", "answer", "refusal"])
def test_an_unsettled_round_ends_with_patience_or_the_last_answer(rig, last):
    rig.start(once(settled=lambda _: False, patience_s=lambda *_: 1.0))
    for server in ("s0", "s1"):
        rig.reply(server, Ack(1, None))
    rig.tick(0.9)
    assert rig.ends == []
    if last == "patience":
        rig.tick(0.2)
        assert rig.session.readiness.suspects == {"s2"}
    elif last == "answer":
        rig.reply("s2", Ack(1, None))
    else:
        rig.reply("s2", Refused(1, Reason.BAD_REQUEST, "no"))
    assert rig.value == ["s0", "s1", "s2"][: 3 if last == "answer" else 2]


def test_a_request_is_sent_again_ever_slower_to_silent_servers(rig):
    rig.start(once(needed=3), timeout_s=100)
    rig.sent()
    rig.reply("s1", Ack(1, None))
    times = []
    while rig.now < 16:
        rig.tick(0.125)
        sent = rig.sent()
        if sent:
            assert sent == {server: [ReadConfig(1, C.id)] for server in ("s0", "s2")}
            times.append(rig.now)
    gaps = [after - before for before, after in itertools.pairwise([0, *times])]
    assert gaps == [
        ROUND_RESEND_S,
        1.0,
        2.0,
        ROUND_RESEND_S_MAX,
        ROUND_RESEND_S_MAX,
        ROUND_RESEND_S_MAX,
    ]
    assert rig.session.readiness.suspects == {"s0", "s2"}
    rig.reply("s0", Ack(1, None))
    assert rig.session.readiness.suspects == {"s2"}


def test_a_deadline_names_the_missing_servers(rig):
    rig.start(once(), timeout_s=2)
    rig.reply("s1", Ack(1, None))
    rig.reply("s2", Refused(1, Reason.BAD_REQUEST, "too tired"))
    rig.tick(1.9)
    assert rig.ends == []
    rig.tick(0.2)
    assert (rig.error.needed, rig.error.heard, rig.error.missing) == (
        2,
        1,
        {"s0": "no answer", "s2": "too tired"},
    )
    assert rig.error.story == "a job: get-next-config in configuration 0 of domain 'default'"
    assert not rig.session.busy


def test_a_deadline_names_the_trouble_of_each_missing_server(rig):
    rig.session.troubles = {
        "s0": "connection refused",
        "s2": "no route",
        "s9": "of nobody that was asked",
    }
    rig.start(once(), timeout_s=2)
    rig.reply("s2", Refused(1, Reason.BAD_REQUEST, "too tired"))
    rig.tick(2.1)
    assert rig.error.missing == {
        "s0": "connection refused",
        "s1": "no answer",
        "s2": "too tired",
    }, "what a server said itself goes first"


def test_give_up_is_thrown_into_the_operation(rig):
    def operation():
        try:
            yield gather(give_up_s=3.0)
        except Unavailable as error:
            return error.heard
        raise AssertionError

    rig.start(operation())
    rig.reply("s1", Ack(1, None))
    rig.tick(2.9)
    assert rig.ends == []
    rig.tick(0.2)
    assert rig.value == 1


def test_a_lone_server_without_a_connection_is_given_up_early(rig):
    def operation():
        try:
            yield gather(give_up_s=3.0, to=("s1",), needed=1)
        except Unavailable as error:
            return error.missing
        raise AssertionError

    rig.start(operation(), label="silent")
    rig.tick(2 * ROUND_RESEND_S)
    assert rig.ends == [], "it may answer"
    rig.session.troubles = {"s1": "connection refused"}
    rig.start(once(give_up_s=3.0), label="of three")
    rig.tick(2 * ROUND_RESEND_S)
    assert [(label, value) for label, value, _ in rig.ends] == [
        ("silent", {"s1": "connection refused"})
    ]


def refuse(rig, server, reason=Reason.UNKNOWN_CONFIGURATION, call=1):
    rig.reply(server, Refused(call, reason, "says the server"))


def test_a_server_that_does_not_know_the_configuration_is_introduced_to_it(rig):
    rig.start(once())
    rig.sent()
    for _ in range(10):
        refuse(rig, "s0")
        assert rig.sent() == {"s0": [Introduce(1, C), ReadConfig(1, C.id)]}, (
            "as often as an introduction may be lost"
        )
    refuse(rig, "s0", Reason.IDENTITY)
    refuse(rig, "s0")
    assert rig.sent() == {}, "it refused the introduction"
    refuse(rig, "s1", Reason.NOT_A_MEMBER)
    assert rig.session.hints == ["default"], "a quorum can no longer come"
    rig.session.hinted("default", None, 0.0)
    assert set(rig.error.missing.values()) == {"says the server", "no answer"}


def test_a_second_decision_is_an_error_at_once(rig):
    rig.start(once())
    refuse(rig, "s0", Reason.CONFLICTING_SUCCESSOR)
    assert isinstance(rig.error, ConfigurationRefused)
    assert "s0 refuses a second decision: says the server" in str(rig.error)


def test_servers_of_another_cluster_end_the_round_once_a_quorum_cannot_come(rig):
    rig.start(once())
    refuse(rig, "s0", Reason.OTHER_CLUSTER)
    assert rig.ends == [], "the others may do"
    refuse(rig, "s1", Reason.OTHER_CLUSTER)
    assert isinstance(rig.error, ConfigurationRefused)
    assert "s1 refuses: says the server" in str(rig.error)
    assert (rig.session.hints, rig.session.busy) == ([], False)


AT_THE_DOOR = Refused(
    0,
    Reason.NOT_AUTHORIZED,
    "the process that answers there says that it does not know this client's key",
)
FULL = Refused(1, Reason.STORAGE, "its disk is full")


def test_what_one_says_in_the_handshake_denies_nothing(rig):
    """Any process at the server's address may have sent the refusal.

    The other servers are asked, and the reasons of their silence are reported as well.
    """
    rig.start(once())
    rig.reply("s0", AT_THE_DOOR)
    rig.tick(1.0)
    assert rig.ends == []
    rig.reply("s1", FULL)
    rig.session.hinted(C.domain, None, rig.now)
    assert type(rig.error) is Unavailable
    assert rig.error.missing == {"s0": AT_THE_DOOR.detail, "s1": FULL.detail, "s2": "no answer"}


def test_what_one_says_in_the_handshake_keeps_no_quorum_from_answering(rig):
    rig.start(once())
    rig.reply("s0", AT_THE_DOOR)
    for server in ("s1", "s2"):
        rig.reply(server, Ack(1, None))
    assert rig.value == ["s1", "s2"]


def test_what_enough_say_in_the_handshake_is_told_once_nothing_newer_is_known(rig):
    """Other processes may be at the addresses of replaced servers."""
    rig.start(once())
    for server in ("s0", "s1"):
        rig.reply(server, AT_THE_DOOR)
    assert rig.ends == []
    assert rig.session.hints == [C.domain]
    rig.session.hinted(C.domain, None, rig.now)
    assert type(rig.error) is NotAuthorized
    assert not rig.error.untouched, "an earlier connection may have brought it there"
    assert AT_THE_DOOR.detail in str(rig.error)


def test_servers_that_were_replaced_are_asked_no_more_whatever_is_at_their_addresses(rig):
    rig.start(once())
    for server in ("s0", "s1", "s2"):
        rig.reply(server, AT_THE_DOOR)
    assert rig.ends == []
    newer = Configuration.abd(["t0", "t1", "t2"]).at(C.domain, 1, C.id)
    rig.session.hinted(C.domain, newer, rig.now)
    assert type(rig.error) is Superseded


def test_a_denial_over_a_connection_counts_at_once(rig):
    rig.start(once())
    for server in ("s0", "s1", "s2"):
        rig.reply(server, Refused(1, Reason.NOT_AUTHORIZED, "it takes the role write"))
    assert type(rig.error) is NotAuthorized
    assert rig.error.untouched


def test_a_hint_moves_rounds_of_older_configurations_of_the_domain_only(rig):
    def operation():
        try:
            yield gather()
        except Superseded as superseded:
            return superseded.newer

    rig.start(operation())
    rig.session.hinted("other", C.at("other", 9), 0.0)
    rig.session.hinted("default", C, 0.0)
    rig.session.hinted("default", None, 0.0)
    assert rig.ends == []
    rig.session.hinted("default", C.at("default", 2, b"c0 of another cluster"), 0.0)
    assert rig.ends == []
    rig.session.hinted("default", C.at("default", 2, C.cluster_id), 0.0)
    assert rig.value.index == 2


def test_a_stall_asks_for_a_hint_now_and_then(rig):
    rig.start(once())
    rig.tick(ROUND_STALL_S - 0.1)
    assert rig.session.hints == []
    rig.tick(0.2)
    rig.tick(0.2)
    assert rig.session.hints == ["default"]
    rig.session.hints.clear()
    rig.session.hinted("default", None, rig.now)
    rig.tick(HINT_AGAIN_S - 0.1)
    assert rig.session.hints == []
    rig.tick(0.2)
    assert rig.session.hints == ["default"]
