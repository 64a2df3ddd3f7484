"""A server's directory: a single process at a time, an identity, and the first start.

An identity is never served again after the loss of its memory.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares.cluster import home
from ares.cluster.home import (
    CLAIM_NAME,
    NEW_NAME,
    IdentityClaim,
    claim_identity,
    held,
    is_bare,
    is_new,
    prepare,
    store_identity,
)
from ares.model.errors import BadInput, DirectoryLost, ForeignStore, StoreLost
from ares.platform.interpreter import python
from ares.store.journal.segments import anchor_of

IDENTITY = "0123456789abcdef" * 2

HOLDER = """
import sys
from pathlib import Path
from ares.cluster.home import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_first_start_is_the_identity_of_the_file(tmp_path: Path) -> None:
    directory = tmp_path / "data/s0"
    prepare(directory)
    assert not (directory / CLAIM_NAME).exists()
    claim = claim_identity(directory, IDENTITY)
    assert (claim.identity, claim.lost) == (IDENTITY, False)
    assert (directory / CLAIM_NAME).exists()


def test_every_later_start_has_a_new_identity(tmp_path: Path) -> None:
    prepare(tmp_path)
    claims = [claim_identity(tmp_path, IDENTITY) for _ in range(4)]
    assert [claim.lost for claim in claims] == [False, True, True, True]
    assert len({claim.identity for claim in claims}) == 4
    assert (tmp_path / "identity").read_text().strip() == claims[-1].identity


def test_a_claim_that_cannot_be_read_is_a_claim(tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(b"\xff\x00")
    assert claim_identity(tmp_path, IDENTITY).lost


class Killed(BaseException):
    """A stand-in for the end of the process."""


class HomeDisk:
    """The steps by which files become durable, in order.

    The process is killed after ``after`` steps.
    """

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch, after: int = -1) -> None:
        self.steps: list[str] = []
        self._top = top
        self._after = after
        for name in ("fsync", "replace", "unlink", "mkdir", "rename"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, act: Callable[..., None]) -> Callable[..., None]:
        def watched(place: Any, *more: Any, **words: Any) -> None:
            path = (
                os.readlink(f"/proc/self/fd/{place}")
                if name == "fsync"
                else os.fspath(more[0] if name == "replace" else place)
            )
            if len(self.steps) == self._after:
                raise Killed
            self.steps.append(f"{name} {path.removeprefix(str(self._top))}")
            act(place, *more, **words)

        return watched


Start = Callable[[Path, str, bool], IdentityClaim]
KINDS = pytest.mark.parametrize("start", [claim_identity, store_identity])


def test_the_claim_is_synced_before_it_counts_and_before_the_directory_stops_being_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        disk = HomeDisk(tmp_path, patch)
        prepare(tmp_path / "data/s0")
        assert [step for step in disk.steps if "mkdir" not in step] == [
            *(
                "fsync ",
                "fsync /data",
                "fsync /data/s0/never-started.new",
                "replace /data/s0/never-started",
                "fsync /data/s0",
            ),
        ]
    with monkeypatch.context() as patch:
        disk = HomeDisk(tmp_path, patch)
        claim_identity(tmp_path / "data/s0", IDENTITY)
    assert disk.steps == [
        *("fsync /data/s0/identity.new", "replace /data/s0/identity", "fsync /data/s0"),
        *("fsync /data/s0.started.new", "replace /data/s0.started", "fsync /data"),
        *("unlink /data/s0/never-started", "fsync /data/s0"),
    ]


@KINDS
def test_an_empty_directory_is_that_of_a_lost_disk(tmp_path: Path, start: Start) -> None:
    for directory in (tmp_path / "not there", tmp_path):
        with pytest.raises(
            DirectoryLost, match="the disk is lost or not mounted, or ID never ran"
        ) as refused:
            start(directory, IDENTITY, False)
        assert "`ares-cli prepare FILE ID`" in str(refused.value)
        assert not (directory / CLAIM_NAME).exists()
    assert not (tmp_path / "not there").exists()


@KINDS
def test_a_directory_that_was_emptied_is_no_new_one(tmp_path: Path, start: Start) -> None:
    prepare(tmp_path / "s0")
    start(tmp_path / "s0", IDENTITY, False)
    assert not is_new(tmp_path / "s0")
    shutil.rmtree(tmp_path / "s0")
    with pytest.raises(DirectoryLost), held(tmp_path / "s0"):
        start(tmp_path / "s0", IDENTITY, False)
    assert is_bare(tmp_path / "s0", IDENTITY), "the lock is nothing that a server kept"
    claim = start(tmp_path / "s0", IDENTITY, True)
    assert (claim.lost, claim.identity != IDENTITY) == (True, True)


