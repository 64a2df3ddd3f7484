"""Numbers of this process in the format of Prometheus.

The page is made on request, out of counts kept anyway (ares/metrics.py). No label ever has
a value chosen by a client: the names of domains and objects are for `ares-cli status`, and may be
millions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ares import compiled
from ares.metrics import (
    AutopilotCounters,
    GatewayTraffic,
    Histogram,
    ListenerTraffic,
    LogTotals,
    Vitals,
)
from ares.model.messages import ConsensusDescription, DiskUsage
from ares.platform import tasks
from ares.platform.release import version

KIND = "text/plain; version=0.0.4; charset=utf-8"

_process = ProcessCollector(registry=None)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        yield from self._families
        yield from _process.collect()


def render(families: Iterable[Metric]) -> bytes:
    """Return the page, with the kernel's numbers of the process at the end."""
    return generate_latest(_Families(families))


def of_process(
    id: str, kind: str, serving: bool, queueing: Histogram, site: str = ""
) -> Iterator[Metric]:
    """Yield the numbers of a process. ``kind``: server or consensus.

    ``queueing``: waits for a turn on the event loop.
    """
    info = Gauge(
        "ares_info",
        "Which process this is, at which site, with which core; always 1.",
        labels=["id", "kind", "version", "site", "core"],
    )
    info.add_metric([id, kind, version(), site, compiled.CORE_NAME], 1)
    yield info
    yield Gauge("ares_serving", "Whether /health says 200.", serving)
    yield _histogram(
        "ares_loop_lag_seconds",
        "Time that a request waits for its turn on the event loop, by 10 probes a second.",
        queueing,
    )
    yield Counter(
        "ares_failed_tasks",
        "Background tasks, timers and callbacks that failed by a mistake in ares.",
        tasks.failures.total,
    )


def of_traffic(traffic: ListenerTraffic, bad_batches: int, connections: int) -> Iterator[Metric]:
    requests = {_snake(kind.__name__): count for kind, count in traffic.requests.items() if count}
    yield _labelled("ares_requests", "Requests that came, by kind.", "kind", requests)
    refused = {reason.name.lower(): count for reason, count in traffic.refused.items()}
    yield _labelled("ares_refused", "Requests that were refused, by reason.", "reason", refused)
    yield _histogram(
        "ares_batch_seconds",
        "Time that the requests of one batch took to be handled, without waiting for a disk.",
        traffic.batches,
    )
    replies = HistogramMetricFamily(
        "ares_reply_seconds",
        "Time from a request's arrival until its reply left, by kind of request.",
        labels=["kind"],
    )
    for kind, histogram in (("read", traffic.reading), ("write", traffic.writing)):
        replies.add_metric([kind], _buckets(histogram), histogram.sum_s)
    yield replies
    yield Counter("ares_received_bytes", "Bytes of the batches that came.", traffic.received_bytes)
    yield Counter("ares_sent_bytes", "Bytes of the batches that left.", traffic.sent_bytes)
    yield Gauge("ares_connections", "Connections of clients, at present.", connections)
    yield Counter("ares_bad_batches", "Batches that were not readable.", bad_batches)


