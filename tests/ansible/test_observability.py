"""The services beside a cluster, started and removed by playbooks on this machine.

Prometheus and InfluxDB are Debian's; a warning names a missing program. A stand-in takes the place
of Jaeger, of InfluxDB 2 and of Grafana.
"""

import base64
import json
import shutil
import socket
import subprocess
import tarfile
import threading
import time
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.process.command_line import Cli

from .ansible_runs import CHECKOUT, MISSING, PLAYBOOKS, PYTHON, inventory, play, ports

pytest.importorskip("ansible.release", reason=MISSING)
import yaml

pytestmark = [pytest.mark.process, pytest.mark.slow]

STAND_IN = Path(__file__).with_name("service_stand_in.py")
PORTS = ("port", "influxdb_port", "grafana_port", "jaeger_port", "jaeger_grpc_port")
OTLP_PORTS = ("otlp_http_port", "otlp_grpc_port")
DEBIANS = {"prometheus": "observability_program", "influxd": "observability_influxdb_program"}
"""Programs of Debian, with their variables. No test installs packages."""

TRACES_S = 30


@pytest.fixture
def playbooks(tmp_path: Path) -> Path:
    """Copy the playbooks of the checkout, and write the dashboards beside the copy."""
    copied = tmp_path / "checkout"
    for part in ("ansible", "playbooks", "packaging"):
        shutil.copytree(CHECKOUT / part, copied / part, symlinks=True)
    subprocess.run([PYTHON, copied / "packaging/grafana/dashboards.py"], check=True)
    return copied / "playbooks"


def stand_in(place: Path, name: str) -> Path:
    """Make a program in place of the service ``name``."""
    program = place / name
    program.write_text(f"#!{PYTHON}\n{STAND_IN.read_text()}")
    program.chmod(0o755)
    return program


def watched(place: Path, **more: Any) -> Path:
    """Write an inventory of a cluster, and of services on the host of its first server."""
    directory = place / "hosts"
    directory.mkdir()
    path = inventory(directory)
    told = json.loads(path.read_text())
    names = [f"observability_{name}" for name in (*PORTS, *OTLP_PORTS)]
    variables = {
        "observability_directory": str(directory / "watch"),
        "observability_loopback": True,
        **dict(zip(names, ports(len(names)), strict=True)),
    }
    told["observability"] = {"hosts": {"n0": {}}, "vars": variables | more}
    path.write_text(json.dumps(told))
    return path


def variables_of(hosts: Path) -> dict[str, Any]:
    return json.loads(hosts.read_text())["observability"]["vars"]


def requests(hosts: Path, service: str) -> list[dict[str, str]]:
    """Return the requests to the stand-in of a service."""
    text = (hosts.parent / "watch" / service / "requests").read_text()
    return [json.loads(line) for line in text.splitlines()]


def left(hosts: Path) -> list[Path]:
    """Return the files made by playbooks beside the inventory, except for Ansible's own."""
    found = [path.relative_to(hosts.parent) for path in hosts.parent.rglob("*") if path.is_file()]
    return [
        path
        for path in found
        if path.name not in (hosts.name, "ansible.cfg") and not path.parts[0].startswith("ansible-")
    ]


def installed() -> dict[str, str]:
    """Return the variables for Debian's installed programs; warn of missing programs."""
    found = {variable: shutil.which(name) for name, variable in DEBIANS.items()}
    for name, variable in DEBIANS.items():
        if found[variable] is None:
            warnings.warn(f"{name} is not installed, and left out of this test", stacklevel=2)
    return {variable: path for variable, path in found.items() if path}


