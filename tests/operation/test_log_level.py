"""ares-cli log-level on running servers and consensus members, a single process or all."""

import pytest

from ares.cluster.settings import Settings
from tests.process.command_line import Cli, running_cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    yield from running_cluster(tmp_path_factory.mktemp("levels") / "c")


def logged(cli: Cli, id: str) -> str:
    return (cli.directory / f"logs/{id}.log").read_text()


def test_it_is_changed_everywhere_and_at_one(cli):
    everybody = [
        process.id for process in Settings.load(cli.directory / "cluster.toml").processes()
    ]
    assert cli.json("log-level", "error") == {
        "level": "error",
        "changed": everybody,
        "unchanged": {},
    }
    assert cli.json("log-level", "debug", "--server", "s1", "--server", "r0")["changed"] == [
        "s1",
        "r0",
    ]
    assert cli.ok("log-level", "info", "--server", "r0") == b"r0: logs from info on\n"


def test_a_new_log_level_takes_effect(cli):
    for level, logs in (("error", False), ("info", True)):
        cli.ok("log-level", level, "--server", "s2")
        before = len(logged(cli, "s2"))
        cli.ok("log-level", "error", "--server", "s2")
        assert ("the log level" in logged(cli, "s2")[before:]) == logs


def test_an_unknown_level_and_an_unknown_process_are_refused(cli):
    assert "one of debug, info, warning, error, not 'loud'; nothing was changed" in cli.fails(
        2, "log-level", "loud"
    )
    assert "has no server or consensus member 's9'" in cli.fails(
        2, "log-level", "info", "--server", "s9"
    )


def test_a_process_without_an_answer_is_named(cli):
    cli.kill("s3")
    told = cli.json("log-level", "info", "--timeout", "3", status=1)
    assert told["unchanged"] == {
        "s3": "its level is as it was (connection refused: is it running?)"
    }
    assert "s0" in told["changed"]
