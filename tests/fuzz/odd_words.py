"""Odd invocations of `ares-cli`, by a seed.

Every command gets odd words, files, environments and standard streams.
"""

# ruff: noqa: E501

import os
import random
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import typer

from ares.cli.main import app

WORDS = [
    "", " ", "-", "--", "---", "-x", "=", "\n", "\t", "\x01\x1b[31m", (
        "a\n"
        "b"
    ), "\udcff", "a\udcfe\udcff", "é", "𝒳", "\u202e", "a" * 1025, "a" * 100_000,
    "0", "-1", "1", "3", "255", "65536", "9" * 30, "9" * 5000, "-" + "9" * 30, "1e308", "1e999", "nan", "inf", "-inf", "0x10", "1_000", "٣", "1.5", "0.001",
    ".", "a/../b", "s0", "s0,s1,s2", "s0,,", ",", "s0,s0", "r0", "default", "file/x", "~", "$(id)", "%s%n", "{0}", "[bold]", "[/]",
    "abd", "ec", "admin", "debug", "127.0.0.1", "[::1]", "[::1]:80", "localhost:99999", "1K", "9" * 12 + "G", "24h", "true", "None",
    "--json", "--help", "--version", "--dap", "--timeout", "@file",
]  # fmt: skip
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e-300",
    "9" * 20,
    "9" * 5000,
    "0x1",
    "1_0",
    "",
    " 1",
    "٣",
    "1.5",
    "\udcff",
]
REFUSED = [
    "0",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e-300",
    "9" * 20,
    "9" * 5000,
    "0x1",
    "",
    "\udcff",
]
"""Amounts of time or data that every command refuses."""

LITERALS = [
    "0", "-1", "1", "true", '""', '"x"', '"\\u0000"', '"a\\u0000b"', '"\\n"', "nan", "inf", "-inf", "1e999", "9" * 30, "9" * 5000, "0x" + "f" * 4000,
    "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "2020-13-45", "[]", "{}", "[[]]", "[1]", '["s0"]', '["s0", "s0"]', "{a = 1}", '"' + "a" * 9000 + '"',
    '"/dev/zero"', '"/dev/null"', '"..\\u202e"', '"127.0.0.1:0"', '"127.0.0.1:99999"', '"[::1]:80"', '"é"', "[" * 60 + "]" * 60, (
        "'''\n"
        "a\n"
        "'''"
    ), "",
]  # fmt: skip
ENVIRONMENTS: list[tuple[str, list[str | None]]] = [
    ("ARES_CLUSTER", ["", "-", "/dev/zero", "/", "\udcff", "a" * 5000]),
    ("ARES_KEY", ["", "/dev/zero", "/", "\udcff", "0" * 64, "nowhere"]),
    ("ARES_CACHE", ["", "off", "/dev/null", "/dev/null/x", "\udcff", "a" * 5000, "relative"]),
    ("COLUMNS", ["", "0", "-1", "1", "x", "9" * 30, "nan"]),
    ("LINES", ["", "0", "x", "9" * 30]),
    ("TERM", ["", "dumb", "xterm-256color", "\udcff", None]),
    ("HOME", ["", "/dev/null/x", "relative", "\udcff"]),
    ("XDG_CACHE_HOME", ["", "relative", "/dev/null", "\udcff"]),
    ("TMPDIR", ["", "/nowhere", "/dev/null", "relative", "\udcff"]),
    ("NO_COLOR", ["", "1"]),
    ("FORCE_COLOR", ["", "1", "x"]),
    ("PATH", ["", "/nowhere", None]),
    ("TZ", ["", "x", "\udcff"]),
    ("NOTIFY_SOCKET", ["", "x", "@x", "/dev/null", "a" * 300]),
    ("WATCHDOG_USEC", ["", "x", "-1", "9" * 30]),
]  # fmt: skip
WAITING = {"write", "put", "read", "get", "append", "check-history"}
"""Commands that wait for the other end of a pipe."""

ENCODINGS = ["utf-8", "utf-8", "utf-8", "ascii", "latin-1"]
STREAMS = ["usual", "usual", "usual", "usual", "closed", "full", "broken", "empty", "garbage"]
"""Kinds of standard input, output and errors; a senseless kind is replaced by the usual."""


