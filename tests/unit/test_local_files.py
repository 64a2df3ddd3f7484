"""The local end of put and get: whole writes to standard output, amounts, names of conflicts.

Amounts are as users type them; names are of saved conflicts.
"""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from ares.cli.files.file_access import parse_sizes
from ares.cli.files.put_report import save_both_sides
from ares.cli.local_files import write_output
from ares.cli.terminal import parse_seconds, parse_size
from ares.fragment.divide import Sizes
from ares.fragment.report import CHANGED_MEANWHILE, Conflict
from ares.model.errors import BadInput
from ares.platform.interpreter import python


def kind_of(expression: str) -> str:
    """Return the class of a file object if Python does not buffer standard output."""
    program = (
        "import sys\n"
        "from ares.cli.local_files import standard_output\n"
        f"with standard_output() as out: print(type({expression}).__name__)"
    )
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.run(
        python("-c", program),
        capture_output=True,
        check=True,
        text=True,
        timeout=240,
        env=environment,
    ).stdout.strip()


def test_standard_output_takes_all_of_a_write() -> None:
    # may write a part, and returns the number of bytes
    assert kind_of("sys.stdout.buffer") == "FileIO"
    assert kind_of("out") == "BufferedWriter"


AMOUNTS = [
    ("64", 64),
    ("0", 0),
    ("512K", 2**19),
    ("512k", 2**19),
    ("4M", 2**22),
    ("50MiB", 50 * 2**20),
    ("2g", 2**31),
]


@pytest.mark.parametrize(("text", "count"), AMOUNTS)
def test_sizes_are_parsed(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(
    ("text", "count"), [("90", 90), ("90s", 90), ("2m", 120), ("24h", 86_400), ("7d", 604_800)]
)
def test_times_are_parsed(text: str, count: int) -> None:
    assert parse_seconds(text) == count


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1T", "1KI", "1 K", "1KK", "٣", "9" * 13])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(BadInput, match="for example 512K, not"):
        parse_size(text)
    with pytest.raises(BadInput, match="for example 24h, not"):
        parse_seconds(text)


def test_block_sizes_follow_the_average() -> None:
    assert parse_sizes(None, None, None) is None
    assert parse_sizes(None, "512K", None) == Sizes()
    assert parse_sizes("1K", "4K", None) == Sizes(1024, 4096, 8192)
    assert parse_sizes(None, None, "2M") == Sizes(2**19, 2**19, 2**21)


def saved(directory: Path, name: str, *conflicts: Conflict) -> dict[str, bytes]:
    content = directory.with_name("content")
    content.write_bytes(b"0123456789")
    paths = save_both_sides(conflicts, directory, name, content)
    assert sorted(paths) == sorted(map(str, directory.iterdir()))
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_two_conflicts_at_one_place_are_both_saved(tmp_path: Path) -> None:
    both = (
        Conflict(2, 0, CHANGED_MEANWHILE, b"what they made of it"),
        Conflict(2, 3, CHANGED_MEANWHILE, b"theirs"),
    )
    found = saved(tmp_path / "in", "film.mkv", *both)
    assert found == {
        "film.mkv.2.mine": b"",
        "film.mkv.2.theirs": b"what they made of it",
        "film.mkv.2+.mine": b"234",
        "film.mkv.2+.theirs": b"theirs",
    }


def test_a_conflict_that_has_no_other_side(tmp_path: Path) -> None:
    assert saved(tmp_path / "in", "film", Conflict(0, 10, CHANGED_MEANWHILE)) == {
        "film.0.mine": b"0123456789"
    }


@pytest.mark.parametrize(
    "name", ["../film", "/etc/passwd", "a/b", "..", "-rf", "\x1b[31m", "é" * 300]
)
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    [(file, _)] = saved(tmp_path / "in", name, Conflict(0, 1, CHANGED_MEANWHILE)).items()
    assert file.isascii()
    assert file.isprintable()
    assert len(file) < 150


def test_names_that_look_alike_when_flattened_stay_apart(tmp_path: Path) -> None:
    names = ["a_b", "a/b", "a b"]
    assert (
        len(
            {
                tuple(saved(tmp_path / str(index), name, Conflict(0, 1, CHANGED_MEANWHILE)))
                for index, name in enumerate(names)
            }
        )
        == 3
    )


def test_an_output_that_cannot_be_written_is_named_and_not_its_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match="Read-only file system") as raised:
        write_output(tmp_path / "page.html", b"x")
    assert raised.value.filename == str(tmp_path / "page.html")
