"""Which servers and consensus members ever started in a directory, remembered beside it.

Beside, that is in its parent, because the directory may be where a disk is mounted: then this is on another disk, and there when that one is missing.
If the parent is on the same disk, it is missing with it, and nothing is known but what the directory says (ares/cluster/home.py).
"""

import logging
from pathlib import Path

from ares.machine.durable_files import replace_durably
from ares.machine.named_files import read_named

RECORD_SUFFIX = ".started"
"""Of the file beside a directory that remembers who started in it: a line for each identity of a server in a cluster file, or a member's id."""

_BYTES_MAX = 1 << 20
_log = logging.getLogger(__name__)


def record_of(directory: Path) -> Path:
    """The file beside ``directory`` that remembers who started in it."""
    return directory.parent / f"{directory.name}{RECORD_SUFFIX}"


def was_started(directory: Path, name: str) -> bool:
    """Whether it is remembered beside ``directory`` that ``name`` started in it."""
    return name in _names_in(record_of(directory))


def remember_start(directory: Path, name: str) -> None:
    """Remember beside ``directory``, on stable storage, that ``name`` starts in it; to be done before it says anything to anybody. Idempotent.

    Where nothing can be written there, that is only logged: the directory itself says who started in it, and this is for the day when it is gone.
    """
    record = record_of(directory)
    try:
        names = _names_in(record)
        if name not in names:
            replace_durably(record, "".join(f"{line}\n" for line in (*names, name)))
    except OSError as error:
        then = "nothing but the directory itself will tell whether anything ran there, should its disk be missing one day"
        _log.warning("this start cannot be remembered in %s (%s): %s", record, error.strerror, then)


def forget_starts(directory: Path) -> None:
    """Whoever started in ``directory`` may be new there again. Raises OSError."""
    record_of(directory).unlink(missing_ok=True)


def _names_in(record: Path) -> list[str]:
    try:
        return read_named(record, _BYTES_MAX, streams=False)[0].decode("ascii", "replace").split()
    except FileNotFoundError:
        return []
