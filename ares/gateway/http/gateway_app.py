"""The way of a request through the gateway: admission, meaning, signature, grants, action, answer.

Before its admission only the head of a request is read. The body is read after the checks of the
signature and the grants, except the fields of a form, which contain these; few forms are read at a
time. Memory is taken by admitted requests, and by no strangers.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from email.utils import formatdate
from typing import cast

from msgspec import Struct

from ares.bucket.bucket_state import BucketState
from ares.gateway.access.access_keys import AccessKeys
from ares.gateway.access.grants import Caller
from ares.gateway.access.request_look import RequestLook
from ares.gateway.actions.action_table import STREAM_COST_BYTES, act, cost_of
from ares.gateway.actions.bucket_actions import CORS_CONFIGURATION
from ares.gateway.actions.error_table import s3_error
from ares.gateway.actions.form_upload import form_request, read_form
from ares.gateway.actions.gateway_services import GatewayServices
from ares.gateway.http.access_log import AccessLine, AccessLog
from ares.gateway.http.gateway_admission import GatewayAdmission, too_busy
from ares.gateway.http.gateway_limits import HEAD_S
from ares.gateway.http.http_exchange import ConnectionCut, HttpExchange, declared_length
from ares.gateway.s3.exchange import HttpResponse, S3Operation, S3Request
from ares.gateway.s3.parsing import parse_request
from ares.gateway.s3.rules.cors_rules import cors_headers, decode_cors, preflight_answer
from ares.gateway.s3.s3_dates import iso_date
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.decoded_body import DecodedBody, LengthRange, decoded_body
from ares.gateway.signing.payload_form import anonymous_payload
from ares.gateway.signing.post_form import form_body, form_signature_of, verify_form
from ares.gateway.signing.request_signature import signature_of
from ares.gateway.signing.signature_check import verify
from ares.metrics import GatewayTraffic
from ares.model.errors import AresError
from ares.platform import tasks
from ares.platform.json_logs import is_worth_a_line
from ares.tracing.request_spans import RequestSpans

FORMS_READ_MAX = 32
"""Forms at a time whose fields are read: their senders are not known yet."""

_NO_OPERATION = "Unknown"
_CUT = "ConnectionCut"
"""The error of an answer that the client did not get wholly, in the access log."""
_WATCHES = (S3Operation.WATCH, S3Operation.LISTEN_EVENTS)
_READING_METHODS = ("GET", "HEAD")

_log = logging.getLogger(__name__)


class GatewayParts(Struct, eq=False):
    """The parts of a gateway's process. ``domains``: names below which a host names a bucket.

    ``access_log``: None without one.
    """

    services: GatewayServices
    keys: AccessKeys
    admission: GatewayAdmission
    traffic: GatewayTraffic
    spans: RequestSpans
    domains: Sequence[str] = ()
    access_log: AccessLog | None = None


class LetIn(Struct, eq=False):
    """A request that may be carried out."""

    request: S3Request
    caller: Caller
    body: DecodedBody


class GatewayApp:
    """The application: :meth:`serve` answers a request."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._forms = 0
        self._failed = 0
        self._ids = map("{:016X}".format, itertools.count(secrets.randbits(62)))

    async def serve(self, exchange: HttpExchange) -> None:
        """Answer a request. Raises ConnectionCut if the connection must end."""
        traffic = self._parts.traffic
        time_s, look = self._parts.services.clock(), self._parts.keys.look()
        run = RequestRun(exchange, next(self._ids), time_s, look)
        try:
            await self._serve(run)
        except ConnectionCut:
            traffic.cut += 1
            raise
        finally:
            traffic.requests[run.operation, exchange.status] += 1
            traffic.received_bytes += exchange.body.received
            traffic.sent_bytes += exchange.sent_bytes
            waits = (
                traffic.reading if exchange.request.method in _READING_METHODS else traffic.writing
            )
            waits.add(time.perf_counter() - run.begun_s)
            if self._parts.access_log is not None:
                self._parts.access_log.note(run.access_line(self._parts.access_log.server))

    async def _serve(self, run: "RequestRun") -> None:
        """Answer a request, with an error if need be."""
        try:
            with ExitStack() as admitted:
                admitted.enter_context(self._parts.admission.request())
                await self._answer(run, admitted)
                return
        except ConnectionCut:
            raise
        except S3Error as error:
            failed = error
        except AresError as error:
            failed = s3_error(error, run.exchange.request.method not in _READING_METHODS)
        except Exception as error:
            tasks.failures.report("a request of the gateway", error)
            failed = S3Error(S3Code.InternalError)
        run.error = failed.code.name
        if run.exchange.begun:
            raise ConnectionCut(f"after the begin of the answer: {failed}")
        self._log_failure(run, failed)
        http = run.exchange.request
        resource = http.raw_path.decode("latin-1")
        answer = failed.answer(resource, run.id, with_body=http.method != "HEAD")
        await run.exchange.send(self._completed(run, answer))

    async def _answer(self, run: "RequestRun", admitted: ExitStack) -> None:
        """Answer a request; ``admitted`` is its place among the requests at work."""
        request = parse_request(run.exchange.request, self._parts.domains, run.id)
        run.take(request)
        with self._parts.spans.of_request(request.operation.value, request.bucket):
            if request.operation is S3Operation.PREFLIGHT:
                await self._parts.keys.admit(None, request, run.look)
                rules = decode_cors(await self._cors_configuration(request.bucket))
                answer = preflight_answer(rules, request.http.headers)
                return await run.exchange.send(self._completed(run, answer))
            let_in = await (
                self._form(run, request)
                if request.operation is S3Operation.POST_OBJECT
                else self._signed(run, request)
            )
            caller = let_in.caller.access_key
            admitted.enter_context(self._parts.admission.place(caller))
            await self._look_at_cors(run)
            cost = cost_of(let_in.request, await self._state())
            async with self._parts.admission.memory(cost, caller) as memory:
                answer = await act(
                    self._parts.services, let_in.request, let_in.caller, run.look, let_in.body
                )
                length = declared_length(answer) or len(_bytes_of(answer))
                await memory.change(min(length, STREAM_COST_BYTES))
                if request.operation in _WATCHES:
                    admitted.close()  # watches have a bound of their own, and stay for long
                    told = cast(AsyncGenerator[bytes, None], answer.body)
                    keys = self._parts.keys
                    answer.body = keys.while_admitted(let_in.caller, let_in.request, told)
                return await run.exchange.send(self._completed(run, answer))

    # -- who asks ----------------------------------------------------------------------------------

    async def _signed(self, run: "RequestRun", request: S3Request) -> LetIn:
        """Let in a request signed in its header or URL, or of a stranger. Raises S3Error.

        The signature covers the request as received; ``request`` also has the headers of the query.
        """
        keys, http = self._parts.keys, run.exchange.request
        signature = signature_of(http, self._parts.services.region)
        if signature is None:
            key, payload = None, anonymous_payload(http)
        else:
            now_s = self._parts.services.clock()
            key, payload = await keys.authenticate(
                signature.access_key,
                lambda secret: verify(http, signature, secret, now_s),
                run.look,
            )
            run.access_key = signature.access_key
        caller = await keys.admit(key, request, run.look)
        return LetIn(request, caller, decoded_body(request, payload, asyncio.to_thread))

    async def _form(self, run: "RequestRun", request: S3Request) -> LetIn:
        """Let in the form of a browser. Raises S3Error."""
        if self._forms >= FORMS_READ_MAX:
            raise too_busy(f"{self._forms} forms are read")
        self._forms += 1
        try:
            async with asyncio.timeout(HEAD_S):  # its fields stand for a head
                form = await read_form(request.http)
        except TimeoutError:
            raise S3Error(S3Code.RequestTimeout) from None
        finally:
            self._forms -= 1
        keys, key, lengths = self._parts.keys, None, LengthRange()
        signature = form_signature_of(form.fields, self._parts.services.region)
        if signature is not None:
            now_s = self._parts.services.clock()
            key, lengths = await keys.authenticate(
                signature.credential.access_key,
                lambda secret: verify_form(form.fields, signature, secret, request.bucket, now_s),
                run.look,
            )
            run.access_key = signature.credential.access_key
        put = form_request(request, form.fields)
        run.key = put.key
        caller = await keys.admit(key, put, run.look)
        return LetIn(put, caller, form_body(form.file, form.fields, lengths, asyncio.to_thread))

    # -- answers -----------------------------------------------------------------------------------

    async def _look_at_cors(self, run: "RequestRun") -> None:
        """Find the headers for a browser of another origin, also for a later error."""
        headers = run.exchange.request.headers
        if "origin" in headers and run.bucket:
            rules = decode_cors(await self._cors_configuration(run.bucket))
            run.headers = cors_headers(rules, headers.get("origin"), run.exchange.request.method)

    async def _cors_configuration(self, bucket: str) -> bytes:
        """Return the rules of a bucket in this process's index: rules guard browsers, no data."""
        return (await self._state()).configuration(bucket, CORS_CONFIGURATION)

    async def _state(self) -> BucketState:
        """Return this process's state of the buckets, perhaps of a moment ago."""
        services = self._parts.services
        return (await services.buckets.index(services.timeout_s)).state

    def _completed(self, run: "RequestRun", answer: HttpResponse) -> HttpResponse:
        """Return the answer with the headers of every answer."""
        common = [
            ("Server", "ares"),
            ("Date", formatdate(self._parts.services.clock(), usegmt=True)),
            ("x-amz-request-id", run.id),
        ]
        return HttpResponse(answer.status, [*common, *run.headers, *answer.headers], answer.body)

    def _log_failure(self, run: "RequestRun", failed: S3Error) -> None:
        """Log the 1st, 2nd, 4th, 8th, ... failure of this side."""
        if failed.code.status not in (500, 503):  # 501 is a wish of the client
            return
        self._failed += 1
        if is_worth_a_line(self._failed):
            _log.warning(
                "%d requests failed so far; the last one: %s",
                self._failed,
                failed,
                extra={"operation": run.operation, "request": run.id},
            )


