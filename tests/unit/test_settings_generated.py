"""The file that `init` writes: it always passes the checks, and never replaces another file."""

import shutil
import socket
import stat
from pathlib import Path
from typing import get_args

import pytest

from ares.cli.main import run
from ares.cluster import new_cluster
from ares.cluster.home import claim_identity, is_new
from ares.cluster.new_cluster import (
    InitPlan,
    check_free,
    create,
    free_base_port,
    largest_k,
    renew_identities,
)
from ares.cluster.settings import Settings
from ares.cluster.tables import TransportName
from ares.model.errors import BadInput
from ares.platform.environment import TRANSPORT_VARIABLE


def test_the_default_plan_makes_a_cluster_of_five_servers(tmp_path: Path) -> None:
    settings = create(tmp_path / "new/cluster", InitPlan())
    assert settings == Settings.load(tmp_path / "new/cluster/cluster.toml")
    assert [server.address for server in settings.servers.values()] == [
        f"127.0.0.1:{port}" for port in range(7400, 7405)
    ]
    assert (settings.initial.dap, settings.initial.n, settings.initial.crashes_survived) == (
        "abd",
        5,
        2,
    )
    assert len(settings.members) == 3
    assert settings.durable
    assert settings.transport == "native"
    assert "transport" not in settings.path.read_text()
    assert "on stable storage" in settings.path.read_text()
    forgetful = create(tmp_path / "memory", InitPlan(durability="memory"))
    assert not forgetful.durable
    assert "is lost when all servers stop" in forgetful.path.read_text()
    assert settings.password_path is not None
    assert stat.S_IMODE(settings.password_path.stat().st_mode) == 0o600
    assert len(settings.password()) >= 32


@pytest.mark.parametrize("transport", get_args(TransportName))
def test_a_word_of_a_command_line_or_of_the_environment_chooses_the_transport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: TransportName
) -> None:
    monkeypatch.delenv(TRANSPORT_VARIABLE, raising=False)
    for name, words in (("option", ["--transport", transport]), ("variable", [])):
        file = tmp_path / name / "cluster.toml"
        assert run(["init", str(file.parent), "--base-port", "0", *words]) == 0
        assert Settings.load(file).transport == transport
        assert ("docs/transport.md" in file.read_text()) is (transport != "native")
        monkeypatch.setenv(TRANSPORT_VARIABLE, transport)
    monkeypatch.setenv(TRANSPORT_VARIABLE, "pigeons")
    for command in ("init", "demo", "torture"):
        assert run([command, *([str(tmp_path / "none")] if command == "init" else [])]) == 2
    assert not (tmp_path / "none").exists()


def test_every_cluster_has_a_name_identities_and_a_password_of_its_own(tmp_path: Path) -> None:
    one, two = create(tmp_path / "one", InitPlan()), create(tmp_path / "two", InitPlan())
    assert one.name != two.name
    assert one.initial.id != two.initial.id
    assert one.password() != two.password()


def test_every_process_has_a_directory_ready_for_its_first_start(tmp_path: Path) -> None:
    settings = create(tmp_path, InitPlan(spares=1))
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "r0",
        "r1",
        "r2",
        "s0",
        "s1",
        "s2",
        "s3",
        "s4",
        "s5",
    ]
    assert all(is_new(process.data) for process in settings.processes())
    shutil.rmtree(tmp_path / "data")
    assert all(is_new(process.data) for process in renew_identities(settings).processes())
    claim_identity(settings.processes()[0].data, "f" * 32)
    with pytest.raises(BadInput, match="is not the directory of a process that never ran"):
        renew_identities(settings)
    (tmp_path / "cluster.toml").unlink()
    shutil.rmtree(tmp_path / "secrets")
    with pytest.raises(BadInput, match="data/s0/identity is left of an earlier cluster"):
        create(tmp_path, InitPlan())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    settings = create(tmp_path, InitPlan())
    before = settings.path.read_bytes(), settings.password()
    with pytest.raises(BadInput, match=r"cluster.toml exists"):
        create(tmp_path, InitPlan(servers=3))
    settings.path.unlink()
    with pytest.raises(BadInput, match=r"consensus.password exists"):
        create(tmp_path, InitPlan(servers=3))
    assert not settings.path.exists()
    settings.path.write_bytes(before[0])
    assert Settings.load(settings.path).password() == before[1]


