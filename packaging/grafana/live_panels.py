"""The dashboard of a cluster at work: queries to Prometheus, panels, and variables."""

from typing import Any

from panels import (
    GREEN,
    RED,
    YELLOW,
    Panel,
    PanelRow,
    dashboard,
    datasource,
    panels,
    query_variable,
)


def of_server(expression: str) -> str:
    """Return an expression with the server's id as a label, only for the chosen servers.

    ``expression`` keeps the labels `instance` and `job`.
    """
    return (
        f'({expression}) * on (instance, job) group_left (id) ares_info{{kind="server", '
        'id=~"$server"}'
    )


def of_process(expression: str) -> str:
    return f"({expression}) * on (instance, job) group_left (id) ares_info"


def of_member(expression: str) -> str:
    return f'({expression}) * on (instance, job) group_left (id) ares_info{{kind="consensus"}}'


def rate(metric: str, labels: str = "", by: str = "") -> str:
    inner = f'rate({metric}{{job=~"$job"{labels}}}[$__rate_interval])'
    return f"sum by ({by}) ({inner})" if by else inner


def quantile(share: float, metric: str, labels: str = "", by: str = "le") -> str:
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, by)})"


def quantiles(metric: str, labels: str = "") -> list[tuple[str, str]]:
    return [
        (quantile(share, metric, labels), name)
        for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))
    ]


def each(metric: str, share: float = 0.99, labels: str = "") -> list[tuple[str, str]]:
    """Return a query for the percentile of every server."""
    return [(of_server(quantile(share, metric, labels, "le, instance, job")), "{{id}}")]


def gauge(metric: str) -> list[tuple[str, str]]:
    return [(of_server(f'{metric}{{job=~"$job"}}'), "{{id}}")]


JOB = '{job=~"$job"}'
SERVERS_DOWN = f'(count(up{JOB[:-1]}, role="server"}} == 0) or vector(0))'
SERVERS_WEAK = f'(count(ares_serving{JOB[:-1]}, role="server"}} == 0) or vector(0))'

