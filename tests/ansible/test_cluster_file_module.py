"""The module `cluster_file`: makes a valid cluster, adds servers, and changes no more."""

from types import SimpleNamespace

import pytest

from ares.cluster.settings import Settings
from ares.model.errors import AresError

from .ansible_runs import MISSING, module_of

pytest.importorskip("ansible.release", reason=MISSING)


@pytest.fixture(scope="module")
def module():
    """Return the module, which is in no package."""
    return module_of("cluster_file")


def server(number, **more):
    return {
        "id": f"s{number}",
        "address": f"10.0.0.{number}:7400",
        "http": f"10.0.0.{number}:9",
        "data": f"/var/lib/ares/s{number}",
        "spare": False,
    } | more


MEMBER = {
    "id": "r0",
    "kind": "consensus",
    "address": "10.0.0.9:1",
    "raft": "10.0.0.9:2",
    "http": "10.0.0.9:3",
    "data": "/var/lib/ares/r0",
}


def act(module, directory, count=3, check_mode=False, **more):
    values = {
        "directory": str(directory),
        "name": "trial",
        "servers": [server(number) for number in range(count)],
    }
    values |= {
        "members": [MEMBER],
        "durability": "fsync",
        "security": "curve",
        "initial": {"dap": "abd", "k": 0},
        "options": {},
        "passed_over": [],
        "fresh": False,
    } | more
    return module.act(SimpleNamespace(params=values, check_mode=check_mode))


def files(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_cluster_is_made_whole_and_the_second_time_left_alone(module, tmp_path):
    made = act(module, tmp_path / "c")
    assert made["changed"]
    settings = Settings.load(made["path"])
    settings.check_secrets()
    assert settings.initial.server_ids == ("s0", "s1", "s2")
    assert str(settings.servers["s1"].data) == "/var/lib/ares/s1"
    before = files(tmp_path)
    assert {name for name in before if (tmp_path / name).stat().st_mode & 0o077} == {
        "c/cluster.toml",
        "c/keys/clients.toml",
    }
    again = act(module, tmp_path / "c")
    assert {name: again[name] for name in ("changed", "path", "added", "set", "kept", "left")} == {
        "changed": False,
        "path": made["path"],
        **{name: [] for name in ("added", "set", "kept", "left")},
    }
    assert files(tmp_path) == before


def test_a_server_is_added_and_nothing_else_is_touched(module, tmp_path):
    made = act(module, tmp_path)
    file = tmp_path / "cluster.toml"
    file.write_text(file.read_text() + "\n# edited by hand\n")
    before, initial = files(tmp_path), Settings.load(file).initial
    assert act(module, tmp_path, count=4)["added"] == ["s3"]
    settings = Settings.load(made["path"])
    settings.check_secrets()
    assert settings.initial == initial
    assert {
        name: data
        for name, data in files(tmp_path).items()
        if name in before and name != "cluster.toml"
    } == {name: data for name, data in before.items() if name != "cluster.toml"}
    assert file.read_bytes().startswith(before["cluster.toml"])
    assert act(module, tmp_path, count=2)["left"] == ["s2", "s3"]


def test_a_server_left_out_at_first_is_a_spare(module, tmp_path):
    settings = Settings.load(
        act(module, tmp_path, servers=[server(number, spare=number == 3) for number in range(4)])[
            "path"
        ]
    )
    assert "s3" in settings.servers
    assert settings.initial.server_ids == ("s0", "s1", "s2")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"servers": [server(0, address="10.0.0.77:7400"), server(1)]},
            "the inventory says address",
        ),
        ({"members": [MEMBER, MEMBER | {"id": "r1"}]}, "keeps its first consensus members"),
        ({"name": "other"}, "is of the cluster 'trial'"),
        ({"durability": "memory"}, "says 'fsync'. A cluster keeps the durability"),
        ({"security": "none"}, "says 'curve'. A cluster keeps the security"),
        ({"options": {"limits": {"conections": 3}}}, "conections"),
        ({"options": {"limits": {"connections": 0}}}, "connections: expected 1 to"),
        ({"options": {"initial": {"dap": "ec"}}}, "cannot have initial"),
        ({"options": {"nonsense": 3}}, "nonsense"),
        ({"servers": [server(0), server(8, address="10.0.0.0:7400")]}, "expected one of its own"),
    ],
)
def test_what_the_inventory_cannot_mean_is_refused_and_changes_nothing(
    module, tmp_path, more, said
):
    act(module, tmp_path)
    before = files(tmp_path)
    with pytest.raises((AresError, ValueError), match=said):
        act(module, tmp_path, **more)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"servers": []}, "server"),
        ({"initial": {"dap": "ec", "k": 7}}, "k"),
        ({"options": {"limits": {"conections": 3}}}, "conections"),
        ({"name": "a b"}, "name"),
    ],
)
def test_an_impossible_cluster_is_refused_and_nothing_is_written(module, tmp_path, more, said):
    with pytest.raises((AresError, ValueError), match=said):
        act(module, tmp_path / "c", **more)
    assert files(tmp_path) == {}


