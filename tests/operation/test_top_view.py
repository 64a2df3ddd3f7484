"""The view of `top`, as a function of reports: no server, no terminal.

See ares/cli/observe/top_view.py.
"""

from collections import deque

import pytest
from msgspec.structs import replace

from ares.cli import status_command
from ares.cli.observe.domain_survey import KnownConfigurations
from ares.cli.observe.top_figures import (
    DatedAnswer,
    ObservedCluster,
    ObservedServer,
    figures,
    is_credible,
    percentile,
)
from ares.cli.observe.top_history import HISTORY_STEPS_MAX, SERIES, TopHistory, sparkline
from ares.cli.observe.top_lines import header, line
from ares.cli.observe.top_view import COLUMNS_MIN, ROWS_MIN, brief, in_words, lines, ms
from ares.metrics import REPLY_S_BUCKETS, ListenerTraffic
from ares.model.codec import decode, encode
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.messages import (
    ConfigurationReport,
    DataReply,
    Description,
    DiskUsage,
    Durations,
    GetData,
    GetTag,
    PutData,
    ServerWork,
    TagReply,
)

SERVERS = tuple(
    Server(f"s{number}", f"10.0.0.{number}:7400", f"{number:032x}") for number in range(5)
)
C0 = Configuration.ec(SERVERS, k=3).at("default", 0)
C1 = Configuration.abd(SERVERS[:3]).at("default", 1, C0.id)
TIMES = {"read_p99_s": 0.012, "write_p99_s": 0.003}
NOTHING = Durations(REPLY_S_BUCKETS, (0,) * (len(REPLY_S_BUCKETS) + 1))


def durations(*seconds: float) -> Durations:
    traffic = ListenerTraffic()
    for each in seconds:
        traffic.reading.add(each)
    return traffic.reading.durations()


def description_of(
    id: str, uptime_s: float, work: ServerWork | None, hosted=(), stored=None
) -> Description:
    return Description(
        1, id, f"{int(id[1:]):032x}", b"c", "1.0", uptime_s, 2**20, hosted, 0, stored, work
    )


def work(times: int, reading: Durations = NOTHING, writing: Durations = NOTHING) -> ServerWork:
    return ServerWork(
        8 * times, 24 * times, 10 * times, 1000 * times, 500 * times, reading, writing, NOTHING
    )


def seen(hosted=(), took_s: float = 0.001) -> ObservedCluster:
    """Return a view of five servers, each asked twice, 10 s apart."""
    known = KnownConfigurations()
    known.note(C0, True)
    servers = {}
    for server in SERVERS:
        answers = [
            DatedAnswer(0.0, took_s, description_of(server.id, 100.0, work(1))),
            DatedAnswer(
                10.0,
                took_s,
                description_of(
                    server.id,
                    110.0,
                    work(2, durations(*[0.002] * 99, 0.4)),
                    stored=DiskUsage(2**30, 2**29, 0, 0, False, 2**35),
                ),
            ),
        ]
        servers[server.id] = ObservedServer(
            server.address,
            deque(answers),
            hosted or (ConfigurationReport(C0, 10, 2**20, False, None),),
        )
    return ObservedCluster(servers, known, {}, 10.0)


def figures_of(heard: ObservedCluster, **more):
    consensus = {
        "outlook": "consensus: 3 of 3 members answer; survives 1 more crash",
        "leader": "r0",
        "silent": {},
    }
    return (
        {
            "name": "c",
            "at": "2026-11-22T12:00:00+00:00",
            "interval_s": 1.0,
            "consensus": consensus,
            "autopilot": None,
        }
        | figures(heard)
        | more
    )


def view(tree, columns=80, rows=24) -> str:
    shown = lines(tree, columns, rows, colours=False)
    assert len(shown) <= rows
    assert all(len(line) <= columns for line in shown)
    return "\n".join(shown)


def test_operations_are_requests_by_the_servers_that_one_asks():
    done = figures(seen())["operations"]
    assert done["reads_per_s"] == pytest.approx(5 * 2.4 / C0.quorum_size)
    assert done["writes_per_s"] == pytest.approx(5 * 0.8 / C0.quorum_size)
    assert done["sent_bytes_per_s"] == 5 * 50
    assert 0.001 < done["read_p50_s"] <= 0.0025
    assert 0.001 < done["read_p99_s"] <= 0.5
    assert done["write_p50_s"] is None


