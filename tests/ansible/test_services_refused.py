"""Services beside a cluster that playbooks refuse, only check, or leave off, on this machine."""

import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .ansible_runs import MISSING, PLAYBOOKS, play
from .watched_cluster import left, stand_in, watched

pytest.importorskip("ansible.release", reason=MISSING)

pytestmark = [pytest.mark.process, pytest.mark.slow]


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
