"""The dashboard of experiments: queries to an InfluxDB, panels, and variables.

`ares-cli results import --influx` fills the InfluxDB.
"""

from typing import Any

from panels import (
    GREEN,
    YELLOW,
    Panel,
    PanelRow,
    dashboard,
    datasource,
    one_of,
    panels,
    query_variable,
)


def chosen(*more: str) -> str:
    """Return the condition for the operations chosen by the variables."""
    tags = ("scenario", "algorithm", "level", "op")
    return " AND ".join([*(f'"{tag}" =~ /^(${tag})$/' for tag in tags), *more, "$timeFilter"])


def select(what: str, by: str, *more: str) -> str:
    return f'SELECT {what} FROM "operation" WHERE {chosen(*more)} GROUP BY {by}'


BY = '"algorithm", "op", "$parameter"'
SERIES_LEGEND = "$tag_algorithm $tag_op"
BAR_NAME = "$tag_algorithm $tag_op $tag_$parameter"
BARS = f"{BAR_NAME} $col"
OK = '"count" = 1'
"""The filter of successful operations: latencies of failed operations have no meaning."""

EXPERIMENTS = (
    PanelRow(
        "What was chosen",
        (
            Panel(
                "Operations",
                "That succeeded.",
                [(f'SELECT sum("count") FROM "operation" WHERE {chosen()}', "")],
                "short",
                "stat",
                6,
                4,
                decimals=0,
            ),
            Panel(
                "Failed operations",
                "Those whose outcome is not known included.",
                [
                    (
                        'SELECT count("count") FROM "operation" WHERE '
                        f"{chosen(chr(34) + 'count' + chr(34) + ' = 0')}",
                        "",
                    )
                ],
                *("short", "stat", 6, 4),
                steps=[(GREEN, 0), (YELLOW, 1)],
                decimals=0,
            ),
            Panel(
                "Median of all",
                "Latency of all that is chosen together.",
                [(f'SELECT percentile("latency_s", 50) FROM "operation" WHERE {chosen(OK)}', "")],
                "s",
                "stat",
                6,
                4,
            ),
            Panel(
                "p99 of all",
                "Latency of all that is chosen together.",
                [(f'SELECT percentile("latency_s", 99) FROM "operation" WHERE {chosen(OK)}', "")],
                "s",
                "stat",
                6,
                4,
            ),
        ),
    ),
    PanelRow(
        "By algorithm and $parameter",
        (
            Panel(
                "Latency",
                "Of operations that succeeded, by algorithm, operation and the parameter that is "
                "chosen above; seconds.",
                [
                    (
                        select(
                            'count("latency_s") AS "operations", mean("latency_s") AS "mean", '
                            'percentile("latency_s", 50) AS "p50", percentile("latency_s", 90) AS '
                            '"p90", percentile("latency_s", 99) AS "p99"',
                            BY,
                            OK,
                        ),
                        "",
                    )
                ],
                *("short", "table", 24, 9),
            ),
            Panel(
                "Median latency",
                "A bar for each algorithm, operation and value of the parameter.",
                [(select('percentile("latency_s", 50) AS "p50"', BY, OK), BAR_NAME)],
                *("s", "bargauge", 12, 9),
            ),
            Panel(
                "p99 latency",
                "A bar for each algorithm, operation and value of the parameter.",
                [(select('percentile("latency_s", 99) AS "p99"', BY, OK), BAR_NAME)],
                "s",
                "bargauge",
                12,
                9,
            ),
            Panel(
                "Where the time goes",
                "Means of read-config, phase 1 (get-tag, get-data) and phase 2 (put-data). "
                "Baselines have no phases.",
                [
                    (
                        select(
                            'mean("read_config_s") AS "read-config", mean("phase1_s") AS "phase '
                            '1", mean("phase2_s") AS "phase 2"',
                            BY,
                            OK,
                        ),
                        BARS,
                    )
                ],
                *("s", "bargauge", 12, 9),
            ),
            Panel(
                "Within phase 2",
                "Means of its read-config and its put-data: what ARES II takes away is the first.",
                [
                    (
                        select(
                            'mean("p2_read_config_s") AS "read-config", mean("p2_put_data_s") AS '
                            '"put-data"',
                            BY,
                            OK,
                        ),
                        BARS,
                    )
                ],
                *("s", "bargauge", 12, 9),
            ),
            Panel(
                "Failures",
                "By algorithm, operation and parameter.",
                [(select('count("count") AS "failed"', BY, '"count" = 0'), "")],
                "short",
                "table",
                12,
                7,
            ),
            Panel(
                "Size",
                "Mean bytes of an object or a file.",
                [(select('mean("size") AS "bytes"', BY, OK), "")],
                "bytes",
                "table",
                12,
                7,
            ),
        ),
    ),
    PanelRow(
        "Over time",
        (
            Panel(
                "Latency: median",
                "Choose a time range that holds one run, or a few. Runs have the time at which "
                "they were made.",
                [
                    (
                        select(
                            'percentile("latency_s", 50)',
                            'time($__interval), "algorithm", "op" fill(none)',
                            OK,
                        ),
                        SERIES_LEGEND,
                    )
                ],
                "s",
                width=12,
            ),
            Panel(
                "Latency: p99",
                "A fault or a reconfiguration shows as a step.",
                [
                    (
                        select(
                            'percentile("latency_s", 99)',
                            'time($__interval), "algorithm", "op" fill(none)',
                            OK,
                        ),
                        SERIES_LEGEND,
                    )
                ],
                "s",
                width=12,
            ),
            Panel(
                "Throughput",
                "Operations that succeeded, in each interval, divided by its length.",
                [
                    (
                        select(
                            'sum("count") / ($__interval_ms / 1000)',
                            'time($__interval), "algorithm", "op" fill(null)',
                        ),
                        SERIES_LEGEND,
                    )
                ],
                "ops",
                width=12,
            ),
            Panel(
                "By client",
                "The slowest clients have the highest medians.",
                [
                    (
                        select(
                            'percentile("latency_s", 50)',
                            'time($__interval), "algorithm", "client" fill(none)',
                            OK,
                        ),
                        "$tag_algorithm client $tag_client",
                    )
                ],
                "s",
                width=12,
            ),
        ),
    ),
)


MEASURED_LEVELS = ("client", "user")
"""The measuring process: the client of the protocol, or the user of the client, with a longer wait.

Stores for comparisons have only the second.
"""

PARAMETERS = (
    "object_size",
    "servers",
    "writers",
    "readers",
    "reconfigurers",
    "k",
    "m",
    "topology",
    "iteration",
    "run",
)


def experiments() -> dict[str, Any]:
    def tags(name: str, label: str, where: str = "", **more: Any) -> dict[str, Any]:
        return query_variable(
            name,
            label,
            "influxdb",
            f'SHOW TAG VALUES FROM "operation" WITH KEY = "{name}"{where}',
            **more,
        )

    of_scenario = ' WHERE "scenario" =~ /^$scenario$/'
    variables = [
        datasource("influxdb", "InfluxDB"),
        tags("scenario", "Scenario"),
        tags("algorithm", "Algorithm", of_scenario),
        one_of("level", "Level", MEASURED_LEVELS),
        tags("op", "Operation", of_scenario),
        one_of("parameter", "Parameter", PARAMETERS),
    ]
    about = (
        "Runs of experiments, as `ares-cli results import DIR --influx URL` writes them: choose a "
        "scenario, and the parameter that it varies."
    )
    return dashboard(
        "ares-experiments",
        "Ares: experiments",
        about,
        ("now-10y", ""),
        variables,
        panels(EXPERIMENTS, "influxdb"),
    )