def test_times_are_those_at_servers_with_the_queue_before_and_the_commit_within():
    """A read of 2 ms beside clients with waits of 12 ms: the figures name the place of the rest."""
    heard = seen()
    for server in heard.servers.values():
        last = server.answers[-1]
        longer = replace(last.description.work, queueing=durations(*[0.01] * 9))
        server.answers[-1] = replace(last, description=replace(last.description, work=longer))
    tree = figures_of(heard)
    assert 0.005 < tree["operations"]["queue_p50_s"] <= 0.01
    assert tree["operations"]["commit_p50_s"] is None, "no server has a disk"
    shown = view(tree, COLUMNS_MIN)
    for begin in ("reads at servers ", "writes at servers", "queue before "):
        assert any(line.startswith(begin) for line in shown.splitlines()), shown
    with_disk = replace(longer, committing=durations(0.004))
    for server in heard.servers.values():
        first, last = server.answers
        server.answers[0] = replace(
            first,
            description=replace(
                first.description, work=replace(first.description.work, committing=NOTHING)
            ),
        )
        server.answers[-1] = replace(last, description=replace(last.description, work=with_disk))
    assert 0.0025 < figures(heard)["servers"][0]["commit_p99_s"] <= 0.005
    assert "commit 3.75ms 4.98ms" in view(figures_of(heard), COLUMNS_MIN)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 1.0), (0.25, 0.5), (0.75, 2.0), (1.0, 3.0)])
def test_percentiles_lie_on_a_line_within_a_step(share, expected):
    assert percentile(share, (1.0, 3.0), (2, 2, 0)) == pytest.approx(expected)


def test_percentiles_of_nothing_and_of_what_is_beyond_all_bounds():
    assert percentile(0.5, (1.0, 3.0), (0, 0, 0)) is None
    assert percentile(0.5, (1.0, 3.0), (0, 0, 7)) == 3.0


def test_a_server_that_was_restarted_counts_from_nothing():
    heard = seen().servers["s0"]
    heard.take(DatedAnswer(11.0, 0.001, description_of("s0", 0.5, work(0))), 0.0)
    assert heard.difference() is None
    heard.take(DatedAnswer(12.0, 0.001, description_of("s0", 1.5, work(1))), 0.0)
    seconds, _, last = heard.difference()
    assert (seconds, last.puts) == (1.0, 10)


def test_what_is_older_than_the_window_is_dropped():
    heard = seen().servers["s0"]
    heard.take(
        DatedAnswer(
            20.0, 0.001, description_of("s0", 120.0, work(5, durations(*[0.002] * 99, 0.4)))
        ),
        9.0,
    )
    assert [answer.at_s for answer in heard.answers] == [10.0, 20.0]


def test_a_release_that_counts_nothing_is_told_of_and_leaves_the_others_their_figures():
    heard = seen()
    for name in ("s3", "s4"):
        heard.servers[name].answers = deque(
            replace(answer, description=replace(answer.description, work=None))
            for answer in heard.servers[name].answers
        )
    assert figures(heard)["operations"]["reads_per_s"] == pytest.approx(3 * 2.4 / C0.quorum_size)
    shown = view(figures_of(heard))
    assert "s3, s4: of an earlier release, which counts nothing" in shown


def test_the_view_of_a_healthy_cluster_without_a_move():
    shown = view(figures_of(seen()))
    assert "5 of 5 servers answer" in shown
    assert "EC n=5 k=3" in shown
    assert "1 more" in shown
    assert "32.0G" in shown
    assert "moving" not in shown


def test_silent_servers_and_what_may_still_fail():
    heard = seen()
    for name in ("s1", "s2"):
        heard.servers[name].silent_s, heard.servers[name].why = (
            12.0,
            "connection refused: is it running?",
        )
    tree = figures_of(heard)
    shown = view(tree)
    assert "s1 silent for 12 s: connection refused: is it running?" in shown
    assert "3 of 5 servers answer" in shown
    assert "STOPPED, 1 missing" in shown
    assert (tree["domains"][0]["reads_survive"], tree["servers"][1]["state"]) == (-1, "silent")
    assert tree["servers"][1]["why"] == "connection refused: is it running?"


def test_a_starting_server_tells_how_far_it_is():
    heard = seen()
    why = "starting: 43 % of its journal of 110.0 MiB is read"
    heard.servers["s1"].silent_s, heard.servers["s1"].why = 12.0, why
    tree = figures_of(heard)
    assert f"s1 {why}" in view(tree)
    assert tree["servers"][1]["why"] == why
    assert status_command._server_cells(None, why)[0] == "[yellow]starting[/yellow]"
    assert status_command._server_cells(None, "connection refused")[0] == "[red]silent[/red]"


