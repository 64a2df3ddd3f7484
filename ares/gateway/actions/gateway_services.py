"""The services of a gateway, and an operation under way with its request."""

from collections.abc import Callable
from time import time
from typing import Any
from weakref import WeakKeyDictionary

from blake3 import blake3
from msgspec import Struct, field

from ares.bucket.bucket_state import BucketState
from ares.bucket.commands import ChangingOperation
from ares.bucket.index_records import BucketEntry
from ares.client.buckets.buckets import Buckets
from ares.client.buckets.index_changes import ChangeAnswer, ClientRequest
from ares.gateway.access.grants import Caller
from ares.gateway.access.request_look import RequestLook
from ares.gateway.actions.error_table import POSITION_HEADER, outcome_error
from ares.gateway.s3.exchange import HttpResponse, S3Request
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.decoded_body import DecodedBody

DOCUMENT_BYTES_MAX = 4 * 1024**2
"""Bytes of a document in the body of a request."""

WATCHES_MAX = 128
"""Watches under way in a process. Each holds at most 1 MiB of the log, and no queue."""

WATCHES_OF_KEY_MAX = 32
"""Watches of an access key in a process: a client leaves room for the others."""

INVOCATION_HEADER = "amz-sdk-invocation-id"
ATTEMPT_HEADER = "amz-sdk-request"
_INVOCATION_BYTES = 16
_LATER_ATTEMPT = 2

HeaderLines = list[tuple[str, str]]


class GatewayServices(Struct, eq=False):
    """The services that operations use. ``clock``: seconds since 1970, shown to people.

    ``timeout_s`` bounds a standstill. ``watches``: the bodies of answers to
    watches, with the access keys.
    """

    buckets: Buckets
    timeout_s: float = 30.0
    clock: Callable[[], float] = time
    region: str = "us-east-1"
    watches: WeakKeyDictionary[Any, str] = field(default_factory=WeakKeyDictionary)


class GatewayCall(Struct, eq=False):
    """An operation under way. ``look``: of the request, perhaps done for its key already."""

    services: GatewayServices
    request: S3Request
    caller: Caller
    look: RequestLook
    body: DecodedBody | None = None

    @property
    def bucket(self) -> str:
        return self.request.bucket

    @property
    def key(self) -> str:
        return self.request.key

    @property
    def buckets(self) -> Buckets:
        return self.services.buckets

    @property
    def timeout_s(self) -> float:
        return self.services.timeout_s

    def header(self, name: str) -> str:
        return self.request.http.headers.get(name)

    def query(self, name: str) -> str:
        return self.request.query.get(name, "")

    # -- the index ---------------------------------------------------------------------------------

    async def verified(self) -> BucketState:
        """Return the index at a tail of the log. Raises :class:`S3Error` without the bucket."""
        state = (await self.look.verified()).state
        self.bucket_in(state)
        return state

    def bucket_in(self, state: BucketState) -> BucketEntry:
        """Return the entry of the bucket. Raises :class:`S3Error` without the bucket."""
        entry = state.bucket(self.bucket)
        if entry is None:
            raise S3Error(S3Code.NoSuchBucket, headers=position_headers(state))
        return entry

    @property
    def client_request(self) -> ClientRequest | None:
        """Return the id that the client's library gives to all attempts at this request, if any.

        The id is of the access key: no client meets the results of another one.
        """
        given = self.header(INVOCATION_HEADER)
        if not given:
            return None
        named = f"{self.caller.access_key}\0{given}".encode()
        return ClientRequest(
            blake3(named).digest(_INVOCATION_BYTES), attempt_number(self.header(ATTEMPT_HEADER))
        )

    async def answer(self, operation: ChangingOperation) -> ChangeAnswer:
        """Give a command without data to the log, and return the fold's answer."""
        return await self.buckets.give(operation, self.timeout_s, self.client_request)

    async def change(self, operation: ChangingOperation) -> ChangeAnswer:
        """Give a command to the log. Raises :class:`S3Error` unless the change was made."""
        answer = await self.answer(operation)
        check_done(answer)
        return answer

    # -- the body ----------------------------------------------------------------------------------

    async def document(self) -> bytes:
        """Return the document in the body. Raises :class:`S3Error` if the document is too long."""
        kept = bytearray()
        if self.body is not None:
            async for piece in self.body:
                if len(kept) + len(piece) > DOCUMENT_BYTES_MAX:
                    raise S3Error(S3Code.EntityTooLarge, "The document in the body is too long.")
                kept += piece
        return bytes(kept)


def attempt_number(text: str) -> int:
    """Return N of ``attempt=N; max=M``; without a number a later attempt, which is the safe side.

    An early failure is told to a first attempt alone.
    """
    for pair in text.split(";"):
        name, _, number = pair.strip().partition("=")
        if name == "attempt" and number.isascii() and number.isdigit() and len(number) <= 4:
            return max(int(number), 1)
    return _LATER_ATTEMPT


def check_done(answer: ChangeAnswer) -> None:
    """Raise the error for the outcome of a change that was not made."""
    if not answer.result.done:
        raise outcome_error(answer.result.outcome, answer.index.state.position)


def position_headers(state: BucketState) -> dict[str, str]:
    return {POSITION_HEADER: str(state.position)}


def told(
    state: BucketState, headers: HeaderLines | None = None, body: bytes = b"", status: int = 200
) -> HttpResponse:
    """Return an answer with the position of the index; a ``body`` is XML."""
    lines = [*(headers or []), *position_headers(state).items()]
    if body:
        lines.append(("Content-Type", "application/xml"))
    return HttpResponse(status, lines, body)