async def test_four_services_come_up_by_one_playbook(tmp_path: Path, playbooks: Path) -> None:
    there = installed()
    services = ["jaeger", "grafana"]
    services += ["prometheus"] if "observability_program" in there else []
    services += ["influxdb"] if "observability_influxdb_program" in there else []
    hosts = watched(
        tmp_path,
        observability_services=services,
        observability_jaeger_program=str(stand_in(tmp_path, "jaeger")),
        observability_grafana_program=str(stand_in(tmp_path, "grafana")),
        **there,
    )
    (await play("deploy", hosts, "--check", "--diff", playbooks=playbooks)).well()
    assert left(hosts) == []
    try:
        first = (await play("deploy", hosts, "-vvv", "--diff", playbooks=playbooks)).well()
        secrets = [path.read_text().strip() for path in hosts.parent.glob("controller/obs*/*")]
        assert len(secrets) == (2 if "influxdb" in services else 1)
        assert not [secret for secret in secrets if secret in first.output]
        again = (await play("deploy", hosts, playbooks=playbooks)).well()
        assert again.changed == 0, again.output
        traced(hosts)
        if "influxdb" in services:
            stored(hosts)
        provisioned(hosts, services)
        told = json.loads(hosts.read_text())
        told["observability"]["vars"]["observability_services"].remove("jaeger")
        hosts.write_text(json.dumps(told))
        assert answers(hosts, "jaeger_port")
        (await play("observe", hosts, playbooks=playbooks)).well()
        assert not answers(hosts, "jaeger_port")
        assert answers(hosts, "grafana_port")
        assert requests(hosts, "jaeger")
    finally:
        refused = await play("destroy", hosts, "--limit", "observability", playbooks=playbooks)
        gone = await play("destroy", hosts, "-e", "destroy=trial", playbooks=playbooks)
    assert refused.status != 0
    gone.well()
    assert left(hosts) == []


def answers(hosts: Path, port: str) -> bool:
    """Return whether a service listens on its port."""
    address = ("127.0.0.1", variables_of(hosts)[f"observability_{port}"])
    with socket.socket() as client:
        return client.connect_ex(address) == 0


def traced(hosts: Path) -> None:
    """Check that the spans of a client and of servers arrive at Jaeger's port."""
    cli = Cli(hosts.parent / "controller")
    endpoint = f"http://127.0.0.1:{variables_of(hosts)['observability_otlp_http_port']}"
    cli.environment |= {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    cli.ok("write", "greeting", stdin=b"hello")
    deadline = time.monotonic() + TRACES_S
    while True:
        spans = [seen["body"] for seen in requests(hosts, "jaeger") if seen["path"] == "/v1/traces"]
        if all(any(name in body for body in spans) for name in ("ares-client", "ares-server")):
            break
        assert time.monotonic() < deadline, requests(hosts, "jaeger")
        time.sleep(0.2)


def stored(hosts: Path) -> None:
    """Check that results reach InfluxDB with the password only."""
    place = hosts.parent
    password = (place / "controller/observability/influxdb").read_text().strip()
    url = f"http://127.0.0.1:{variables_of(hosts)['observability_influxdb_port']}"
    cli, runs = Cli(place / "controller"), place / "watch/runs"
    cli.environment["INFLUXDB_V2_TOKEN"] = f"ares:{password}"
    runs.mkdir()
    cli.ok("--log-operations", runs / "a.log", "read", "greeting")
    cli.ok("results", "import", runs, "--into", place / "watch/results.db", "--influx", url)
    query = urllib.parse.urlencode({"db": "ares", "q": "SELECT count(latency_s) FROM operation"})
    basic = "Basic " + base64.b64encode(f"ares:{password}".encode()).decode()
    request = urllib.request.Request(f"{url}/query?{query}", headers={"Authorization": basic})
    with urllib.request.urlopen(request, timeout=30) as answer:
        [result] = json.load(answer)["results"]
    assert result["series"][0]["values"][0][1] == 1
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{url}/query?{query}", timeout=30)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/debug/pprof/cmdline", timeout=30)


