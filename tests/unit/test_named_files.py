"""Reads of small files by name: bounded in time and memory, with the expectation in errors.

This holds for any kind of file behind the name.
"""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ares.cluster.settings import Settings
from ares.model.errors import BadInput
from ares.platform import named_files
from ares.platform.interpreter import python
from ares.platform.named_files import NotToml, parse_toml, read_named
from ares.security.clients_file import read_clients
from ares.security.keys import read_key


def refused(path: Path | str, why: str, **more: bool) -> None:
    with pytest.raises(OSError, match=why) as caught:
        read_named(path, 1000, **more)
    assert caught.value.filename == str(path)
    assert caught.value.strerror


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    (tmp_path / "file").chmod(0o640)
    content, status = read_named(tmp_path / "file", 1000)
    assert (content, status.st_mode & 0o777) == (bytes(1000), 0o640)


def test_what_is_no_small_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1001))
    refused(tmp_path / "file", "more than 1000 bytes")
    refused("/dev/zero", "more than 1000 bytes")
    refused("/dev/zero", "a device", streams=False)
    refused(tmp_path, "a directory")
    refused(tmp_path / "nowhere", "No such file")
    refused(f"{tmp_path}/a\0b", "no file has such a name")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "symbolic links")


def test_a_large_file_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    read = os.read
    monkeypatch.setattr(
        os, "read", lambda descriptor, count: taken.append(count) or read(descriptor, count)
    )
    refused("/dev/zero", "more than 1000 bytes")
    assert sum(taken) == 1001


def test_a_pipe_without_a_writer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_files, "_WRITER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "no process writes to it")
    refused(tmp_path / "pipe", "it is a pipe", streams=False)


def test_a_pipe_whose_writer_says_nothing_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(TimeoutError, match="did not come within"):
            read_named(tmp_path / "pipe", 1000, wait_s=0.1)
        os.write(writer, b"begun")
        with pytest.raises(TimeoutError, match="did not come within"):
            read_named(tmp_path / "pipe", 1000, wait_s=0.1)
    finally:
        os.close(writer)


def test_a_pipe_is_read_to_its_end_whenever_its_writer_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        time.sleep(0.1)
        with (tmp_path / "pipe").open("wb") as pipe:
            for _ in range(3):
                pipe.write(b"piece ")
                pipe.flush()
                time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_named(tmp_path / "pipe", 1000)[0] == b"piece " * 3
    writer.join()


def test_what_a_shell_substitutes_is_read() -> None:
    program = (
        "import sys; from ares.platform.named_files import read_named; "
        "print(read_named(sys.argv[1], 1000)[0])"
    )
    shell = ["bash", "-c", 'exec "$@" <(sleep 0.2; echo said)', "bash", *python("-c", program)]
    assert (
        subprocess.run(shell, capture_output=True, text=True, check=True, timeout=60).stdout
        == "b'said\\n'\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * 100_000, "nested too deep"),
        ("a = " + "{a = " * 100_000, "nested too deep"),
        ("a." * 500_000 + "a = 1", "line 1 has more than 32"),
        ("\n\n[" + '"a" . ' * 100_000 + "a]", "line 3 has more than 32"),
        ("a = " + "9" * 5000, "integers of 64 bits"),
        ("a = 0x" + "f" * 5000, "has 20000 bits"),
        ("a = -9223372036854775809", "a has 64 bits"),
        ('a = ["b", {c = "d\\u0000"}]', "without NUL"),
        ("a = 2020-13-45", "expected TOML"),
        ("\0", "expected TOML"),
    ],
)
def test_a_text_that_is_no_settings_file_is_refused(text: str, why: str) -> None:
    """Some of these texts would keep tomllib busy for an hour, so the test would not end."""
    with pytest.raises(NotToml, match=why):
        parse_toml(text)


def test_what_settings_hold_is_left_alone() -> None:
    text = (
        "# "
        + "a.b " * 100
        + "\n"
        + 'at = ["'
        + '", "'.join(f"10.0.0.{host}:2379" for host in range(200))
        + '"]\na.b.c = 9223372036854775807\n'
    )
    assert parse_toml(text)["a"] == {"b": {"c": 9223372036854775807}}


def test_the_files_of_a_cluster_are_read_so(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match="/dev/zero: the cluster file cannot be read: it has more than"
    ):
        Settings.load("/dev/zero")
    with pytest.raises(BadInput, match="/dev/zero cannot be read: it has more than"):
        read_key(tmp_path / "cluster.toml", "key", Path("/dev/zero"), "the client")
    for content in (b"0" * 32 + b"\0" + b"0" * 31, b"\0", b"\xff" * 64):
        (tmp_path / "key").write_bytes(content)
        (tmp_path / "key").chmod(0o600)
        with pytest.raises(BadInput, match="expected"):
            read_key(tmp_path / "cluster.toml", "key", tmp_path / "key", "the client")
    os.mkfifo(tmp_path / "clients.toml", 0o644)
    with pytest.raises(BadInput, match="a pipe or a device"):
        # a server reads the file while it serves
        read_clients(tmp_path / "clients.toml")
