"""Operations of the database as points in InfluxDB, through its own client.

The client is in the extra `results`. For each file and InfluxDB the database notes the sent lines;
the next call continues behind them. A point sent twice counts once: time and tags identify the
point.
"""

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.exceptions import InfluxDBError
from influxdb_client.client.write_api import SYNCHRONOUS
from msgspec import Struct
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

from ares.model.errors import BadInput
from ares.results.database import ResultsFailed, transaction
from ares.tracing.tree import printable

INFLUX_BATCH_POINTS = 5_000
INFLUX_TIMEOUT_MS = 10_000
"""Longest silence of the other side, in milliseconds."""

INFLUX_BATCH_S = 60.0
"""Seconds for a batch and its whole answer, which may come byte by byte."""

WRITTEN = 204
"""InfluxDB's status for a batch received."""

WITHOUT_VERSION_2 = re.compile(r"1\.[0-7]\.")
"""Beginning of the versions of InfluxDB that have only the API of version 1."""

_RUN_TAGS = (
    "name",
    "scenario",
    "algorithm",
    "servers",
    "writers",
    "readers",
    "reconfigurers",
    "object_size",
    "k",
    "m",
    "topology",
    "iteration",
)
_POINT_FIELDS = (
    "latency_s",
    "read_config_s",
    "phase1_s",
    "phase2_s",
    "p2_read_config_s",
    "p2_put_data_s",
)


class InfluxTarget(Struct, frozen=True):
    """The destination of points. ``shown``: the destination as shown to the user and as noted."""

    url: str
    org: str
    bucket: str

    @property
    def shown(self) -> str:
        return f"{self.url} (bucket {self.bucket})"


def parse_target(url: str) -> InfluxTarget:
    """Parse `http://HOST:8086?org=ORG&bucket=BUCKET`. Raises :class:`BadInput`."""
    try:
        parts, about = (
            urlsplit(url),
            parse_qs(urlsplit(url).query, strict_parsing="?" in url and not url.endswith("?")),
        )
        right = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port or True)
            and not parts.fragment
        )
    except ValueError:
        right = False
    if not right or parts.username is not None or not about.keys() <= {"org", "bucket"}:
        raise BadInput(
            "--influx: expected http://HOST:PORT, or https, followed by nothing or by "
            "?org=ORG&bucket=BUCKET; a token, or USER:PASSWORD for InfluxDB 1, is taken from "
            "the variable INFLUXDB_V2_TOKEN. Nothing was imported"
        )
    org, bucket = (
        about.get(name, [default])[0]
        for name, default in (
            ("org", os.environ.get("INFLUXDB_V2_ORG", "ares")),
            ("bucket", "ares"),
        )
    )
    return InfluxTarget(
        urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")), org, bucket
    )


def send(
    database: sqlite3.Connection, target: InfluxTarget, progress: Callable[[int], None]
) -> int:
    """Send the operations that ``target`` lacks; return their number.

    Raises :class:`ResultsFailed`; the sent operations stay noted.
    """
    token, sent = os.environ.get("INFLUXDB_V2_TOKEN", ""), 0
    try:
        with InfluxDBClient(
            target.url,
            token,
            org=target.org,
            timeout=INFLUX_TIMEOUT_MS,
            ssl_ca_cert=os.environ.get("INFLUXDB_V2_SSL_CA_CERT"),
        ) as client:
            writer = _PointWriter(client, target, token)
            points = _points(database, target.shown)
            while batch := list(islice(points, INFLUX_BATCH_POINTS)):
                _within(INFLUX_BATCH_S, partial(writer.write, [point for _, _, point in batch]))
                if (status := client.api_client.last_response.status) != WRITTEN:
                    raise ValueError(
                        f"it answered {status} to a write, as no InfluxDB does: is that another "
                        "server?"
                    )
                with transaction(database):
                    ends = {file: line for file, line, _ in batch}
                    database.executemany(
                        "INSERT OR REPLACE INTO sent VALUES (?, ?, ?)",
                        [(target.shown, *end) for end in ends.items()],
                    )
                sent += len(batch)
                progress(sent)
    except (InfluxDBError, HTTPError, OSError, ValueError) as error:
        raise ResultsFailed(
            f"InfluxDB at {target.shown} {_why(error)}. {sent} operations were sent to it now; "
            "all that was imported is kept, and the same command sends the rest"
        ) from error
    return sent


