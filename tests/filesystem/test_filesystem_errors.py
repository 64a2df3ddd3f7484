"""Errors as the OSError that programs expect, with the text of the original error."""

import errno
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.filesystem import AresFileSystem
from ares.filesystem.os_errors import as_os_error
from ares.model.errors import (
    AresError,
    BadBlock,
    BadInput,
    ConnectionClosed,
    ConsensusUnavailable,
    DecodeFailed,
    DomainNotFound,
    FileChanged,
    ObjectNotFound,
    Unavailable,
)

Make = Callable[..., AresFileSystem]


@pytest.mark.parametrize(
    ("error", "kind", "number"),
    [
        (ObjectNotFound("o", "d"), FileNotFoundError, errno.ENOENT),
        (DomainNotFound("d"), FileNotFoundError, errno.ENOENT),
        (FileChanged("f"), OSError, errno.ESTALE),
        (Unavailable(2, 1, {}), OSError, errno.EHOSTUNREACH),
        (ConsensusUnavailable("why"), OSError, errno.EHOSTUNREACH),
        (DecodeFailed("o", "why"), OSError, errno.EIO),
        (ConnectionClosed(), OSError, errno.EIO),
        (BadBlock("o", "why"), OSError, errno.EIO),
    ],
)
def test_every_error_has_its_number_and_keeps_its_text(
    error: AresError, kind: type[OSError], number: int
) -> None:
    seen = as_os_error(error)
    assert type(seen) is kind
    assert (seen.errno, seen.strerror) == (number, str(error))  # type: ignore[attr-defined]


def test_input_that_makes_no_sense_stays_a_value_error() -> None:
    error = BadInput("why")
    assert as_os_error(error) is error
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "use", ["cat_file", "info", "size", "open", "rm_file", "rm", "modified", "ukey"]
)
def test_a_file_that_is_not_there(fs: AresFileSystem, here: str, use: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(fs, use)(f"{here}/none")


def test_copies_of_what_is_not_there(fs: AresFileSystem, here: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.cp_file(f"{here}/none", f"{here}/copy")
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{here}/none", str(tmp_path / "copy"))
    with pytest.raises(FileNotFoundError):
        fs.put_file(str(tmp_path / "none"), f"{here}/copy")
    assert not (tmp_path / "copy").exists()
    assert not fs.exists(here)


def test_a_local_place_that_cannot_be_written(
    fs: AresFileSystem, here: str, tmp_path: Path
) -> None:
    fs.pipe_file(f"{here}/f", b"x")
    with pytest.raises(
        FileNotFoundError, match="cannot be written: No such file or directory; it is as it was"
    ):
        fs.get_file(f"{here}/f", str(tmp_path / "no" / "where"))
    with pytest.raises(ValueError, match="is not a regular file; it is as it was"):
        fs.get_file(f"{here}/f", str(tmp_path))


@pytest.mark.parametrize("mode", ["r+b", "w+b", "a+b"])
def test_a_mode_that_changes_a_file_in_place(fs: AresFileSystem, here: str, mode: str) -> None:
    with pytest.raises(io.UnsupportedOperation, match="a file is read, or replaced as a whole"):
        fs.open(f"{here}/f", mode)


def test_a_name_that_no_file_can_have(fs: AresFileSystem) -> None:
    with pytest.raises(ValueError, match="the name of a file has 1 to"):
        fs.pipe_file("n" * 5000, b"")


def test_a_domain_that_was_never_made(make: Make) -> None:
    fs = make(domain="nowhere", create=False)
    for use in (lambda: fs.ls(""), lambda: fs.pipe_file("f", b""), lambda: fs.open("f")):
        with pytest.raises(FileNotFoundError, match="no domain 'nowhere' in this cluster"):
            use()
    assert make(domain="nowhere", create=True).ls("") == []
    assert fs.ls("") == []


def test_calls_time_out_with_too_few_servers(make: Make, tmp_path: Path) -> None:
    nobody = create(tmp_path / "cluster", InitPlan(servers=3, consensus=1, base_port=0))
    fs = make(cluster=str(nobody.path), domain="default", create=False, timeout_s=0.2)
    for use in (
        fs.exists,
        fs.isfile,
        fs.isdir,
        fs.cat_file,
        fs.ls,
        fs.rm_file,
        lambda path: fs.pipe_file(path, b"x"),
    ):
        with pytest.raises(OSError, match="0 of the 2 servers needed answered") as failed:
            use("f")
        assert failed.value.errno == errno.EHOSTUNREACH


def test_a_missing_or_wrong_cluster_file_is_named(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ARES_CLUSTER", raising=False)
    with pytest.raises(
        ValueError, match="Give the storage option cluster=FILE or set ARES_CLUSTER"
    ):
        make(cluster=None).ls("")
    with pytest.raises(ValueError, match=r"missing\.toml"):
        make(cluster=tmp_path / "missing.toml").exists("f")
    with pytest.raises(ValueError, match="a timeout is a number of seconds"):
        make(timeout_s=0)


def test_the_cluster_of_the_environment(
    make: Make, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    monkeypatch.setenv("ARES_CLUSTER", str(settings.path))
    assert make(cluster=None).exists("")
