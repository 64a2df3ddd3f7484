"""Decisions of the autopilot for logs, without any I/O (ares/autopilot/judge.py)."""

from hypothesis import given
from hypothesis import strategies as st

from ares.autopilot.judge import FinishMove, NoAction, ObservedLog, Reform, Stuck, judge_log
from ares.model.configuration import Configuration
from ares.model.identity import ServerId

from .looks import AFTER_S, BOOK, identities, watched


def chain(*numbers, index=0):
    servers = [BOOK[ServerId(f"s{number}")] for number in numbers]
    return Configuration.chain(servers, allow_no_faults=True).at("log", index)


def spares(*numbers):
    return [BOOK[ServerId(f"s{number}")] for number in numbers]


def judged(*active, watch, spare=(), length=3, **since):
    return judge_log(ObservedLog(list(active), length, **since), watch, AFTER_S, spares(*spare))


def ids(verdict):
    return " ".join(verdict.wished.server_ids)


def test_a_log_whose_servers_are_well_is_left_alone():
    assert judged(chain(0, 1, 2), watch=watched(), spare=(3,)) == NoAction()


def test_a_node_that_is_silent_for_a_moment_stays():
    assert (
        judged(chain(0, 1, 2), watch=watched(identities(0, 1), long=False), spare=(3,))
        == NoAction()
    )


def test_a_spare_stands_before_the_last_node():
    for dead, becomes in ((0, "s1 s3 s2"), (1, "s0 s3 s2"), (2, "s0 s3 s1")):
        watch = watched(identities(*{0, 1, 2, 3} - {dead}))
        verdict = judged(chain(0, 1, 2), watch=watch, spare=(3, 4))
        assert ids(verdict) == becomes
        assert (verdict.gone, verdict.new) == ((f"s{dead}",), ("s3",))
    assert verdict.describe() == "chain s0 s1 s2 becomes s0 s3 s1: s2 is gone, s3 comes in"


def test_without_a_spare_the_chain_is_shorter_and_grows_later():
    watch = watched(identities(0, 2, 3))
    assert ids(judged(chain(0, 1, 2), watch=watch)) == "s0 s2"
    shorter = chain(0, 2, index=1)
    assert judged(shorter, watch=watch) == NoAction()
    assert ids(judged(shorter, watch=watch, spare=(3,))) == "s0 s3 s2"
    assert judged(chain(0, 1, 2), shorter, watch=watch, spare=(3,)) == NoAction(), (
        "the first move is under way"
    )
    assert judged(shorter, watch=watched(identities(0, 3), long=False), spare=(3,)) == NoAction(), (
        "one of them is silent"
    )
    assert judged(shorter, watch=watch, spare=(3,), length=2) == NoAction(), (
        "it is as long as was asked for"
    )


def test_one_that_lost_its_memory_is_gone_and_may_come_in_as_another():
    watch = watched(identities(0, 2) | {ServerId("s1"): "e" * 32})
    assert ids(judged(chain(0, 1, 2), watch=watch)) == "s0 s2"
    again = [server for server in watch.steady().items() if server[0] == "s1"]
    assert again == [("s1", "e" * 32)]


def test_nothing_is_sealed_without_a_majority():
    verdict = judged(chain(0, 1, 2), watch=watched(identities(0, 3, 4)), spare=(3, 4))
    assert isinstance(verdict, Stuck)
    assert "only 1 of 3 servers of the chain answer" in verdict.why
    assert isinstance(judged(chain(0, 1), watch=watched(identities(0, 3)), spare=(3,)), Stuck)


def test_an_absent_server_is_not_relied_on():
    watch = watched(identities(0, 1, 2, 3), identities(0, 1, 2), long=False)
    assert judged(chain(0, 1, 2, 3, 4), watch=watch, spare=(5,), length=5) == NoAction()
    watch = watched(identities(0, 1, 2, 3))
    watch.look(1000.0, identities(0, 1, 2), BOOK.values())
    assert judged(chain(0, 1, 2, 3, 4), watch=watch, length=5) == NoAction(), (
        "s4 is gone, and s3 silent"
    )


def test_a_left_reconfiguration_is_finished_after_a_while():
    one, two = chain(0, 1, 2), chain(3, 4, 5, index=1)
    assert judged(one, watch=watched(), sealed_s=AFTER_S - 1) == NoAction()
    again = judged(one, watch=watched(), sealed_s=AFTER_S)
    assert ids(again) == "s0 s1 s2"
    assert "the next chain is not decided" in again.describe()
    assert judged(one, two, watch=watched(), pending_s=AFTER_S - 1) == NoAction()
    assert judged(one, two, watch=watched(), pending_s=AFTER_S) == FinishMove(two)
    watch = watched(identities(0, 1, 2, 3, 5))
    assert ids(judged(one, two, watch=watch, pending_s=AFTER_S)) == "s3 s5", (
        "what waits for a dead node is left for another chain"
    )


def test_a_server_left_out_often_must_be_present_for_longer():
    watch = watched()
    assert len(watch.steady()) == len(watch.steady({ServerId("s1"): 0})) == 8
    assert "s1" not in watch.steady({ServerId("s1"): 1})
    for step in range(1, 14):
        watch.look(60.0 + 5.0 * step, identities(*range(8)), BOOK.values())
    assert "s1" in watch.steady({ServerId("s1"): 1})
    assert "s1" not in watch.steady({ServerId("s1"): 2})


@given(
    st.sets(st.integers(0, 7)),
    st.integers(1, 5),
    st.sets(st.integers(0, 7)),
    st.integers(1, 5),
    st.booleans(),
    st.floats(0, 200),
)
def test_every_verdict_can_be_carried_out(here, n, spare, length, pending, sealed_s):
    watch, last = watched(identities(*here)), chain(*range(n), index=1)
    active = [chain(5, 6, 7), last] if pending else [last]
    verdict = judged(
        *active,
        watch=watch,
        spare=sorted(spare & here),
        length=length,
        sealed_s=sealed_s,
        pending_s=AFTER_S,
    )
    if isinstance(verdict, Reform):
        assert len(here & set(range(n))) >= last.quorum_size
        assert all(watch.is_here(server) for server in verdict.wished.servers)
        assert set(last.server_ids) - set(verdict.gone) <= set(verdict.wished.server_ids)
        assert len(set(verdict.wished.server_ids)) == verdict.wished.n <= max(length, n)
        assert verdict.gone or verdict.new or sealed_s >= AFTER_S
    if (
        not isinstance(verdict, Stuck)
        and set(range(n)) <= here
        and n >= length
        and sealed_s < AFTER_S
    ):
        assert verdict == (FinishMove(last) if pending else NoAction())
