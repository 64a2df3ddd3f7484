"""The import of directories of runs into the database, from the end of the last import.

The rows of a file and the position in the file are committed together, some thousand lines at a
time; hence a kill loses no line and doubles no line. A file that still begins with the content read
before is read on. Otherwise the file was replaced: its rows are removed, and the file is read from
the start.
"""

import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from ares.model.errors import BadInput
from ares.model.units import HOUR_S
from ares.results import load_points
from ares.results.database import OF_A_FILE, ResultsFailed, transaction
from ares.results.known_logs import LogFile, begins_with, find_copy, find_twin, known_files
from ares.results.load_points import read_points
from ares.results.log_file import LINE_BYTES_MAX, LogLines, digest_of, open_log
from ares.results.log_line import BEGAN_COLUMN, read_event, read_operation
from ares.results.run_description import (
    AS_ON_DISK,
    DESCRIPTIONS,
    PathNames,
    RunDescription,
    describe,
    shown_path,
)
from ares.tracing.tree import printable, read_spans

IMPORT_BATCH_LINES = 5_000
IMPORT_BATCH_BYTES = 8 << 20
BAD_LINES_KEPT = 20
"""Malformed lines kept of each file."""

FILES_NAMED = 20
"""Files with flaws that a report names."""

RUN_SPANS_MAX = 50_000
"""Spans kept of each run."""

_COPY = "left out, since {} holds the same run, which counts once"
_TWIN = "left out, since {} has the same lines, which count once"
_PUBLISHED_LOG = re.compile(r"(?:client|user)-(\d{1,9})-(.+?)(_phase1)?\.log")
_OWN_LOG = re.compile(r".+\.(?:log|jsonl)(?:\.\d+)?")
_LEVEL_COLUMN = 3
_FILE_KINDS = {"events.jsonl": "events", load_points.LOAD_FILE: "load"}
_TABLE_OF_KIND = {"events": "events", "trace": "spans", "load": "load_points"}

Progress = Callable[[int, int, str], None]
"""A function called with the bytes done, the total of bytes, and the name of the run."""


class Flaws(Struct):
    """Flaws of files, which could not be used or only in part."""

    count: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """Number of flaws by path of the file."""

    first: list[tuple[str, int, str]] = field(default_factory=list)
    """Path, line (0: the whole file) and reason of each file's first flaw, of FILES_NAMED files."""

    def add(self, path: str, line: int, why: str) -> None:
        self.count += 1
        if path not in self.files and len(self.first) < FILES_NAMED:
            self.first.append((path, line, why))
        self.files[path] = self.files.get(path, 0) + 1


class ImportReport(Struct):
    """The result of an import.

    ``files``: files with new content. ``read_again``: replaced files. ``unfinished``: files whose
    last line has no end yet. ``passed_over``: lines of no operation. ``left_out``: spans beyond
    RUN_SPANS_MAX of a run. ``points``: points of load.
    """

    runs: int = 0
    files: int = 0
    read_again: int = 0
    operations: int = 0
    events: int = 0
    spans: int = 0
    points: int = 0
    passed_over: int = 0
    left_out: int = 0
    copies: Flaws = field(default_factory=Flaws)
    """Directories and logs left out because the database has their content."""

    malformed: Flaws = field(default_factory=Flaws)
    unfinished: Flaws = field(default_factory=Flaws)
    unreadable: Flaws = field(default_factory=Flaws)


_CHANGING_FIELDS = LogFile.__struct_fields__[4:]


class RunDirectory(Struct):
    """A directory with logs.

    ``sizes``: bytes of logs and descriptions by name; by relative path for logs further down.
    """

    path: Path
    sizes: dict[str, int]