def row_of(shown: str, server: str) -> int:
    [found] = [
        number for number, line in enumerate(shown.splitlines()) if line.startswith(f"{server}  ")
    ]
    return found


@pytest.mark.parametrize("columns", [72, 80, 120])
def test_a_stopped_server_stays_in_its_row(columns):
    """Earlier versions moved a stopped server below all running servers."""
    heard = seen()
    before = view(figures_of(heard), columns)
    heard.servers["s1"].silent_s, heard.servers["s1"].why = 130.0, "connection refused"
    after = view(figures_of(heard), columns)
    for server in SERVERS:
        assert row_of(before, server.id) == row_of(after, server.id)
    assert after.splitlines()[row_of(after, "s1")].split() == ["s1", "silent", ">", "2", "min"]
    assert "s1 silent for 2 min: connection refused" in after


def test_why_many_servers_are_silent_takes_three_lines_at_most():
    heard = seen()
    for server in SERVERS:
        heard.servers[server.id].silent_s, heard.servers[server.id].why = 2.0, f"why {server.id}"
    shown = view(figures_of(heard))
    assert [name for name in ("s0", "s1", "s2") if f"{name} silent for 2 s: why" in shown] == [
        "s0",
        "s1",
    ]
    assert "and 3 more are silent" in shown


def test_history_keeps_the_largest_of_each_step():
    history = TopHistory(2.0)  # three looks are a step of 6 s
    nothing = dict.fromkeys(SERIES)
    for rate in (1.0, 9.0, None, 4.0):
        noted = history.note(nothing | {"reads_per_s": rate})
    assert (noted["step_s"], noted["reads_per_s"]) == (6.0, [9.0, 4.0])
    assert noted["write_p99_s"] == [None, None]
    for rate in range(400):
        noted = history.note(nothing | {"reads_per_s": float(rate)})
    assert len(noted["reads_per_s"]) == HISTORY_STEPS_MAX
    assert noted["reads_per_s"][-1] == 399.0
    assert TopHistory(60.0).note(nothing)["step_s"] == 60.0


def test_a_sparkline_goes_up_to_the_largest_value():
    assert sparkline([0.0, None, 1.0, 50.0, 100.0], 7) == "  ▁ ▂▅█"
    assert sparkline([0.0, 0.0, None], 3) == "▁▁ "
    assert sparkline([100.0, 1.0, 2.0], 2) == "▅█"
    assert sparkline([], 2) == "  "


def test_wide_terminals_show_the_last_minutes():
    history = TopHistory(1.0)
    for look in range(100):
        noted = history.note({"reads_per_s": look * 10.0, "writes_per_s": 5.0} | TIMES)
    shown = view(figures_of(seen(), history=noted), 120, 30)
    assert "last 110 s  reads" in shown
    assert "▅▅▅▆▆▆▇▇▇███  at most 990/s" in shown
    assert "read p99" in shown
    assert "at most 12.0ms" in shown
    assert "last" not in view(figures_of(seen(), history=noted), 111, 30)
    assert "last 5 min" in view(figures_of(seen(), history=noted), 220, 30)
    for columns in range(112, 240, 7):
        for rows in (ROWS_MIN, 20, 50):
            view(figures_of(seen(), history=noted), columns, rows)


def test_lines_have_stable_columns_that_a_program_can_split():
    heard = seen()
    looks = [figures_of(heard)]
    for id in ("s1", "s2"):
        heard.servers[id].silent_s = 9.0
    looks.append(figures_of(heard, moves=[{}]))
    quiet = figures_of(heard, operations=dict.fromkeys(looks[0]["operations"]), domains=[])
    heads = header().split()
    rows = [dict(zip(heads, line(look).split(), strict=True)) for look in (*looks, quiet)]
    assert rows[0] == {
        "time": "2026-11-22T12:00:00Z",
        "reads/s": "3.0",
        "writes/s": "1.0",
        "read_p50_ms": "1.76",
        "read_p99_ms": "2.50",
        "write_p50_ms": "-",
        "write_p99_ms": "-",
        "queue_p50_ms": "-",
        "queue_p99_ms": "-",
        "commit_p50_ms": "-",
        "commit_p99_ms": "-",
        "up": "5",
        "servers": "5",
        "survive": "1",
        "moves": "0",
        "silent": "-",
    }
    assert (rows[1]["up"], rows[1]["survive"], rows[1]["moves"]) == ("3", "-1", "1")
    assert rows[1]["silent"] == "s1,s2"
    assert (rows[2]["reads/s"], rows[2]["survive"]) == ("-", "-")
    assert header().index("silent") == line(quiet).index("s1,s2") == line(looks[0]).rindex("-")


