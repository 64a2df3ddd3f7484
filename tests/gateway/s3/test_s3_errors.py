"""S3's errors and their documents, and the headers of a request."""

from xml.etree import ElementTree

import pytest

from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.xml_text import escaped


def test_an_error_is_a_document_with_code_message_and_resource():
    error = S3Error(S3Code.NoSuchKey, fields={"Key": "a<b&c>"})
    root = ElementTree.fromstring(error.xml("/photos/a<b&c>", "17"))
    assert {each.tag: each.text for each in root} == {
        "Code": "NoSuchKey",
        "Message": S3Code.NoSuchKey.sentence,
        "Key": "a<b&c>",
        "Resource": "/photos/a<b&c>",
        "RequestId": "17",
    }


def test_an_answer_has_the_status_and_the_headers_of_the_error():
    answer = S3Error(S3Code.InvalidRange, headers={"Content-Range": "bytes */3"}).answer(
        "/b/k", "1"
    )
    assert answer.status == 416
    assert ("Content-Range", "bytes */3") in answer.headers
    assert ("Content-Type", "application/xml") in answer.headers


@pytest.mark.parametrize(("code", "with_body"), [("NotModified", True), ("NoSuchKey", False)])
def test_an_answer_to_head_and_not_modified_have_no_body(code: str, with_body: bool):
    assert S3Error(S3Code[code]).answer("/b/k", "1", with_body).body == b""


def test_two_codes_with_one_status_and_sentence_would_stay_two():
    assert len({code.value for code in S3Code}) == len(S3Code)
    assert all(300 <= code.status < 600 and code.sentence for code in S3Code)


def test_control_characters_are_references():
    assert escaped('\x00\r\n<&>"\ufffe') == "&#x0;&#xD;&#xA;&lt;&amp;&gt;&quot;&#xFFFE;"


def test_repeated_headers_are_joined_and_values_stripped():
    headers = Headers(((b"X-Amz-Meta-A", b" 1\t"), (b"x-amz-meta-a", b"2"), (b"Host", b"h")))
    assert headers.get("x-amz-meta-a") == "1,2"
    assert headers.get("range", "none") == "none"
    assert headers.with_prefix("x-amz-meta-") == {"x-amz-meta-a": "1,2"}
    assert "host" in headers
    assert "Host" not in headers