def of_server(vitals: Vitals, fsyncs: Histogram) -> Iterator[Metric]:
    yield Counter(
        "ares_unknown_keys",
        "Attempts to connect with a key that is not authorised.",
        vitals.description.unknown_keys,
    )
    holding, stored = vitals.holding, vitals.description.stored
    yield Gauge(
        "ares_configurations",
        "Configurations that the server knows as a member.",
        holding.configurations,
    )
    yield Gauge(
        "ares_collected_configurations",
        "Configurations of the server whose data is dropped.",
        holding.collected,
    )
    yield Gauge(
        "ares_objects",
        "Objects held, deleted objects included; an object of two configurations counts twice.",
        holding.objects,
    )
    yield Gauge(
        "ares_withheld_objects",
        "Objects held that a finalized configuration has, and that await collection here.",
        holding.withheld,
    )
    yield Gauge(
        "ares_elements", "Elements held: one or more versions of each object.", holding.elements
    )
    yield Gauge("ares_element_bytes", "Data of the elements held.", holding.bytes)
    yield from _of_moves(vitals)
    if holding.spare_servers >= 0:
        yield Gauge(
            "ares_spare_servers",
            "Smallest number of servers that a configuration here can lose when all are up.",
            holding.spare_servers,
        )
    if vitals.logs is not None:
        yield from _of_logs(vitals.logs)
    if stored is not None:
        yield from _of_store(stored)
    if vitals.commits is not None:
        yield _histogram(
            "ares_commit_seconds",
            "Time from the begin of a group commit until it was on the disk.",
            vitals.commits,
        )
        yield _histogram("ares_fsync_seconds", "Time of one call to fdatasync.", fsyncs)


def _of_moves(vitals: Vitals) -> Iterator[Metric]:
    yield Gauge(
        "ares_moving_configurations",
        "Configurations that are being moved from: their successor is decided and pending.",
        vitals.holding.moving,
    )
    yield Gauge(
        "ares_moving_objects",
        "Objects in configurations that are being moved from.",
        vitals.holding.moving_objects,
    )
    yield Gauge(
        "ares_ahead_bytes",
        "Memory of copies for configurations that are not decided yet.",
        vitals.ahead_bytes,
    )


def _of_logs(logs: LogTotals) -> Iterator[Metric]:
    yield Gauge("ares_logs", "Logs of which the server is, or was, in a chain.", logs.logs)
    yield Gauge("ares_log_entries", "Entries of logs that are here.", logs.entries)
    yield Gauge(
        "ares_log_committed_entries",
        "Entries ever appended that the server knows to be at every node, of all its logs.",
        logs.committed,
    )
    yield Gauge(
        "ares_sealed_logs",
        "Logs whose last chain is sealed, with nothing decided: they take no appends.",
        logs.sealed,
    )
    yield Gauge(
        "ares_returning_logs",
        "Logs of which the restarted server takes entries back from the next server.",
        logs.returning,
    )
    yield Gauge(
        "ares_fetching_logs",
        "Logs whose older entries the server fetches from other servers.",
        logs.fetching,
    )
    yield Gauge(
        "ares_log_fetch_entries",
        "Entries of fetched logs, from the end of the trim to the start of the last chain.",
        logs.to_fetch,
    )
    yield Gauge("ares_log_fetched_entries", "Entries of fetched logs that are here.", logs.fetched)


def _of_store(stored: DiskUsage) -> Iterator[Metric]:
    if stored.free_bytes >= 0:
        yield Gauge(
            "ares_disk_free_bytes", "Room on the file system of the store.", stored.free_bytes
        )
    yield Gauge("ares_disk_bytes", "Bytes of the store on the disk.", stored.disk_bytes)
    yield Gauge(
        "ares_disk_live_bytes",
        "Bytes of the store that are still needed, about.",
        stored.live_bytes,
    )
    yield Gauge(
        "ares_quarantined_elements",
        "Elements that were found damaged and await repair.",
        stored.quarantined,
    )
    yield Counter(
        "ares_repaired_elements",
        "Elements that were damaged and are repaired.",
        stored.repaired,
    )
    yield Gauge(
        "ares_damaged_log_places",
        "Files of logs that were found damaged and await repair.",
        stored.in_logs,
    )


