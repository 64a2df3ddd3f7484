"""The dashboards and alert rules as files (packaging/).

The files are complete, valid for Grafana and Prometheus, and use only exported series.
"""

import functools
import importlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ares.metrics import (
    DISK_S_BUCKETS,
    REPLY_S_BUCKETS,
    AutopilotCounters,
    GatewayTraffic,
    Histogram,
    ListenerTraffic,
    LogTotals,
)
from ares.model.messages import ConsensusDescription, DiskUsage, GetTag
from ares.platform.interpreter import python
from ares.server.prometheus import (
    of_gateway,
    of_gateway_traffic,
    of_member,
    of_process,
    of_server,
    of_traffic,
    render,
)
from ares.server.storage_server import StorageServer
from tests.journal.journal_node import INITIAL, plain, requests

from .pages import samples

PACKAGING = Path(__file__).parents[2] / "packaging"
NAMES = ("live.json", "experiments.json")
RULES = PACKAGING / "prometheus/ares.rules.yml"
BUILTIN = {
    "__all",
    "__rate_interval",
    "__interval",
    "__interval_ms",
    "timeFilter",
    "col",
    "tag_algorithm",
    "tag_op",
    "tag_client",
    "tag_",
}


def dashboard(name: str) -> dict[str, Any]:
    """Read the dashboard from the file written by the definitions into a separate directory."""
    return json.loads(written()[name])


@functools.cache
def written() -> dict[str, str]:
    """Run the definitions as `make dashboards` does, and return the content of each file."""
    with tempfile.TemporaryDirectory() as directory:
        copied = shutil.copytree(
            PACKAGING / "grafana",
            Path(directory) / "grafana",
            ignore=shutil.ignore_patterns("*.json", "__pycache__"),
        )
        script, environment = copied / "dashboards.py", os.environ | {"PYTHONPATH": str(copied)}
        subprocess.run(python(script), env=environment, check=True, capture_output=True, timeout=60)
        return {path.name: path.read_text(encoding="utf-8") for path in copied.glob("*.json")}


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(name)["panels"] if panel["type"] != "row"]


def queries(name: str) -> list[tuple[str, str]]:
    """Return the titles of panels, and their queries."""
    return [
        (panel["title"], target.get("expr") or target["query"])
        for panel in panels(name)
        for target in panel["targets"]
    ]


def test_every_dashboard_is_written_and_none_is_in_git():
    assert set(written()) == set(NAMES)
    tracked = ["git", "ls-files", "--", "*.json"]
    done = subprocess.run(tracked, capture_output=True, text=True, cwd=PACKAGING, timeout=60)
    assert done.stdout == ""


def test_the_role_copies_the_files_that_make_writes():
    files = PACKAGING.parent / "ansible/roles/observability/files"
    assert {path.name: path.readlink().name for path in files.glob("*.json")} == dict(
        zip(NAMES, NAMES, strict=True)
    )


def lost(told: Any, understood: Any, at: str = "") -> Iterator[str]:
    """Yield the parts of ``told`` missing or different in ``understood``."""
    if isinstance(told, dict):
        for key, value in told.items():
            if value is not None:
                yield from (
                    lost(value, understood.get(key), f"{at}.{key}")
                    if isinstance(understood, dict)
                    else (f"{at}.{key}",)
                )
    elif isinstance(told, list):
        others = understood if isinstance(understood, list) else []
        for position, value in enumerate(told):
            yield from (
                lost(value, others[position], f"{at}[{position}]")
                if position < len(others)
                else (f"{at}[{position}]",)
            )
    elif told != understood:
        yield f"{at}: {told!r} is read as {understood!r}"


def through_schema(told: dict[str, Any]) -> list[str]:
    """Return the parts of a dashboard absent from Grafana's published types."""
    sdk = "grafana_foundation_sdk"
    pytest.importorskip(
        sdk, reason="needs Grafana's published types: pip install grafana-foundation-sdk"
    )
    plugins, encoder, models = (
        importlib.import_module(f"{sdk}.{name}")
        for name in ("cog.plugins", "cog.encoder", "models.dashboard")
    )
    plugins.register_default_plugins()
    return list(
        lost(told, json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(told))))
    )


@pytest.mark.parametrize("name", NAMES)
def test_grafanas_published_types_know_every_word(name):
    assert through_schema(dashboard(name)) == []


