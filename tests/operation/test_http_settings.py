"""The key ``http`` of servers and consensus members, as written by `init`; and its refusals."""

from pathlib import Path

import pytest

from ares.cli.local.supervisor import members_of
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.errors import BadInput


def test_init_gives_each_process_an_http_port_after_all_other_ports(tmp_path: Path) -> None:
    settings = create(tmp_path / "c", InitPlan(servers=3, consensus=3))
    assert [process.address for process in settings.processes()] == [
        f"127.0.0.1:{port}" for port in (7400, 7401, 7402, 7403, 7405, 7407)
    ]
    assert [process.http for process in settings.processes()] == [
        f"127.0.0.1:{port}" for port in range(7409, 7415)
    ]
    assert [member.addresses[-1] for member in members_of(settings)] == [
        f"127.0.0.1:{port}" for port in (7412, 7413, 7414, 7409, 7410, 7411)
    ]


def test_figures_stay_on_this_machine_even_if_the_servers_do_not(tmp_path: Path) -> None:
    settings = create(
        tmp_path / "c", InitPlan(servers=3, consensus=0, host="10.0.0.1", security="none")
    )
    assert {process.http.partition(":")[0] for process in settings.processes()} == {"127.0.0.1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create(tmp_path / "c", InitPlan(servers=3, consensus=0)).path


def written(path: Path, address: str) -> Settings:
    path.write_text(path.read_text().replace("127.0.0.1:7403", address, 1))
    return Settings.load(path)


def test_any_address_may_be_written(path: Path) -> None:
    assert next(iter(written(path, "0.0.0.0:9000").servers.values())).http == "0.0.0.0:9000"


def test_the_http_address_may_be_left_out(path: Path) -> None:
    path.write_text(
        "".join(
            line
            for line in path.read_text().splitlines(keepends=True)
            if not line.startswith("http")
        )
    )
    settings = Settings.load(path)
    assert [server.http for server in settings.servers.values()] == ["", "", ""]
    assert all(len(member.addresses) == 1 for member in members_of(settings))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("7403", r"server\[0\]\.http: expected host:port, found '7403'"),
        ("127.0.0.1:70000", r"server\[0\]\.http: expected a port from 1 to 65535"),
        (
            "localhost:7400",
            r"server\[0\]\.http: expected one of its own, but '127\.0\.0\.1:7400' is also "
            r"server\[0\]\.address",
        ),
        ("127.0.0.1:7404", r"server\[1\]\.http: expected one of its own"),
    ],
)
def test_what_is_no_address_of_its_own_is_refused(path: Path, address: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        written(path, address)


def test_processes_on_several_hosts_may_have_the_same_address_on_their_own_host(
    tmp_path: Path,
) -> None:
    file = create(
        tmp_path / "c", InitPlan(servers=3, consensus=0, host="10.0.0.1", security="none")
    ).path
    text = file.read_text()
    ports = [
        line.split(":")[1].rstrip('"') for line in text.splitlines() if line.startswith("http")
    ]
    for number, port in enumerate(ports):
        text = text.replace(f"127.0.0.1:{port}", "127.0.0.1:7410").replace(
            f"10.0.0.1:{7400 + number}", f"10.0.0.{number}:7400"
        )
    file.write_text(text)
    assert {server.http for server in Settings.load(file).servers.values()} == {"127.0.0.1:7410"}
    file.write_text(text.replace("10.0.0.2:7400", "10.0.0.1:7401"))
    with pytest.raises(
        BadInput,
        match=r"server\[2\]\.http: expected one of its own, but '127\.0\.0\.1:7410 on 10\.0\.0\.1' "
        r"is also server\[1\]\.http",
    ):
        Settings.load(file)
