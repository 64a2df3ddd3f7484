"""The autopilot and the spare that `up --gateway` adds to a cluster file."""

import socket
from pathlib import Path

import pytest

from ares.cluster import added_spare
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
    settings, added = add_autopilot(before, 9000)
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
    assert add_autopilot(settings, 9000) == (settings, "")


def test_the_spare_has_free_ports_behind_those_of_the_file(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0, spares=0, autopilot=True))
    ports = [int(each.http.rpartition(":")[2]) for each in before.processes()]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", max(ports) + 1))
        taken.listen()
        settings, added = add_autopilot(before, 9000)
    assert added == "the spare s5"
    *_, spare = settings.servers.values()
    assert min(int(a.rpartition(":")[2]) for a in (spare.address, spare.http)) > max(ports) + 1


def test_servers_outside_the_first_configuration_are_spares(tmp_path: Path) -> None:
    settings, added = add_autopilot(create(tmp_path, InitPlan(base_port=0, spares=2)), 9000)
    assert added == "the autopilot"
    assert len(settings.servers) == 7


def test_nothing_is_added_where_no_member_could_be_the_autopilot(tmp_path: Path) -> None:
    plan = InitPlan(consensus=0, etcd=("127.0.0.1:2379",), base_port=0)
    settings = create(tmp_path, plan)
    text = settings.path.read_text()
    assert add_autopilot(settings, 9000) == (settings, "")
    assert settings.path.read_text() == text


def test_without_a_free_port_nothing_is_written(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0))
    text = before.path.read_text().replace(before.servers["s0"].http, "127.0.0.1:65535")  # type: ignore[index]
    before.path.write_text(text)
    with pytest.raises(BadInput, match="no port"):
        add_autopilot(Settings.load(before.path), 9000)
    assert before.path.read_text() == text


def test_a_file_that_cannot_be_changed_leaves_nothing(tmp_path, monkeypatch):
    before = create(tmp_path, InitPlan(base_port=0, security="curve"))
    kept = before.path.read_bytes(), sorted((tmp_path / "secrets").iterdir())

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", str(before.path))

    monkeypatch.setattr(added_spare, "replace_file", refused)
    with pytest.raises(PermissionError):
        add_autopilot(before, 9000)
    assert (before.path.read_bytes(), sorted((tmp_path / "secrets").iterdir())) == kept


def test_arrays_in_a_line_are_left_and_no_key_is_made(tmp_path: Path) -> None:
    """TOML lets no table be added to such an array."""
    before = create(tmp_path, InitPlan(base_port=0, security="curve"))
    secrets = sorted((tmp_path / "secrets").iterdir())
    head, *servers = before.path.read_text().split("[[server]]\n")
    *servers, last = servers
    own, _, rest = last.partition("\n\n")
    tables = ("{" + ", ".join(each.split("\n\n")[0].splitlines()) + "}" for each in servers)
    text = f"server = [{', '.join([*tables, '{' + ', '.join(own.splitlines()) + '}'])}]\n"
    before.path.write_text(f"{text}{head}{rest}")
    settings = Settings.load(before.path)
    with pytest.raises(BadInput, match="TOML"):
        add_autopilot(settings, 9000)
    assert sorted((tmp_path / "secrets").iterdir()) == secrets


def test_the_spare_takes_no_place_of_an_earlier_server(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0))
    (tmp_path / "data/s5/journal").mkdir(parents=True)
    assert add_autopilot(before, 9000)[1].endswith("the spare s6")


def test_the_spare_leaves_the_gateway_its_port(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0))
    first = max(int(each.http.rpartition(":")[2]) for each in before.processes()) + 1
    *_, spare = add_autopilot(before, first)[0].servers.values()
    assert not {spare.address, spare.http} & {f"127.0.0.1:{first}"}


def test_a_link_to_the_file_and_the_modes_of_the_file_stay(tmp_path: Path) -> None:
    before = create(tmp_path, InitPlan(base_port=0))
    before.path.rename(kept := tmp_path / "kept.toml")
    kept.chmod(0o666)
    before.path.symlink_to(kept)
    settings, _ = add_autopilot(Settings.load(before.path), 9000)
    assert before.path.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o666
    assert Settings.load(before.path) == settings