def find_runs(
    directories: Iterable[Path], unreadable: Flaws, paths: PathNames = AS_ON_DISK
) -> Iterator[RunDirectory]:
    """Yield the directories at or below ``directories`` with logs or a `run.json`, each once.

    A directory below a directory with a `run.json`, without a `run.json` of its own, belongs to the
    upper directory, as logs by host do. Links to directories are not followed.
    """
    seen: set[str] = set()

    def failed(error: OSError) -> None:
        unreadable.add(paths.shown(error.filename), 0, str(error.strerror))

    def sizes_of(where: str, names: Iterable[str]) -> dict[str, int]:
        sizes = {}
        for name in filter(is_of_a_run, sorted(names)):
            try:
                status = os.stat(os.path.join(where, name))
            except OSError as error:
                failed(error)
                continue
            if stat.S_ISREG(status.st_mode):
                sizes[name] = status.st_size
            else:
                unreadable.add(paths.shown(os.path.join(where, name)), 0, "no regular file")
        return sizes

    for top in directories:
        for where, below, names in os.walk(top, onerror=failed):
            below.sort()
            if where in seen:
                continue
            seen.add(where)
            sizes = sizes_of(where, names)
            if "run.json" in sizes:
                for inner, within, more in os.walk(where):
                    within[:] = sorted(
                        name
                        for name in within
                        if not os.path.exists(os.path.join(inner, name, "run.json"))
                    )
                    if inner != where:
                        seen.add(inner)
                        sizes |= {
                            os.path.join(os.path.relpath(inner, where), name): size
                            for name, size in sizes_of(inner, more).items()
                        }
            if any(_is_log(os.path.basename(name)) or name == "run.json" for name in sizes):
                yield RunDirectory(Path(where), sizes)


def is_of_a_run(name: str) -> bool:
    """Return whether an import reads a file of this name."""
    return _is_log(name) or name in DESCRIPTIONS


def _is_log(name: str) -> bool:
    return name == load_points.LOAD_FILE or _OWN_LOG.fullmatch(name) is not None


def with_logs(directories: Sequence[Path], names: PathNames = AS_ON_DISK) -> list[Path]:
    """Return the directories without links.

    Raises :class:`BadInput` if a path is no directory, or if no directory has logs.
    """
    if other := next((directory for directory in directories if not directory.is_dir()), None):
        raise BadInput(
            f"{names.shown(other)} is not a directory: name a directory with operation logs, at "
            "any depth; nothing was written"
        )
    tops = [directory.resolve() for directory in directories]
    if next(find_runs(tops, Flaws()), None) is None:
        raise BadInput(
            f"no operation logs in {', '.join(map(names.shown, tops))}: looked for files *.log, "
            "*.jsonl or *.log.1, as --log-operations writes them, for load.json, and for the "
            "logs that the authors of ARES published; nothing was written"
        )
    return tops


def import_runs(
    database: sqlite3.Connection,
    directories: Sequence[Path],
    progress: Progress,
    names: PathNames = AS_ON_DISK,
) -> ImportReport:
    """Import the runs in ``directories``.

    Raises the errors of :func:`with_logs` and of the database.
    """
    tops = with_logs(directories, names)
    total = sum(sum(run.sizes.values()) for run in find_runs(tops, Flaws()))
    importer = _Importer(database, total, progress, names)
    for run in find_runs(tops, importer.report.unreadable, names):
        importer.add(run)
    return importer.report