def provisioned(hosts: Path, services: list[str]) -> None:
    """Check the files of Grafana: data sources, dashboards and settings."""
    place, told = hosts.parent, variables_of(hosts)
    home = place / "watch/grafana"
    [provider] = yaml.safe_load((home / "provisioning/dashboards/ares.yml").read_text())[
        "providers"
    ]
    dashboards = {path.name for path in Path(provider["options"]["path"]).glob("*.json")}
    assert dashboards == {"ares-live.json", "ares-experiments.json"}
    file = home / "provisioning/datasources/ares.yml"
    assert file.stat().st_mode & 0o007 == 0
    sources = {source["type"]: source for source in yaml.safe_load(file.read_text())["datasources"]}
    expected = {"jaeger": "jaeger_port", "prometheus": "port", "influxdb": "influxdb_port"}
    assert {kind: source["url"] for kind, source in sources.items()} == {
        kind: f"http://127.0.0.1:{told[f'observability_{port}']}"
        for kind, port in expected.items()
        if kind in services
    }
    if "influxdb" in services:
        password = (place / "controller/observability/influxdb").read_text().strip()
        assert sources["influxdb"]["secureJsonData"] == {"password": password}
    assert (home / "grafana.ini").stat().st_mode & 0o777 == 0o600
    assert [seen["path"] for seen in requests(hosts, "grafana")][:1] == ["/api/health"]


async def test_a_missing_service_is_named_and_influxdb_2_and_another_grafana_are_used(
    tmp_path: Path, playbooks: Path
) -> None:
    program = stand_in(tmp_path, "influxd")
    with tarfile.open(tmp_path / "influxdb2-2.7.tar.gz", "w:gz") as archive:
        archive.add(program, "influxdb2-2.7/usr/bin/influxd")
    grafana = tmp_path / "hosts/grafana"
    hosts = watched(
        tmp_path,
        observability_services=["influxdb", "jaeger"],
        observability_influxdb_source="../influxdb2-2.7.tar.gz",
        observability_grafana_dashboards=str(grafana / "dashboards"),
        observability_grafana_provisioning=str(grafana / "provisioning"),
    )
    for name in ("dashboards", "provisioning/dashboards", "provisioning/datasources"):
        (grafana / name).mkdir(parents=True)
    try:
        first = (await play("observe", hosts, playbooks=playbooks)).well()
        before, _, after = first.output.partition("changed: [n0]")
        assert "jaeger is left out, it is not on n0. To get it: set observability_jaeger" in before
        assert after
        again = (await play("observe", hosts, playbooks=playbooks)).well()
        assert again.changed == 0, again.output
        password = (hosts.parent / "controller/observability/influxdb").read_text().strip()
        seen = requests(hosts, "influxdb")
        made = [json.loads(one["body"]) for one in seen if one["method"] == "POST"]
        assert made == [
            {
                **dict.fromkeys(("username", "org", "bucket"), "ares"),
                **dict.fromkeys(("password", "token"), password),
            }
        ]
        assert seen[-1]["token"] == f"Token {password}"
        settings = yaml.safe_load((hosts.parent / "watch/influxdb/config.yaml").read_text())
        assert settings["pprof-disabled"] is settings["metrics-disabled"] is True
        assert len(list((grafana / "dashboards").glob("ares-*.json"))) == 2
        [source] = yaml.safe_load((grafana / "provisioning/datasources/ares.yml").read_text())[
            "datasources"
        ]
        assert source["secureJsonData"] == {"httpHeaderValue1": f"Token {password}"}
    finally:
        gone = await play("destroy", hosts, "-e", "destroy=trial", playbooks=playbooks)
    gone.well()
    assert left(hosts) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        *(
            ({"observability_address": address}, "The services listen on one address")
            for address in ("0.0.0.0", "0", "[::]", "[::0]", "::ffff:0.0.0.0")
        ),
        ({"observability_loopback": False}, "Set ares_address of this host"),
        (
            {"observability_loopback": False, "observability_address": "[::1]"}
            | {"observability_servers": ["10.0.0.1:7410"]},
            "Set ares_address of this host",
        ),
        ({"observability_influxdb_program": "/no/influxd"}, "/no/influxd"),
        ({"observability_grafana_source": "/no/grafana.deb"}, "/no/grafana.deb"),
    ],
)
async def test_an_inventory_that_cannot_work_is_refused_before_the_first_change(
    tmp_path: Path, variables: dict[str, Any], said: str
) -> None:
    jaeger = str(stand_in(tmp_path, "jaeger"))
    chosen = {"observability_services": ["jaeger", "influxdb", "grafana"]}
    given = {"observability_influxdb_program": jaeger, "observability_jaeger_program": jaeger}
    hosts = watched(tmp_path, **chosen | given | variables)
    refused = await play("deploy", hosts)
    assert refused.status != 0
    assert said in refused.output
    assert refused.changed == 0
    assert left(hosts) == []


