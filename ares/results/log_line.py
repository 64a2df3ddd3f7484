"""A line of an operation log as a row of the table `operations`.

Two formats: the format of this project, and the format of the authors' published logs (DSMM and
user level). A log has a line for each operation that ended. A line of no operation (a new
connection, an absent file) has no row.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from ares.model.units import DAY_S

LINE_SECONDS_MAX = 9e9
"""Latest time of a log line, in the year 2255; nanoseconds in 64 bits end soon after."""

ERROR_TEXT_MAX = 500
"""Characters of an error that are kept."""

BEGAN_COLUMN = 4
Row = tuple[Any, ...]
"""A row of `operations` without the first columns.

level, op, client, ok, began_s, clock_s, latency_s, size, five phases, error, more. BEGAN_COLUMN is
the index of began_s.
"""

_COMPLETE_MESSAGE = re.compile(r"(READ|WRITE|DELETE|RECONFIG|LIST)-COMPLETE(-DSMM)?")
_OPS = {"RECONFIG": "recon", "reconfigure": "recon"}
_OP = re.compile(r"[a-z][a-z_]{0,31}")
_Seconds = Annotated[float, Meta(ge=0, lt=LINE_SECONDS_MAX)]


class _LogLine(Struct, frozen=True, gc=False):
    """The fields of a line with columns of their own."""

    message: str
    asctime: str = ""
    levelname: Any = None
    name: Any = None
    status: Literal["SUCCESS", "UNSUCCESS"] | list[str | None] | None = None
    outcome: str = "ok"
    op: str | None = None
    client: str | int | None = field(default=None, name="clientID")
    op_latency_start: _Seconds | None = None
    op_latency_end: Any = None
    op_latency: _Seconds | None = None
    file_size: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    read_config_latency_total: _Seconds | None = None
    phase1_latency: _Seconds | None = None
    phase2_latency: _Seconds | None = None
    p2_read_config_time_total: _Seconds | None = None
    p2_put_data_time_total: _Seconds | None = None
    error: Any = None


_TAKEN = frozenset(_LogLine.__struct_encode_fields__) - {"outcome"}
_decode_line = msgspec.json.Decoder(_LogLine).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def read_operation(line: bytes, client: str | None) -> Row | None:
    """Return the row of a line, or None for a line of no operation.

    ``client``: the client of the log, if the name of the file says so. ``began_s``: a time without
    a zone counts as UTC. Raises ValueError, or RecursionError, for a line that fits no log.
    """
    content = _decode_line(line)
    if (found := _COMPLETE_MESSAGE.fullmatch(content.message)) is None:
        return None
    # may be ["SUCCESS", null]; reconfigurations have no status
    status = (
        content.status if not isinstance(content.status, list) else next(iter(content.status), None)
    )
    ok = status in (None, "SUCCESS") and content.outcome == "ok"
    if ok and content.op_latency is None:
        raise ValueError("an operation that succeeded, without op_latency")
    client_name = content.client if client is None else client
    op = content.op or found[1]
    op = _OPS.get(op, op.lower())
    if client_name is None or not _OP.fullmatch(op):
        raise ValueError("no clientID" if client_name is None else "op is no name of an operation")
    return (
        *("client" if found[2] else "user", op, str(client_name)[:ERROR_TEXT_MAX], int(ok)),
        *(
            max(_seconds(content.asctime, "asctime") - (content.op_latency or 0), 0),
            content.op_latency_start,
            content.op_latency,
            content.file_size,
        ),
        *(
            content.read_config_latency_total,
            content.phase1_latency,
            content.phase2_latency,
            content.p2_read_config_time_total,
            content.p2_put_data_time_total,
        ),
        *(None if content.error is None else str(content.error)[:ERROR_TEXT_MAX], _rest(line)),
    )


def _rest(line: bytes) -> str | None:
    """Return the fields without a column of their own, as JSON.

    Early logs list the DAPs met by the operation; later logs, and this function, count the
    configurations of each DAP.
    """
    rest = _decode(line)
    for name in _TAKEN:
        rest.pop(name, None)
    if rest.get("outcome") != "unknown":
        rest.pop("outcome", None)  # the column `ok` says the same
    if isinstance(daps := rest.get("dap_protocols"), list):
        rest["dap_protocols"] = {str(dap): daps.count(dap) for dap in daps}
    return _encode(rest).decode() if rest else None


def read_event(line: bytes) -> Row:
    """Return at_s, what, server and detail of a line of `events.jsonl`. Raises ValueError."""
    content = msgspec.json.decode(line)
    if not isinstance(content, dict) or not isinstance(what := content.get("event"), str):
        raise ValueError("no object with an event")
    server, detail = (
        None if content.get(name) is None else str(content[name]) for name in ("server", "detail")
    )
    return _seconds(content.get("time"), "time"), what, server, detail


def _seconds(text: Any, name: str) -> float:
    """Return seconds since 1970 of a time in ISO 8601, also with a comma.

    A time without a zone counts as UTC. Raises ValueError.
    """
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is no time") from None
    if not DAY_S < seconds < LINE_SECONDS_MAX:
        raise ValueError(f"{name} is out of all bounds")
    return seconds