LIVE = (
    PanelRow(
        "Now",
        (
            Panel(
                "Processes that serve",
                "Servers and consensus members whose /health says 200.",
                [(f"sum(ares_serving{JOB})", "")],
                *("none", "stat", 4, 4),
                steps=[(RED, 0), (GREEN, 1)],
                decimals=0,
            ),
            Panel(
                "Processes that are gone or cannot serve",
                "Not scraped, or /health says 503: look at `why` there, and at the log of the "
                "process.",
                [
                    (
                        f"(count(up{JOB} == 0) or vector(0)) + (count(ares_serving{JOB} == 0) or "
                        "vector(0))",
                        "",
                    )
                ],
                *("none", "stat", 4, 4),
                steps=[(GREEN, 0), (RED, 1)],
                decimals=0,
            ),
            Panel(
                "Servers that may still fail",
                "Before some domain stands still: what the configuration with the fewest to spare "
                "can lose, less the servers that are gone or whose disk is full. Wants the label "
                "role=server on the targets. It may be too low, for those that are gone need not "
                "be of that domain: `ares-cli status` is exact.",
                [(f"min(ares_spare_servers{JOB}) - {SERVERS_DOWN} - {SERVERS_WEAK}", "")],
                *("none", "stat", 4, 4),
                steps=[(RED, -100), (YELLOW, 0), (GREEN, 1)],
                decimals=0,
            ),
            Panel(
                "Leaders of the consensus service",
                "One. None: reconfiguring and creating domains wait, reads and writes go on.",
                [(f"sum(ares_consensus_leads{JOB})", "")],
                *("none", "stat", 4, 4),
                steps=[(RED, 0), (GREEN, 1)],
                decimals=0,
            ),
            Panel(
                "Moves under way",
                "Configurations whose successor is decided and pending, at the server that knows "
                "most. For long: it was left half done, and `ares-cli reconfig` finishes it.",
                [(f"max(ares_moving_configurations{JOB})", "")],
                *("none", "stat", 4, 4),
                steps=[(GREEN, 0), (YELLOW, 1)],
                decimals=0,
            ),
            Panel(
                "Damaged elements, files of logs",
                "Found damaged on disks, and not repaired yet. For an hour: `ares-cli scrub`, and "
                "replace the disk.",
                [
                    (f"sum(ares_quarantined_elements{JOB})", "elements"),
                    (f"sum(ares_damaged_log_places{JOB})", "files of logs"),
                ],
                *("none", "stat", 4, 4),
                steps=[(GREEN, 0), (RED, 1)],
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Latency, at the servers",
        (
            Panel(
                "Reads: time to reply",
                "Requests for tags and values, from arrival until the reply left, all servers "
                "together. A client waits for the network, too.",
                quantiles("ares_reply_seconds", ', kind="read"'),
                "s",
            ),
            Panel(
                "Writes: time to reply",
                "Requests to store, from arrival until the reply left: with durability = fsync "
                "that is when they are on the disk.",
                quantiles("ares_reply_seconds", ', kind="write"'),
                "s",
            ),
            Panel(
                "Writes: p99 of each server",
                "Who is slow? A quorum waits for its slowest.",
                each("ares_reply_seconds", labels=', kind="write"'),
                "s",
            ),
            Panel(
                "Reads: p99 of each server",
                "Who is slow? A quorum waits for its slowest.",
                each("ares_reply_seconds", labels=', kind="read"'),
                "s",
            ),
            Panel(
                "Event loop: p99 of being late",
                "Above a quarter of a second there is too much to do for the machine, or it swaps.",
                each("ares_loop_lag_seconds"),
                "s",
                steps=[(GREEN, 0), (RED, 0.25)],
            ),
            Panel(
                "Batches: p99 of the processor's time",
                "The requests of a batch are handled together; other requests wait for so long.",
                each("ares_batch_seconds"),
                "s",
            ),
        ),
    ),
    PanelRow(
        "Traffic",
        (
            Panel(
                "Requests by kind",
                "A write asks a quorum for tags (get_tag) and stores at all servers (put_data), a "
                "read asks a quorum (get_data).",
                [(rate("ares_requests_total", by="kind") + " > 0", "{{kind}}")],
                "reqps",
                stacked=True,
            ),
            Panel(
                "Requests of each server",
                "About the same for the servers of one domain.",
                [(of_server(rate("ares_requests_total", by="instance, job")), "{{id}}")],
                "reqps",
            ),
            Panel(
                "Bytes",
                "What came, and what left, all processes together.",
                [
                    (f"sum({rate('ares_received_bytes_total')})", "received"),
                    (f"sum({rate('ares_sent_bytes_total')})", "sent"),
                ],
                "Bps",
            ),
            Panel(
                "Connections",
                "Clients that are connected, with each process.",
                [(of_process(f"ares_connections{JOB}"), "{{id}}")],
                decimals=0,
            ),
            Panel(
                "Refusals by reason",
                "`unknown_configuration` is usual after a reconfiguration. `identity`, "
                "`other_cluster`: a server lost its memory, or a client has the wrong file. "
                "`conflicting_successor` must never be: stop reconfiguring, and report it.",
                [(rate("ares_refused_total", by="reason"), "{{reason}}")],
                "reqps",
            ),
            Panel(
                "Strangers",
                "Attempts to connect with a key that is not authorised, and batches that were not "
                "readable.",
                [
                    (f"sum({rate('ares_unknown_keys_total')})", "unknown keys"),
                    (f"sum({rate('ares_bad_batches_total')})", "bad batches"),
                ],
                "reqps",
                steps=[(GREEN, 0), (RED, 1)],
            ),
            Panel(
                "Failed tasks",
                "Background work that failed by a mistake in ares: the log has the traceback.",
                [(of_process(rate("ares_failed_tasks_total")), "{{id}}")],
                "ops",
                steps=[(GREEN, 0), (RED, 0.001)],
            ),
        ),
    ),
    PanelRow(
        "Gateways of S3",
        (
            Panel(
                "Requests by operation",
                "Requests of S3 clients, all gateways together.",
                [(rate("ares_gateway_requests_total", by="operation") + " > 0", "{{operation}}")],
                "reqps",
                stacked=True,
            ),
            Panel(
                "Requests by status",
                "412: a condition did not hold. 503: too busy, or the log of the buckets did not "
                "answer; clients repeat these.",
                [(rate("ares_gateway_requests_total", by="status") + " > 0", "{{status}}")],
                "reqps",
            ),
            Panel(
                "Time to answer",
                "From the head of a request until its answer was taken, data included.",
                quantiles("ares_gateway_answer_seconds"),
                "s",
            ),
            Panel(
                "Bytes of S3 clients",
                "Bodies that came, and answers, all gateways together.",
                [
                    (f"sum({rate('ares_gateway_received_bytes_total')})", "received"),
                    (f"sum({rate('ares_gateway_sent_bytes_total')})", "sent"),
                ],
                "Bps",
            ),
            Panel(
                "At work",
                "Connections, and requests at work. A process answers SlowDown at its bounds.",
                [
                    (f"sum(ares_gateway_connections{JOB})", "connections"),
                    (f"sum(ares_gateway_at_work{JOB})", "requests"),
                ],
                decimals=0,
            ),
            Panel(
                "Memory of requests",
                "Memory taken by requests at work, with each process.",
                [(of_process(f"ares_gateway_memory_bytes{JOB}"), "{{id}}")],
                "bytes",
            ),
            Panel(
                "Refused, cut",
                "Requests and connections refused before their meaning was known, by reason, and "
                "answers that were cut.",
                [
                    (rate("ares_gateway_refused_total", by="reason"), "{{reason}}"),
                    (f"sum({rate('ares_gateway_cut_answers_total')})", "cut"),
                ],
                "reqps",
            ),
        ),
    ),
    PanelRow(
        "Quorum",
        (
            Panel(
                "Scraped",
                "1: the process answers Prometheus. 0: it is gone, stopped, or cannot be reached "
                "from here.",
                [(f"up{JOB}", "{{instance}}")],
            ),
            Panel(
                "Serving",
                "1: it can serve. 0: its event loop hangs, its disk is full or failed, or a "
                "consensus member knows no leader.",
                [(of_process(f"ares_serving{JOB}"), "{{id}}")],
            ),
            Panel(
                "To spare when all are up",
                "Servers that the configuration with the fewest, of those that each server "
                "serves, can lose when all are up.",
                gauge("ares_spare_servers"),
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Disks",
        (
            Panel(
                "Room left",
                "On the file system of each store. A full disk refuses writes, reads go on; "
                "deletions are taken.",
                gauge("ares_disk_free_bytes"),
                "bytes",
                steps=[(RED, 0), (GREEN, 2**30)],
            ),
            Panel(
                "Stores", "What each store takes on its disk.", gauge("ares_disk_bytes"), "bytes"
            ),
            Panel(
                "Needed of that",
                "The rest is given back by and by, and a part is kept free for new data.",
                [
                    (
                        of_server(
                            'ares_disk_live_bytes{job=~"$job"} / ares_disk_bytes{job=~"$job"}'
                        ),
                        "{{id}}",
                    )
                ],
                "percentunit",
            ),
            Panel(
                "fdatasync: p99",
                "Writes wait for it. Above a tenth of a second the disk is slow.",
                each("ares_fsync_seconds"),
                "s",
                steps=[(GREEN, 0), (RED, 0.1)],
            ),
            Panel(
                "Group commit: p99",
                "From its begin until it was on the disk; it holds all that came meanwhile.",
                each("ares_commit_seconds"),
                "s",
            ),
            Panel(
                "Repaired elements",
                "Found damaged and rebuilt from the other servers, since each process was started.",
                gauge("ares_repaired_elements_total"),
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Objects and moves",
        (
            Panel(
                "Objects",
                "Held by each server, deleted objects included; an object of two configurations "
                "counts twice.",
                gauge("ares_objects"),
                decimals=0,
            ),
            Panel(
                "Data",
                "Elements held by each server: its part of every version.",
                gauge("ares_element_bytes"),
                "bytes",
            ),
            Panel(
                "Objects that are being moved",
                "Of configurations whose successor is decided and pending; zero when the move is "
                "finalized.",
                gauge("ares_moving_objects"),
                decimals=0,
            ),
            Panel(
                "Copies ahead of a move",
                "Memory of the copies for configurations that are not decided yet, 64 MiB at most; "
                "zero soon after the decision.",
                gauge("ares_ahead_bytes"),
                "bytes",
            ),
            Panel(
                "Objects that await collection",
                "A finalized configuration has them, and nobody is given them here any more. For "
                "a day: the next `reconfig` of the domain collects.",
                gauge("ares_withheld_objects"),
                decimals=0,
            ),
            Panel(
                "Configurations",
                "That a server knows as a member, and those of them whose data is dropped.",
                [
                    (f"max(ares_configurations{JOB})", "known"),
                    (f"max(ares_collected_configurations{JOB})", "collected"),
                ],
                decimals=0,
            ),
            Panel(
                "Elements",
                "One or more versions of each object, by server.",
                gauge("ares_elements"),
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Logs",
        (
            Panel(
                "Appends",
                "Entries a second that became committed, by server: the same at all nodes of a "
                "chain.",
                [
                    (
                        of_server(
                            'deriv(ares_log_committed_entries{job=~"$job"}[$__rate_interval])'
                        ),
                        "{{id}}",
                    )
                ],
                "ops",
            ),
            Panel(
                "Logs",
                "Those in whose chains each server is, or was.",
                gauge("ares_logs"),
                decimals=0,
            ),
            Panel(
                "Entries",
                "Of all logs, held by each server.",
                gauge("ares_log_entries"),
                decimals=0,
            ),
            Panel(
                "Logs that wait",
                "Logs whose last chain is sealed, with nothing decided, so that they take no "
                "appends; logs of which a restarted server takes entries back, with no appends "
                "meanwhile; and logs whose older entries a server fetches.",
                [
                    (f"max(ares_sealed_logs{JOB})", "sealed"),
                    (f"max(ares_returning_logs{JOB})", "returning"),
                    (f"max(ares_fetching_logs{JOB})", "fetching"),
                ],
                decimals=0,
            ),
            Panel(
                "Entries that are still to be fetched",
                "By servers that joined a chain; zero when the chain has all older entries. Until "
                "then the servers of the chain before must stay up.",
                [
                    (
                        of_server(f"ares_log_fetch_entries{JOB} - ares_log_fetched_entries{JOB}"),
                        "{{id}}",
                    )
                ],
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Autopilot, in the consensus member that leads",
        (
            Panel(
                "Members that do not answer it",
                "It replaces those that stay away for longer than `after_s` of the cluster file.",
                [(f"max(ares_autopilot_absent_servers{JOB})", "absent")],
                decimals=0,
                steps=[(GREEN, 0), (YELLOW, 1)],
            ),
            Panel(
                "The present move of the autopilot",
                "Objects moved, and all known objects, of the domain that the autopilot moves now.",
                [
                    (f"max(ares_autopilot_moved_objects{JOB})", "seen to"),
                    (f"max(ares_autopilot_move_objects{JOB})", "all"),
                ],
                decimals=0,
            ),
            Panel(
                "Moves, and domains and logs in trouble",
                "Moves completed since the processes were started, and beside them domains that "
                "moved to their users; and domains and logs that need a change which the "
                "autopilot cannot make: `ares-cli status` says why.",
                [
                    (f"sum(ares_autopilot_moves_total{JOB})", "moves"),
                    (f"sum(ares_autopilot_follows_total{JOB})", "to users"),
                    (f"max(ares_autopilot_troubled_domains{JOB})", "in trouble"),
                    (f"max(ares_autopilot_troubled_logs{JOB})", "logs in trouble"),
                ],
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Consensus",
        (
            Panel(
                "Who leads",
                "1: this member does. A change now and then is harmless.",
                [(of_member(f"ares_consensus_leads{JOB}"), "{{id}}")],
                decimals=0,
            ),
            Panel(
                "Term",
                "Of Raft; it rises with every election.",
                [(of_member(f"ares_consensus_term{JOB}"), "{{id}}")],
                decimals=0,
            ),
            Panel(
                "Members reachable",
                "With which each is connected, itself included.",
                [
                    (of_member(f"ares_consensus_members_reachable{JOB}"), "{{id}}"),
                    (f"max(ares_consensus_members{JOB})", "all"),
                ],
                decimals=0,
            ),
            Panel(
                "Decisions",
                "That each member knows; one that has fewer for long lags behind.",
                [(of_member(f"ares_consensus_decisions{JOB}"), "{{id}}")],
                decimals=0,
            ),
            Panel(
                "Requests that wait",
                "For a decision, at each member.",
                [(of_member(f"ares_consensus_under_way{JOB}"), "{{id}}")],
                decimals=0,
            ),
        ),
    ),
    PanelRow(
        "Processes",
        (
            Panel(
                "Processor",
                "1: a whole one. A server's event loop has one.",
                [(of_process(rate("process_cpu_seconds_total")), "{{id}}")],
                "percentunit",
            ),
            Panel(
                "Memory",
                "Resident, of each process.",
                [(of_process(f"process_resident_memory_bytes{JOB}"), "{{id}}")],
                "bytes",
            ),
            Panel(
                "Descriptors",
                "In use, of those allowed: one for each connection and for each 32 MiB of store.",
                [(of_process(f"process_open_fds{JOB} / process_max_fds{JOB}"), "{{id}}")],
                "percentunit",
                steps=[(GREEN, 0), (RED, 0.8)],
            ),
        ),
    ),
)


def live() -> dict[str, Any]:
    variables = [
        datasource("prometheus", "Prometheus"),
        query_variable("job", "Job", "prometheus", "label_values(ares_info, job)"),
        query_variable(
            "server",
            "Server",
            "prometheus",
            'label_values(ares_info{kind="server", job=~"$job"}, id)',
        ),
    ]
    about = (
        "A cluster at work: is it well, how fast is it, what may still fail, where is it going. "
        "docs/operation.md says what to do."
    )
    return dashboard(
        "ares-live",
        "Ares: live operation",
        about,
        ("now-1h", "10s"),
        variables,
        panels(LIVE, "prometheus"),
    )