class RequestRun:
    """A request under way. ``time_s``: of its begin, in seconds since 1970."""

    def __init__(self, exchange: HttpExchange, id: str, time_s: float, look: RequestLook) -> None:
        self.exchange = exchange
        self.look = look
        self.id = id
        self.time_s = time_s
        self.begun_s = time.perf_counter()
        self.operation = _NO_OPERATION
        self.bucket = self.key = ""
        self.access_key = ""
        """The id of the key, once the signature was found right."""
        self.error = ""
        self.headers: list[tuple[str, str]] = []
        """Further headers of the answer."""

    def take(self, request: S3Request) -> None:
        self.operation = request.operation.value
        self.bucket, self.key = request.bucket, request.key

    def access_line(self, server: str) -> AccessLine:
        """Return the line of the access log."""
        exchange = self.exchange
        return AccessLine(
            time=iso_date(int(self.time_s * 1000)),
            server=server,
            address=exchange.request.client,
            access_key=self.access_key,
            operation=self.operation,
            method=exchange.request.method,
            bucket=self.bucket,
            key=self.key,
            status=exchange.status,
            error=self.error if exchange.complete else _CUT,
            received_bytes=exchange.body.received,
            sent_bytes=exchange.sent_bytes,
            ms=round((time.perf_counter() - self.begun_s) * 1000, 3),
            request=self.id,
        )


def _bytes_of(answer: HttpResponse) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b""
