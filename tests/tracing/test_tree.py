"""Trees of spans: sums, the critical path, and the names of silent servers."""

import itertools

import pytest

from ares.tracing.spans import DSMM, Span
from ares.tracing.tree import Tree

ROUND_ATTRIBUTES = {
    "ares.round": "get-data",
    "ares.asked": ["s0", "s1", "s2", "s3", "s4"],
    "ares.spared": ["s3", "s4"],
    "ares.needed": 3,
}


def span(name, parent, began_ms, ended_ms, kind="internal", **attributes):
    times = (int(began_ms * 1e6), int(ended_ms * 1e6))
    about = {"ares.level": DSMM, **attributes}
    return Span(name, b"t", name.encode(), parent.encode(), *times, kind, about)


def tree_of(round):
    return Tree(
        [
            span("read", "", 0, 30),
            span("CommunicationLatency", "read", 0, 30, **ROUND_ATTRIBUTES | round),
        ]
    )


def reply(servers, times, server_ms, **more):
    own = {"ares.quorum.server_ms": server_ms, **more}
    return {"ares.quorum": servers, "ares.quorum.ms": times} | own


ONE_STOPPED = reply(["s0", "s2", "s3"], [1.0, 2.0, 30.0], [0.5, 0.5, 0.0]) | {
    "ares.spared.ms": 25.0
}
TWO_STOPPED = reply(
    ["s0", "s3", "s4"],
    [1.0, 28.0, 30.0],
    [0.5, 0.0, 0.0],
    **{"ares.quorum.connected_ms": [0.0, 27.0, 28.0]},
) | {"ares.spared.ms": 25.0}
WITHOUT_ONE = reply(["s0", "s1", "s3", "s4"], [1.0, 2.0, 3.0, 8.0], [0.5, 0.5, 0.1, 0.1]) | {
    "ares.spared": [],
    "ares.needed": 1,
    "ares.silent.ms": 30.0,
}
NO_QUORUM = reply(["s0"], [1.0], [0.5]) | {"ares.spared.ms": 25.0, "ares.refused": ["s2"]}
STOPPED_FOR_A_WHILE = reply(["s0", "s1", "s2"], [1.0, 2.0, 30.0], [0.5, 0.5, 0.1])


@pytest.mark.parametrize(
    ("round", "sentence"),
    [
        (
            ONE_STOPPED,
            "s1 had not answered, so s3 was asked after 25.0 ms and made the quorum of 3, "
            "after 30.0 ms: 0.0 ms at the server, 5.0 ms that this process cannot tell from the "
            "network's; s4 had not answered by then.",
        ),
        (
            TWO_STOPPED,
            "s1, s2 had not answered, so s4 was asked after 25.0 ms and made the quorum of 3, "
            "after 30.0 ms: 3.0 ms connecting, 0.0 ms at the server, 2.0 ms that this process "
            "cannot tell from the network's.",
        ),
        (
            WITHOUT_ONE,
            "s2 had not answered after 30.0 ms, and it went on with the replies of s0, s1, s3, s4.",
        ),
        (
            NO_QUORUM,
            "1 answered of the 3 needed; no answer came from s1, s3, s4; s2 refused.",
        ),
        (
            STOPPED_FOR_A_WHILE,
            "s2 made the quorum of 3, after 30.0 ms: 0.1 ms at the server, 29.9 ms that this "
            "process cannot tell from the network's.",
        ),
    ],
)
def test_the_sentence_names_the_servers_that_had_not_answered(round, sentence):
    assert tree_of(round).sentence() == f"30.0 of 30.0 ms went into read: {sentence}"


def test_a_round_shows_for_what_it_waited():
    assert [line[:46] for line in tree_of(TWO_STOPPED).lines()] == [
        "read                     30.00 ms    0.00 ms  ",
        "  CommunicationLatency   30.00 ms    0.00 ms  ",
        "    waiting for s1, s2   25.00 ms   25.00 ms  ",
        "    connecting to s4      3.00 ms    3.00 ms  ",
        "    to s4 and back        2.00 ms    2.00 ms  ",
    ]


def test_a_round_shows_how_long_it_waited_for_servers_that_stayed_silent():
    assert [line[:44] for line in tree_of(WITHOUT_ONE).lines()] == [
        "read                     30.00 ms    0.00 ms",
        "  CommunicationLatency   30.00 ms    0.00 ms",
        "    to s4 and back        8.00 ms    8.00 ms",
        "    waiting for s2       22.00 ms   22.00 ms",
    ]


def milliseconds(line: str, place: int) -> float:
    numbers = [before for before, unit in itertools.pairwise(line.split()) if unit == "ms"]
    return float(numbers[place])


def test_times_without_lines_below_add_up_and_the_critical_path_is_marked():
    spans = [
        span("put", "", 0, 100),
        span("left", "put", 10, 50),
        span("right", "put", 10, 90),
        span("inner", "right", 60, 90),
        span("last", "put", 91, 99.5),
    ]
    lines = list(Tree(spans).lines())
    assert [line.split()[0] for line in lines if "░" in line] == ["left"]
    on_path = [line for line in lines if "█" in line]
    assert sum(milliseconds(line, 1) for line in on_path) == pytest.approx(100)
    assert [milliseconds(line, 1) for line in lines if "not accounted for" in line] == [10.0, 50.0]


def test_the_server_that_ended_a_round_is_on_the_critical_path():
    quorum = reply(["s0", "s1"], [3.0, 9.0], [1.0, 8.0]) | {"ares.needed": 2}
    spans = [
        span("CommunicationLatency", "", 0, 10, **ROUND_ATTRIBUTES | quorum),
        span("fast", "CommunicationLatency", 1, 2, "server", **{"ares.server": "s0"}),
        span("slow", "CommunicationLatency", 1, 9, "server", **{"ares.server": "s1"}),
    ]
    lines = list(Tree(spans).lines())
    assert [line.split()[0] for line in lines if "░" in line] == ["fast"]


def test_the_parts_of_a_rounds_time_come_before_the_work_of_servers():
    spans = [
        span("CommunicationLatency", "", 0, 30, **ROUND_ATTRIBUTES | TWO_STOPPED),
        span("PutData", "CommunicationLatency", 1, 2, "server", **{"ares.server": "s0"}),
        span("Commit", "PutData", 1.5, 2),
    ]
    rows = [line.split("  ")[1].strip() or line.split()[0] for line in Tree(spans).lines()]
    assert rows[1:] == [
        "waiting for s1, s2",
        "connecting to s4",
        "to s4 and back",
        "PutData",
        "Commit",
    ]


def test_a_gap_that_is_longer_than_all_else_is_what_the_sentence_says():
    tree = Tree([span("read", "", 0, 10), span("DecodeLatency", "read", 9, 10)])
    assert tree.sentence() == (
        "9.0 of 10.0 ms are not accounted for, in read: this process did other work, or waited "
        "for a processor."
    )


def test_an_append_waits_for_its_chain():
    chain = {"ares.asked": ["s0", "s1", "s2"], "ares.round": "append"}
    tree = Tree([span("append", "", 0, 10), span("Chain", "append", 0, 10, **chain)])
    assert tree.sentence() == (
        "10.0 of 10.0 ms went into append: it waited for the chain s0 > s1 > s2, "
        "whose servers' time this process cannot tell from the network's."
    )


def test_a_server_has_no_time_that_is_not_accounted_for():
    spans = [span("PutData", "", 0, 10, "server"), span("Commit", "PutData", 8, 10)]
    assert [line.split()[0] for line in Tree(spans).lines()] == ["PutData", "Commit"]