class Case(NamedTuple):
    """An invocation.

    ``words`` come after `ares-cli`. ``environment`` has the differences, None for an absent
    variable. ``streams`` are descriptors 0, 1 and 2.
    """

    words: list[str]
    environment: dict[str, str | None]
    streams: tuple[str, str, str]
    encoding: str


def commands() -> dict[tuple[str, ...], Any]:
    """Return every command of the app by its name, which may have two words."""

    def below(command: Any, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if not hasattr(command, "commands"):
            yield name, command
        for word, inner in getattr(command, "commands", {}).items():
            yield from below(inner, (*name, word))

    return dict(below(typer.main.get_command(app), ()))


def odd_files(directory: Path, good: Path) -> list[str]:
    """Make odd cluster files, keys, inputs and directories; return their paths.

    ``good`` is a cluster's directory.
    """
    text = (good / "cluster.toml").read_text()
    contents: dict[str, bytes] = {
        "empty": b"", "nul": b"\0", "nuls": b"\0" * 100_000, "latin": b"name = \"\xff\xfe\"\n", "utf16": text.encode("utf-16"), "bom": b"\xef\xbb\xbf" + text.encode(),
        "crlf": text.replace("\n", "\r\n").encode(), "cut": text.encode()[: len(text) // 2], "twice": text.encode() * 2, "head": b"format = 2\n",
        "arrays": b"a = " + b"[" * 200_000, "tables": b"a = " + b"{a = " * 100_000, "dots": b"a." * 200_000 + b"a = 1", "header": b"[" + b"a." * 200_000 + b"a]",
        "digits": b"format = " + b"9" * 100_000, "hex": b"format = 0x" + b"f" * 100_000, "quote": b"a = '" + b"'" * 500_000, "json": b'{"operation": "read"}\n' * 9,
        "history": b'{"client": 1e999, "kind": [], "key": "\\ud800"}\n' * 9, "brackets": b"[" * 500_000, "key": b"0" * 64, "Key": b"A" * 64, "long": b"0" * 65_000,
        "key\n": b"0" * 32 + b"\n" + b"0" * 32, "key-nul": b"0" * 32 + b"\0" + b"0" * 31, "\udcff": b"x", (
            "a\n"
            "b\x1b[31m"
        ): b"x",
    }  # fmt: skip
    for name, content in contents.items():
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o600)
    (directory / "unreadable").touch(0)
    (directory / "readable-key").write_bytes(b"0" * 64)
    with (directory / "huge").open("wb") as huge:
        huge.truncate(100 << 20)
    (directory / "directory").mkdir()
    (directory / "loop").symlink_to("loop")
    (directory / "zero").symlink_to("/dev/zero")
    os.mkfifo(directory / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "socket"))
    here = [str(path) for path in sorted(directory.iterdir())]
    devices = [
        "/dev/zero",
        "/dev/full",
        "/dev/null",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/urandom",
        "/dev/tty",
        "/dev/fd/99",
        "/proc/self/mem",
        "/proc/1/environ",
    ]
    return [
        *here,
        *devices,
        str(directory / "empty/below"),
        str(directory / "nowhere"),
        str(directory / ("n" * 300)),
        "",
        "-",
    ]


def odd_settings(source: random.Random, text: str) -> str:
    """Return a cluster file with some odd values, or some moved lines."""
    lines = text.splitlines()
    for _ in range(source.choice([1, 1, 1, 2, 5])):
        at = source.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        change = source.randrange(6)
        if equals and change:
            lines[at] = f"{key} = {source.choice(LITERALS)}"
        elif change == 1:
            lines.pop(at)
        else:
            lines.insert(at, source.choice(lines))
    return "\n".join(lines) + "\n"


def odd_pids(source: random.Random, run: Path) -> None:
    """Make the directory ``run`` with pid files that name no process of a cluster."""
    run.mkdir(exist_ok=True)
    contents = [
        b"9" * 30,
        b"9" * 5000,
        b"-1",
        b"0",
        b"1",
        b"",
        b"\0",
        b"\xff",
        b"1.5",
        b"1\n2",
        str(os.getpid()).encode(),
        b"4194305",
        b"2147483648",
    ]
    for name in ["s0", "s1", "r0", "x", "-", "\udcff"]:
        path = run / f"{name}.pid"
        match source.randrange(8):
            case 0:
                path.mkdir()
            case 1:
                path.symlink_to("/dev/zero")
            case 2:
                os.mkfifo(path)
            case _:
                path.write_bytes(source.choice(contents))