def test_only_a_directory_without_anything_of_a_server_can_be_prepared(tmp_path: Path) -> None:
    assert [prepare(tmp_path / "new"), prepare(tmp_path / "new")] == [True, False]
    (tmp_path / "disk/lost+found").mkdir(parents=True)
    assert prepare(tmp_path / "disk")
    assert anchor_of(tmp_path / "journal").name == "journal.anchor"
    for name in ("identity", "journal", "journal.anchor", "journal.meta", "dump"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("something")
        with pytest.raises(BadInput, match=f"{name} is there; nothing was changed in it"):
            prepare(tmp_path / name)
        assert not is_new(tmp_path / name)


def test_a_directory_that_cannot_be_looked_into_is_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    assert is_bare(tmp_path / "nowhere", IDENTITY)
    (tmp_path / "file").write_text("in the way")
    assert not is_bare(tmp_path / "file", IDENTITY)
    assert not is_bare(tmp_path / ("x" * 300), IDENTITY), "no file system takes such a name"


def test_the_mark_of_a_new_directory_overrides_no_claim(tmp_path: Path) -> None:
    """If both should exist, the claim counts."""
    prepare(tmp_path / "s0")
    store_identity(tmp_path / "s0", IDENTITY, False)
    (tmp_path / "s0" / NEW_NAME).write_text("")
    shutil.rmtree(tmp_path / "s0/journal")
    with pytest.raises(StoreLost):
        store_identity(tmp_path / "s0", IDENTITY, False)
    assert claim_identity(tmp_path / "s0", IDENTITY).lost


def kill_first_starts(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a first start after each step, and start again.

    A server that served has no mark left. A server killed before can start again: under the same
    identity, if it has a store.
    """
    for after in range(100):
        directory = tmp_path / str(after)
        prepare(directory)
        with monkeypatch.context() as patch:
            HomeDisk(tmp_path, patch, after)
            try:
                claimed = start(directory, IDENTITY, False)
            except Killed:
                claimed = None
        if claimed is not None:
            assert claimed == IdentityClaim(IDENTITY, False)
            assert not is_new(directory)
            break
        again = start(directory, IDENTITY, False)
        assert not is_new(directory)
        assert again.identity == IDENTITY or start is claim_identity
        assert (again.identity == IDENTITY) == (not again.lost)
    assert after >= 5


@KINDS
def test_a_first_start_that_is_killed_at_any_step_is_repeated(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_first_starts(tmp_path, start, monkeypatch)


@KINDS
def test_control_a_mark_that_goes_before_the_claim_is_durable_is_noticed(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = home.replace_durably

    def too_early(path: Path, text: str) -> None:
        if path.name == "identity":
            home.end_newness(path.parents[path.parent.name == "journal"])
        write(path, text)

    monkeypatch.setattr(home, "replace_durably", too_early)
    with pytest.raises(DirectoryLost):
        kill_first_starts(tmp_path, start, monkeypatch)


@KINDS
def test_control_a_mark_that_stays_is_noticed(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "end_newness", lambda directory: None)
    with pytest.raises(AssertionError):
        kill_first_starts(tmp_path, start, monkeypatch)


def test_preparing_that_is_killed_at_any_step_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for after in range(100):
        directory = tmp_path / str(after)
        with monkeypatch.context() as patch:
            HomeDisk(tmp_path, patch, after)
            try:
                prepare(directory)
                break
            except Killed:
                pass
        prepare(directory)
        assert store_identity(directory, IDENTITY, False).identity == IDENTITY
    assert after >= 4


def test_a_server_killed_while_it_forgets_never_has_its_old_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for after in range(100):
        directory = tmp_path / str(after)
        prepare(directory)
        store_identity(directory, IDENTITY, False)
        (directory / "journal/kept").write_text("what it acknowledged")
        with monkeypatch.context() as patch:
            HomeDisk(tmp_path, patch, after)
            try:
                store_identity(directory, IDENTITY, True)
                break
            except Killed:
                pass
        try:
            claim = store_identity(directory, IDENTITY, False)
        except StoreLost:
            claim = store_identity(directory, IDENTITY, True)
        assert (claim.identity == IDENTITY) == (directory / "journal/kept").exists()
    assert after >= 5


def test_a_store_of_another_identity_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path)
    store_identity(tmp_path, IDENTITY, False)
    (tmp_path / "identity").write_text("f" * 32)
    with pytest.raises(ForeignStore, match="made under the identity '0123"):
        store_identity(tmp_path, IDENTITY, False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x1b[31mx", r"identity '\\x1b\[31mx'"),
        (b"f" * 10_000, "more than 64 bytes"),
        (None, "it is a pipe"),
    ],
)
def test_what_is_no_identity_is_neither_printed_raw_nor_read_whole(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    prepare(tmp_path)
    store_identity(tmp_path, IDENTITY, False)
    claim = tmp_path / "journal" / "identity"
    claim.unlink()
    if content is None:
        os.mkfifo(claim)
    else:
        claim.write_bytes(content)
    with pytest.raises((ForeignStore, BadInput), match=why):
        store_identity(tmp_path, IDENTITY, False)


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match=r"file/s0 cannot be used: File exists"):
        prepare(tmp_path / "file/s0")
    with pytest.raises(BadInput, match=r"file/s0 cannot be used"), held(tmp_path / "file/s0"):
        pass


def test_two_processes_cannot_hold_one_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        python("-c", HOLDER, tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(BadInput, match=f"in use by the process with pid {holder.pid}:"),
            held(tmp_path),
        ):
            pass
        holder.stdin.close()
        holder.wait()
    with held(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with held(tmp_path):
        pass


def test_a_server_made_to_forget_is_new_even_in_an_empty_directory(tmp_path):
    """An empty directory may belong to a lost disk."""
    claim = store_identity(tmp_path / "s0", "a" * 32, forget=True)
    assert (claim.identity != "a" * 32, claim.lost) == (True, True)
    assert store_identity(tmp_path / "s0", "a" * 32, forget=False).identity == claim.identity
