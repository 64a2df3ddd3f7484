"""Logs in a database of results, and the known run of which a directory is a copy.

The content of a run identifies the run. Two directories hold the same run if the first has all logs
of the second, if a log or its copy begins with the whole of its twin, and if the descriptions do
not contradict.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.results.log_file import LINE_BYTES_MAX, digest_of, open_log
from ares.results.run_description import AS_ON_DISK, PathNames, RunDescription, shown_path

HEAD_BYTES = 4096
"""Bytes that two files are compared by before they are read to their ends."""

_DESCRIBED = (
    *("algorithm", "servers", "writers", "readers", "reconfigurers"),
    *("object_size", "k", "m", "topology", "iteration"),
)


class LogFile(Struct):
    """Row of the table `files`."""

    id: int
    path: str
    kind: str
    client: str | None
    inode: int
    shift_s: int | None = None
    modified_ns: int = 0
    read_bytes: int = 0
    digest: str = ""
    lines: int = 0
    malformed: int = 0
    passed_over: int = 0


LOG_FILE_COLUMNS = ", ".join(LogFile.__struct_fields__)


class KnownCopy(Struct):
    """Run in the database with the logs of a new directory."""

    run: int
    path: str
    logs: dict[Path, LogFile]
    """Known logs by the file of the new directory with the same content."""

    is_longer: bool
    """True if the new directory has unread lines."""

    is_held: bool
    """True if the known directory still has the logs."""


def known_files(database: sqlite3.Connection, condition: str, *values: object) -> list[LogFile]:
    """Return rows of `files` by `condition`."""
    asked = f"SELECT {LOG_FILE_COLUMNS} FROM files WHERE {condition} ORDER BY id"
    return [LogFile(*row) for row in database.execute(asked, values)]


def begins_with(path: Path, file: LogFile) -> bool:
    """Return whether `path` begins with all that was read of `file`."""
    return file.read_bytes > 0 and _digest(path, file.read_bytes) == file.digest


def find_twin(
    database: sqlite3.Connection, run: int, path: Path, kind: str, names: PathNames = AS_ON_DISK
) -> LogFile | None:
    """Return the log of `run` whose file has the content of `path`, too."""
    asked = "run_id = ? AND kind = ? AND read_bytes = ?"
    for file in known_files(database, asked, run, kind, _size(path)):
        if begins_with(path, file) and begins_with(names.actual(file.path), file):
            return file
    return None


def find_copy(
    database: sqlite3.Connection,
    directory: Path,
    run: RunDescription,
    kinds: Mapping[Path, str],
    names: PathNames = AS_ON_DISK,
) -> KnownCopy | None:
    """Return the known run in `directory`, whose logs are `kinds`."""
    sizes = {path: size for path in kinds if (size := _size(path))}
    runs = [
        (id, path, known_files(database, "run_id = ?", id))
        for id, path in _alike(database, directory, run)
    ]
    lengths = {file.read_bytes for _, _, files in runs for file in files}
    digests = {
        (kinds[path], length, digest): path
        for path, size in sizes.items()
        for length, digest in _digests(path, sorted(n for n in lengths if 0 < n <= size))
    }
    for id, known_at, known in runs:
        files = [file for file in known if file.read_bytes]
        found = {
            file.id: digests.get((file.kind, file.read_bytes, file.digest))
            or _beginning(file, names, kinds, sizes)
            for file in files
        }
        logs = {path: file for file in files if (path := found[file.id])}
        if logs and (all(found.values()) or logs.keys() == sizes.keys()):
            complete = sum(_complete_bytes(path, size) for path, size in sizes.items())
            is_longer = complete > sum(file.read_bytes for file in files)
            is_held = all(begins_with(names.actual(file.path), file) for file in logs.values())
            return KnownCopy(id, known_at, logs, is_longer, is_held)
    return None


def _alike(
    database: sqlite3.Connection, directory: Path, run: RunDescription
) -> Iterator[tuple[int, str]]:
    """Yield number and path of each run whose description does not contradict `run`."""
    same = " AND ".join(f"coalesce({name} = :{name}, 1)" for name in _DESCRIBED)
    values = {name: getattr(run, name) for name in _DESCRIBED}
    asked = f"SELECT id, path, scenario, parameters, provenance FROM runs WHERE {same} ORDER BY id"
    own = shown_path(directory.name)
    for id, path, scenario, *objects in database.execute(asked, values).fetchall():
        if (run.scenario in (scenario, own) or scenario == path.rpartition("/")[2]) and all(
            map(_one_has_the_other, objects, (run.parameters, run.provenance))
        ):
            yield id, path


def _one_has_the_other(one: str, other: str) -> bool:
    """Return whether one JSON object has all members of the second; the longer was added to."""
    first, second = (msgspec.json.decode(text) for text in (one, other))
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return bool(first == second)
    return all(first[name] == second[name] for name in first.keys() & second.keys()) and (
        first.keys() <= second.keys() or second.keys() <= first.keys()
    )


def _beginning(
    file: LogFile, names: PathNames, kinds: Mapping[Path, str], sizes: Mapping[Path, int]
) -> Path | None:
    """Return the shorter log with which the known `file` begins on the disk."""
    known = names.actual(file.path)
    for path, size in sizes.items():
        if (
            kinds[path] == file.kind
            and size < file.read_bytes
            and _head(path, size) == _head(known, size)
            and _digest(path, size) == _digest(known, size)
        ):
            return path
    return None


def _digests(path: Path, lengths: list[int]) -> Iterator[tuple[int, str]]:
    """Yield digests of the beginnings of a file; a file that cannot be read has no digests."""
    try:
        with open_log(path) as opened:
            hasher, position = digest_of(opened, 0), 0
            for length in lengths:
                digest_of(opened, length - position, hasher)
                position = length
                yield length, hasher.hexdigest()
    except OSError:
        return


def _digest(path: Path, length: int) -> str | None:
    return next((digest for _, digest in _digests(path, [length])), None)


def _head(path: Path, size: int) -> bytes | None:
    try:
        with open_log(path) as opened:
            return opened.read(min(size, HEAD_BYTES))
    except OSError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _complete_bytes(path: Path, size: int) -> int:
    """Return the bytes up to the end of the last complete line."""
    begin = max(size - LINE_BYTES_MAX, 0)
    try:
        with open_log(path) as opened:
            opened.seek(begin)
            return begin + opened.read(size - begin).rfind(b"\n") + 1
    except OSError:
        return 0