def test_a_full_disk_stops_writes_before_reads():
    heard = seen()
    last = heard.servers["s4"].answers[-1]
    heard.servers["s4"].answers[-1] = replace(
        last, description=replace(last.description, stored=DiskUsage(1, 1, 0, 0, True))
    )
    domain = figures_of(heard)["domains"][0]
    assert (domain["reads_survive"], domain["writes_survive"]) == (1, 0)
    assert "disk full" in view(figures_of(heard))


def test_a_slow_server_is_marked():
    heard = seen()
    heard.servers["s2"].answers = deque(
        replace(answer, took_s=0.15) for answer in heard.servers["s2"].answers
    )
    assert [server["state"] for server in figures(heard)["servers"]] == [
        "up",
        "up",
        "slow",
        "up",
        "up",
    ]
    # a slow network is no server's fault
    assert {server["state"] for server in figures(seen(took_s=0.15))["servers"]} == {"up"}


def moving(arrived: int, begun=()) -> ObservedCluster:
    heard = seen((ConfigurationReport(C0, 1000, 2**20, False, Successor(C1, Status.PENDING)),))
    heard.known.note(C1, False)
    for name in ("s0", "s1"):
        heard.servers[name].hosted += (ConfigurationReport(C1, arrived, 0, False, None),)
    heard.begun = {C1.id: deque(begun)}
    return heard


def test_a_move_tells_how_far_it_is_and_how_long_it_takes():
    tree = figures_of(moving(400, [(5.0, 200)]))
    [move] = tree["moves"]
    assert (move["from"], move["to"], move["moved"], move["objects"]) == (0, 1, 400, 1000)
    assert (move["objects_per_s"], move["remaining_s"]) == (40.0, 15.0)
    assert "[########............] 400 of 1000, about 15 s left" in view(tree)


def test_a_move_at_a_standstill_and_one_at_its_end():
    assert "none arrives now" in view(figures_of(moving(400, [(5.0, 400)])))
    assert "to be finalized" in view(figures_of(moving(1000, [(5.0, 400)])))
    assert "0 of 1000, none arrives now" in view(figures_of(moving(0)))


def test_what_arrived_at_fewer_than_a_quorum_has_not_moved():
    heard = moving(400)
    heard.servers["s1"].hosted = heard.servers["s1"].hosted[:1]
    assert figures_of(heard)["moves"][0]["moved"] == 0


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (72, 14), (73, 15), (200, 60), (80, 14)])
def test_it_fits_whatever_there_is_to_show(columns, rows):
    heard = moving(10)
    for number in range(5, 60):
        heard.servers[f"s{number}"] = replace_server(heard.servers["s0"], silent=number % 2 == 0)
        heard.known.note(Configuration.abd(SERVERS[:3]).at(f"domain-{number}" * 3, 0, C0.id), True)
    silent = {f"r{number}": "no answer" for number in range(3)}
    consensus = {
        "outlook": "consensus: 0 of 3 members answer, no majority: reads go on",
        "leader": None,
        "silent": silent,
    }
    shown = view(figures_of(heard, consensus=consensus, autopilot="watches " * 40), columns, rows)
    assert "c  " in shown
    assert "silent for" in shown
    assert "domain" in shown


def replace_server(heard: ObservedServer, silent: bool) -> ObservedServer:
    return ObservedServer(
        heard.address, heard.answers, (), 3.0 if silent else 0.0, "no answer" if silent else ""
    )


def test_more_columns_show_more():
    assert "uptime" not in view(figures_of(seen()))
    assert "uptime" in view(figures_of(seen()), columns=120)


def test_names_cannot_write_to_the_terminal():
    heard = seen()
    heard.known.note(Configuration.abd(SERVERS[:3]).at("evil\x1b[2J\u202e", 0, C0.id), True)
    heard.servers["s0"].silent_s, heard.servers["s0"].why = 2.0, "\x1b]0;pwned\x07"
    shown = view(figures_of(heard, name="c\x1b[31m", autopilot="replacing \x1b[1m"), columns=150)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "evil" in shown
    tree = figures_of(heard)
    tree["servers"][0]["id"] = "s0 \x1b[2J,\n\u202e"
    printed = line(tree)
    assert printed.endswith("  s0???2J???")
    assert len(printed.split()) == len(header().split())


