"""`ares-cli top` of a live cluster with keys: in a terminal, and `--once` for scripts.

The tests cover the keyboard and the ends of the command (docs/operation.md).
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.platform.interpreter import python
from tests.process.command_line import Cli, running_cluster

pytestmark = pytest.mark.process

PATIENCE_S = 120.0
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    yield from running_cluster(tmp_path_factory.mktemp("cluster") / "c", "--security", "curve")


@pytest.fixture(scope="module")
def reader(cli: Cli) -> Path:
    """Return a key of the smallest role."""
    cli.ok("keys", "new", "watcher", "--role", "read")
    return cli.directory / "keys/watcher.secret"


class Terminal:
    """`ares-cli top` in a separate terminal. ``came`` has the whole output."""

    def __init__(
        self, cli: Cli, *words: str, columns: int = 80, rows: int = 24, term: str = "xterm-256color"
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        environment = (
            os.environ | {"ARES_CLUSTER": str(cli.settings.path), "TERM": term} | cli.environment
        )
        streams = {"stdin": self.slave, "stdout": self.slave, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            python("-P", "-m", "ares", "top", *words),
            env=environment,
            start_new_session=True,
            **streams,
        )  # type: ignore[call-overload]
        self.came = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, *texts: bytes, since: int = 0) -> None:
        until = time.monotonic() + PATIENCE_S
        while not all(text in self.came[since:] for text in texts):
            assert time.monotonic() < until, (texts, self.came)
            assert self.process.poll() is None, (self.process.communicate(), self.came)
            self.take(0.1)

    def refreshed(self, times: int) -> bytes:
        """Return the output of so many further refreshes; each shows the time."""
        before, until = len(self.came), time.monotonic() + PATIENCE_S
        while self.came[before:].count(b"UTC") < times:
            assert time.monotonic() < until, self.came[before:]
            self.take(0.1)
        return self.came[before:]

    def take(self, patience_s: float = 0.0) -> None:
        poll = select.poll()  # select takes no descriptor above 1,023
        poll.register(self.master, select.POLLIN)
        while poll.poll(patience_s * 1000):
            self.came += os.read(self.master, 65536)

    def end(self) -> int:
        """Return the exit status; check that the terminal is as before."""
        status = self.process.wait(PATIENCE_S)
        self.take()
        assert self.came.rindex(LEFT) > self.came.rindex(ENTERED)
        assert self.came.endswith(LEFT)
        assert termios.tcgetattr(self.slave) == self.before
        return status


@pytest.fixture
def terminal(cli: Cli, reader: Path) -> Iterator[Terminal]:
    terminal = Terminal(cli, "--key", str(reader))
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.communicate()
        for descriptor in (terminal.master, terminal.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def test_q_ends_top(terminal: Terminal) -> None:
    terminal.wait_for(b"4 of 4 servers answer", b"default", b"survives 1 more crash")
    assert termios.tcgetattr(terminal.slave) != terminal.before
    os.write(terminal.master, b"xq")
    assert terminal.end() == 0
    assert terminal.process.stderr.read() == b""


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_signals_end_it_and_the_terminal_is_given_back(
    terminal: Terminal, number: int, status: int
) -> None:
    terminal.wait_for(ENTERED)
    terminal.process.send_signal(number)
    assert terminal.end() == status


def test_a_terminal_that_is_closed_ends_it(terminal: Terminal) -> None:
    terminal.wait_for(b"servers answer")
    os.close(terminal.slave)
    os.close(terminal.master)
    assert terminal.process.wait(PATIENCE_S) in (0, 129)


def test_it_is_suspended_and_goes_on(terminal: Terminal) -> None:
    terminal.wait_for(b"servers answer")
    before = len(terminal.came)
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.wait_for(LEFT)
    while Path(f"/proc/{terminal.process.pid}/stat").read_text().split()[2] != "T":
        time.sleep(0.01)
    assert termios.tcgetattr(terminal.slave) == terminal.before
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for(ENTERED, b"servers answer", since=before)
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_another_size_is_another_view(terminal: Terminal) -> None:
    terminal.wait_for(b"servers answer")
    assert b"uptime" not in terminal.came
    terminal.resize(140, 40)
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.wait_for(b"uptime", b"last 3 min", b"at most")
    terminal.resize(40, 8)
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.wait_for(b"needs 72 x 14")
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_only_what_changed_is_written(terminal: Terminal) -> None:
    terminal.wait_for(b"4 of 4 servers answer")
    terminal.refreshed(2)
    refreshed = terminal.refreshed(3)
    assert b"consensus" not in refreshed
    assert len(refreshed) < refreshed.count(b"UTC") * 1500 + 500


def test_where_nothing_can_be_painted_it_prints_lines(cli: Cli) -> None:
    dumb = Terminal(cli, "--interval", "0.5", term="dumb")
    dumb.wait_for(b"time  ", b"Z  ")
    dumb.process.send_signal(signal.SIGINT)
    _, told = dumb.process.communicate(timeout=PATIENCE_S)
    assert (dumb.process.returncode, b"nothing was changed" in told) == (130, True)
    dumb.take()
    assert b"\x1b" not in dumb.came
    os.close(dumb.master)
    os.close(dumb.slave)
    assert "--json goes with --once" in cli.run("top", "--json").stderr.decode()
    for odd in ("0", "nan", "inf"):
        assert "Invalid value for '--interval'" in cli.fails(2, "top", "--interval", odd)


def test_a_pipe_gets_a_header_and_a_line_for_each_interval(cli: Cli) -> None:
    """Each line comes at the end of its interval, not with a full buffer."""
    environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)} | cli.environment
    words = python("-m", "ares", "top", "--interval", "0.3")
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            heads = process.stdout.readline().split()
            rows = [
                dict(zip(heads, process.stdout.readline().split(), strict=True)) for _ in range(3)
            ]
        finally:
            process.send_signal(signal.SIGINT)
        assert "nothing was changed" in process.communicate(timeout=PATIENCE_S)[1]
    assert [(row["servers"], row["up"], row["silent"]) for row in rows] == [("4", "4", "-")] * 3
    assert heads[0] == "time"


def test_an_unknown_key_is_an_error_and_no_view_of_a_dead_cluster(cli: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.secret"
    wrong.write_text("ab" * 32)
    wrong.chmod(0o600)
    assert "not authorized" in cli.fails(1, "top", "--once", "--key", wrong)


def test_one_view_for_a_pipe(cli: Cli) -> None:
    shown = cli.ok("top", "--once").decode()
    assert "4 of 4 servers answer" in shown
    assert "\x1b" not in shown
    assert "q quits" not in shown


@pytest.mark.slow
def test_one_view_for_scripts(cli: Cli, reader: Path) -> None:
    names = [f"k{number}" for number in range(12)]
    program = (
        "import sys, ares\n"
        "with ares.connect_blocking(sys.argv[1]) as store:\n"
        " for n in sys.argv[2:] * 40: store.write(n, b'x' * 3000); store.read(n)"
    )
    load = subprocess.Popen(python("-c", program, str(cli.settings.path), *names))
    try:
        busy = {}
        until = time.monotonic() + PATIENCE_S
        while not (
            busy and busy["operations"]["reads_per_s"] and busy["operations"]["writes_per_s"]
        ):
            assert time.monotonic() < until
            busy = cli.json("top", "--once", "--interval", "0.5", "--key", reader)
    finally:
        load.wait(PATIENCE_S)
    done = busy["operations"]
    assert 0 < done["read_p50_s"] <= done["read_p99_s"] < PATIENCE_S
    assert 0 < done["write_p50_s"] <= done["write_p99_s"] < PATIENCE_S
    assert done["sent_bytes_per_s"] > 0
    assert [server["state"] for server in busy["servers"]].count("silent") == 0
    assert busy["servers"][0]["disk_free_bytes"] > 0
    assert (busy["domains"][0]["domain"], busy["domains"][0]["writes_survive"]) == ("default", 1)
    assert (
        busy["consensus"]["silent"],
        busy["consensus"]["leader"] in ("r0", "r1", "r2"),
        busy["moves"],
    ) == ({}, True, [])


def test_as_many_operations_as_there_were(cli: Cli) -> None:
    """Requests of all servers, divided by the quorum's size, are the operations.

    A late server makes a small difference.
    """
    program = """