@pytest.mark.parametrize(
    "change",
    [{"titel": "x"}, {"options": {"legend": {"placment": "bottom"}}}, {"gridPos": {"hight": 8}}],
)
def test_what_grafana_does_not_know_is_noticed(change):
    told = dashboard("live.json")
    chosen = next(panel for panel in told["panels"] if panel["type"] == "timeseries")
    chosen |= change
    assert len(through_schema(told)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_their_own_ids_and_places(name):
    told = dashboard(name)["panels"]
    assert len({panel["id"] for panel in told}) == len(told)
    taken: set[tuple[int, int]] = set()
    for panel in told:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", NAMES)
def test_panels_say_what_they_show_and_in_what(name):
    told = panels(name)
    assert len({panel["title"] for panel in told if panel["type"] != "row"}) == len(told)
    for panel in told:
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        values = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert values[0] is None, panel["title"]
        assert values[1:] == sorted(values[1:]), panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_names_no_source_of_its_author(name):
    """The file names no data source, job or machine of the author.

    Each used variable is defined, and each defined variable is used.
    """
    told = dashboard(name)
    text = json.dumps({"panels": told["panels"], "variables": told["templating"]})
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"$datasource"}
    defined = {variable["name"] for variable in told["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text))
    assert used - defined <= BUILTIN
    assert defined <= used
    assert not re.search(r"\b\d+\.\d+\.\d+\.\d+\b|localhost", text)


async def exported() -> set[str]:
    """Return the names of all series exported by processes."""
    host = StorageServer(plain(requests(20)))
    vitals = host.vitals()
    full = replace(
        vitals,
        description=replace(vitals.description, stored=DiskUsage(1, 1, free_bytes=1)),
        commits=Histogram(DISK_S_BUCKETS),
        logs=LogTotals(1, 1, 1, 1, 1, 1, 1, 1),
    )
    traffic = ListenerTraffic()
    traffic.count_batch([GetTag(1, INITIAL.id, "a")], [b"1"])
    gateway = GatewayTraffic()
    gateway.requests["GetObject", 200] += 1
    gateway.count_refused("BadRequest")
    pages = [
        [
            *of_process("s0", "server", True, Histogram(REPLY_S_BUCKETS)),
            *of_traffic(traffic, 0, 0),
            *of_server(full, Histogram(DISK_S_BUCKETS)),
        ],
        [*of_member(ConsensusDescription(0, "r0", "r0", 1, 1, 1, 1), 0, 0, AutopilotCounters())],
        [*of_gateway_traffic(gateway), *of_gateway(0, 0, 0)],
    ]
    return {name.partition("{")[0] for page in pages for name in samples(render(page).decode())}


async def test_every_metric_that_is_named_is_exported():
    there = await exported()
    texts = [query for _, query in queries("live.json")] + [RULES.read_text(encoding="utf-8")]
    named = {name for text in texts for name in re.findall(r"\b(?:ares|process)_[a-z_]+", text)} - {
        "process_id",
        "ares_rules",
    }
    assert named <= there, named - there
    assert len(named) > 30


async def test_every_metric_that_is_exported_is_on_the_dashboard_or_left_out_on_purpose():
    text = " ".join(query for _, query in queries("live.json"))
    families = {
        re.sub(r"_(bucket|count|sum|total|created)$", "", name)
        for name in await exported()
        if name.startswith("ares_")
    }
    unused = {name for name in families if not re.search(rf"\b{name}(_bucket|_total)?\b", text)}
    # without a known leader, the member does not serve
    assert unused == {"ares_consensus_leader_known"}


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


@needs_promtool
def test_prometheus_takes_the_rules_and_the_configuration():
    for words in (["rules", "ares.rules.yml"], ["config", "prometheus.yml"]):
        done = subprocess.run(
            ["promtool", "check", *words],
            capture_output=True,
            text=True,
            cwd=PACKAGING / "prometheus",
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@needs_promtool
def test_alerts_are_raised_when_they_should_be(tmp_path):
    """Prometheus' own tests of rules: a healthy cluster raises no alert.

    Each failure raises its alert.
    """
    shutil.copy(RULES, tmp_path)
    shutil.copy(Path(__file__).parent / "alerts.yml", tmp_path)
    assert set(re.findall(r"alert: (\w+)", RULES.read_text())) == set(
        re.findall(r'alertname="(\w+)"', (tmp_path / "alerts.yml").read_text())
    )
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts.yml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
