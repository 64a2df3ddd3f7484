"""The operation log: a line of JSON for each finished operation of a client, done or failed.

Experiments and `ares-cli results` read the log.
"""

import contextlib
import errno
import logging
import os
import sys
from collections import OrderedDict
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from ares.engine.recording import Recording
from ares.model.errors import BadInput
from ares.model.identity import ClientId
from ares.platform.json_logs import LOG_FIELDS, LineFormatter
from ares.tracing.outcomes import line_of

LOG_FILE_BYTES = 256 * 1024 * 1024
LOG_FILES = 16
"""Number of files kept; the oldest is removed. A line has about a kilobyte."""

TAGS_REMEMBERED = 10_000

MORE_FIELDS: ContextVar[dict[str, Any]] = ContextVar("more of a line", default={})  # noqa: B039 - never changed
"""Additional fields of the lines of operations that end in this context."""

_log = logging.getLogger(__name__)


class OperationLog:
    """The log in the file ``path``, extended at its end; `%p` becomes the process id.

    Raises :class:`BadInput` where the file cannot be written.
    """

    def __init__(self, path: str | Path, client: ClientId) -> None:
        self.path = Path(str(path).replace("%p", str(os.getpid())))
        self._client = f"{client:016x}"
        self._count = 0
        self._tags: OrderedDict[tuple[str, str], Any] = OrderedDict()
        try:
            self._file = _LogFile(
                self.path, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8"
            )
        except (OSError, ValueError) as error:  # ValueError: a name impossible for a file
            why = getattr(error, "strerror", None) or error
            if getattr(error, "errno", 0) == errno.ENXIO:
                why = "no process reads this pipe"
            raise BadInput(
                f"operations cannot be logged to {str(self.path)!r}: {why}; nothing was sent"
            ) from error

    def write(
        self, recording: Recording, label: object, result: object, error: BaseException | None
    ) -> None:
        """Write the line of a finished operation.

        For an operation with more parts than are kept, the line gives the number of missing parts.
        """
        line = line_of(recording, label, result, error)
        self._count += 1
        place = (line.get("domain", ""), line["objectID"])
        line |= {
            "clientID": self._client,
            "opID": f"{line['op']}-{self._client}-{self._count}",
            "oldTag": self._tags.get(place),
        }
        if recording.dropped:
            line["parts_dropped"] = recording.dropped
        line |= MORE_FIELDS.get()
        if (known := line["newTag"] or line["maxTag"]) is not None and error is None:
            self._tags[place] = known
            self._tags.move_to_end(place)
            if len(self._tags) > TAGS_REMEMBERED:
                self._tags.popitem(last=False)
        self._file.handle(
            logging.LogRecord("ares.operations", logging.INFO, "", 0, line, None, None)
        )

    def close(self) -> None:
        """Close the file. Idempotent."""
        with contextlib.suppress(OSError):  # a full disk may be full at the end, too
            self._file.close()


class _LogFile(RotatingFileHandler):
    """A log file: a full disk costs lines, not operations, and is reported once.

    Pipes and devices do not begin again, nor does the file behind /dev/stdout.
    """

    def __init__(self, path: Path, **how: Any) -> None:
        super().__init__(path, **how)
        self.setFormatter(LineFormatter(list(LOG_FIELDS)))
        self._failed = 0
        self._begins_again = os.path.isfile(self.baseFilename) and not self.baseFilename.startswith(
            ("/dev/", "/proc/")
        )

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=_opened_at_once)

    def shouldRollover(
        self, record: logging.LogRecord
    ) -> bool:  # the library's method makes the line once more to know its length
        return (
            self._begins_again and self.stream is not None and self.stream.tell() >= self.maxBytes
        )

    def handleError(self, record: logging.LogRecord) -> None:
        self._failed += 1
        if self._failed == 1:
            _log.warning(
                "lines are missing in %s from now on, and operations go on: %s",
                self.baseFilename,
                sys.exc_info()[1],
            )


def _opened_at_once(path: str, flags: int) -> int:
    """Open a file at once; a pipe without a reader is an error.

    Waiting for a reader would hold up the whole process.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor
