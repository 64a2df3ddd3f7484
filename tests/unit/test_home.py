"""A server's directory: one process at a time, and an identity that is never served again once its memory is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ares.errors import BadInput
from ares.runtime.home import claim_identity, held, store_identity, was_claimed

IDENTITY = "0123456789abcdef" * 2

HOLDER = """
import sys
from pathlib import Path
from ares.runtime.home import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_first_start_is_the_identity_of_the_file(tmp_path: Path) -> None:
    directory = tmp_path / "data/s0"
    assert not was_claimed(directory)
    claim = claim_identity(directory, IDENTITY)
    assert (claim.identity, claim.lost) == (IDENTITY, False)
    assert was_claimed(directory)


def test_every_later_start_is_somebody_new(tmp_path: Path) -> None:
    claims = [claim_identity(tmp_path, IDENTITY) for _ in range(4)]
    assert [claim.lost for claim in claims] == [False, True, True, True]
    assert len({claim.identity for claim in claims}) == 4
    assert (tmp_path / "identity").read_text().strip() == claims[-1].identity


def test_a_claim_that_cannot_be_read_is_a_claim(tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(b"\xff\x00")
    assert claim_identity(tmp_path, IDENTITY).lost


def test_the_claim_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(str(tmp_path)))
        fsync(descriptor)

    def record_replace(old: Path, new: Path) -> None:
        steps.append(f"replace {new.name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    claim_identity(tmp_path / "data/s0", IDENTITY)
    assert steps == ["", "/data", "/data/s0/identity.new", "replace identity", "/data/s0"]


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match=r"file/s0 cannot be used: File exists"):
        claim_identity(tmp_path / "file/s0", IDENTITY)
    with pytest.raises(BadInput, match=r"file/s0 cannot be used"), held(tmp_path / "file/s0"):
        pass


def test_two_processes_cannot_hold_one_directory(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BadInput, match=f"in use by the process with pid {holder.pid}:"), held(tmp_path):
            pass
        holder.stdin.close()
        holder.wait()
    with held(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with held(tmp_path):
        pass


def test_who_is_told_to_forget_is_somebody_new_though_nothing_is_there(tmp_path):
    """An empty directory may be that of a lost disk."""
    claim = store_identity(tmp_path / "s0", "a" * 32, forget=True)
    assert (claim.identity != "a" * 32, claim.lost) == (True, True)
    assert store_identity(tmp_path / "s0", "a" * 32, forget=False).identity == claim.identity
