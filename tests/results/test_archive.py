"""Archives of runs: the same runs elsewhere, and archives that a stranger made to harm."""

import gzip
import io
import random
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ares.cli.main import run as ares_cli
from ares.model.errors import BadInput
from ares.results import archive
from ares.results.archive import pack_runs, unpack_runs
from ares.results.database import opened
from ares.results.importing import import_runs
from tests.results.operation_logs import content, imported, own, rows, write
from tests.results.runs_on_disk import some_runs


def unseen(done: int, total: int, name: str) -> None:
    """Show no progress."""


def unpacked_into(into: Path, *archives: Path) -> tuple[int, int]:
    """Import archives; return the number of runs and of new operations."""
    with archive.unpacked(archives, unseen) as (tops, names), opened(into, create=True) as database:
        report = import_runs(database, tops, unseen, names)
    return report.runs, report.operations


def without_places(into: Path, top: Path) -> str:
    """Return all imported data, with paths below ``top`` relative to it."""
    return repr(content(into)).replace(f"{top}/", "")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    some_runs(tmp_path / "here" / "runs")
    write(tmp_path / "here" / "runs" / "notes.txt", "no log\n")
    return tmp_path / "here" / "runs"


# -- archives of our own ---------------------------------------------------------------------------


def test_an_imported_archive_is_the_directory(runs: Path, tmp_path: Path) -> None:
    packed = tmp_path / "all.tar.gz"
    report = pack_runs(runs, packed, unseen)
    assert (report.runs, report.size) == (4, packed.stat().st_size)
    imported(tmp_path / "directory.db", runs)
    assert unpacked_into(tmp_path / "archive.db", packed) == (4, report_operations(tmp_path))
    of_archive = without_places(tmp_path / "archive.db", packed)
    assert of_archive == without_places(tmp_path / "directory.db", runs.parent)
    [(first,)] = rows(tmp_path / "archive.db", "SELECT min(path) FROM runs")
    assert first == f"{packed}/runs/AresABD_1048576"


def report_operations(tmp_path: Path) -> int:
    [(count,)] = rows(tmp_path / "directory.db", "SELECT count(*) FROM operations")
    return int(count)


def test_runs_count_once_as_archives_and_as_directories(runs: Path, tmp_path: Path) -> None:
    into, one, two = tmp_path / "r.db", tmp_path / "one.tar.gz", tmp_path / "two.tar.gz"
    pack_runs(runs, one, unseen)
    shutil.copy(one, two)
    new = [unpacked_into(into, path)[1] > 0 for path in (one, one, two, one)]
    assert new == [True, False, False, False]
    assert imported(into, runs).operations == 0
    assert unpacked_into(into, one, two)[1] == 0
    assert rows(into, "SELECT count(*) FROM runs") == [(4,)]


def test_a_later_archive_of_a_longer_run_adds_the_new_lines(tmp_path: Path) -> None:
    top, into = tmp_path / "runs", tmp_path / "r.db"
    write(top / "a" / "w.log", *(own("write", number) for number in range(3)))
    pack_runs(top, tmp_path / "early.tar.gz", unseen)
    write(top / "a" / "w.log", *(own("write", number) for number in range(3, 5)), mode="a")
    pack_runs(top, tmp_path / "late.tar.gz", unseen)
    assert unpacked_into(into, tmp_path / "early.tar.gz") == (1, 3)
    assert unpacked_into(into, tmp_path / "late.tar.gz") == (1, 2)
    together = (tmp_path / "late.tar.gz", tmp_path / "early.tar.gz")
    assert unpacked_into(tmp_path / "together.db", *together) == (1, 5)


def test_a_replaced_archive_of_one_name_and_size_is_read_again(tmp_path: Path) -> None:
    into, packed = tmp_path / "r.db", tmp_path / "a.tar.gz"
    for client in ("w1", "w2"):
        write(tmp_path / client / "runs" / "a" / "w.log", own("write", 1, clientID=client))
        packed.unlink(missing_ok=True)
        pack_runs(tmp_path / client / "runs", packed, unseen)
        unpacked_into(into, packed)
    assert rows(into, "SELECT client FROM operations") == [("w2",)]


def test_equal_directories_give_equal_archives_without_owners_or_times(
    runs: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "there" / "runs"
    shutil.copytree(runs, copy, copy_function=shutil.copy)
    (copy / "AresEC_65536" / "run.json").chmod(0o600)
    pack_runs(runs, tmp_path / "a.tar.gz", unseen)
    pack_runs(copy, tmp_path / "b.tar.gz", unseen)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.mtime, member.uid, member.uname) for member in members} == {(0, 0, "")}
    assert "runs/notes.txt" not in {member.name for member in members}