class _Importer:
    """The import of several runs, in sequence."""

    def __init__(
        self, database: sqlite3.Connection, total: int, progress: Progress, names: PathNames
    ) -> None:
        self.report = ImportReport()
        self._names = names
        self._database, self._total, self._progress = database, total, progress
        self._done = 0

    def add(self, directory: RunDirectory) -> None:
        name = self._names.shown(directory.path)
        self._label = shown_path(directory.path.name)
        run = describe(
            directory.path,
            set(directory.sizes),
            lambda file, why: self.report.malformed.add(f"{name}/{file}", 0, why),
        )
        if run.name == shown_path(directory.path):
            run.name = name
        logs = sorted(self._logs(directory, run.published), key=_in_order)
        if self._is_left_out(directory, run, {directory.path / log: kind for log, kind, _ in logs}):
            self._done += sum(directory.sizes.values())
            return
        self.report.runs += 1
        self._run, self._is_published = self._register(name, run), run.published
        self._follow_rotation(directory)
        self._recall()
        for file, kind, client in logs:
            self._file(directory.path / file, kind, client)
            self._done += directory.sizes[file]

    def _is_left_out(
        self, directory: RunDirectory, run: RunDescription, kinds: dict[Path, str]
    ) -> bool:
        """Return whether another directory has the same run; take over a run with fewer lines."""
        name = self._names.shown(directory.path)
        paths = [self._names.shown(path) for path in kinds]
        if self._is_known("runs", [name]) or self._is_known("files", paths):
            return False
        copy = find_copy(self._database, directory.path, run, kinds, self._names)
        if copy is None:
            return False
        if copy.is_held and not copy.is_longer:
            self.report.copies.add(name, 0, _COPY.format(copy.path))
            return True
        if copy.is_held:
            self.report.copies.add(copy.path, 0, _COPY.format(name))
        with transaction(self._database):
            self._database.execute("UPDATE runs SET path = ? WHERE id = ?", (name, copy.run))
            self._database.executemany(
                "UPDATE files SET path = ? WHERE id = ?",
                [(self._names.shown(path), file.id) for path, file in copy.logs.items()],
            )
        return False

    def _is_known(self, table: str, paths: list[str]) -> bool:
        asked = f"SELECT 1 FROM {table} WHERE path = ?"
        return any(self._database.execute(asked, (path,)).fetchone() for path in paths)

    def _register(self, path: str, run: RunDescription) -> int:
        columns = [name for name in run.__struct_fields__ if name != "published"]
        values = [
            getattr(run, name) if name != "level" else run.level or "user" for name in columns
        ]
        sentence = (
            f"INSERT INTO runs (path, {', '.join(columns)}) VALUES (?{', ?' * len(columns)}) ON "
            "CONFLICT (path) DO UPDATE SET "
        )
        kept = [f"{name} = excluded.{name}" for name in columns if run.level or name != "level"]
        self._database.execute(sentence + ", ".join(kept), [path, *values])
        return int(
            self._database.execute("SELECT id FROM runs WHERE path = ?", (path,)).fetchone()[0]
        )

    def _logs(
        self, directory: RunDirectory, published: bool
    ) -> Iterator[tuple[str, str, str | None]]:
        """Yield name, kind and client of each log."""
        for path in directory.sizes:
            name = os.path.basename(path)
            if name in DESCRIPTIONS:
                continue
            if not published:
                yield (
                    path,
                    _FILE_KINDS.get(name) or ("trace" if ".otlp.jsonl" in name else "main"),
                    None,
                )
            elif found := _PUBLISHED_LOG.fullmatch(name):
                yield (
                    path,
                    "phase1" if found[3] else "read_file" if found[2] == "read_file" else "main",
                    found[1],
                )
            elif directory.sizes[path]:
                self.report.unreadable.add(
                    self._names.shown(directory.path / path),
                    0,
                    "it is not named as a client's log of such a run",
                )

    def _follow_rotation(self, directory: RunDirectory) -> None:
        """Keep the rows of files renamed by a rotation, and of the dropped oldest file."""
        known = known_files(self._database, "run_id = ?", self._run)
        paths = (
            {
                self._names.shown(directory.path / name): directory.path / name
                for name in directory.sizes
            }
            if known
            else {}
        )
        inodes = {_inode(path): shown for shown, path in paths.items()}
        renamed = {
            file.id: inodes[file.inode]
            for file in known
            if inodes.get(file.inode, file.path) != file.path
        }
        renamed = {
            file.id: renamed[file.id]
            for file in known
            if file.id in renamed and begins_with(paths[renamed[file.id]], file)
        }
        with transaction(self._database):
            for file in known:
                if file.id in renamed or file.path in renamed.values():
                    self._database.execute(
                        "UPDATE files SET path = ? WHERE id = ?",
                        (f"{file.path} (rotated away, {file.id})", file.id),
                    )
            self._database.executemany(
                "UPDATE files SET path = ? WHERE id = ?",
                [(path, id) for id, path in renamed.items()],
            )

    def _recall(self) -> None:
        """Read the clock of the run and the number of spans, as earlier imports left them."""
        self._shifts: dict[str | None, int] = {}
        self._first_s: float | None = None
        for file in known_files(self._database, "run_id = ? AND shift_s IS NOT NULL", self._run):
            self._shifts[file.client] = file.shift_s or 0
            first = self._database.execute(
                "SELECT began_s FROM operations WHERE file_id = ? ORDER BY line LIMIT 1", (file.id,)
            ).fetchone()
            self._first_s = first[0] if first and self._first_s is None else self._first_s
        count = "SELECT count(*) FROM files f JOIN spans s ON s.file_id = f.id WHERE f.run_id = ?"
        self._spans = int(self._database.execute(count, (self._run,)).fetchone()[0])

    def _file(self, path: Path, kind: str, client: str | None) -> None:
        shown = self._names.shown(path)
        try:
            with open_log(path) as opened:
                status = os.fstat(opened.fileno())
                file = next(iter(known_files(self._database, "path = ?", shown)), None)
                if file and (file.inode, file.modified_ns, file.read_bytes) == (
                    status.st_ino,
                    status.st_mtime_ns,
                    status.st_size,
                ):
                    return
                if not file and not status.st_size:
                    return
                hasher = digest_of(opened, file.read_bytes if file else 0)
                if (
                    file
                    and file.read_bytes
                    and (status.st_size < file.read_bytes or hasher.hexdigest() != file.digest)
                ):
                    self.report.read_again += 1
                    self._forget(file.id)
                    file, hasher = None, digest_of(opened, 0)
                if not file and (
                    twin := find_twin(self._database, self._run, path, kind, self._names)
                ):
                    self.report.copies.add(shown, 0, _TWIN.format(twin.path))
                    return
                if not file:
                    row = (self._run, shown, kind, client, status.st_ino)
                    made = self._database.execute(
                        "INSERT INTO files (run_id, path, kind, client, inode) VALUES (?, ?, ?, "
                        "?, ?)",
                        row,
                    )
                    file = LogFile(int(made.lastrowid or 0), shown, kind, client, status.st_ino)
                file.inode, file.modified_ns = status.st_ino, status.st_mtime_ns
                self.report.files += 1
                self._read(file, LogLines(opened, hasher, file.read_bytes))
        except OSError as error:
            self.report.unreadable.add(shown, 0, str(error.strerror))

    def _forget(self, id: int) -> None:
        with transaction(self._database):
            for table in OF_A_FILE:
                self._database.execute(f"DELETE FROM {table} WHERE file_id = ?", (id,))
            self._database.execute("DELETE FROM files WHERE id = ?", (id,))

    def _read(self, file: LogFile, lines: LogLines) -> None:
        rows: list[tuple[Any, ...]] = []
        bad: list[tuple[int, int, str]] = []
        begin = file.lines
        for line in lines:
            file.lines += 1
            try:
                if line is None:
                    raise ValueError(f"longer than {LINE_BYTES_MAX >> 20} MiB")
                if not line.isspace():
                    rows += self._rows(file, line)
            except (ValueError, RecursionError) as error:
                file.malformed += 1
                why = printable(str(error))
                self.report.malformed.add(file.path, file.lines, why)
                if file.malformed <= BAD_LINES_KEPT:
                    bad.append((file.id, file.lines, why))
            if (
                file.lines - begin >= IMPORT_BATCH_LINES
                or lines.position - file.read_bytes >= IMPORT_BATCH_BYTES
            ):
                self._commit(file, lines, rows, bad)
                rows, bad, begin = [], [], file.lines
        self._commit(file, lines, rows, bad)
        if lines.is_unfinished:
            self.report.unfinished.add(
                file.path, file.lines + 1, "the line has no end yet, and is read when it has"
            )

    def _rows(self, file: LogFile, line: bytes) -> list[tuple[Any, ...]]:
        """Return the rows of a line. Raises ValueError if the line does not fit the file."""
        place = (file.id, file.lines, self._run)
        if file.kind == "trace":
            bad: list[int] = []
            spans = list(read_spans([line], bad))
            if bad:
                raise ValueError("no line of spans, or cut off")
            taken = spans[: max(RUN_SPANS_MAX - self._spans, 0)]
            self._spans += len(taken)
            self.report.spans += len(taken)
            self.report.left_out += len(spans) - len(taken)
            file.passed_over += len(spans) - len(taken)
            about = [(s, msgspec.json.encode(s.attributes).decode()) for s in taken]
            return [
                (
                    *place,
                    s.trace,
                    s.id,
                    s.parent,
                    s.name,
                    s.began_ns,
                    s.ended_ns,
                    s.kind,
                    text,
                    s.error or None,
                )
                for s, text in about
            ]
        if file.kind == "load":
            points = read_points(line)
            self.report.points += len(points)
            return [(file.id, number, self._run, *rest) for number, *rest in points]
        if file.kind == "events":
            event = read_event(line)
            self.report.events += 1
            return [(*place, *event)]
        if (row := read_operation(line, file.client)) is None:
            file.passed_over += 1
            self.report.passed_over += 1
            return []
        self.report.operations += 1
        if self._is_published and (shift_s := self._shift_s(file, row[BEGAN_COLUMN])):
            row = (*row[:BEGAN_COLUMN], row[BEGAN_COLUMN] - shift_s, *row[BEGAN_COLUMN + 1 :])
        return [place + row]

    def _shift_s(self, file: LogFile, began_s: float) -> int:
        """Return by how much the clock of the file's host is ahead, in whole hours.

        Clients of a run begin together; their clocks differ by time zones.
        """
        if file.shift_s is None:
            self._first_s = began_s if self._first_s is None else self._first_s
            file.shift_s = self._shifts.setdefault(
                file.client, round((began_s - self._first_s) / HOUR_S) * HOUR_S
            )
        return file.shift_s

    def _commit(
        self,
        file: LogFile,
        lines: LogLines,
        rows: list[tuple[Any, ...]],
        bad: list[tuple[int, int, str]],
    ) -> None:
        before, file.read_bytes, file.digest = (
            file.read_bytes,
            lines.position,
            lines.hasher.hexdigest(),
        )
        sentence = (
            f"UPDATE files SET {', '.join(f'{name} = ?' for name in _CHANGING_FIELDS)} WHERE id "
            "= ? AND read_bytes = ?"
        )
        values = [*(getattr(file, name) for name in _CHANGING_FIELDS), file.id, before]
        with transaction(self._database):
            if self._database.execute(sentence, values).rowcount != 1:
                raise ResultsFailed(
                    f"another import reads {file.path} into the same database; nothing was lost: "
                    "wait for it, then import again"
                )
            if rows:
                self._database.executemany(
                    f"INSERT INTO {_TABLE_OF_KIND.get(file.kind, 'operations')} VALUES "
                    f"(?{', ?' * (len(rows[0]) - 1)})",
                    rows,
                )
            if (
                file.kind == "main"
                and not self._is_published
                and any(row[_LEVEL_COLUMN] == "client" for row in rows)
            ):
                self._database.execute(
                    "UPDATE runs SET level = 'client' WHERE id = ?", (self._run,)
                )
            self._database.executemany("INSERT INTO bad_lines VALUES (?, ?, ?)", bad)
        self._progress(self._done + lines.position, self._total, self._label)


def _in_order(log: tuple[str, str, str | None]) -> tuple[bool, int, str]:
    """Return the sort key of a log: measured logs first, by client.

    The clock of the first client is the clock of the run.
    """
    name, kind, client = log
    return kind in ("phase1", "read_file"), int(client or 0), name


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
