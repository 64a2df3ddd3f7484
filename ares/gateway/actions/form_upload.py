"""The form of a browser's upload: fields, and behind the fields the file, as a stream.

The fields before the file are bounded, and the file is never held as a whole. Source: RFC 7578, and
"Browser-Based Uploads Using POST" of Amazon S3's API reference.
"""

import re
from collections.abc import AsyncIterator

from msgspec import Struct, structs

from ares.gateway.s3.answered_headers import check_answered
from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from ares.gateway.s3.parsing import check_key
from ares.gateway.s3.s3_errors import S3Code, S3Error

FORM_FIELDS_MAX = 128
FILE_NAME_CHARACTERS_MAX = 1024
FORM_BYTES_MAX = 65_536
"""Bytes of a form before the file, and behind it."""

_FORM_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_FIELD_NAME = re.compile(rb'[;\s]name="([^"]*)"', re.IGNORECASE)
_FILE_NAME = re.compile(rb'[;\s]filename="([^"]*)"', re.IGNORECASE)
_FILE_NAME_MARK = "${filename}"
_OF_SIGNATURES = frozenset(
    ["policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"]
)
_HEADERS_OF_FIELDS = {"acl": "x-amz-acl"}


class FormUpload(Struct, eq=False):
    """A form. ``fields``: before the file, by their names in small letters.

    ``file``: the content of the file, to be read once; it raises :class:`S3Error` if the form ends
    without its boundary.
    """

    fields: dict[str, str]
    file: AsyncIterator[bytes]


async def read_form(http: HttpRequest) -> FormUpload:
    """Read a form up to its file. Raises :class:`S3Error`.

    ``${filename}`` in a field stands for the name of the file.
    """
    found = _FORM_BOUNDARY.search(http.headers.get("content-type"))
    if found is None:
        raise _malformed("The form has no boundary.")
    boundary = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
    reader = _FormReader(http.body, boundary)
    fields, file_name = await reader.fields()
    return FormUpload(_expanded(fields, file_name), reader.file())


def _expanded(fields: dict[str, str], file_name: str) -> dict[str, str]:
    """Return the fields with the name of the file in place of its mark, once in a field."""
    if len(file_name) > FILE_NAME_CHARACTERS_MAX:
        raise _malformed("The name of the file is too long.")
    return {name: text.replace(_FILE_NAME_MARK, file_name, 1) for name, text in fields.items()}


def form_request(request: S3Request, fields: dict[str, str]) -> S3Request:
    """Return the request to put the file: fields stand for headers. Raises :class:`S3Error`."""
    key = fields.get("key", "")
    if not key:
        raise S3Error(S3Code.InvalidArgument, "Bucket POST must contain a field named 'key'.")
    check_key(key)
    raw = tuple(
        (_HEADERS_OF_FIELDS.get(name, name).encode(), text.encode())
        for name, text in fields.items()
        if name not in _OF_SIGNATURES
    )
    headers = Headers(raw)
    check_answered("POST", S3Operation.PUT_OBJECT, headers)
    http = structs.replace(request.http, headers=headers)
    return structs.replace(request, http=http, key=key)


class _FormReader:
    """A reader of a form's parts."""

    def __init__(self, body: AsyncIterator[bytes], boundary: bytes) -> None:
        self._body = body
        self._boundary = boundary
        self._kept = bytearray(b"\r\n")

    async def fields(self) -> tuple[dict[str, str], str]:
        """Return the fields before the file, and the name of the file."""
        fields: dict[str, str] = {}
        left = FORM_BYTES_MAX
        await self._upto(self._boundary, left)
        while True:
            head = await self._upto(b"\r\n\r\n", left)
            if head.startswith(b"--"):
                raise S3Error(S3Code.InvalidArgument, "POST requires exactly one file upload.")
            name = _text(_FIELD_NAME.search(head)).lower()
            if name == "file":
                path = _text(_FILE_NAME.search(head)).replace("\\", "/")
                return fields, path.rpartition("/")[2]
            text = await self._upto(self._boundary, left)
            left -= len(head) + len(text)
            if left < 0 or len(fields) >= FORM_FIELDS_MAX:
                raise S3Error(S3Code.MaxPostPreDataLengthExceeded)
            if not name or name in fields:
                raise _malformed("A field of the form has no name, or is repeated.")
            fields[name] = _decoded(text)

    async def _upto(self, end: bytes, most: int) -> bytes:
        """Return the bytes before ``end``, and pass both."""
        looked = 0
        while (at := self._kept.find(end, looked)) < 0:
            if len(self._kept) > most:
                raise S3Error(S3Code.MaxPostPreDataLengthExceeded)
            looked = max(len(self._kept) - len(end) + 1, 0)
            piece = await anext(self._body, None)
            if piece is None:
                raise _malformed("The form ends too early.")
            self._kept += piece
        found = bytes(self._kept[:at])
        del self._kept[: at + len(end)]
        return found

    async def file(self) -> AsyncIterator[bytes]:
        """Yield the content of the file, up to the next boundary."""
        kept = len(self._boundary) - 1
        while (at := self._kept.find(self._boundary)) < 0:
            ready = len(self._kept) - kept
            if ready > 0:
                yield bytes(self._kept[:ready])
                del self._kept[:ready]
            piece = await anext(self._body, None)
            if piece is None:
                raise S3Error(S3Code.IncompleteBody, "The form ends within its file.")
            self._kept += piece
        behind = len(self._kept) - at
        async for piece in self._body:
            behind += len(piece)
            if behind > FORM_BYTES_MAX:
                raise _malformed("The form has too much behind its file.")
        if at:
            yield bytes(self._kept[:at])


def _text(found: re.Match[bytes] | None) -> str:
    return "" if found is None else _decoded(found[1])


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _malformed("A field of the form is not UTF-8.") from error


def _malformed(why: str) -> S3Error:
    return S3Error(S3Code.MalformedPOSTRequest, why)