import asyncio, ares, sys
async def main():
    async with ares.connect(sys.argv[1]) as store:
        async def count():
            said = [d.work for d in (await store.status()).servers.values()]
            return (
                sum(w.queries for w in said),
                sum(w.fetches for w in said),
                sum(w.puts for w in said),
                sum(sum(w.writing.counts) for w in said),
            )
        before = await count()
        for number in range(200):
            await store.write("k", b"v")
        for number in range(100):
            await store.read("k")
        print([b - a for a, b in zip(before, await count())])
asyncio.run(main())
"""
    told = subprocess.run(
        python("-c", program, str(cli.settings.path)), capture_output=True, check=True, timeout=240
    ).stdout
    queries, fetches, puts, acknowledged = json.loads(told)
    quorum = cli.settings.initial.quorum_size
    assert 200 <= queries / quorum < 300
    assert 100 <= fetches / quorum < 150
    assert 4 * 190 <= puts <= acknowledged + 4
    assert acknowledged <= puts + 100


def test_a_server_that_hangs_or_dies_shows_and_holds_up_nothing(
    cli: Cli, terminal: Terminal
) -> None:
    terminal.wait_for(b"4 of 4 servers answer")
    hung = int((cli.directory / "run/s1.pid").read_text())
    os.kill(hung, signal.SIGSTOP)
    try:
        terminal.wait_for(b"s1 silent for", b"3 of 4 servers answer")
        cli.kill("s2")
        terminal.wait_for(b"s2 silent for", b"is it running?", b"STOPPED, 1 missing")
        told = cli.json("top", "--once", status=1)
        assert [
            (server["state"], server["id"])
            for server in told["servers"]
            if server["state"] == "silent"
        ] == [("silent", "s1"), ("silent", "s2")]
        assert told["domains"][0]["reads_survive"] == -1
        terminal.wait_for(b"s3", b"> 2 s")
        before = len(terminal.came)
        terminal.wait_for(b"UTC", since=before)
    finally:
        os.kill(hung, signal.SIGCONT)
    terminal.wait_for(b"3 of 4 servers answer", since=before)
    os.write(terminal.master, b"q")
    assert terminal.end() == 0