class Invocations:
    """Odd invocations in ``directory``, which is made.

    ``good`` is the directory of a running cluster; ``keyed`` of a stopped cluster with keys.
    """

    def __init__(self, seed: int, directory: Path, good: Path, keyed: Path) -> None:
        self._source = random.Random(seed)
        self._directory = directory
        self._good = good / "cluster.toml"
        self._keyed = keyed
        self._commands = sorted(commands().items())
        (directory / "files").mkdir(parents=True)
        self._files = odd_files(directory / "files", good)
        self._made = 0

    def __iter__(self) -> Iterator[Case]:
        while True:
            name, command = self._commands[self._made % len(self._commands)]
            self._made += 1
            words = [*name, *self._arguments(command)]
            if self._source.random() < 0.03:
                words.insert(self._source.randrange(len(words) + 1), self._source.choice(WORDS))
            environment = {
                variable: self._source.choice(values)
                for variable, values in self._source.sample(ENVIRONMENTS, 2)
            }
            streams = (
                self._source.choice(STREAMS),
                self._source.choice(STREAMS),
                self._source.choice(STREAMS),
            )
            yield Case(words, environment, streams, self._source.choice(ENCODINGS))

    def _arguments(self, command: Any) -> list[str]:
        words: list[str] = []
        given = [parameter for parameter in command.params if self._is_given(parameter)]
        for parameter in given:
            value = self._value(parameter, command.name in WAITING)
            option = max(parameter.opts, key=len) if parameter.opts[0].startswith("-") else ""
            if option and getattr(parameter, "is_flag", False):
                words.append(self._source.choice([option, *parameter.secondary_opts]))
            else:
                words += [option, value] if option else [value]
        return words

    def _is_given(self, parameter: Any) -> bool:
        # with good words torture and demo would last
        always = {
            "cluster": 0.9,
            "timeout_s": 1.0,
            "minutes": 1.0,
            "mib": 1.0,
        }
        likely = 0.95 if parameter.required else always.get(parameter.name, 0.15)
        return parameter.name != "help" and self._source.random() < likely

    def _value(self, parameter: Any, waits: bool) -> str:
        match parameter.name:
            case "cluster":
                return str(self._good) if self._source.random() < 0.6 else self._cluster_file()
            case "timeout_s":
                return "0.2" if self._source.random() < 0.9 else self._source.choice(REFUSED)
            case "minutes" | "mib":
                return self._source.choice(REFUSED)
            case "directory":
                return (
                    str(self._cluster_directory())
                    if self._source.random() < 0.6
                    else self._source.choice(self._files)
                )
        kind = parameter.type_descriptor.annotation
        if choices := get_args(kind):
            return str(self._source.choice(choices if self._source.random() < 0.8 else WORDS))
        if issubclass(kind, Path) and parameter.name in ("file", "output") and waits:
            return self._source.choice(
                [file for file in self._files if not file.endswith(("/fifo", "/dev/stdout"))]
            )
        if issubclass(kind, Path):
            return (
                self._cluster_file()
                if self._source.random() < 0.3
                else self._source.choice(self._files)
            )
        if issubclass(kind, int | float):
            return self._source.choice(NUMBERS)
        return self._source.choice(WORDS)

    def _cluster_file(self) -> str:
        if self._source.random() < 0.3:
            return self._source.choice(self._files)
        if self._source.random() < 0.2:
            return str(self._keyed / "cluster.toml")
        return str(self._cluster_directory() / "cluster.toml")

    def _cluster_directory(self) -> Path:
        """Make the directory of a stopped cluster with an odd part."""
        directory = self._directory / f"cluster{self._made}-{self._source.randrange(1 << 30)}"
        shutil.copytree(self._keyed, directory)
        file = directory / "cluster.toml"
        file.write_text(
            odd_settings(
                self._source, (self._good if self._source.random() < 0.5 else file).read_text()
            )
        )
        if self._source.random() < 0.5:
            odd_pids(self._source, directory / "run")
        if self._source.random() < 0.3:
            self._spoil(
                self._source.choice(
                    [path for path in directory.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
                )
            )
        return directory

    def _spoil(self, path: Path) -> None:
        """Replace a file by an odd content."""
        path.unlink()
        other = Path(
            self._source.choice(
                [file for file in self._files if file.startswith(str(self._directory))]
            )
        )
        path.symlink_to(other)