@pytest.mark.parametrize(
    ("columns", "rows"), [(COLUMNS_MIN - 1, 24), (80, ROWS_MIN - 1), (20, 2), (1, 1)]
)
def test_a_terminal_that_is_too_small_is_told_so(columns, rows):
    shown = lines(figures_of(seen()), columns, rows)
    assert len(shown) <= rows
    assert all(len(line) <= columns for line in shown)
    assert columns < 30 or "q quits" in shown[1]


def test_times_and_amounts_in_words():
    assert [ms(seconds) for seconds in (None, 0.00012, 0.0123, 0.456, 1.5)] == [
        "-",
        "0.12ms",
        "12.3ms",
        "456ms",
        "1.50s",
    ]
    assert [in_words(seconds) for seconds in (12.4, 150, 9000)] == ["12 s", "2 min", "2.5 h"]
    assert [brief(count) for count in (None, 12, 2**20, 3 * 2**39)] == ["", "12", "1.0M", "1.5T"]


def test_work_is_counted_and_travels():
    traffic = ListenerTraffic()
    traffic.count_batch([GetTag(1, C0.id, "a"), GetData(2, C0.id, "a", True)], [b"123"])
    traffic.count_turn([TagReply(1, None, None), DataReply(2, (), 0, None, None, None)], 0.003)
    traffic.count_waited(0.03, reads=1, writes=1)
    description = description_of("s0", 1.0, traffic.work())
    [again] = decode(encode([description]))
    assert again.work == traffic.work()
    assert (again.work.queries, again.work.fetches, again.work.puts, again.work.received_bytes) == (
        1,
        1,
        0,
        3,
    )
    assert (sum(again.work.reading.counts), sum(again.work.writing.counts)) == (3, 1)
    assert PutData not in traffic.requests or traffic.requests[PutData] == 0


def odd(bounds_s=REPLY_S_BUCKETS, counts=None) -> Durations:
    return Durations(
        tuple(bounds_s), tuple([0] * (len(bounds_s) + 1) if counts is None else counts)
    )


@pytest.mark.parametrize(
    "told_by_it",
    [
        {"uptime_s": float("nan")},
        {"uptime_s": float("inf")},
        {"uptime_s": -1.0},
        {"memory_bytes": -1},
        {"memory_bytes": 2**64 - 1},
        {"stored": DiskUsage(-1, 0)},
        {"stored": DiskUsage(0, 0, -7)},
        {"stored": DiskUsage(0, 0, free_bytes=2**64 - 1)},
        {"hosted": (ConfigurationReport(C0, -1, 0, False, None),)},
        {"work": replace(work(1), queries=-1)},
        {"work": replace(work(1), received_bytes=2**64 - 1)},
        {"work": work(1, odd(counts=[1]))},
        {"work": work(1, writing=odd((), ()))},
        {"work": work(1, odd((), [1]))},
        {"work": replace(work(1), queueing=odd(counts=[1]))},
        {"work": replace(work(1), committing=odd((), ()))},
        {"work": work(1, odd([float("nan")] * 3))},
        {"work": work(1, odd([1.0, float("inf")]))},
        {"work": work(1, odd([-1.0, 1.0]))},
        {"work": work(1, odd([2.0, 1.0]))},
        {"work": work(1, odd(counts=[-1] * (len(REPLY_S_BUCKETS) + 1)))},
    ],
)
def test_what_no_server_can_say_is_not_believed(told_by_it):
    assert is_credible(description_of("s0", 100.0, work(1), stored=DiskUsage(2**30, 2**29)))
    assert not is_credible(replace(description_of("s0", 100.0, work(1)), **told_by_it))


def test_there_are_no_rates_from_counts_that_became_less_or_from_no_time():
    for uptime_s, later in ((110.0, work(1)), (100.0 + 1e-9, work(3))):
        heard = ObservedServer("10.0.0.0:7400", deque())
        heard.take(DatedAnswer(0.0, 0.001, description_of("s0", 100.0, work(2))), 0.0)
        heard.take(DatedAnswer(1.0, 0.001, description_of("s0", uptime_s, later)), 0.0)
        assert heard.difference() is None