def of_member(
    description: ConsensusDescription,
    under_way: int,
    unknown_keys: int,
    autopilot: AutopilotCounters | None = None,
) -> Iterator[Metric]:
    yield Counter(
        "ares_unknown_keys", "Attempts to connect with a key that is not authorised.", unknown_keys
    )
    yield Gauge(
        "ares_consensus_leader_known",
        "Whether this member knows a leader.",
        bool(description.leader),
    )
    yield Gauge(
        "ares_consensus_leads",
        "Whether this member is the leader.",
        description.leader == description.member,
    )
    yield Gauge("ares_consensus_term", "The term of Raft.", description.term)
    yield Gauge(
        "ares_consensus_decisions", "Decisions that this member knows.", description.decisions
    )
    yield Gauge(
        "ares_consensus_members_reachable",
        "Members that this member is connected with, itself included.",
        description.members_reachable,
    )
    yield Gauge(
        "ares_consensus_members", "Members of the consensus service.", description.members_total
    )
    yield Gauge("ares_consensus_under_way", "Requests that wait for a decision.", under_way)
    if autopilot is not None:
        yield Gauge(
            "ares_autopilot_absent_servers",
            "Members of configurations that do not answer the autopilot here.",
            autopilot.absent,
        )
        yield Gauge(
            "ares_autopilot_troubled_domains",
            "Domains that need a change which the autopilot cannot make.",
            autopilot.troubled,
        )
        yield Gauge(
            "ares_autopilot_troubled_logs",
            "Logs that need a change which the autopilot cannot make.",
            autopilot.troubled_logs,
        )
        yield Gauge(
            "ares_autopilot_move_objects",
            "Objects of the domain that the autopilot moves now, as far as known; 0: no move.",
            autopilot.total,
        )
        yield Gauge(
            "ares_autopilot_moved_objects",
            "Objects of that domain that are moved, or need no move.",
            autopilot.seen,
        )
        yield Counter(
            "ares_autopilot_moves", "Moves that the autopilot has completed.", autopilot.done
        )
        yield Counter(
            "ares_autopilot_follows",
            "Domains that the autopilot has moved to the site of their users.",
            autopilot.follows,
        )


def of_gateway_traffic(traffic: GatewayTraffic) -> Iterator[Metric]:
    requests = Counter(
        "ares_gateway_requests",
        "Requests that were answered, by S3's operation and HTTP's status.",
        labels=["operation", "status"],
    )
    for (operation, status), count in sorted(traffic.requests.items()):
        requests.add_metric([operation, str(status)], count)
    yield requests
    yield _labelled(
        "ares_gateway_refused",
        "Requests and connections that were refused before their meaning was known, by reason.",
        "reason",
        traffic.refused,
    )
    yield Counter(
        "ares_gateway_cut_answers", "Answers that were cut: data or the peer failed.", traffic.cut
    )
    answers = HistogramMetricFamily(
        "ares_gateway_answer_seconds",
        "Time from a request's head until its answer was taken, by kind of request.",
        labels=["kind"],
    )
    for kind, histogram in (("read", traffic.reading), ("write", traffic.writing)):
        answers.add_metric([kind], _buckets(histogram), histogram.sum_s)
    yield answers
    yield Counter(
        "ares_gateway_received_bytes", "Bytes of the bodies that came.", traffic.received_bytes
    )
    yield Counter("ares_gateway_sent_bytes", "Bytes of the answers.", traffic.sent_bytes)


def of_gateway(connections: int, at_work: int, memory_bytes: int) -> Iterator[Metric]:
    yield Gauge("ares_gateway_connections", "Connections of S3 clients, at present.", connections)
    yield Gauge("ares_gateway_at_work", "Requests at work.", at_work)
    yield Gauge("ares_gateway_memory_bytes", "Memory taken by requests at work.", memory_bytes)


OF_KIND: Mapping[str, Callable[..., Iterator[Metric]]] = {
    "server": of_server,
    "consensus": of_member,
    "gateway": of_gateway,
}
"""The functions for the numbers of each kind of process.

The arguments are the numbers of a look at the process (ares/server/monitor.py).
"""


def _labelled(name: str, what: str, label: str, values: dict[str, int]) -> Metric:
    family = Counter(name, what, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _histogram(name: str, what: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(name, what, _buckets(histogram), histogram.sum_s)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))


def _snake(name: str) -> str:
    return "".join(
        f"_{letter.lower()}" if letter.isupper() else letter for letter in name
    ).removeprefix("_")
