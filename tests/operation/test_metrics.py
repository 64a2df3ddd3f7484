"""The counts, and the page that shows them to Prometheus.

See ares/metrics.py, ares/server/prometheus.py.
"""

import pytest
from msgspec.structs import replace

from ares.metrics import (
    DISK_S_BUCKETS,
    REPLY_S_BUCKETS,
    AutopilotCounters,
    Histogram,
    ListenerTraffic,
    holding,
)
from ares.model.codec import encode
from ares.model.configuration import Configuration, Status, Successor
from ares.model.messages import (
    Ack,
    CollectConfig,
    ConsensusDescription,
    DiskUsage,
    GetTag,
    PutAhead,
    Reason,
    Refused,
    WriteConfig,
)
from ares.net.batching import BatchListener
from ares.replica.port import lists_of
from ares.server.prometheus import of_member, of_process, of_server, of_traffic, render
from ares.server.storage_server import StorageServer
from tests.journal.journal_node import INITIAL, NEXT, PHOTOS, plain, put, requests

from .pages import check_histogram, samples


def test_a_histogram_puts_a_duration_where_it_belongs():
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.11, 1.0, 5.0, 5.0):
        histogram.add(seconds)
    assert histogram.counts == [2, 2, 2]
    assert histogram.sum_s == pytest.approx(11.21)


def test_traffic_counts_requests_by_kind_and_refusals_by_reason():
    traffic = ListenerTraffic()
    asked = [GetTag(1, INITIAL.id, "a"), GetTag(2, INITIAL.id, "a"), put("a", 1)]
    traffic.count_batch(asked, [b"12345", b"678"])
    traffic.count_turn([Ack(1, None), Refused(2, Reason.STORAGE, "full")], 0.01)
    traffic.count_replies([Refused(3, Reason.STORAGE, "full")])
    traffic.count_waited(0.3, reads=0, writes=1)
    found = samples(render(of_traffic(traffic, 3, 2)).decode())
    assert found['ares_requests_total{kind="get_tag"}'] == 2
    assert found['ares_requests_total{kind="put_data"}'] == 1
    assert found['ares_refused_total{reason="storage"}'] == 2
    assert found['ares_refused_total{reason="identity"}'] == 0
    assert (
        found["ares_bad_batches_total"],
        found["ares_connections"],
        found["ares_received_bytes_total"],
    ) == (3, 2, 8)
    assert check_histogram(found, "ares_batch_seconds") == 1
    assert found['ares_reply_seconds_count{kind="write"}'] == 2
    assert found['ares_reply_seconds_bucket{kind="write",le="0.01"}'] == 1
    assert found['ares_reply_seconds_sum{kind="write"}'] == pytest.approx(0.31)
    assert found['ares_reply_seconds_count{kind="read"}'] == 0


def counted(replica):
    """Return the same as :func:`holding`, object by object."""
    elements = [
        element
        for hosting in replica.hosted.values()
        for _, versions in lists_of(hosting.objects)
        for _, element, _ in versions.entries
    ]
    return len(elements), sum(element.size for element in elements)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_held_is_what_is_there(seed):
    replica = plain(requests(200, seed))
    held = holding(replica.hosted.values())
    assert (held.elements, held.bytes) == counted(replica)
    assert (held.configurations, held.collected) == (2, 1)


