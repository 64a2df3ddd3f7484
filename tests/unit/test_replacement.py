"""Files that are replaced as a whole, locks of files, and addresses: each has one home."""

import os
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ares.cluster.addresses import split_address
from ares.model.errors import BadInput
from ares.platform.file_lock import lock_directory, take_lock
from ares.platform.interpreter import python
from ares.platform.replacement import Replacement, replace_durably, replace_file
from ares.security.clients_file import alone


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    (tmp_path / "usual").touch()
    assert mode_of(path) == mode_of(tmp_path / "usual")
    path.chmod(0o640)
    replace_file(path, b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o640)
    replace_file(path, b"private", 0o600)
    assert mode_of(path) == 0o600


def test_a_new_file_takes_the_place_of_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, expected in ((b"first", b"first"), (b"second", b"first")):
        new = Replacement(path)
        new.write(content)
        if path.exists():
            with pytest.raises(FileExistsError):
                new.finish(only_new=True)
        else:
            new.finish(only_new=True)
        new.discard()
        assert path.read_bytes() == expected
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    assert mode_of(path) == 0o666 & ~_umask()


def _umask() -> int:
    os.umask(present := os.umask(0o077))
    return present


@pytest.mark.parametrize("durable", [False, True])
def test_a_replacement_that_fails_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        replace_file(path, b"new", durable=durable)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


def test_the_remains_of_a_crash_are_removed_by_the_next_replacement(tmp_path: Path) -> None:
    path = tmp_path / "file"
    Replacement(path, alone=True).write(b"cut off")
    replace_durably(path, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "new")]


def test_a_file_that_cannot_be_made_is_named_and_not_its_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        replace_file(tmp_path / "absent" / "file", b"new")
    assert raised.value.filename == str(tmp_path / "absent" / "file")


@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_lock_has_one_holder_and_ends_with_it(tmp_path: Path, place: str) -> None:
    path = tmp_path / place if place == "file" else tmp_path
    held = take_lock(path, make=True) if place == "file" else lock_directory(path)
    assert held is not None
    assert take_lock(path) is None
    os.close(held)
    program = (
        f"from ares.platform.file_lock import *; print(take_lock(Path({str(path)!r})) is None)"
    )
    ended = subprocess.run(python("-c", program), capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
    again = take_lock(path)
    assert again is not None
    os.close(again)


def test_a_directory_waits_for_its_holder(tmp_path: Path) -> None:
    held = lock_directory(tmp_path)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(lock_directory, tmp_path)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        os.close(held)
        os.close(waiting.result(60))


@pytest.mark.parametrize("make", [os.mkfifo, Path.touch], ids=["named pipe", "file"])
def test_only_a_directory_is_locked_as_a_directory(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """An open named pipe would wait for a second process."""
    make(tmp_path / "clients")
    with pytest.raises(NotADirectoryError):
        lock_directory(tmp_path / "clients")
    with (
        pytest.raises(BadInput, match="Not a directory: the keys are managed where"),
        alone(tmp_path / "clients" / "clients.toml"),
    ):
        raise AssertionError("locked")


def test_only_a_listener_takes_port_0() -> None:
    assert split_address("127.0.0.1:0", 0) == ("127.0.0.1", 0)
    with pytest.raises(BadInput, match="expected a port from 1 to 65535"):
        split_address("127.0.0.1:0")
