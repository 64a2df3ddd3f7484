"""Every query of the dashboards, asked of a real Prometheus and of a real InfluxDB.

Each query returns a result. Prometheus scrapes a live cluster. Prometheus and InfluxDB are Debian's
packages `prometheus` and `influxdb`; tests without their package skip.
"""

import contextlib
import json
import math
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares.platform.interpreter import python
from tests.ports import free_addresses
from tests.process.command_line import Cli, running_cluster

from .test_dashboards import dashboard, queries

pytestmark = pytest.mark.process

PATIENCE_S = 120.0
LOAD_SCRIPT = """
import asyncio, itertools, sys, ares
from ares.cluster.settings import Settings
from msgspec.structs import replace
async def main():
    settings = Settings.load(sys.argv[1])
    client = replace(settings.client, ahead=False)  # panels show objects that are being moved
    async with ares.connect(replace(settings, client=client)) as store:
        for number in range(40):
            await store.write(f"k{number}", b"x" * 3000)
        print("moving", flush=True)
        moving = asyncio.create_task(move(store))
        while not moving.done():
            await store.write("k1", b"y" * 3000)
            await store.read("k2")
            await asyncio.sleep(0.02)
        await moving
async def move(store):
    for third in itertools.cycle(["s3", "s2"]):
        target = ares.Configuration.abd(servers=["s0", "s1", third])
        await store.reconfigure(target, bytes_per_s=15_000, timeout_s=600)
asyncio.run(main())
"""

EMPTY_BY_NATURE: dict[str, str] = {}
"""Panels whose queries may return no values here, with the reason. At present no panel does."""

EXPECTED: dict[str, Callable[[list[float]], bool]] = {
    "Processes that serve": lambda values: values == [8.0],
    "Processes that are gone or cannot serve": lambda values: values == [0.0],
    "Leaders of the consensus service": lambda values: values == [1.0],
    "Servers that may still fail": lambda values: 0 < values[0] <= 1,
    "Moves under way": lambda values: values[0] > 0,
    "Objects that are being moved": lambda values: max(values) > 0,
    "Writes: p99 of each server": lambda values: 0 < max(values) < 10,
}
"""Values that panels show at some time while the load runs, all at once."""


def get(address: str, path: str, **about: str) -> Any:
    """Return the JSON answer. Raises urllib.error.HTTPError."""
    with urllib.request.urlopen(
        f"http://{address}{path}?{urllib.parse.urlencode(about)}", timeout=30
    ) as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def running(*command: str, ready: str) -> Iterator[None]:
    """Run a program until the end of the block. ``ready`` answers HTTP once the program serves."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            until = time.monotonic() + PATIENCE_S
            while True:
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(f"http://{ready}", timeout=5),
                ):
                    break
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < until
                time.sleep(0.1)
            yield
        finally:
            process.kill()


# -- Prometheus ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    yield from running_cluster(
        tmp_path_factory.mktemp("cluster") / "c", "--autopilot", "--spares", "1"
    )


@pytest.fixture(scope="module")
def prometheus(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run Prometheus, which scrapes every process once a second; yield the address."""
    directory = tmp_path_factory.mktemp("prometheus")
    [address] = free_addresses(1)
    roles = {"server": cli.settings.servers.values(), "consensus": cli.settings.members.values()}
    static = [
        {"labels": {"role": role}, "targets": [process.http for process in processes]}
        for role, processes in roles.items()
    ]
    scraping = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "ares", "static_configs": static}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(scraping))  # JSON is YAML
    words = (
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={address}",
    )
    with running("prometheus", *words, "--log.level=error", ready=f"{address}/-/ready"):
        yield address


def asked(address: str, query: str) -> list[float]:
    """Return the present values of a panel's query, without values that are no numbers."""
    for name, value in {
        "$__rate_interval": "10s",
        "$job": "ares|other",
        "$server": "s0|s1|s2|s3|s4",
    }.items():
        query = query.replace(name, value)
    found = get(address, "/api/v1/query", query=query)["data"]["result"]
    return [
        float(series["value"][1]) for series in found if not math.isnan(float(series["value"][1]))
    ]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus"
)
def test_every_panel_of_live_operation_shows_something(cli: Cli, prometheus: str) -> None:
    load = subprocess.Popen(
        python("-c", LOAD_SCRIPT, str(cli.settings.path)), stdout=subprocess.PIPE
    )
    try:
        assert load.stdout is not None
        assert load.stdout.readline() == b"moving\n"
        until = time.monotonic() + PATIENCE_S
        while wrong := [*not_as_expected(prometheus)]:
            assert time.monotonic() < until, wrong
            assert load.poll() is None
            time.sleep(1.0)
    finally:
        load.kill()
        load.wait()


def not_as_expected(prometheus: str) -> Iterator[tuple[str, list[float]]]:
    """Yield the panels that show nothing, or not the cluster and its load. Scrapes may be late."""
    for title, query in queries("live.json"):
        if "ares_gateway_" in query:
            continue  # no gateway runs here
        values = asked(prometheus, query)
        expected = EXPECTED.get(title, lambda values: True)
        if title not in EMPTY_BY_NATURE and not (values and expected(values)):
            yield title, values


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus"
)
def test_every_alert_can_be_asked_and_one_that_is_gone_is_counted(
    cli: Cli, prometheus: str
) -> None:
    rules = (Path(__file__).parents[2] / "packaging/prometheus/ares.rules.yml").read_text()
    for expression in re.findall(r"expr: (?:>-\n)?((?:.+\n)(?: {10}- .+\n)*)", rules):
        assert (
            get(prometheus, "/api/v1/query", query=" ".join(expression.split()))["status"]
            == "success"
        )
    cli.kill("s2")
    until = time.monotonic() + PATIENCE_S
    by_title = dict(queries("live.json"))
    while asked(prometheus, by_title["Processes that are gone or cannot serve"]) != [1.0]:
        assert time.monotonic() < until
        time.sleep(0.5)
    assert asked(prometheus, by_title["Servers that may still fail"])[0] <= 0


