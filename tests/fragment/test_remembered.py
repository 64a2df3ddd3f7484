"""Bases of local copies: kept by copy, read back unchanged, and never an obstacle."""

import logging
import os
from pathlib import Path

import msgspec
import pytest

from ares.client import local_copy as remembered
from ares.client.local_copy import (
    CHUNKED_REMEMBERED_FORMAT,
    REMEMBERED_FORMAT,
    LocalName,
    RememberedBases,
    cache_directory,
)
from ares.fragment.block import BlockId, Genesis, KnownBlock, new_genesis
from ares.fragment.divide import RABIN, Sizes
from ares.fragment.read import FileState
from ares.model.tag import Tag

COPY = LocalName(b"\1" * 16, "file/film", "film", b"/home/ann/film.mkv")


def state(number: int = 1) -> FileState:
    parts = tuple(
        KnownBlock(
            BlockId(7, index),
            Tag(number, 3),
            100 + index,
            bytes([index] * 16),
            BlockId(7, index + 1),
        )
        for index in range(3)
    )
    genesis = Genesis(
        BlockId(7, 99),
        False,
        Sizes(),
        BlockId(7, 0),
        (),
        ((BlockId(7, 50), 1_700_000_000),),
        1_700_000_001,
    )
    return FileState(genesis, Tag(number, 3), parts)


@pytest.fixture
def cache(tmp_path: Path) -> RememberedBases:
    return RememberedBases(tmp_path / "not/there yet")


def by_rabin(number: int = 1) -> FileState:
    genesis = new_genesis(BlockId(7, 99), False, Sizes(), RABIN)
    return msgspec.structs.replace(state(number), genesis=genesis)


def entry(tmp_path: Path) -> Path:
    [path] = (tmp_path / "not/there yet").iterdir()
    return path


def test_what_was_kept_is_recalled_by_another_run(cache: RememberedBases, tmp_path: Path) -> None:
    assert cache.recall(COPY) is None
    cache.remember(COPY, state(1))
    cache.remember(COPY, state(2))
    assert RememberedBases(tmp_path / "not/there yet").recall(COPY) == state(2)


def test_a_base_by_rabin_is_in_a_format_that_earlier_releases_ignore(
    cache: RememberedBases, tmp_path: Path
) -> None:
    cache.remember(COPY, by_rabin())
    assert cache.recall(COPY) == by_rabin()
    path = entry(tmp_path)
    data = path.read_bytes()
    assert data[0] == CHUNKED_REMEMBERED_FORMAT
    for bad in (
        bytes([REMEMBERED_FORMAT]) + data[1:],
        data.replace(b"\xa5rabin", b"\xa5other"),
    ):
        assert bad != data
        path.write_bytes(bad)
        assert cache.recall(COPY) is None
    cache.remember(COPY, state())
    assert path.read_bytes()[0] == REMEMBERED_FORMAT


def test_what_was_in_the_copy_is_known_until_it_is_not(cache: RememberedBases) -> None:
    assert cache.content(COPY) == b""
    cache.remember(COPY, state(1), b"digest")
    assert (cache.content(COPY), cache.recall(COPY)) == (b"digest", state(1))
    cache.remember(COPY, state(2))
    assert cache.content(COPY) == b""
    assert cache.keeps
    assert not RememberedBases(None).keeps


def test_an_entry_of_an_earlier_release_says_nothing_of_the_copy(
    cache: RememberedBases, tmp_path: Path
) -> None:
    cache.remember(COPY, state(1), b"digest")
    path = entry(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:1] + msgspec.msgpack.encode(msgspec.msgpack.decode(data[1:])[:2]))
    assert (cache.recall(COPY), cache.content(COPY)) == (state(1), b"")


def test_the_parts_are_kept_once(cache: RememberedBases) -> None:
    whole = state()
    with_hint = msgspec.structs.replace(
        whole, genesis=msgspec.structs.replace(whole.genesis, parts=whole.parts)
    )
    cache.remember(COPY, with_hint)
    assert cache.recall(COPY) == whole


