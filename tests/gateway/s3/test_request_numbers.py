"""Counts and ranges in requests, and dates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bucket.bucket_listing import PAGE_RESULTS_MAX
from ares.gateway.s3.request_numbers import (
    ByteRange,
    asked_range,
    encodes_keys,
    listing_limit,
    number_of,
    source_range,
)
from ares.gateway.s3.s3_dates import http_date, iso_date, ms_of_iso_date, seconds_of_http_date
from ares.gateway.s3.s3_errors import S3Error
from ares.model.numbers import INSTANT_MAX

HUGE = "9" * 400


@pytest.mark.parametrize(
    ("value", "size", "first", "length"),
    [
        ("bytes=0-0", 10, 0, 1),
        ("bytes=2-5", 10, 2, 4),
        ("bytes=2-", 10, 2, 8),
        ("bytes=2-99", 10, 2, 8),
        (f"bytes=2-{HUGE}", 10, 2, 8),
        ("bytes=-3", 10, 7, 3),
        ("bytes=-30", 10, 0, 10),
        (f"bytes=-{HUGE}", 10, 0, 10),
        (f"bytes={'0' * 400}2-5", 10, 2, 4),
    ],
)
def test_a_range_is_cut_to_the_object(value: str, size: int, first: int, length: int):
    assert asked_range(value, size) == ByteRange(first, length)


@pytest.mark.parametrize(
    "value",
    ["", "bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "bytes=a-b", "items=0-1", "bytes=٣-"],
)
def test_several_ranges_and_malformed_ones_ask_for_the_whole(value: str):
    assert asked_range(value, 10) is None


@pytest.mark.parametrize(
    ("value", "size"),
    [
        *[("bytes=10-", 10), ("bytes=10-12", 10), (f"bytes={HUGE}-", 10), ("bytes=-0", 10)],
        *[("bytes=0-", 0), ("bytes=-5", 0)],
    ],
)
def test_a_range_without_a_byte_is_not_satisfiable(value: str, size: int):
    with pytest.raises(S3Error) as raised:
        asked_range(value, size)
    assert raised.value.code.status == 416
    assert raised.value.headers == {"Content-Range": f"bytes */{size}"}


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 30))
def test_a_range_has_the_bytes_of_a_slice(first: int, last: int, size: int):
    content = bytes(range(size))
    if first <= last and first < size:
        found = asked_range(f"bytes={first}-{last}", size)
        assert found is not None
        assert content[found.first :][: found.length] == content[first : last + 1]
        assert found.content_range(size) == f"bytes {first}-{min(last, size - 1)}/{size}"


@pytest.mark.parametrize(
    "value", ["bytes=0-", "bytes=-5", "bytes=5-2", "0-5", f"bytes=0-{HUGE}", "bytes=0-1,2-3"]
)
def test_the_range_of_a_copy_has_both_ends(value: str):
    assert source_range("bytes=2-5") == ByteRange(2, 4)
    assert source_range("") is None
    with pytest.raises(S3Error, match="InvalidArgument"):
        source_range(value)


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1e3", HUGE, "10001", "0", " 1", "٣", "0x1"])
def test_a_number_is_bounded(text: str):
    assert number_of("10000", "partNumber", 1, 10_000) == 10_000
    with pytest.raises(S3Error, match="InvalidArgument"):
        number_of(text, "partNumber", 1, 10_000)


def test_a_listing_has_at_most_a_page():
    assert listing_limit({}, "max-keys") == PAGE_RESULTS_MAX
    assert listing_limit({"max-keys": "0"}, "max-keys") == 0
    assert listing_limit({"max-keys": "5000"}, "max-keys") == PAGE_RESULTS_MAX
    with pytest.raises(S3Error, match="InvalidArgument"):
        listing_limit({"max-keys": HUGE}, "max-keys")


def test_the_encoding_of_keys_is_url_or_absent():
    assert encodes_keys({"encoding-type": "url"})
    assert not encodes_keys({})
    with pytest.raises(S3Error, match="InvalidArgument"):
        encodes_keys({"encoding-type": "base64"})


# -- dates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ],
)
def test_the_three_forms_of_http(text: str):
    assert seconds_of_http_date(text) == 784_111_777


@given(st.integers(0, INSTANT_MAX * 1000))
def test_dates_come_back(ms: int):
    assert seconds_of_http_date(http_date(ms)) == ms // 1000
    assert ms_of_iso_date(iso_date(ms)) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "Sun, 06 Nov 1969 08:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT", HUGE),
        *("Sun, 06 Nov 1994 25:49:37 GMT", "Sun, 06 Foo 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"),
        "Sun, ٠٦ Nov 1994 08:49:37 GMT",
    ],
)
def test_another_text_is_no_date_of_http(text: str):
    assert seconds_of_http_date(text) is None


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-28", 1_795_824_000_000),
        ("2026-11-28T00:00:00Z", 1_795_824_000_000),
        ("2026-11-28T01:00:00.5+01:00", 1_795_824_000_500),
        ("1969-12-31", None),
        ("2026-02-31", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("tomorrow", None),
        (HUGE, None),
    ],
)
def test_iso_dates(text: str, ms: int | None):
    assert ms_of_iso_date(text) == ms
