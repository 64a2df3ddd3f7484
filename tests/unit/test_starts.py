"""The record of starts in a directory, which is kept beside the directory.

A mark of a new directory that is found later, or made anew, is not believed.
"""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ares.cluster import home
from ares.cluster.home import (
    IdentityClaim,
    claim_identity,
    forget_starts,
    is_bare,
    is_new,
    prepare,
    record_of,
    store_identity,
    was_started,
)
from ares.consensus.raft.directory import MemberDirectory
from ares.model.errors import BadInput, DirectoryLost
from ares.model.identity import ServerId

IDENTITY, OTHER = "0123456789abcdef" * 2, "f" * 32

Start = Callable[[Path, str, bool], IdentityClaim]
KINDS = pytest.mark.parametrize("start", [claim_identity, store_identity])


def lose(directory: Path) -> None:
    """Lose the disk: below its mount point is the directory from before the mount."""
    shutil.rmtree(directory)
    prepare(directory)


@KINDS
def test_a_mark_below_the_mount_point_is_not_believed(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "s0"
    prepare(directory)
    start(directory, IDENTITY, False)
    assert (tmp_path / "s0.started").read_text() == f"{IDENTITY}\n"
    lose(directory)
    for _ in range(2):
        with pytest.raises(DirectoryLost) as refused:
            start(directory, IDENTITY, False)
        assert (
            f"ID ran there before, says {tmp_path / 's0.started'}, so the disk is lost or not "
            "mounted." in str(refused.value)
        )
        assert "never ran" not in str(refused.value)
    assert is_bare(directory, IDENTITY)
    assert is_new(directory), "nothing was changed"


@KINDS
def test_control_where_nothing_is_remembered_the_mark_is_believed(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "remember_start", lambda directory, name: None)
    prepare(tmp_path / "s0")
    start(tmp_path / "s0", IDENTITY, False)
    lose(tmp_path / "s0")
    assert start(tmp_path / "s0", IDENTITY, False) == IdentityClaim(IDENTITY, False)


@KINDS
def test_a_server_that_forgets_begins_anew_and_is_remembered(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "s0"
    prepare(directory)
    start(directory, IDENTITY, False)
    lose(directory)
    assert start(directory, IDENTITY, True).identity != IDENTITY
    lose(directory)
    with pytest.raises(DirectoryLost):
        start(directory, IDENTITY, False)


def test_a_server_that_forgets_without_a_record_is_remembered(tmp_path: Path) -> None:
    """The disk was lost before the upgrade to a release with records."""
    store_identity(tmp_path / "s0", IDENTITY, True)
    assert was_started(tmp_path / "s0", IDENTITY)


def test_a_server_of_an_earlier_release_is_remembered_at_its_next_start(tmp_path: Path) -> None:
    prepare(tmp_path / "s0")
    store_identity(tmp_path / "s0", IDENTITY, False)
    record_of(tmp_path / "s0").unlink()
    assert store_identity(tmp_path / "s0", IDENTITY, False) == IdentityClaim(IDENTITY, False)
    assert was_started(tmp_path / "s0", IDENTITY)


def test_another_identity_is_new_in_the_same_place_and_both_are_remembered(tmp_path: Path) -> None:
    """A new cluster has its data in an earlier cluster's place.

    Configurations of the two name different identities.
    """
    prepare(tmp_path / "s0")
    store_identity(tmp_path / "s0", IDENTITY, False)
    lose(tmp_path / "s0")
    assert store_identity(tmp_path / "s0", OTHER, False) == IdentityClaim(OTHER, False)
    lose(tmp_path / "s0")
    for identity in (IDENTITY, OTHER):
        with pytest.raises(DirectoryLost):
            store_identity(tmp_path / "s0", identity, False)


def test_a_directory_that_moved_is_remembered_where_it_is(tmp_path: Path) -> None:
    prepare(tmp_path / "old/s0")
    store_identity(tmp_path / "old/s0", IDENTITY, False)
    (tmp_path / "new").mkdir()
    (tmp_path / "old/s0").rename(tmp_path / "new/s0")
    assert store_identity(tmp_path / "new/s0", IDENTITY, False) == IdentityClaim(IDENTITY, False)
    assert was_started(tmp_path / "new/s0", IDENTITY)


def test_what_is_forgotten_may_be_new_again(tmp_path: Path) -> None:
    forget_starts(tmp_path / "s0")
    prepare(tmp_path / "s0")
    store_identity(tmp_path / "s0", IDENTITY, False)
    lose(tmp_path / "s0")
    forget_starts(tmp_path / "s0")
    assert store_identity(tmp_path / "s0", IDENTITY, False) == IdentityClaim(IDENTITY, False)


def test_where_the_parent_cannot_be_written_a_server_starts_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(tmp_path / "s0")
    replace = os.replace

    def refusing(old: Path, new: Path) -> None:
        if new == record_of(tmp_path / "s0"):
            raise PermissionError(13, "Permission denied")
        replace(old, new)

    monkeypatch.setattr(os, "replace", refusing)
    with caplog.at_level(logging.WARNING):
        assert store_identity(tmp_path / "s0", IDENTITY, False) == IdentityClaim(IDENTITY, False)
    [said] = [record.getMessage() for record in caplog.records]
    assert (
        f"this start cannot be remembered in {tmp_path / 's0.started'} (Permission denied): "
        "if its disk is missing one day, no record will tell" in said
    )
    assert not is_new(tmp_path / "s0")


def test_a_record_that_cannot_be_read_stops_a_first_start_only(tmp_path: Path) -> None:
    prepare(tmp_path / "s0")
    record_of(tmp_path / "s0").mkdir()
    with pytest.raises(
        BadInput,
        match=r"s0 cannot be used: it is a directory, and a file was expected \(.*s0.started\); "
        r"nothing was changed",
    ):
        store_identity(tmp_path / "s0", IDENTITY, False)
    record_of(tmp_path / "s0").rmdir()
    store_identity(tmp_path / "s0", IDENTITY, False)
    record_of(tmp_path / "s0").unlink()
    record_of(tmp_path / "s0").mkdir()
    assert store_identity(tmp_path / "s0", IDENTITY, False) == IdentityClaim(IDENTITY, False)


def member(path: Path) -> MemberDirectory:
    directory = MemberDirectory(path)
    directory.lock(ServerId("r0"))
    return directory


def test_a_member_is_remembered_when_it_has_its_journal(tmp_path: Path) -> None:
    prepare(tmp_path / "r0")
    directory = member(tmp_path / "r0")
    directory.require_new()
    assert not was_started(tmp_path / "r0", "r0")
    directory.journal.write_bytes(b"")
    directory.begin()
    directory.unlock()
    assert (tmp_path / "r0.started").read_text() == "r0\n"
    lose(tmp_path / "r0")
    directory = member(tmp_path / "r0")
    with pytest.raises(
        DirectoryLost,
        match=r"If the process that ran there belonged to another cluster, remove .*r0\.started",
    ) as refused:
        directory.require_new()
    assert "might vote a second time" in str(refused.value)
    directory.unlock()