@pytest.mark.parametrize(
    "other",
    [
        LocalName(b"\2" * 16, COPY.domain, COPY.file, COPY.path),
        LocalName(COPY.cluster, "photos", COPY.file, COPY.path),
        LocalName(COPY.cluster, COPY.domain, "movie", COPY.path),
        LocalName(COPY.cluster, COPY.domain, COPY.file, b"/home/bob/film.mkv"),
        LocalName(COPY.cluster, COPY.domain, COPY.file, b"/home/ann/\xff"),
    ],
    ids=["cluster", "domain", "file", "path", "a path that is no text"],
)
def test_no_two_copies_share_a_base(cache: RememberedBases, other: LocalName) -> None:
    cache.remember(COPY, state(1))
    assert cache.recall(other) is None
    cache.remember(other, state(2))
    assert (cache.recall(COPY), cache.recall(other)) == (state(1), state(2))


def test_a_deleted_file_is_forgotten_for_all_its_copies_and_no_others(
    cache: RememberedBases,
) -> None:
    bobs = msgspec.structs.replace(COPY, path=b"/home/bob/film.mkv")
    others = msgspec.structs.replace(COPY, file="movie")
    for copy in (COPY, bobs, others):
        cache.remember(copy, state())
    cache.forget(COPY.cluster, COPY.domain, COPY.file)
    assert [cache.recall(copy) for copy in (COPY, bobs, others)] == [None, None, state()]


def broken(data: bytes) -> dict[str, bytes]:
    foreign = msgspec.structs.replace(COPY, path=b"/elsewhere")
    return {
        "empty": b"",
        "cut off": data[:-1],
        "another format": bytes([REMEMBERED_FORMAT + 1]) + data[1:],
        "not MessagePack": bytes([REMEMBERED_FORMAT]) + b"\xc1",
        "another shape": bytes([REMEMBERED_FORMAT]) + msgspec.msgpack.encode([1, 2]),
        "somebody else's": bytes([REMEMBERED_FORMAT]) + msgspec.msgpack.encode([foreign, state()]),
        "impossible sizes": data.replace(
            msgspec.msgpack.encode(Sizes()), msgspec.msgpack.encode([3, 2, 1])
        ),
    }


@pytest.mark.parametrize("kind", broken(b" "))
def test_what_cannot_be_read_is_ignored_and_said(
    cache: RememberedBases, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    cache.remember(COPY, state())
    path = entry(tmp_path)
    data = path.read_bytes()
    assert broken(data)[kind] != data
    path.write_bytes(broken(data)[kind])
    with caplog.at_level(logging.WARNING):
        assert cache.recall(COPY) is None
    assert [record.getMessage().count("is ignored") for record in caplog.records] == [1]
    cache.remember(COPY, state(3))
    assert cache.recall(COPY) == state(3)


def test_remembered_bases_are_private_to_the_user(cache: RememberedBases, tmp_path: Path) -> None:
    cache.remember(COPY, state())
    path = entry(tmp_path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_oldest_remembered_bases_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "REMEMBERED_COPIES_MAX", 5)
    cache = RememberedBases(tmp_path)
    (tmp_path / "somebody else's").write_text("stays")
    copies = [msgspec.structs.replace(COPY, path=b"/%d" % number) for number in range(8)]
    for number, copy in enumerate(copies):
        cache.remember(copy, state(number))
        newest = max(tmp_path.glob("*.base"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, ns=(number + 1, number + 1))
    assert [cache.recall(copy) is not None for copy in copies] == [False] * 3 + [True] * 5
    assert (tmp_path / "somebody else's").exists()


def test_an_unwritable_cache_is_logged_and_stops_no_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = RememberedBases(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        cache.remember(COPY, state())
        assert cache.recall(COPY) is None
    assert "was not kept" in caplog.text
    assert "cannot be read" in caplog.text


def test_no_directory_keeps_no_bases() -> None:
    cache = RememberedBases(None)
    cache.remember(COPY, state())
    cache.forget(COPY.cluster, COPY.domain, COPY.file)
    assert cache.recall(COPY) is None


def test_the_directory_of_remembered_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert cache_directory({"ARES_CACHE": "off", "XDG_CACHE_HOME": "/x"}) is None
    assert cache_directory({"ARES_CACHE": "some/where", "XDG_CACHE_HOME": "/x"}) == Path(
        "some/where"
    )
    assert cache_directory({"ARES_CACHE": "", "XDG_CACHE_HOME": "/x"}) == Path("/x/ares")
    assert (
        cache_directory({"XDG_CACHE_HOME": "relative"})
        == cache_directory({})
        == Path("/home/ann/.cache/ares")
    )