@pytest.mark.parametrize("servers", range(3, 12))
def test_the_chosen_k_survives_one_crash_and_the_next_does_not(
    tmp_path: Path, servers: int
) -> None:
    initial = create(tmp_path, InitPlan(servers, dap="ec")).initial
    assert initial.k == largest_k(servers)
    assert servers - -(-(servers + initial.k) // 2) >= 1
    assert servers - -(-(servers + initial.k + 1) // 2) < 1


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (InitPlan(servers=2), "one crash stops it"),
        (InitPlan(servers=2, dap="ec"), "survives no crash, whatever the value of k"),
        (InitPlan(servers=4, dap="ec", k=3), "one crash stops it"),
        (InitPlan(servers=4, dap="ec", k=4), "1 <= k < 4"),
        (InitPlan(servers=33), "1 to 32 servers"),
        (InitPlan(k=2), "--k and --delta belong to --dap ec"),
        (InitPlan(delta=2), "--k and --delta belong to --dap ec"),
        (InitPlan(host="10.0.0.1"), "--security none"),
        (InitPlan(base_port=65530), "expected a port from 1 to 65535"),
        (InitPlan(host="a b", security="none"), "expected host:port"),
        (InitPlan(etcd=("127.0.0.1:2379",)), "say --etcd or --consensus, not both"),
        (
            InitPlan(consensus=0, etcd=("127.0.0.1:2379",), security="curve"),
            "--etcd and --security curve do not go together",
        ),
        (
            InitPlan(consensus=0, etcd=("10.0.0.1:2379",)),
            "For an etcd elsewhere use TLS: name its ca",
        ),
        (InitPlan(consensus=0, etcd=("nowhere",)), r"etcd.endpoints\[0\]: expected host:port"),
    ],
)
def test_an_impossible_plan_writes_nothing(tmp_path: Path, plan: InitPlan, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        create(tmp_path / "cluster", plan)
    assert not (tmp_path / "cluster").exists()


def test_plans_that_say_what_they_accept(tmp_path: Path) -> None:
    assert (
        create(
            tmp_path / "fragile", InitPlan(servers=1, consensus=0, allow_no_faults=True)
        ).initial.crashes_survived
        == 0
    )
    assert create(tmp_path / "open", InitPlan(host="10.0.0.1", security="none")).servers


def test_an_etcd_decides_in_place_of_consensus_members(tmp_path: Path) -> None:
    endpoints = ("127.0.0.1:2379", "127.0.0.1:22379")
    settings = create(tmp_path, InitPlan(consensus=0, etcd=endpoints))
    assert settings.etcd is not None
    assert settings.etcd.endpoints == endpoints
    assert (settings.members, settings.password_path) == ({}, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.toml", "data"]
    assert (
        create(
            tmp_path / "open", InitPlan(consensus=0, etcd=("10.0.0.1:2379",), security="none")
        ).etcd
        is not None
    )


def test_port_0_chooses_ports_for_all(tmp_path: Path) -> None:
    settings = create(tmp_path, InitPlan(base_port=0))
    addresses = [server.address for server in settings.servers.values()]
    addresses += [
        address for member in settings.members.values() for address in (member.address, member.raft)
    ]
    assert len(set(addresses)) == 11


def test_without_a_wish_the_first_block_of_ports_that_is_free_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # another machine's address: its free ports are not known here
    assert free_base_port(InitPlan(host="192.0.2.1")) == 7400
    monkeypatch.setattr(new_cluster, "is_free", lambda host, port: port not in (7403, 7518))
    assert InitPlan().ports == 19
    assert free_base_port(InitPlan()) == 7600
    assert free_base_port(InitPlan(servers=1, consensus=0)) == 7400
    monkeypatch.setattr(new_cluster, "is_free", lambda host, port: port == 0)
    assert free_base_port(InitPlan()) == 0  # by chance in this case


def test_a_port_that_is_taken_is_named_and_a_free_base_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports of a server, a member (two) and their pages, which are on loopback."""
    plan = InitPlan(1, 1, host="127.0.0.9", base_port=7400, allow_no_faults=True)
    assert plan.ports == 5
    taken: set[tuple[str, int]] = set()
    said = "another process listens there"
    monkeypatch.setattr(new_cluster, "obstacle", lambda *address: said if address in taken else "")
    for others in (("127.0.0.1", 7402), ("127.0.0.9", 7403), ("127.0.0.9", 7405)):
        taken.add(others)
        check_free(plan)
    taken.add(("127.0.0.1", 7403))
    with pytest.raises(BadInput, match=r"^127.0.0.1:7403 cannot be listened on: another [^(]*7500"):
        check_free(plan)
    taken.add(("127.0.0.9", 7401))
    with pytest.raises(
        BadInput, match=r"^127.0.0.9:7401 .*\(and 1 more\)\. Use --base-port 7500: 5"
    ):
        check_free(plan)
    taken.add(("127.0.0.9", 0))
    check_free(plan)  # another machine's address: nothing is known of its ports here


def test_why_an_address_cannot_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "another process" in new_cluster.obstacle(*listener.getsockname())
    assert "no such address" in new_cluster.obstacle("192.0.2.1", 0)
    assert new_cluster.obstacle("no such host", 0)
    assert new_cluster.obstacle("127.0.0.1", 0) == ""


def test_renewing_changes_the_identities_and_nothing_else(tmp_path: Path) -> None:
    settings = create(tmp_path, InitPlan())
    before = settings.path.read_text() + "# a remark by hand\n"
    settings.path.write_text(before)
    renewed = renew_identities(settings)
    after = settings.path.read_text()
    old, new = (
        [server.identity for server in some.servers.values()] for some in (settings, renewed)
    )
    assert set(old).isdisjoint(new)
    for was, now in zip(old, new, strict=True):
        after = after.replace(now, was)
    assert after == before
    assert renewed.initial.id != settings.initial.id