class _PointWriter:
    """A writer of lines, by the API of version 2, or of version 1 before InfluxDB 1.8."""

    def __init__(self, client: InfluxDBClient, target: InfluxTarget, token: str) -> None:
        self._client = client
        self._target = target
        self._token = token
        self._version_1 = False

    def write(self, lines: list[str]) -> None:
        if not self._version_1:
            self._version_1 = not self._written(lines)
        if self._version_1:
            database, _, policy = self._target.bucket.partition("/")
            about = [("db", database), ("rp", policy), ("precision", "ns")]
            api = self._client.api_client
            api.default_headers = make_headers(basic_auth=self._token or None)
            plain = {"Content-Type": "text/plain"}
            api.call_api("/write", "POST", {}, about, plain, "\n".join(lines))

    def _written(self, lines: list[str]) -> bool:
        """Write by version 2, and return whether this InfluxDB has version 2."""
        try:
            api = self._client.write_api(write_options=SYNCHRONOUS)
            api.write(self._target.bucket, record=lines)
        except InfluxDBError as error:
            version = (error.headers or {}).get("X-Influxdb-Version", "")
            missing = error.response is not None and error.response.status == 404
            if not missing or not WITHOUT_VERSION_2.match(version):
                raise
            return False
        return True


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Do ``work``, and wait at most ``seconds``. Raises the error of ``work``, or TimeoutError."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="influx", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no complete answer within {seconds:g} s")
    if failed:
        raise failed[0]


def _why(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is None:
        return f"did not answer as it should: {printable(str(error))[:300]}"
    advice = {
        401: " (is INFLUXDB_V2_TOKEN right?)",
        403: " (may this token write?)",
        404: " (is there such a bucket or database?)",
    }
    return (
        f"answered {response.status} "
        f"{printable(str(response.reason))[:100]}{advice.get(response.status, '')}"
    )


def _points(database: sqlite3.Connection, target: str) -> Iterator[tuple[int, int, str]]:
    """Yield file, line and point of each unsent operation, without preparations."""
    run = ", ".join(f"r.{name}" for name in _RUN_TAGS)
    files = f"""SELECT f.id, coalesce(s.line, 0), {run} FROM files f JOIN runs r ON r.id = f.run_id
        LEFT JOIN sent s ON s.file_id = f.id AND s.target = ?
        WHERE f.kind = 'main' AND f.lines > coalesce(s.line, 0) ORDER BY f.id"""
    operations = f"""SELECT line, began_s, ok, size, level, op, client, {", ".join(_POINT_FIELDS)}
        FROM operations WHERE file_id = ? AND line > ?"""
    for file, after, *about in database.execute(files, (target,)).fetchall():
        for line, began_s, ok, size, level, op, client, *values in database.execute(
            operations + " ORDER BY line", (file, after)
        ):
            fields = [
                f"{name}={value!r}"
                for name, value in zip(_POINT_FIELDS, values, strict=True)
                if value is not None
            ]
            fields += [
                f"ok={'true' if ok else 'false'}",
                f"count={ok}i",
                *([f"size={size}i"] if size is not None else []),
            ]
            # a float has no nanoseconds: neighbours of a microsecond stay apart
            time_ns = int(began_s * 1e6) * 1000 + line % 1000
            yield file, line, f"{_head(*about, level, op, client)} {','.join(fields)} {time_ns}"


@lru_cache(1000)
def _head(*values: Any) -> str:
    """Return measurement and tags."""
    point = Point("operation").field("ok", True)
    for name, value in zip(("run", *_RUN_TAGS[1:], "level", "op", "client"), values, strict=True):
        if value is not None:
            # a backslash would escape the end of the tag
            point = point.tag(name, printable(str(value)).replace("\\", "/"))
    return str(point.to_line_protocol()).removesuffix(" ok=true")