async def test_a_refused_host_keeps_all_other_hosts_unchanged(tmp_path: Path) -> None:
    hosts = watched(tmp_path, observability_services=[])
    told = json.loads(hosts.read_text())
    told["observability"]["hosts"]["n1"] = {"observability_address": "0.0.0.0"}
    hosts.write_text(json.dumps(told))
    for playbook in ("deploy", "observe"):
        refused = await play(playbook, hosts)
        assert refused.status != 0
        assert "Nothing was changed" in refused.output
        assert refused.changed == 0, refused.output
    assert left(hosts) == []


async def test_influxdb_3_is_refused_before_the_first_change(tmp_path: Path) -> None:
    program = tmp_path / "influxdb3"
    program.write_text("#!/bin/sh\necho influxdb3 3.2.1, revision 0000000\n")
    program.chmod(0o755)
    chosen = {"observability_influxdb_program": str(program)}
    hosts = watched(tmp_path, observability_services=["influxdb"], **chosen)
    refused = await play("deploy", hosts)
    assert refused.status != 0
    assert "is not InfluxDB 1 or 2" in refused.output
    assert '"influxdb3 3.2.1, revision 0000000\\". Nothing was changed.' in refused.output
    assert refused.changed == 0
    assert left(hosts) == []


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve a directory by HTTP, and yield its URL."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_a_check_downloads_nothing_and_an_archive_without_the_program_is_refused(
    tmp_path: Path, playbooks: Path
) -> None:
    offered = tmp_path / "offered"
    offered.mkdir()
    with tarfile.open(offered / "influxdb2-2.6.tar.gz", "w:gz") as archive:
        archive.add(stand_in(tmp_path, "influxd"), "influxdb2_linux_amd64/influxd")
    with served(offered) as url:
        source = {"observability_influxdb_source": f"{url}/influxdb2-2.6.tar.gz"}
        hosts = watched(tmp_path, observability_services=["influxdb"], **source)
        check = (await play("observe", hosts, "--check", playbooks=playbooks)).well()
        assert check.changed
        assert left(hosts) == []
        refused = await play("observe", hosts, playbooks=playbooks)
    gone = await play("destroy", hosts, "-e", "destroy=trial", playbooks=playbooks)
    assert refused.status != 0
    assert "influxdb2-2.6/usr/bin/influxd. To get influxdb: " in refused.output
    gone.well()
    assert left(hosts) == []


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$0.requests"
case "$*" in
  *grafana*) echo LoadState=not-found ;;
  show*) echo LoadState=loaded; echo ActiveState=active ;;
  is-enabled*) echo enabled ;;
esac
"""


async def test_units_of_installed_packages_stay_off_in_every_run(tmp_path: Path) -> None:
    hosts = watched(tmp_path, observability_services=[])
    (hosts.parent / "watch/packages").mkdir(parents=True)
    for unit in ("prometheus", "grafana-server"):
        (hosts.parent / "watch/packages" / unit).touch()
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    (tmp_path / "collections").symlink_to(PLAYBOOKS / "collections")
    role = {"name": "ares.storage.observability", "tasks_from": "units"}
    tasks = [{"import_role": role, "vars": {"common_service_manager": "systemd"}}]
    path = {"PATH": f"{tmp_path}:{{{{ lookup('env', 'PATH') }}}}"}
    plays = [{"hosts": "observability", "environment": path, "tasks": tasks}]
    (tmp_path / "units.yml").write_text(json.dumps(plays))
    (await play("units", hosts, playbooks=tmp_path)).well()
    seen = (tmp_path / "systemctl.requests").read_text().splitlines()
    assert {"disable prometheus.service", "stop prometheus.service"} < set(seen)
    assert not [line for line in seen if "influxdb" in line]
