"""Logs of a process: a JSON object a line on stderr, ready to be collected and searched.

Fields: ``asctime`` (UTC, with its zone), ``levelname``, ``name``, ``message``, ``server`` (the
process's id) and the call's ``extra``.
"""

import logging
import sys
from datetime import UTC, datetime

from pythonjsonlogger.msgspec import MsgspecFormatter

from ares.model.errors import BadInput

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FIELDS = ("asctime", "levelname", "name", "message")

_log = logging.getLogger(__name__)


def is_worth_a_line(count: int) -> bool:
    """Return True for the 1st, 2nd, 4th, 8th, ... event of a kind: peers must not fill the log."""
    return count.bit_count() == 1


class LineFormatter(MsgspecFormatter):
    """A record as a line of JSON; ``asctime`` is UTC, with its zone."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")


def set_up(server: str, level: int = logging.INFO) -> None:
    """Send this process's log, from ``level`` on, to stderr as JSON lines that carry ``server``.

    Replaces any earlier set-up.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(list(LOG_FIELDS), static_fields={"server": server}))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


def set_level(name: str) -> None:
    """Log from the level ``name`` on. Raises :class:`ares.BadInput` for an unknown level."""
    if name not in LOG_LEVELS:
        raise BadInput(f"a log level is one of {', '.join(LOG_LEVELS)}, not {name!r}")
    _log.info("the log level becomes %s", name)
    logging.getLogger().setLevel(name.upper())
