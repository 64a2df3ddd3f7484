"""The command line: no traceback, no hang and no abort in a thousand odd invocations.

Tests of rare edges follow.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.platform.interpreter import python
from tests.process.command_line import Cli, running_cluster

from .odd_runs import LIMIT_S, SERVING, Outcome
from .odd_words import Case, Invocations, commands

pytestmark = [pytest.mark.process, pytest.mark.slow]

INVOCATIONS = 1000
SEED = int(os.environ.get("ARES_TESTS_SEED", "7"))
"""Seed; another seed hunts elsewhere."""

CHECKOUT = Path(__file__).parents[2]
ARES_CLI = str(Path(sysconfig.get_path("scripts")) / "ares-cli")
MARKS = (
    "Traceback",
    "a mistake in ares",
    "Exception ignored",
    "Logging error",
    "was never retrieved",
    "was never awaited",
    "core dumped",
)


def wrong(outcome: Outcome, serves: bool = False, told: bool = False) -> str:
    """Return the fault of the outcome, or an empty text.

    ``told``: a reader could read the standard error.
    """
    if outcome.late:
        return f"it hung for {LIMIT_S:g} s"
    if outcome.status not in (0, 1, 2) and not (
        serves and outcome.status in (130, 143, -signal.SIGTERM)
    ):
        return f"it ended with {outcome.status}"
    if marks := [mark for mark in MARKS if mark in outcome.out + outcome.err]:
        return f"it said {marks[0]!r}"
    return (
        "it failed without a word"
        if told and outcome.status in (1, 2) and not outcome.out + outcome.err
        else ""
    )


class CommandRunner:
    """A runner of invocations in separate processes (odd_runs.py)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "XDG_CACHE_HOME": str(directory),
            "LANG": "C.UTF-8",
        }
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
        command = python("-m", "tests.fuzz.odd_runs")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    def __enter__(self) -> "CommandRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def run(self, case: Case) -> Outcome:
        environment = {
            name: value
            for name, value in (self._base | case.environment).items()
            if value is not None
        }
        said = case._asdict() | {"environment": environment, "directory": str(self._directory)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(said).encode() + b"\n")
        self._process.stdin.flush()
        return Outcome(*json.loads(self._process.stdout.readline()))


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    yield from running_cluster(tmp_path_factory.mktemp("odd") / "cluster", "--durability", "memory")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[CommandRunner]:
    (tmp_path / "work").mkdir()
    with CommandRunner(tmp_path / "work") as runner:
        yield runner


