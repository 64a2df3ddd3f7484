"""Headers that are kept with an object and shown again, and tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.client.buckets.bucket_values import encode_metadata
from ares.gateway.s3.exchange import Headers
from ares.gateway.s3.object_headers import (
    DEFAULT_CONTENT_TYPE,
    METADATA_PREFIX,
    STORED_HEADERS,
    SYSTEM_METADATA_BYTES_MAX,
    USER_METADATA_BYTES_MAX,
    replaces,
    response_overrides,
    shown_headers,
    stored_headers,
)
from ares.gateway.s3.s3_errors import S3Error
from ares.gateway.s3.s3_tags import checked_s3_tags, header_tags
from tests.gateway.s3.requests import headers_of


def test_stored_headers_come_back():
    headers = headers_of(
        content_type="text/plain",
        cache_control="no-cache",
        expires="Thu, 01 Dec 1994 16:00:00 GMT",
        content_encoding="gzip,aws-chunked",
        content_length="5",
        x_amz_meta_color="red",
    )
    kept = stored_headers(headers)
    assert kept["color"] == "red"
    shown = dict(shown_headers(kept))
    assert shown == {
        "Content-Type": "text/plain",
        "Cache-Control": "no-cache",
        "Expires": "Thu, 01 Dec 1994 16:00:00 GMT",
        "Content-Encoding": "gzip",
        "x-amz-meta-color": "red",
    }


@pytest.mark.parametrize(
    ("told", "kept"), [("aws-chunked", None), ("AWS-Chunked, br", "br"), ("gzip", "gzip")]
)
def test_the_encoding_of_the_transfer_is_not_kept(told: str, kept: str | None):
    assert stored_headers(headers_of(content_encoding=told)).get("content-encoding") == kept


def test_an_object_without_a_type_has_that_of_s3():
    assert shown_headers(stored_headers(headers_of())) == [("Content-Type", DEFAULT_CONTENT_TYPE)]


@given(
    st.dictionaries(
        st.sampled_from(["a", "content-type", "expires", "x-amz-meta-a", "x-amz-meta-expires"]),
        st.binary(max_size=20),
    )
)
def test_user_metadata_never_becomes_another_header(own: dict[str, bytes]):
    raw = tuple(((METADATA_PREFIX + name).encode(), value) for name, value in own.items())
    headers = Headers(raw)
    try:
        kept = stored_headers(headers)
    except S3Error:
        return
    shown = dict(shown_headers(kept))
    assert shown.pop("Content-Type") == DEFAULT_CONTENT_TYPE
    assert shown == headers.with_prefix(METADATA_PREFIX)


@pytest.mark.parametrize("raw", [b"a\0b", b"a\x7fb", b"a\x1bb"])
def test_control_characters_are_not_kept(raw: bytes):
    for name in (b"x-amz-meta-a", b"content-type"):
        with pytest.raises(S3Error, match="InvalidArgument"):
            stored_headers(Headers(((name, raw),)))


def test_user_metadata_is_bounded():
    stored_headers(headers_of(x_amz_meta_a="a" * (USER_METADATA_BYTES_MAX - 1)))
    with pytest.raises(S3Error, match="MetadataTooLarge"):
        stored_headers(headers_of(x_amz_meta_a="a" * USER_METADATA_BYTES_MAX))
    with pytest.raises(S3Error, match="RequestHeaderSectionTooLarge"):
        stored_headers(headers_of(cache_control="a" * SYSTEM_METADATA_BYTES_MAX))


def test_the_index_takes_the_most_metadata():
    left = SYSTEM_METADATA_BYTES_MAX - sum(map(len, STORED_HEADERS))
    raw = [(name.encode(), b"a") for name in STORED_HEADERS]
    raw[0] = (raw[0][0], b"a" * (left - len(raw) + 1))
    names = [f"{number:x}" for number in range(500)]
    raw += [(f"x-amz-meta-{name}".encode(), b"b") for name in names]
    kept = stored_headers(Headers(tuple(raw)))
    assert len(kept) == len(raw)
    encode_metadata(kept)


def test_metadata_of_clients_of_ares_is_safe_in_headers():
    own = {"bad name": "1", "a\r\nSet-Cookie": "2", "color": "blue\r\nSet-Cookie: a", "é": "3"}
    shown = shown_headers({**own, "content-type": "a\r\nb", "city": "Zürich", "sign": "☃"})
    for name, value in shown:
        assert not set("\r\n") & set(name + value)
        value.encode("latin-1")
    assert dict(shown)["x-amz-missing-meta"] == "3"
    assert dict(shown)["x-amz-meta-city"] == "Zürich"
    assert dict(shown)["x-amz-meta-sign"] == "=?UTF-8?B?4piD?="


def test_a_read_may_ask_for_other_headers():
    overrides = response_overrides(
        {"response-content-type": "a/b", "response-expires": "0", "a": "1"}
    )
    assert dict(shown_headers({"content-type": "c/d"}, overrides)) == {
        "Content-Type": "a/b",
        "Expires": "0",
    }
    for text in ("a\r\nb", "\0", "a" * 10_000):
        with pytest.raises(S3Error, match="InvalidArgument"):
            response_overrides({"response-content-type": text})


def test_a_directive_is_copy_or_replace():
    name = "x-amz-metadata-directive"
    assert not replaces(headers_of(), name)
    assert not replaces(headers_of(x_amz_metadata_directive="COPY"), name)
    assert replaces(headers_of(x_amz_metadata_directive="REPLACE"), name)
    with pytest.raises(S3Error, match="InvalidArgument"):
        replaces(headers_of(x_amz_metadata_directive="replace"), name)


# -- tags ------------------------------------------------------------------------------------------


def test_tags_in_a_header_are_fields_of_a_query():
    told = headers_of(x_amz_tagging="a=1&b&c+d=%C3%A9+%2B")
    assert header_tags(told) == {"a": "1", "b": "", "c d": "é +"}
    assert header_tags(headers_of()) == {}


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ("a=1&a=2", "InvalidTag"),
        ("=1", "InvalidTag"),
        ("a=1&&b=2", "InvalidTag"),
        ("aws:a=1", "InvalidTag"),
        ("a=%00", "InvalidTag"),
        ("a=" + "b" * 257, "InvalidTag"),
        ("b" * 129 + "=1", "InvalidTag"),
        ("a=%ff", "InvalidArgument"),
        ("&".join(f"a{number}=1" for number in range(11)), "BadRequest"),
        ("&".join(f"a{number}=1" for number in range(10_000)), "BadRequest"),
    ],
)
def test_tags_beyond_the_rules_are_refused(told: str, code: str):
    with pytest.raises(S3Error) as raised:
        header_tags(headers_of(x_amz_tagging=told))
    assert raised.value.code.name == code


def test_a_bucket_may_have_more_tags():
    pairs = [(f"a{number}", "1") for number in range(50)]
    assert len(checked_s3_tags(pairs, 50)) == 50