def test_what_a_finalized_successor_has_too_is_withheld():
    replica = plain([put("a", 1, b"data", PHOTOS), put("b", 1, b"data")])
    assert holding(replica.hosted.values()).withheld == 0
    replica.introduce(PHOTOS)
    replica.handle(put("a", 1, b"data", PHOTOS))
    assert holding(replica.hosted.values()).withheld == 0
    replica.handle(WriteConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    assert holding(replica.hosted.values()).withheld == 1
    replica.handle(CollectConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    assert (
        holding(replica.hosted.values()).withheld,
        holding(replica.hosted.values()).objects,
    ) == (0, 1)


def test_what_is_being_moved_and_how_many_servers_may_fail():
    replica = plain([put("a", 1, b"data")])
    held = holding(replica.hosted.values())
    spare = INITIAL.n - INITIAL.quorum_size
    assert (held.moving, held.moving_objects, held.spare_servers) == (0, 0, spare)
    replica.handle(
        WriteConfig(
            1,
            INITIAL.id,
            Successor(
                Configuration.abd(INITIAL.servers).at("default", 1, INITIAL.cluster_id),
                Status.PENDING,
            ),
        )
    )
    assert [(held.moving, held.moving_objects) for held in [holding(replica.hosted.values())]] == [
        (1, 1)
    ]
    assert holding([]).spare_servers == -1


async def test_the_page_of_a_server():
    host = StorageServer(plain(requests(50)))
    held, later = put("k", 1, b"data"), NEXT.at("photos", 2, INITIAL.id)
    host.replica.handle(PutAhead(1, later.id, held.object, held.tag, held.element, "photos", 2))
    vitals = host.vitals()
    commits = Histogram(DISK_S_BUCKETS)
    commits.add(0.003)
    stored = replace(
        vitals,
        description=replace(vitals.description, stored=DiskUsage(100, 50, 2, 3, in_logs=4)),
        commits=commits,
    )
    queueing = Histogram(REPLY_S_BUCKETS)
    found = samples(
        render([*of_process("s1", "server", True, queueing), *of_server(stored, commits)]).decode()
    )
    assert found["ares_serving"] == 1
    assert found["ares_element_bytes"] == vitals.holding.bytes > 0
    assert found["ares_ahead_bytes"] == host.replica.ahead.bytes > 0
    assert (found["ares_disk_bytes"], found["ares_disk_live_bytes"]) == (100, 50)
    assert (found["ares_quarantined_elements"], found["ares_repaired_elements_total"]) == (2, 3)
    assert found["ares_damaged_log_places"] == 4
    assert (
        check_histogram(found, "ares_commit_seconds")
        == check_histogram(found, "ares_fsync_seconds")
        == 1
    )
    assert found["process_resident_memory_bytes"] > 10**6
    assert "ares_disk_free_bytes" not in found, "the file system did not say"
    in_memory = samples(render(of_server(vitals, commits)).decode())
    assert "ares_disk_bytes" not in in_memory
    assert "ares_commit_seconds_count" not in in_memory


def test_the_page_of_a_consensus_member():
    found = samples(
        render(of_member(ConsensusDescription(0, "r0", "r1", 4, 7, 2, 3), 5, 6)).decode()
    )
    assert (
        found["ares_consensus_leader_known"],
        found["ares_consensus_leads"],
        found["ares_consensus_decisions"],
    ) == (1, 0, 7)
    assert (
        found["ares_consensus_members_reachable"],
        found["ares_consensus_under_way"],
        found["ares_unknown_keys_total"],
    ) == (2, 5, 6)
    alone = samples(render(of_member(ConsensusDescription(0, "r0", "", 4, 7, 1, 3), 0, 0)).decode())
    assert alone["ares_consensus_leader_known"] == 0
    assert "ares_autopilot_moves_total" not in alone
    flown = samples(
        render(
            of_member(
                ConsensusDescription(0, "r0", "r0", 4, 7, 1, 1),
                0,
                0,
                AutopilotCounters(1, 2, 3, 4, 5, 6, 7),
            )
        ).decode()
    )
    assert {
        name.removeprefix("ares_autopilot_"): value
        for name, value in flown.items()
        if "autopilot" in name
    } == {
        "absent_servers": 1,
        "troubled_domains": 2,
        "moved_objects": 3,
        "move_objects": 4,
        "moves_total": 5,
        "troubled_logs": 6,
        "follows_total": 7,
    }


async def test_no_name_that_a_client_chose_is_on_the_page():
    replica = plain([put("secret-object", 1, b"data")])
    other = Configuration.abd(PHOTOS.servers).at("secret-domain", 0, INITIAL.id)
    assert replica.introduce(other) is None
    page = render(of_server(StorageServer(replica).vitals(), Histogram(DISK_S_BUCKETS)))
    assert b"secret" not in page
    assert b"ares_objects 1.0" in page


@pytest.mark.parametrize(
    "page",
    [
        "ares_x{ 1\n",
        "# TYPE ares_x counter\nares_x_total one\n",
        "# HELP ares_x y\nares_x 1\nares_x 2\n",
    ],
)
def test_the_reader_of_these_tests_refuses_what_is_no_page(page):
    with pytest.raises((ValueError, AssertionError)):
        samples(page)


class Deaf(BatchListener):
    """A listener without a wire."""

    def _drain(self) -> None: ...

    def _send_batch(self, sender, frames) -> None: ...


async def test_bad_and_failing_batches_are_counted(caplog):
    traffic = ListenerTraffic()
    listener = Deaf(traffic)
    listener._start(lambda sender, messages: 1 / 0, "nowhere")
    listener._receive("client", [[b"\x07garbage"]])
    listener._receive("client", [encode([GetTag(1, INITIAL.id, "a")])])
    assert traffic.received_bytes > 8
    assert sum(traffic.batches.counts) == 2
    assert traffic.requests[GetTag] == 1
    assert (listener.bad_batches, "failed and gets no reply" in caplog.text) == (1, True)
