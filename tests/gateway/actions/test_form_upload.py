"""Forms of browsers: fields, files in any pieces, bounds, answers."""

import asyncio

import pytest

from ares.gateway.access.grants import Caller
from ares.gateway.access.request_look import RequestLook
from ares.gateway.actions.action_table import act
from ares.gateway.actions.form_upload import FORM_BYTES_MAX, form_request, read_form
from ares.gateway.s3.exchange import Headers, HttpRequest, S3Operation, S3Request
from ares.gateway.s3.s3_errors import S3Error
from ares.gateway.signing.decoded_body import LengthRange
from ares.gateway.signing.post_form import form_body
from tests.gateway.actions.conftest import GivenAnswer, pieces_of

BOUNDARY = "----limit7"
END = b"\r\n--" + BOUNDARY.encode()
FILE = b"the file\r\n----limi\r\n--" + bytes(range(256)) * 100


def form_of(fields, file=FILE, name="C:\\pictures\\cat.png", end=END):
    parts = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n'
        for field, text in fields.items()
    )
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: image/png\r\n\r\n"
    )
    return (parts + head).encode() + file + end + b"--\r\n"


def request_of(form, piece=1000):
    headers = Headers(((b"Content-Type", f"multipart/form-data; boundary={BOUNDARY}".encode()),))
    http = HttpRequest(*("POST", b"/photos", b"", headers, False, "peer", pieces_of(form, piece)))
    return S3Request(http, S3Operation.POST_OBJECT, "photos", "", {}, "REQUEST")


async def posted(gateway, form, piece=1000):
    """Return the answer to a form without a signature."""
    request = request_of(form, piece)
    try:
        read = await read_form(request.http)
        request = form_request(request, read.fields)
        body = form_body(read.file, read.fields, LengthRange(), asyncio.to_thread)
        look = RequestLook(gateway.services.buckets, gateway.services.timeout_s)
        answer = await act(gateway.services, request, Caller("AK", "tester"), look, body)
    except S3Error as error:
        return GivenAnswer(error.code.status, error.headers.items(), error=error.code.name)
    return GivenAnswer(answer.status, answer.headers, answer.body)


@pytest.mark.parametrize("piece", [1, 7, 1000, 10**6])
async def test_a_file_is_stored_whatever_the_pieces(gateway, piece):
    fields = {
        "key": "from/${filename}",
        "Content-Type": "image/png",
        "x-amz-meta-by": "me",
        "tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>",
    }
    answer = await posted(gateway, form_of(fields), piece)
    assert answer.status == 204
    got = await gateway("GetObject", "photos", "from/cat.png")
    assert (got.body, got.etag) == (FILE, answer.etag)
    assert (got.headers["content-type"], got.headers["x-amz-meta-by"]) == ("image/png", "me")
    assert got.headers["x-amz-tagging-count"] == "1"


async def test_the_form_chooses_the_answer(gateway):
    made = await posted(gateway, form_of({"key": "a b", "success_action_status": "201"}))
    assert (made.status, made.text("Key")) == (201, "a b")
    assert (
        await posted(gateway, form_of({"key": "k", "success_action_status": "200"}))
    ).status == 200
    target = "https://example.org/done?x=1"
    sent_on = await posted(gateway, form_of({"key": "k", "success_action_redirect": target}))
    assert sent_on.status == 303
    assert sent_on.headers["location"].startswith(f"{target}&bucket=photos&key=k&etag=%22")
    for odd in ("javascript:alert(1)", "https://e.org/\u00e9", "//e.org", "http://[odd"):
        answer = await posted(gateway, form_of({"key": "k", "success_action_redirect": odd}))
        assert answer.status == 204


@pytest.mark.parametrize(
    ("form", "error"),
    [
        (form_of({}), "InvalidArgument"),
        (form_of({"key": "k"}, end=b""), "IncompleteBody"),
        (form_of({"key": "k"})[:100], "MalformedPOSTRequest"),
        (form_of({"key": "k"}, end=END + bytes(FORM_BYTES_MAX)),
         "MalformedPOSTRequest"),
        (form_of({"key": "k" * (FORM_BYTES_MAX + 1)}), "MaxPostPreDataLengthExceeded"),
        (form_of({f"field{n}": "x" for n in range(200)}), "MaxPostPreDataLengthExceeded"),
        (form_of({"key": "k", "KEY": "k"}), "MalformedPOSTRequest"),
        (form_of({"key": "k" * 1025}), "KeyTooLongError"),
        (form_of({"key": "k", "x-amz-server-side-encryption": "aws:kms"}), "NotImplemented"),
        (b"no form", "MalformedPOSTRequest"),
        (form_of({"key": "k"}, name="x" * 1025), "MalformedPOSTRequest"),
    ],
    ids=range(11),
)  # fmt: skip
async def test_a_wrong_form_stores_nothing(gateway, form, error):
    assert (await posted(gateway, form)).error == error
    assert (await gateway("ListObjects", "photos")).texts("Key") == []


async def test_the_name_of_the_file_is_put_in_once():
    form = form_of({"key": "${filename}" * 5000}, name="x" * 1000)
    read = await read_form(request_of(form).http)
    assert len(read.fields["key"]) < 2 * FORM_BYTES_MAX
