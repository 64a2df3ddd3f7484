"""Paths, directories and their properties."""

import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fsspec.callbacks import Callback

from ares.filesystem import AresFileSystem
from ares.filesystem.file_entries import canonical, directories, within

NAMES = ["a", "d/b", "d/c", "d/e/f", "d/e/g/h"]


@pytest.fixture
def tree(fs: AresFileSystem, here: str) -> AresFileSystem:
    fs.pipe({f"{here}/{name}": name.encode() for name in NAMES})
    return fs


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", ""),
        ("a", "a"),
        ("/a//b/", "a/b"),
        ("ares://a/b", "a/b"),
        ("ares:///a", "a"),
        ("ares://", ""),
    ],
)
def test_a_path_is_a_name_without_empty_segments(path: str, name: str) -> None:
    assert AresFileSystem._strip_protocol(path) == canonical(path.removeprefix("ares://")) == name
    assert AresFileSystem._strip_protocol([path]) == [name]


def test_what_is_within_a_directory() -> None:
    assert within(NAMES, "", 1) == ["a"]
    assert within(NAMES, "", None) == NAMES
    assert within(NAMES[1:], "d", 1) == ["d/b", "d/c"]
    assert within(NAMES[1:], "d", 2) == ["d/b", "d/c", "d/e/f"]
    assert directories(NAMES, "", 1) == ["d"]
    assert directories(NAMES, "", None) == ["d", "d/e", "d/e/g"]
    assert directories(NAMES[1:], "d", 1) == ["d/e"]


def test_ls_find_and_walk_list_the_tree(tree: AresFileSystem, here: str) -> None:
    def names(*found: str) -> list[str]:
        return [f"{here}/{name}" for name in found]

    assert tree.ls(here, detail=False) == names("a", "d")
    assert tree.ls(f"ares://{here}/d/", detail=False) == names("d/b", "d/c", "d/e")
    assert [(entry["type"], entry["size"]) for entry in tree.ls(f"{here}/d")] == [
        ("file", 3),
        ("file", 3),
        ("directory", 0),
    ]
    assert tree.ls(f"{here}/a", detail=False) == names("a")
    assert tree.find(here) == names(*NAMES)
    assert tree.find(here, maxdepth=2) == names("a", "d/b", "d/c")
    assert tree.find(f"{here}/d", withdirs=True) == names(
        "d", "d/b", "d/c", "d/e", "d/e/f", "d/e/g", "d/e/g/h"
    )
    assert tree.find(f"{here}/a") == names("a")
    assert tree.find(f"{here}/none") == []
    assert tree.find(f"{here}/d", detail=True)[f"{here}/d/e/f"]["size"] == 5
    assert tree.glob(f"{here}/d/*") == names("d/b", "d/c", "d/e")
    assert tree.glob(f"{here}/**/[fh]") == names("d/e/f", "d/e/g/h")
    assert tree.du(here) == sum(map(len, NAMES))
    assert [path.removeprefix(here) for path, _, _ in tree.walk(here)] == [
        "",
        "/d",
        "/d/e",
        "/d/e/g",
    ]
    assert here.split("/")[0] in tree.ls("", detail=False)
    with pytest.raises(ValueError, match="maxdepth"):
        tree.find(here, maxdepth=0)


def test_a_name_may_be_a_file_and_the_beginning_of_others(fs: AresFileSystem, here: str) -> None:
    fs.pipe({f"{here}/x": b"file", f"{here}/x/y": b"within"})
    assert fs.info(f"{here}/x")["type"] == "file"
    assert fs.ls(f"{here}/x", detail=False) == [f"{here}/x/y"]
    fs.rm(f"{here}/x", recursive=True)
    assert not fs.exists(here)


def test_directories_exist_through_their_files(tree: AresFileSystem, here: str) -> None:
    tree.mkdir(f"{here}/new")
    tree.makedirs(f"{here}/new/deep")
    assert not tree.exists(f"{here}/new")
    tree.rmdir(f"{here}/new")
    with pytest.raises(OSError, match="not empty") as refused:
        tree.rmdir(f"{here}/d")
    assert refused.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        tree.rm(f"{here}/d")
    tree.rm(f"{here}/d", recursive=True)
    assert tree.find(here) == [f"{here}/a"]
    with pytest.raises(FileNotFoundError):
        tree.rm(f"{here}/d", recursive=True)


def test_mv_moves_files_and_directories(tree: AresFileSystem, here: str) -> None:
    tree.mv(f"{here}/a", f"{here}/b")
    assert not tree.exists(f"{here}/a")
    assert tree.cat_file(f"{here}/b") == b"a"
    tree.mv(f"{here}/d", f"{here}/moved", recursive=True)
    assert tree.find(here) == [
        f"{here}/{name}" for name in ["b", "moved/b", "moved/c", "moved/e/f", "moved/e/g/h"]
    ]


def test_times_are_those_of_the_last_put(fs: AresFileSystem, here: str) -> None:
    fs.touch(f"{here}/f")
    assert abs(datetime.now(UTC) - fs.modified(f"{here}/f")) < timedelta(minutes=10)
    assert (
        fs.created(f"{here}/f")
        == fs.modified(f"{here}/f")
        == datetime.fromtimestamp(fs.info(f"{here}/f")["mtime"], UTC)
    )
    with pytest.raises(IsADirectoryError):
        fs.modified(here)


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, 3), (2, None), (-3, None), (1, -1), (-4, -2), (5, 2), (3, 100), (0, 0)],
)
def test_a_part_of_a_file(
    fs: AresFileSystem, here: str, start: int | None, end: int | None
) -> None:
    fs.pipe_file(f"{here}/f", b"0123456789")
    assert fs.cat_file(f"{here}/f", start, end) == b"0123456789"[start:end]


def test_local_files_come_and_go_with_progress(
    fs: AresFileSystem, here: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(bytes(5_000_000))
    told: list[tuple[str, int | None, int]] = []

    class Told(Callback):
        def call(self, *_: object, **__: object) -> None:
            told.append((which, self.size, self.value))

    which = "put"
    fs.put_file(str(tmp_path / "in"), f"{here}/f", callback=Told())
    assert told[-1] == ("put", 5_000_000, 5_000_000)
    which = "get"
    fs.get_file(f"{here}/f", str(tmp_path / "out"), callback=Told())
    assert told[-1] == ("get", 5_000_000, 5_000_000)
    assert (tmp_path / "out").read_bytes() == bytes(5_000_000)


def test_files_that_are_domains_of_their_own(
    make: Callable[..., AresFileSystem], here: str
) -> None:
    fs = make(domain=None)
    fs.pipe({f"{here}/a": b"1", f"{here}/d/b": b"22"})
    assert [(entry["name"], entry["size"]) for entry in fs.ls(here)] == [
        (f"{here}/a", 1),
        (f"{here}/d", 0),
    ]
    assert make().find(here) == []
    fs.rm(here, recursive=True)
    assert fs.find(here) == []
    fs.pipe_file(f"{here}/a", b"again")
    assert fs.cat_file(f"{here}/a") == b"again"
