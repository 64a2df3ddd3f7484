"""A killed server and its spare, while the leading member is killed during the repair.

The processes are real.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares import connect_blocking
from ares.tracing.tree import read_spans
from tests.process.command_line import Cli
from tests.process.warm_start import ares_cli

pytestmark = [pytest.mark.process, pytest.mark.slow]

OBJECTS = 10
BYTES = 50_000
MOVE_S = 20.0
"""Seconds of a move, far longer than `status` takes: the leader is killed during the move."""

LOOK_S_MAX = 180.0
"""Seconds far beyond the time of a look."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run five servers, two of them spares, with traces and an autopilot.

    A move of a domain takes seconds.
    """
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", f"file:{tmp_path}/%p.spans")
    directory = tmp_path / "cluster"
    words = [
        "--servers",
        "3",
        "--spares",
        "2",
        "--consensus",
        "3",
        "--base-port",
        "0",
        "--autopilot",
        "--durability",
        "memory",
    ]
    ares("init", directory, *words)
    file = directory / "cluster.toml"
    text = (
        file.read_text()
        .replace("after_s = 60", "after_s = 3")
        .replace("every_s = 5", "every_s = 0.5")
    )
    text = text.replace("bytes_per_s = 33554432", f"bytes_per_s = {OBJECTS * BYTES / MOVE_S:.0f}")
    # objects move after the decision: a leader that dies leaves a move half done
    file.write_text(f"{text}\n[client]\nahead = false\n")
    ares("up", directory, "--detach")
    try:
        yield Cli(directory)
    finally:
        ares("down", directory)


def ares(*words: str | Path) -> None:
    done = subprocess.run(
        ares_cli(*words), capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr


def status(cli: Cli, condition: Callable[[Any], bool]) -> Any:
    """Return the output of `status`, as soon as the condition holds for it."""
    until_s = time.monotonic() + LOOK_S_MAX
    while time.monotonic() < until_s:
        told = json.loads(cli.run("status", "--json").stdout)
        if condition(told):
            return told
    raise AssertionError(f"it never came about: {json.dumps(told)}")


def leader(told: Any) -> str:
    """Return the member that calls itself the leader, if any."""
    return next((id for id, member in told["consensus"].items() if member.get("leader") == id), "")


def test_a_spare_takes_over_though_the_leader_dies_in_the_middle(cli: Cli) -> None:
    values = {f"key{number}": b"%d" % number * BYTES for number in range(OBJECTS)}
    with connect_blocking(cli.settings) as store:
        for key, value in values.items():
            store.write(key, value)
    before = status(cli, lambda told: "watches 5 servers" in (told["autopilot"] or ""))
    assert before["domains"][0]["outlook"] == "default: ABD 3, survives 1 more crash"
    cli.kill("s1")
    moving = status(
        cli,
        lambda told: (
            leader(told) != ""
            and (told["autopilot"] or "").startswith(f"{leader(told)}: ")
            and "objects seen to" in told["autopilot"]
        ),
    )
    assert moving["domains"][0]["outlook"] == "default: ABD 3, survives 0 more crashes: s1 is down"
    assert moving["domains"][0]["index"] == 0
    killed = leader(moving)
    cli.kill(killed)
    after = status(
        cli,
        lambda told: (
            told["domains"][0]["index"] == 1
            and "completed a move that was left" in (told["autopilot"] or "")
            and leader(told) not in ("", killed)
        ),
    )
    assert after["domains"][0]["outlook"] == "default: ABD 3, survives 1 more crash"
    assert "s1" not in after["domains"][0]["configuration"]
    cli.kill("s0")
    with connect_blocking(cli.settings) as store:
        assert {key: store.read(key) for key in values} == values
    logged = [
        json.loads(line)
        for path in cli.directory.glob("logs/r*.log")
        for line in path.read_text().splitlines()
        if line.startswith("{")
    ]
    begun = [line for line in logged if line["message"].startswith("replacing s1 by")]
    assert [(line["server"], line["domain"]) for line in begun] == [(killed, "default")]
    assert "autopilot: " in cli.ok("status").decode()
    ares("down", cli.directory)
    traced = b"".join(path.read_bytes() for path in cli.directory.parent.glob("*.spans"))
    spans = list(read_spans(traced.splitlines(), []))
    [move] = [
        span
        for span in spans
        if span.name == "repair" and not span.parent and "ares.objects_moved" in span.attributes
    ]
    assert move.attributes["ares.objects_moved"] > 0
    assert {"StartReconRequest-MEMORY", "Consensus", "UpdateConfig", "FinalizeConfig"} <= {
        span.name for span in spans if span.trace == move.trace
    }
    assert b"ares-autopilot" in traced
