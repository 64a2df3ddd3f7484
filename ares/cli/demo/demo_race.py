"""The last step of the demo: rivals put the same keys through a gateway, and each key has a winner.

The putters are threads with plain HTTP, as S3 clients in other programs would be.
"""

import asyncio
import hashlib
import http.client
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ares.cli.local.local_gateway import first_access_key, start_gateway
from ares.cli.local.supervisor import GATEWAY_ID, Supervisor
from ares.cli.local.up_commands import START_TIMEOUT_S
from ares.client.manager import Manager
from ares.model.errors import AresError

if TYPE_CHECKING:
    from ares.gateway.access.sealed_keys import AccessKey

RACE_BUCKET = "race"
RACE_PUTTERS = 8
RACE_KEYS = 20
RACE_VALUE_BYTES = 64 * 1024
"""Size of a value: too large for the index, so that all servers take part."""

RACE_KILLED = "s4"
"""A server with data, and not in the chain that orders the changes."""

RACE_KILL_AFTER_S = 0.2
RACE_ANSWER_S = 60.0


class RaceResult(Struct, frozen=True):
    """The result of a race. ``one_winner``: each key has one winner, and holds its value."""

    one_winner: bool
    losers: int
    seconds: float


class GatewayClient:
    """A client of a gateway with a connection of its own."""

    def __init__(self, address: tuple[str, int], key: "AccessKey") -> None:
        self._key = key
        self._connection = http.client.HTTPConnection(*address, timeout=RACE_ANSWER_S)

    def ask(
        self, method: str, path: str, body: bytes = b"", condition: str = ""
    ) -> tuple[int, bytes]:
        """Return the status and the body of the answer. ``condition``: a value of If-None-Match."""
        more = {"if-none-match": condition} if condition else {}
        headers = signed_headers(self._key, method, path, body, more)
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def put_if_absent(self, number: int) -> list[int]:
        """Put every key if it is absent; return the statuses."""
        body = race_value(number)
        return [self.ask("PUT", race_path(key), body, "*")[0] for key in range(RACE_KEYS)]


def race_path(key: int) -> str:
    return f"/{RACE_BUCKET}/{key:02}"


def race_value(putter: int) -> bytes:
    return bytes([putter]) * RACE_VALUE_BYTES


def signed_headers(
    key: "AccessKey", method: str, path: str, body: bytes, more: dict[str, str]
) -> dict[str, str]:
    """Return the headers of a request, signed as S3 wants (version 4)."""
    from ares.gateway.s3.exchange import Headers, HttpRequest
    from ares.gateway.signing.canonical_request import canonical_request
    from ares.gateway.signing.credential_scope import SIGNING_ALGORITHM, signed_text, signing_key

    stamp, digest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), hashlib.sha256(body).hexdigest()
    told = {"host": "ares", "x-amz-date": stamp, "x-amz-content-sha256": digest} | more
    raw = Headers(tuple((name.encode(), value.encode()) for name, value in told.items()))
    request = HttpRequest(method, path.encode(), b"", raw, False, "", _nothing())
    names, day, region = tuple(sorted(told)), stamp[:8], "us-east-1"
    canonical = hashlib.sha256(canonical_request(request, [], names, digest)).hexdigest()
    scope = f"{day}/{region}/s3/aws4_request"
    text = f"{SIGNING_ALGORITHM}\n{stamp}\n{scope}\n{canonical}"
    signature = signed_text(signing_key(key.secret, day, region), text)
    told["authorization"] = (
        f"{SIGNING_ALGORITHM} Credential={key.id}/{scope}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )
    return told


async def _nothing() -> AsyncIterator[bytes]:
    """Yield no piece: a signature covers the digest of the body."""
    nothing: tuple[bytes, ...] = ()
    for piece in nothing:
        yield piece


async def race(
    manager: Manager, cluster_file: Path, supervisor: Supervisor, kill: Callable[[str], None]
) -> RaceResult:
    """Start a gateway, let rivals put the same keys while a server is killed, and judge.

    Raises :class:`AresError` if the gateway cannot be started.
    """
    key = await first_access_key(manager, cluster_file)
    if key is None:
        raise AresError("the demo's cluster has an access key already")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with supervisor.alone():
        at = f"{address[0]}:{address[1]}"
        await asyncio.to_thread(start_gateway, supervisor, at, START_TIMEOUT_S, lambda: False)
    try:
        putters = [GatewayClient(address, key) for _ in range(RACE_PUTTERS)]
        await asyncio.to_thread(putters[0].ask, "PUT", f"/{RACE_BUCKET}")
        begin = time.perf_counter()
        racing = asyncio.gather(
            *(
                asyncio.to_thread(putter.put_if_absent, number)
                for number, putter in enumerate(putters)
            )
        )
        await asyncio.sleep(RACE_KILL_AFTER_S)
        kill(RACE_KILLED)
        statuses = await racing
        seconds = time.perf_counter() - begin
        values = await asyncio.to_thread(
            lambda: [putters[0].ask("GET", race_path(key))[1] for key in range(RACE_KEYS)]
        )
    finally:
        await asyncio.to_thread(supervisor.stop, [GATEWAY_ID])
    return _judged(statuses, values, seconds)


def _judged(statuses: list[list[int]], values: list[bytes], seconds: float) -> RaceResult:
    """Return the result. ``statuses``: of each putter, by key; ``values``: read back, by key."""
    fair, losers = True, 0
    for key, value in enumerate(values):
        answers = [of_putter[key] for of_putter in statuses]
        winners = [number for number, status in enumerate(answers) if status == 200]
        fair = fair and len(winners) == 1 and value == race_value(winners[0])
        losers += answers.count(412)
    return RaceResult(fair and losers == RACE_KEYS * (RACE_PUTTERS - 1), losers, seconds)
