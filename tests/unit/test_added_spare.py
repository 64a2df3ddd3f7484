"""The autopilot and the spare that `up --gateway` adds to a cluster file."""

import socket
from pathlib import Path

import pytest

from ares.cluster.added_spare import add_autopilot
from ares.cluster.home import is_new
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.cluster.tables import AutopilotSettings
from ares.model.errors import BadInput


@pytest.mark.parametrize("security", ["none", "curve"])
def test_a_cluster_gets_the_autopilot_and_a_spare_once(tmp_path: Path, security: str) -> None:
    plan = InitPlan(base_port=0, security=security)
    before = create(tmp_path, plan)
    before.path.write_text(text := before.path.read_text() + "# a remark by hand\n")
    settings, added = add_autopilot(before)
    assert added == "the autopilot and the spare s5"
    assert settings.path.read_text().startswith(text)
    assert settings == Settings.load(before.path)
    assert settings.autopilot == AutopilotSettings()
    assert settings.initial.id == before.initial.id
    assert dict(list(settings.servers.items())[:-1]) == before.servers
    (spare,) = settings.servers.keys() - before.servers.keys()
    assert settings.servers[spare].identity not in before.path.read_text()[: len(text)]
    assert settings.servers[spare].http.startswith("127.0.0.1:")
    assert is_new(settings.servers[spare].data)
    settings.check_secrets()
    assert add_autopilot(settings) == (settings, "")


def test_the_spare_has_free_ports_behind_those_of_the_file(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0, spares=0, autopilot=True))
    ports = [int(each.http.rpartition(":")[2]) for each in before.processes()]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", max(ports) + 1))
        taken.listen()
        settings, added = add_autopilot(before)
    assert added == "the spare s5"
    *_, spare = settings.servers.values()
    assert min(int(a.rpartition(":")[2]) for a in (spare.address, spare.http)) > max(ports) + 1


def test_servers_outside_the_first_configuration_are_spares(tmp_path: Path) -> None:
    settings, added = add_autopilot(create(tmp_path, InitPlan(base_port=0, spares=2)))
    assert added == "the autopilot"
    assert len(settings.servers) == 7


def test_nothing_is_added_where_no_member_could_be_the_autopilot(tmp_path: Path) -> None:
    plan = InitPlan(consensus=0, etcd=("127.0.0.1:2379",), base_port=0)
    settings = create(tmp_path, plan)
    text = settings.path.read_text()
    assert add_autopilot(settings) == (settings, "")
    assert settings.path.read_text() == text


def test_without_a_free_port_nothing_is_written(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0))
    text = before.path.read_text().replace(before.servers["s0"].http, "127.0.0.1:65535")  # type: ignore[index]
    before.path.write_text(text)
    with pytest.raises(BadInput, match="no port"):
        add_autopilot(Settings.load(before.path))
    assert before.path.read_text() == text