def test_a_thousand_odd_invocations(cli: Cli, runner: CommandRunner, tmp_path: Path) -> None:
    cli.ok(
        "init",
        tmp_path / "keyed",
        "--servers",
        "3",
        "--consensus",
        "1",
        "--base-port",
        "0",
        "--security",
        "curve",
    )
    all, met, statuses = commands(), set[tuple[str, ...]](), set[int]()
    for number, case in enumerate(
        itertools.islice(
            Invocations(SEED, tmp_path / "odd", cli.directory, tmp_path / "keyed"), INVOCATIONS
        )
    ):
        outcome = runner.run(case)
        told = case.streams[1] != "broken" and case.streams[2] not in ("closed", "full", "broken")
        why = wrong(outcome, case.words[:1] and case.words[0] in SERVING, told)
        assert not why, f"invocation {number} of seed {SEED}: {why}\n{case}\n{outcome}"
        met |= {name for name in all if tuple(case.words[: len(name)]) == name}
        statuses.add(outcome.status)
    assert met == set(all)
    assert {0, 1, 2} <= statuses
    cli.ok("write", "key", stdin=b"the cluster outlasts it")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(2)", "it failed without a word"),
        ("1 / 0", "it said 'Traceback'"),
        ("raise SystemExit(120)", "it ended with 120"),
        ("import os; os.abort()", "it ended with -6"),
        ("import time; time.sleep(60)", "it hung"),
        ("print('error: no')", ""),
    ],
)
def test_what_is_wrong_is_found(program: str, why: str) -> None:
    """The control of :func:`wrong`."""
    with subprocess.Popen(
        python("-c", program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            late = process.wait(1 if "sleep" in program else 60) is None
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
        out, err = process.communicate()
    found = wrong(Outcome(process.returncode, late, 0.0, out, err), told=True)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def started(
    words: list[str | Path], redirections: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the console script by a shell, with ``redirections`` in the shell's words."""
    shell = ["bash", "-c", f'exec "$@" {redirections}', "bash", ARES_CLI, *words]
    said = {"text": True, "errors": "backslashreplace", "check": False, "timeout": 60}
    return subprocess.run(
        shell, stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | environment, **said
    )


@pytest.mark.parametrize(
    "closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
)
def test_standard_streams_that_are_closed(cli: Cli, closed: str, tmp_path: Path) -> None:
    """A command does its work; unreadable input or unwritable output is a failure with a status."""
    (tmp_path / "value").write_text("value")
    silent, deaf = ">&-" in closed.split(), "<&-" in closed
    file = cli.settings.path
    for words, status in (
        (["-c", file, "write", "key", tmp_path / "value"], int(silent)),
        (["-c", file, "read", "key", "-o", tmp_path / "out"], int(silent)),
        (["-c", file, "write", "key"], 2 if deaf else int(silent)),
        (["-c", file, "put", "-", "name"], 2 if deaf else int(silent)),
        (["down", tmp_path], 2),
    ):
        done = started(words, closed)
        assert not wrong(
            Outcome(done.returncode, False, 0.0, done.stdout, done.stderr),
            told="2>&-" not in closed.split(),
        ), done
        assert done.returncode == status, (words, done)
    assert (tmp_path / "out").read_text() in ("value", "")


def test_output_to_a_full_device_or_a_pipe_without_a_reader(cli: Cli) -> None:
    cli.ok("write", "key", stdin=b"value")
    for words in (["read", "key"], ["ls"], ["status"], ["--help"], ["--version"]):
        for where in (">/dev/full", ">/dev/full 2>/dev/full", "> >(true)"):
            done = started(["-c", cli.settings.path, *words], where)
            assert not wrong(Outcome(done.returncode, False, 0.0, done.stdout, done.stderr)), (
                words,
                where,
                done,
            )
            assert done.returncode == 1 or ">(" in where, (words, where, done)


def test_forced_colours_into_pipes_without_readers(cli: Cli, runner: CommandRunner) -> None:
    """No progress bar is drawn into a file, and a lost output ends no command in Python's way."""
    for words in (["log", "append", "events", "--lines"], ["status"], ["put", "/etc/passwd", "a"]):
        case = Case(
            ["-c", str(cli.settings.path), *words],
            {"FORCE_COLOR": "1"},
            ("broken", "broken", "broken"),
            "utf-8",
        )
        assert not wrong(outcome := runner.run(case)), (words, outcome)


@pytest.mark.parametrize("columns", ["9" * 30, "-1", "0", "x"])
def test_a_width_that_no_terminal_has(cli: Cli, runner: CommandRunner, columns: str) -> None:
    for words in (["status"], ["top", "--once"], ["put", "/etc/passwd", "a"], ["--help"]):
        case = Case(
            ["-c", str(cli.settings.path), *words] if words != ["--help"] else words,
            {"COLUMNS": columns},
            ("usual", "usual", "usual"),
            "utf-8",
        )
        assert not wrong(outcome := runner.run(case)), (words, outcome)
        assert outcome.status == 0, (words, outcome)


def test_what_an_encoding_lacks_is_written_with_backslashes(cli: Cli) -> None:
    cli.ok("write", "日本", stdin=b"value")
    assert (
        started(["-c", cli.settings.path, "ls", "日"], "", PYTHONIOENCODING="latin-1").stdout
        == "\\u65e5\\u672c\n"
    )


@pytest.mark.parametrize("prefix", ["\udcff", "a" * 100_000])
@pytest.mark.parametrize("words", [["files"], ["files", "--domain", "default"], ["ls"]])
def test_a_prefix_that_no_name_has(cli: Cli, words: list[str], prefix: str) -> None:
    assert "bytes" in (said := cli.fails(2, *words, prefix)) or "UTF-8" in said
    assert said.count("\n") == 1


def test_a_home_that_is_not_set(cli: Cli, runner: CommandRunner) -> None:
    environment: dict[str, str | None] = {"HOME": None, "XDG_CACHE_HOME": None, "ARES_CACHE": "off"}
    assert (
        runner.run(
            Case(
                ["-c", str(cli.settings.path), "status"],
                environment,
                ("usual", "usual", "usual"),
                "utf-8",
            )
        ).status
        == 0
    )


@pytest.mark.parametrize(
    "pid", ["9" * 30, "9" * 5000, "-1", "0", "1", "", "\0", "x", str(2**31), "this process"]
)
def test_a_pid_file_that_names_no_process_of_the_cluster(
    cli: Cli, tmp_path: Path, pid: str
) -> None:
    cli.ok(
        "init",
        tmp_path / "c",
        "--servers",
        "1",
        "--consensus",
        "0",
        "--base-port",
        "0",
        "--allow-no-faults",
    )
    (tmp_path / "c/run").mkdir()
    (tmp_path / "c/run/s0.pid").write_text(str(os.getpid()) if pid == "this process" else pid)
    assert cli.ok("down", tmp_path / "c") == b"nothing was running\n"


def test_what_had_begun_is_stopped_when_another_process_cannot_be_started(
    cli: Cli, tmp_path: Path
) -> None:
    """The stop comes at once, before the process has a recognizable command line."""
    cli.ok("init", tmp_path / "c", "--servers", "3", "--consensus", "0", "--base-port", "0")
    (tmp_path / "c/run/s1.pid").mkdir(parents=True)
    for _ in range(5):
        assert "s1.pid" in cli.fails(1, "up", tmp_path / "c", "--detach")
        assert not (tmp_path / "c/run/s0.pid").exists()


def test_a_pipe_in_the_place_of_a_pid_file(cli: Cli, tmp_path: Path) -> None:
    """The pipe is not waited for, and the starting process gets its own file."""
    cli.ok(
        "init",
        tmp_path / "c",
        "--servers",
        "1",
        "--consensus",
        "0",
        "--base-port",
        "0",
        "--allow-no-faults",
    )
    (tmp_path / "c/run").mkdir()
    os.mkfifo(tmp_path / "c/run/s0.pid")
    assert cli.ok("down", tmp_path / "c") == b"nothing was running\n"
    os.mkfifo(tmp_path / "c/run/s0.pid")
    cli.ok("up", tmp_path / "c", "--detach")
    assert cli.ok("down", tmp_path / "c").startswith(b"stopped s0")


def test_a_signal_at_any_time_ends_a_command_without_a_traceback(cli: Cli) -> None:
    """A traceback from before the entry point is called is Python's own."""
    for step in range(24):
        number = (signal.SIGINT, signal.SIGTERM)[step % 2]
        words = [ARES_CLI, "-c", str(cli.settings.path), "status"]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            time.sleep(0.02 * step)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        if "Traceback" in err and not re.search(r'entry\.py", line \d+, in main', err):
            continue
        if err == "KeyboardInterrupt\n":  # Python's own, before any module
            continue
        assert "Traceback" not in err, (step, err)
        assert process.returncode in (0, 130, 143, -signal.SIGINT, -signal.SIGTERM), (
            step,
            process.returncode,
            err,
        )
