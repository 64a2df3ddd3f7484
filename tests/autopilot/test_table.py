"""The table [autopilot] of the cluster file, and its form as written by `init`, with spares."""

from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.errors import BadInput

ETCD = '\n[etcd]\nendpoints = ["127.0.0.1:2379"]\n'


@pytest.fixture
def text(tmp_path: Path) -> str:
    return create(tmp_path / "cluster", InitPlan(autopilot=True, base_port=0)).path.read_text()


def test_the_table_is_there_or_a_remark(tmp_path: Path) -> None:
    on = create(tmp_path / "on", InitPlan(autopilot=True)).autopilot
    assert on is not None
    assert (on.after_s, on.every_s, on.bytes_per_s) == (60.0, 5.0, 32 * 1024 * 1024)
    off = create(tmp_path / "off", InitPlan())
    assert off.autopilot is None
    text = off.path.read_text()
    assert "# [autopilot]\n# after_s = 60\n" in text
    for remark in (
        "# [autopilot]",
        "# after_s =",
        "# every_s =",
        "# bytes_per_s =",
        "# mirror_every_s =",
    ):
        text = text.replace(remark, remark.removeprefix("# "))
    again = Settings.parse(text.replace("after_s = 60", "after_s = 90"), off.path).autopilot
    assert again is not None
    assert again.after_s == 90
    assert "[autopilot]" not in create(tmp_path / "nobody", InitPlan(consensus=0)).path.read_text()


@pytest.mark.parametrize("security", [None, "curve"])
def test_spares_are_servers_of_the_file_and_in_no_configuration(
    tmp_path: Path, security: str | None
) -> None:
    settings = create(
        tmp_path / "cluster", InitPlan(servers=3, spares=2, base_port=0, security=security)
    )
    assert list(settings.servers) == ["s0", "s1", "s2", "s3", "s4"]
    assert settings.initial.server_ids == ("s0", "s1", "s2")
    settings.check_secrets()
    addresses = [
        address for process in settings.processes() for address in (process.address, process.http)
    ]
    addresses += [member.raft for member in settings.members.values()]
    assert len(set(addresses)) == len(addresses) == 2 * 5 + 3 * 3


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "after_s = 60",
            "after_s = 4",
            r"autopilot.after_s: expected seconds, no fewer than every_s.*found 4",
        ),
        ("after_s = 60", "after_s = inf", r"autopilot.after_s: expected seconds"),
        ("after_s = 60", 'after_s = "long"', r"autopilot.after_s: expected"),
        (
            "\nevery_s = 5",
            "\nevery_s = 0",
            r"autopilot.every_s: expected seconds \(at least 0.1\), found 0",
        ),
        ("\nevery_s = 5", "\nevery_s = nan", r"autopilot.every_s: expected seconds"),
        (
            "bytes_per_s = 33554432",
            "bytes_per_s = 0",
            r"autopilot.bytes_per_s: expected bytes per second, more than 0, found 0",
        ),
        (
            "follow_rest_s = 60",
            "follow_rest_s = -1",
            r"autopilot.follow_rest_s: expected seconds, 0 or more, found -1",
        ),
        ("follow_rest_s = 60", "follow_rest_s = inf", r"autopilot.follow_rest_s: expected seconds"),
        (
            "follow_bytes_per_hour = 10737418240",
            "follow_bytes_per_hour = 0",
            r"autopilot.follow_bytes_per_hour: expected bytes an hour, 1 or more",
        ),
        (
            "mirror_every_s = 10",
            "mirror_every_s = 0",
            r"autopilot.mirror_every_s: expected seconds \(at least 0.1\), found 0",
        ),
        (
            "mirror_every_s = 10",
            "mirror_every_s = inf",
            r"autopilot.mirror_every_s: expected seconds",
        ),
        ("\nevery_s = 5", "\nevry_s = 5", r"autopilot.evry_s: unknown key; did you mean every_s\?"),
    ],
)
def test_what_cannot_be_is_refused(text: str, old: str, new: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Settings.parse(text.replace(old, new), Path("somewhere/cluster.toml"))


def test_an_autopilot_without_consensus_members_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"autopilot: expected only with \[\[consensus\]\] tables"):
        create(tmp_path / "nobody", InitPlan(consensus=0, autopilot=True))
    alone = text[: text.index("[[consensus]]")] + text[text.index("[autopilot]") :] + ETCD
    alone = "".join(
        line
        for line in alone.splitlines(keepends=True)
        if not line.startswith("consensus_password")
    )
    with pytest.raises(
        BadInput,
        match=r"autopilot: expected only with \[\[consensus\]\] tables.*etcd runs nothing of ares",
    ):
        Settings.parse(alone, Path("somewhere/cluster.toml"))