# -- InfluxDB --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run InfluxDB; yield the address.

    The database `ares` has two algorithms, two sizes and some failures.
    """
    directory = tmp_path_factory.mktemp("influxdb")
    address, backup = free_addresses(2)
    text = f"""
reporting-disabled = true
bind-address = "{backup}"
[meta]
dir = "{directory}/meta"
[data]
dir = "{directory}/data"
wal-dir = "{directory}/wal"
[monitor]
store-enabled = false
[http]
bind-address = "{address}"
log-enabled = false
[logging]
level = "error"
"""
    (directory / "influxdb.conf").write_text(text)
    with running("influxd", "-config", str(directory / "influxdb.conf"), ready=f"{address}/ping"):
        until = time.monotonic() + PATIENCE_S
        while not _filled(address):
            assert time.monotonic() < until
            time.sleep(0.1)
        yield address


def _filled(address: str) -> bool:
    """Return whether the database exists and has points; pings succeed before it exists."""
    post(address, "/query", b"", q="CREATE DATABASE ares")
    try:
        post(address, "/write", "\n".join(points()).encode(), db="ares")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True


def post(address: str, path: str, body: bytes, **about: str) -> None:
    urllib.request.urlopen(
        urllib.request.Request(
            f"http://{address}{path}?{urllib.parse.urlencode(about)}", body, method="POST"
        ),
        timeout=30,
    ).close()


def points() -> Iterator[str]:
    """Yield points in the importer's form (ares/results/influx.py)."""
    end_ns = time.time_ns()
    for algorithm in ("ARES_EC", "ABD"):
        for size in (65536, 1048576):
            run = (
                f"scenario=object_size,algorithm={algorithm},servers=11,writers=5,readers=5,"
                f"object_size={size},iteration=1"
            )
            tags = f"{run},level=client,run=r-{algorithm}-{size}"
            for number in range(60):
                op, ok = ("read", "write")[number % 2], number % 20 != 0
                phases = (
                    ""
                    if algorithm == "ABD"
                    else "read_config_s=0.001,p2_read_config_s=0.002,p2_put_data_s=0.003,"
                )
                latency_s = size / 1e7 + number / 1e3
                fields = (
                    f"latency_s={latency_s},phase1_s=0.004,phase2_s=0.005,{phases}"
                    f"ok={'true' if ok else 'false'},count={int(ok)}i,size={size}i"
                )
                yield (
                    f"operation,{tags},op={op},client={number % 5} {fields} "
                    f"{end_ns - number * 10**9}"
                )


def selected(address: str, query: str) -> list[dict[str, Any]]:
    """Return the series of a panel's query, with chosen values put in as by Grafana."""
    chosen = {
        "$timeFilter": "time > now() - 1h",
        "$__interval_ms": "10000",
        "$__interval": "10s",
        "$parameter": "object_size",
    }
    chosen |= {
        "$scenario": "(object_size|other)",
        "$algorithm": "(ARES_EC|ABD)",
        "$level": "client",
        "$op": "(read|write)",
    }
    for name, value in chosen.items():
        query = query.replace(name, value)
    [result] = get(address, "/query", q=query, db="ares", epoch="ms")["results"]
    assert "error" not in result, (query, result)
    return result.get("series", [])


needs_influxdb = pytest.mark.skipif(
    shutil.which("influxd") is None, reason="needs InfluxDB: apt-get install influxdb"
)


@needs_influxdb
def test_every_panel_of_experiments_shows_something(influxdb: str) -> None:
    for title, query in queries("experiments.json"):
        series = selected(influxdb, query)
        values = [
            value
            for each in series
            for row in each["values"]
            for value in row[1:]
            if value is not None
        ]
        assert values, (title, query)
    by_title = dict(queries("experiments.json"))
    table = {
        (each["tags"]["algorithm"], each["tags"]["op"], each["tags"]["object_size"]): each
        for each in selected(influxdb, by_title["Latency"])
    }
    assert len(table) == 8
    assert table["ABD", "read", "65536"]["columns"] == [
        "time",
        "operations",
        "mean",
        "p50",
        "p90",
        "p99",
    ]
    assert table["ABD", "read", "65536"]["values"][0][1] == 27
    assert selected(influxdb, by_title["Operations"])[0]["values"][0][1] == 4 * 57
    assert selected(influxdb, by_title["Failed operations"])[0]["values"][0][1] == 4 * 3


@needs_influxdb
def test_every_variable_of_experiments_offers_something(influxdb: str) -> None:
    for variable in dashboard("experiments.json")["templating"]["list"]:
        if variable["type"] == "query":
            assert selected(influxdb, variable["query"]), variable["name"]


def test_what_the_importer_writes_is_what_panels_ask_for() -> None:
    influx = pytest.importorskip("ares.results.influx", reason="needs the extra `results`")
    text = " ".join(query for _, query in queries("experiments.json"))
    quoted = set(re.findall(r'"(\w+)"', text)) - {
        "mean",
        "p50",
        "p90",
        "p99",
        "operations",
        "bytes",
        "failed",
        "operation",
    }
    written = {
        "run",
        *influx._RUN_TAGS[1:],
        "level",
        "op",
        "client",
        "count",
        "ok",
        "size",
        *influx._POINT_FIELDS,
    }
    assert quoted <= written, quoted - written
