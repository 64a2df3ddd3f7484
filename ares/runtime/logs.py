"""Logs of a process: one JSON object a line on stderr, so that they can be collected and searched as they are.

Fields: ``asctime`` (UTC, with its zone), ``levelname``, ``name``, ``message``, ``server`` (the process's id) and what the call gave as ``extra``.
"""

import logging
import sys
from datetime import UTC, datetime

from pythonjsonlogger.json import JsonFormatter

FIELDS = ("asctime", "levelname", "name", "message")


class _Formatter(JsonFormatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def set_up(server: str, level: int = logging.INFO) -> None:
    """Send what this process logs, from ``level`` on, to stderr as JSON lines that carry ``server``. Replaces any earlier set-up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(list(FIELDS), static_fields={"server": server}))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
