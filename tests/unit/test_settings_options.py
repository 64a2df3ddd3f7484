"""The shared options of the command line: before or after the command's name.

The options override the cluster file. The tests cover the form of errors, too.
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
import typer

from ares.cli import main
from ares.cli.options import ALL_OPTIONS, SharedOptions, command, taking_options
from ares.client.connect import connect
from ares.cluster.new_cluster import InitPlan, create
from ares.consensus.local import LocalConsensus
from ares.consensus.port import NoNotes
from ares.model.errors import BadInput, ObjectNotFound, Unavailable
from ares.reconfig.view import Switches
from ares.server.process_lifecycle import piloted


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[SharedOptions]:
    """Make an app with the recorded command `probe`, and failing commands.

    `probe` takes the shared options.
    """
    app = typer.Typer(rich_markup_mode=None)
    recorded: list[SharedOptions] = []
    unavailable = Unavailable(3, 2, {"s1": "silent"})
    unavailable.may_have_taken_effect = True
    failures = {
        "unavailable": unavailable,
        "missing": ObjectNotFound("key", "default"),
        "bad": BadInput("the key is empty"),
    }

    def shared(common: SharedOptions) -> None:
        pass

    def probe(common: SharedOptions, key: Annotated[str, typer.Argument()] = "none") -> None:
        recorded.append(common)
        common.report({"key": key}, f"key {key}")

    def fail(common: SharedOptions, how: str) -> None:
        raise failures[how]

    app.callback()(taking_options(shared, ALL_OPTIONS))
    command(app, "probe", example="ares-cli probe key")(probe)
    command(app, "fail", example="ares-cli fail missing")(fail)
    monkeypatch.setattr(main, "app", app)
    return recorded


@pytest.mark.parametrize(
    "line",
    [
        "-c a --timeout 2 --no-gc --json probe key",
        "probe key -c a --timeout 2 --no-gc --json",
        "-c a --no-gc probe --timeout 2 --json key",
    ],
)
def test_shared_options_stand_before_or_after_the_command(
    calls: list[SharedOptions], line: str
) -> None:
    assert main.run(line.split()) == 0
    assert calls == [SharedOptions(cluster=Path("a"), timeout_s=2.0, json=True, gc=False)]


def test_what_stands_after_the_command_wins(calls: list[SharedOptions]) -> None:
    assert main.run(["--no-gc", "--batch", "-c", "a", "probe", "--gc", "-c", "b"]) == 0
    assert calls == [SharedOptions(cluster=Path("b"), gc=True, batch=True)]


def test_options_are_laid_over_the_cluster_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = create(tmp_path / "one", InitPlan()), create(tmp_path / "two", InitPlan())
    monkeypatch.setenv("ARES_CLUSTER", str(one.path))
    assert SharedOptions().settings() == one
    settings = SharedOptions(
        cluster=two.path, timeout_s=1.5, fast_read=False, optimised=False
    ).settings()
    assert settings.name == two.name
    assert (
        settings.client.timeout_s,
        settings.client.fast_read,
        settings.client.optimised,
        settings.client.gc,
    ) == (1.5, False, False, True)


async def test_every_switch_of_the_cluster_file_reaches_the_manager(tmp_path: Path) -> None:
    settings = create(tmp_path / "one", InitPlan(servers=3, consensus=0))
    for switch in Switches.__struct_fields__:
        client = msgspec.structs.replace(settings.client, **{switch: False})
        async with connect(msgspec.structs.replace(settings, client=client)) as manager:
            assert manager._switches == msgspec.structs.replace(Switches(), **{switch: False})


@pytest.mark.parametrize("ahead", [True, False])
async def test_the_autopilot_copies_ahead_as_the_cluster_file_says(
    tmp_path: Path, ahead: bool
) -> None:
    settings = create(tmp_path / "one", InitPlan(servers=3, autopilot=True))
    client = msgspec.structs.replace(settings.client, ahead=ahead)
    [member, *_] = settings.members.values()
    make = piloted(msgspec.structs.replace(settings, client=client), member)
    assert make is not None
    manager = make(LocalConsensus(), lambda: False, NoNotes())._lookout.manager
    assert manager._switches == Switches(ahead=ahead)
    await manager.close()


def test_no_cluster_is_an_error_that_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARES_CLUSTER", raising=False)
    with pytest.raises(BadInput, match="-c FILE or set ARES_CLUSTER"):
        SharedOptions().settings()


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("fail unavailable", 1, "2 of the 3 servers needed answered"),
        ("fail missing", 1, "no object 'key'"),
        ("fail bad", 2, "the key is empty"),
        ("fail", 2, "Missing argument"),
        ("prob", 2, "Did you mean 'probe'?"),
        ("probe --timeout soon", 2, "--timeout"),
        ("probe --timeout -1", 2, "--timeout"),
        ("probe --colour", 2, "--colour"),
    ],
)
def test_an_error_is_one_paragraph_and_a_status(
    calls: list[SharedOptions],
    capsys: pytest.CaptureFixture[str],
    line: str,
    status: int,
    message: str,
) -> None:
    assert main.run(line.split()) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "option", "limit"),
    [
        ("init DIR --servers 0", "--servers", "1"),
        ("init DIR --servers 33", "--servers", "32"),
        ("init DIR --consensus -1", "--consensus", "0"),
        ("init DIR --consensus 16", "--consensus", "15"),
        ("init DIR --spares -1", "--spares", "0"),
        ("init DIR --spares 1001", "--spares", "1000"),
        ("init DIR --base-port -1", "--base-port", "0"),
        ("init DIR --base-port 65536", "--base-port", "65535"),
        ("init DIR --base-port 65530", "address", "1 to 65535"),
        ("init DIR --dap ec --k 0", "k", "1 <= k < 5"),
        ("init DIR --dap ec --k -1", "k", "1 <= k < 5"),
        ("init DIR --dap ec --k 5", "k", "1 <= k < 5"),
        ("init DIR --dap ec --delta 0", "delta", "1 to 1000"),
        ("init DIR --etcd 127.0.0.1:70000", "etcd", "1 to 65535"),
        ("up DIR --timeout 0", "--timeout", "0.001"),
        ("read key --timeout -1", "--timeout", "0.001"),
        ("read key --timeout inf", "--timeout", "10000000"),
        ("scrub -c FILE --rate 0", "--rate", "at least 1 byte"),
        ("scrub -c FILE --rate -5", "size", "512K"),
        ("collect -c FILE --grace -1", "time", "24h"),
        ("put -c FILE FILE name --block-min 0", "block sizes", "from 64 to"),
        ("demo --mib 0", "--mib", "1"),
        ("torture --minutes 0", "--minutes", "0.1"),
        ("torture --minutes 1e9", "--minutes", "1440"),
        ("torture --servers 2", "--servers", "3"),
        ("torture --consensus 0", "--consensus", "1"),
    ],
)
def test_numbers_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, option: str, limit: str
) -> None:
    file = create(tmp_path / "one", InitPlan(base_port=0)).path
    words = [
        {"DIR": str(tmp_path / "none"), "FILE": str(file)}.get(word, word) for word in line.split()
    ]
    assert main.run(words) == 2
    told = capsys.readouterr().err
    assert option in told
    assert limit in told
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("ares.testing.sim", "--runs 0"),
        ("ares.testing.sim", "--jobs -1"),
        ("ares.testing.sim", "--minutes 0"),
        ("ares.testing.kills", "--kills 0"),
        ("ares.testing.kills", "--minutes -1"),
        ("ares.testing.kills", "--processes 0"),
        ("ares.testing.fuzz", "--frames 0"),
    ],
)
def test_numbers_that_make_no_sense_to_the_programs_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str, line: str
) -> None:
    monkeypatch.setattr(sys, "argv", [module, *line.split()])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module(module, run_name="__main__")
    assert line.split()[0] in capsys.readouterr().err.splitlines()[-1]


def test_errors_are_json_when_asked_for(
    calls: list[SharedOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["--json", "fail", "unavailable"]) == 1
    error = json.loads(capsys.readouterr().err)
    assert (error["kind"], error["status"], error["may_have_taken_effect"]) == (
        "Unavailable",
        1,
        True,
    )
    assert main.run(["probe", "--colour", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["kind"] == "BadInput"


def test_answers_are_json_when_asked_for(
    calls: list[SharedOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["probe", "a"]) == main.run(["probe", "a", "--json"]) == 0
    assert capsys.readouterr().out == 'key a\n{"key": "a"}\n'


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("init", "up", "down", "prepare", "server", "consensus"))


@pytest.mark.parametrize("name", ["init", "up", "down", "prepare", "server", "consensus"])
def test_every_command_has_help_with_an_example(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main.run([name, "--help"]) == 0
    assert f"Example: ares-cli {name} " in capsys.readouterr().out