def test_commands_pack_and_import_and_overwrite_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, into = tmp_path / "a.tar.gz", tmp_path / "r.db"
    assert ares_cli(["results", "pack", str(runs), str(packed)]) == 0
    assert f"{packed}: 4 runs, " in capsys.readouterr().out
    before = packed.read_bytes()
    assert ares_cli(["results", "pack", str(runs), str(packed)]) == 2
    assert "exists, and was not changed" in capsys.readouterr().err
    assert packed.read_bytes() == before
    assert ares_cli(["results", "import", str(packed), "--into", str(into)]) == 0
    assert "4 runs; " in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "here", "r.db"]


def test_a_file_that_appears_meanwhile_is_not_overwritten(runs: Path, tmp_path: Path) -> None:
    packed = tmp_path / "a.tar.gz"
    with pytest.raises(BadInput, match="exists"):
        pack_runs(runs, packed, lambda done, total, name: packed.touch())
    assert packed.read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []


@pytest.mark.parametrize("bound", ["ARCHIVE_FILES_MAX", "ARCHIVE_BYTES_MAX"])
def test_more_than_an_import_takes_is_not_packed(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(archive, bound, 10)
    with pytest.raises(BadInput, match="pack its directories apart"):
        pack_runs(runs, tmp_path / "a.tar.gz", unseen)
    assert not (tmp_path / "a.tar.gz").exists()


def test_a_log_that_is_cut_while_it_is_packed_leaves_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "runs" / "w.log"
    write(log, own("write", 1))
    add = tarfile.TarFile.addfile

    def cut(tar: tarfile.TarFile, member: tarfile.TarInfo, file: object) -> None:
        log.write_text("")
        add(tar, member, file)  # type: ignore[arg-type]

    monkeypatch.setattr(tarfile.TarFile, "addfile", cut)
    with pytest.raises(BadInput, match=r"w\.log became shorter"):
        pack_runs(tmp_path / "runs", tmp_path / "a.tar.gz", unseen)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


# -- archives of strangers -------------------------------------------------------------------------

LOG = b'{"outcome": "ok"}\n'


def member(name: str, content: bytes = LOG, **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in more.items():
        setattr(info, field, value)
    return info, content


def tar_of(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=format) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def link(name: str, target: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, b"", type=kind, linkname=target)


def special(kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return member("runs/w.log", b"", type=kind)


def sparse() -> bytes:
    info, _ = member("w.log", b"")
    info.pax_headers = {"GNU.sparse.size": str(1 << 60), "GNU.sparse.map": f"0,0,{1 << 60},0"}
    return tar_of((info, b""))


def header_of_gibibytes() -> bytes:
    """Return an extended header that claims 8 GiB, of which nothing follows."""
    info, _ = member("./PaxHeaders", b"", type=tarfile.XHDTYPE)
    info.size = 8 << 30
    return info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096


def headers_without_end() -> bytes:
    info, _ = member("./PaxHeaders", b"", type=tarfile.XHDTYPE)
    return info.tobuf(tarfile.GNU_FORMAT) * 5000


def damaged_in_the_middle() -> bytes:
    whole = bytearray(tar_of(member("a/w.log"), member("b/w.log"), member("c/w.log")))
    whole[1024:1030] = b"xxxxxx"  # the second header's checksum is wrong
    return bytes(whole)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a link out": (lambda: tar_of(link("x", "/etc", tarfile.SYMTYPE)), "neither a plain file"),
    "a log through a link": (
        lambda: tar_of(link("x", "..", tarfile.SYMTYPE), member("x/w.log")),
        "neither a plain file",
    ),
    "a hard link": (
        lambda: tar_of(link("w.log", "/etc/passwd", tarfile.LNKTYPE)),
        "neither a plain file",
    ),
    "a device": (lambda: tar_of(special(tarfile.BLKTYPE)), "neither a plain file"),
    "a pipe": (lambda: tar_of(special(tarfile.FIFOTYPE)), "neither a plain file"),
    "holes": (sparse, "neither a plain file"),
    "a path from the root": (lambda: tar_of(member("/tmp/w.log")), "no name below"),
    "a path upwards": (lambda: tar_of(member("runs/../../w.log")), "no name below"),
    "a long name": (lambda: tar_of(member(f"{'d/' * 600}w.log")), "no name below"),
    "a long part of a name": (lambda: tar_of(member(f"{'d' * 300}.log")), "name cannot be"),
    "a name twice": (lambda: tar_of(member("a/w.log"), member("a//w.log")), "is there twice"),
    "a file as a directory": (
        lambda: tar_of(member("a.log"), member("a.log/w.log")),
        "name cannot be a file's",
    ),
    "a header of 8 GiB": (header_of_gibibytes, f"a header of {8 << 30} bytes"),
    "headers without end": (headers_without_end, "is damaged"),
    "a damaged header": (damaged_in_the_middle, "content behind the end"),
    "content behind the end": (lambda: tar_of(member("w.log")) + b"x" * 512, "behind the end"),
    "a cut file": (lambda: tar_of(member("w.log", LOG * 1000))[:2000], "is damaged"),
    "no tar": (lambda: b"no archive" * 100, "is damaged"),
    "nothing": (lambda: b"", "is damaged"),
}


@pytest.mark.parametrize(("made", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: Callable[[], bytes],
    why: str,
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    packed, into = tmp_path / "a.tar.gz", tmp_path / "r.db"
    packed.write_bytes(gzip.compress(made()))
    assert ares_cli(["results", "import", str(packed), "--into", str(into)]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "nothing was imported" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("bound", "most", "made"),
    [
        ("ARCHIVE_FILES_MAX", 3, lambda: tar_of(*(member(f"{n}.txt") for n in range(4)))),
        ("ARCHIVE_BYTES_MAX", 100, lambda: tar_of(member("w.log", b"x" * 101))),
        ("ARCHIVE_BYTES_MAX", 100, lambda: tar_of(member("skipped.txt", b"x" * 101))),
    ],
    ids=["files", "bytes", "bytes of other files"],
)
def test_an_archive_beyond_a_bound_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    most: int,
    made: Callable[[], bytes],
) -> None:
    monkeypatch.setattr(archive, bound, most)
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(made()))
    with pytest.raises(BadInput, match="it has more than"):
        unpack_runs(packed, tmp_path, unseen)


def test_zeros_without_end_are_not_unpacked_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "ARCHIVE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(archive, "ARCHIVE_FILES_MAX", 10)
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(tar_of(member("w.log")) + bytes(4 << 20)))
    with pytest.raises(BadInput, match="it has more than"):
        unpack_runs(packed, tmp_path, unseen)


def test_damage_anywhere_is_an_error_for_a_person(runs: Path, tmp_path: Path) -> None:
    """A flipped byte of an archive, and of the archive within it."""
    packed, rng = tmp_path / "a.tar.gz", random.Random(7)
    pack_runs(runs, packed, unseen)
    whole = packed.read_bytes()
    inner = zlib.decompress(whole, wbits=31)
    for number in range(300):
        changed = bytearray(whole if number % 2 else inner)
        place = rng.randrange(10, len(changed)) if number % 2 else rng.randrange(0, 4096)
        changed[place] ^= 1 << rng.randrange(8)
        packed.write_bytes(bytes(changed) if number % 2 else gzip.compress(bytes(changed), 1))
        into = tmp_path / f"{number}"
        into.mkdir()
        try:
            unpack_runs(packed, into, unseen)
        except BadInput:
            continue
        assert number % 2 == 0, "a change within gzip's stream has no checksum"


def test_other_files_of_an_archive_are_passed_over(tmp_path: Path) -> None:
    packed, into = tmp_path / "a.tar.gz", tmp_path / "out"
    into.mkdir()
    folder = member("runs", b"", type=tarfile.DIRTYPE)
    script = member("runs/setup.sh", b"rm -rf /\n", mode=0o4777)
    packed.write_bytes(gzip.compress(tar_of(folder, script, member("./runs/w.log", mode=0o4777))))
    unpack_runs(packed, into, unseen)
    found = [path for path in into.rglob("*") if path.is_file()]
    assert [path.relative_to(into).as_posix() for path in found] == ["runs/w.log"]
    assert found[0].stat().st_mode & 0o7111 == 0


def test_an_archive_of_no_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(tar_of(member("readme.txt"))))
    assert ares_cli(["results", "import", str(packed), "--into", str(tmp_path / "r.db")]) == 2
    assert f"no operation logs in {packed}" in capsys.readouterr().err
    assert not (tmp_path / "r.db").exists()