def test_a_run_that_ended_half_way_is_repeated(module, tmp_path):
    act(module, tmp_path)
    (tmp_path / "cluster.toml").unlink()
    assert act(module, tmp_path)["changed"]
    Settings.load(tmp_path / "cluster.toml").check_secrets()


def test_a_fresh_one_has_other_identities_and_keys(module, tmp_path):
    act(module, tmp_path)
    before = files(tmp_path)
    assert act(module, tmp_path, fresh=True)["changed"]
    after = files(tmp_path)
    assert before.keys() == after.keys()
    assert not [name for name in before if before[name] == after[name]]


def test_in_check_mode_nothing_is_written(module, tmp_path):
    assert act(module, tmp_path / "c", check_mode=True)["changed"]
    assert files(tmp_path) == {}


@pytest.mark.parametrize(
    "hand", ["", "[limits]\nconnections = 9 # few\n", "[autopilot]\n\n[scrub]\n"]
)
def test_options_are_set_and_all_else_stays(module, tmp_path, hand):
    """The tables may be written by hand; a second run changes no setting."""
    act(module, tmp_path)
    file = tmp_path / "cluster.toml"
    text = file.read_text().replace("[client]", f"{hand}\n# mine\n[client]")
    file.write_text(text)
    options = {
        "limits": {"connections": "500"},
        "autopilot": {"after_s": 61.5},
        "transport": "libzmq",
        "tracing": {"exporter": 'file:/a "b"'},
    }
    made = act(module, tmp_path, options=options)
    assert made["changed"]
    assert made["set"] == [
        "limits.connections",
        "autopilot.after_s",
        "transport",
        "tracing.exporter",
    ]
    settings = Settings.load(file)
    assert (settings.limits.connections, settings.autopilot.after_s) == (500, 61.5)
    after = file.read_text()
    assert "# mine\n[client]" in after
    assert set(text.splitlines()) - set(after.splitlines()) <= {"connections = 9 # few"}
    assert not act(module, tmp_path, options=options)["changed"]
    assert not act(module, tmp_path)["changed"]
    assert file.read_text() == after == made["diff"]["after"]


def test_a_table_that_is_written_in_another_way_is_refused(module, tmp_path):
    act(module, tmp_path)
    file = tmp_path / "cluster.toml"
    head, rest = file.read_text().split("\n", 1)
    file.write_text(f"{head}\nlimits = {{connections = 9}}\n{rest}")
    before = files(tmp_path)
    with pytest.raises(ValueError, match=r"limits.connections of .*: edit the file by hand"):
        act(module, tmp_path, options={"limits": {"connections": 500}})
    assert files(tmp_path) == before


def test_settings_that_a_cluster_keeps_are_told(module, tmp_path):
    act(module, tmp_path)
    told = act(module, tmp_path, initial={"dap": "ec", "k": 2}, servers=[server(0, site="far")])
    assert not told["changed"]
    assert ["dap = ec" in told["kept"][0], "site = far" in told["kept"][-1]] == [True, True]


def test_hosts_outside_a_limit_keep_their_processes(module, tmp_path):
    with pytest.raises(ValueError, match="without --limit, which leaves out s1, s2"):
        act(module, tmp_path, count=1, passed_over=["s1", "s2"])
    assert files(tmp_path) == {}
    act(module, tmp_path)
    assert act(module, tmp_path, count=1, members=[], passed_over=["s1", "s2"])["left"] == []


def test_options_in_check_mode_are_told_and_not_written(module, tmp_path):
    act(module, tmp_path)
    before = files(tmp_path)
    made = act(module, tmp_path, check_mode=True, options={"limits": {"connections": 500}})
    assert (made["changed"], made["set"]) == (True, ["limits.connections"])
    assert files(tmp_path) == before
