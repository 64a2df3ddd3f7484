"""The module `cluster_file`: makes a valid cluster, adds servers, and changes no more."""

from types import SimpleNamespace

import pytest

from ares.cluster.settings import Settings
from ares.model.errors import AresError

from .playing import MISSING, module_of

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
    assert act(module, tmp_path / "c") == {
        "changed": False,
        "path": made["path"],
        "added": [],
        "left": [],
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
        ({"members": [MEMBER, MEMBER | {"id": "r1"}]}, "those that it began with"),
        ({"name": "other"}, "is of the cluster 'trial'"),
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
