"""Conditions in headers, for commands and for reads."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import UNCONDITIONAL, Conditions
from ares.bucket.conditions import judge
from ares.bucket.index_records import ObjectEntry, Version
from ares.gateway.s3.request_conditions import (
    ShownVersion,
    check_read_conditions,
    range_applies,
    source_conditions,
    with_exact,
    write_conditions,
)
from ares.gateway.s3.s3_dates import http_date
from ares.gateway.s3.s3_errors import S3Error
from tests.gateway.s3.requests import headers_of

ETAG = "0123456789abcdef0123456789abcdef"
MODIFIED_MS = 1_700_000_000_400
SHOWN = ShownVersion(ETAG, MODIFIED_MS, "17")
ENTRY = ObjectEntry(Version(17), 5, ETAG, MODIFIED_MS)
BEFORE, SAME, LATER = (http_date(MODIFIED_MS + second * 1000) for second in (-1, 0, 1))


def outcome(**headers: str) -> CommandOutcome:
    return judge(write_conditions(headers_of(**headers)), ENTRY)


def test_without_headers_a_change_has_no_conditions():
    assert write_conditions(headers_of(content_type="a")) == UNCONDITIONAL


@pytest.mark.parametrize(
    ("headers", "holds"),
    [
        ({"if_match": "*"}, True),
        ({"if_match": f'"{ETAG}"'}, True),
        ({"if_match": ETAG}, True),
        ({"if_match": f'"other", "{ETAG}"'}, True),
        ({"if_match": '"other"'}, False),
        ({"if_match": f'W/"{ETAG}"'}, False),
        ({"if_match": '"' + "a" * 500 + '"'}, False),
        ({"if_none_match": "*"}, False),
        ({"if_none_match": f'"{ETAG}"'}, False),
        ({"if_none_match": f'W/"{ETAG}"'}, False),
        ({"if_none_match": '"other"'}, True),
        ({"if_modified_since": BEFORE}, True),
        ({"if_modified_since": SAME}, False),
        ({"if_unmodified_since": SAME}, True),
        ({"if_unmodified_since": BEFORE}, False),
        ({"if_unmodified_since": BEFORE, "if_match": "*"}, True),
        ({"x_ares_if_version": "17"}, True),
        ({"x_ares_if_version": "17.1"}, False),
        ({"x_amz_if_match_size": "5"}, True),
        ({"x_amz_if_match_size": "6"}, False),
        ({"x_amz_if_match_last_modified_time": SAME}, True),
        ({"x_amz_if_match_last_modified_time": BEFORE}, False),
        ({"x_amz_if_match_last_modified_time": LATER}, False),
        ({"x_amz_if_match_last_modified_time": SAME, "if_unmodified_since": BEFORE}, False),
    ],
)
def test_the_fold_judges_the_conditions_of_the_headers(headers: dict[str, str], holds: bool):
    expected = CommandOutcome.DONE if holds else CommandOutcome.CONDITION_FAILED
    assert outcome(**headers) is expected


def test_on_an_absent_key_if_match_is_no_such_key():
    assert judge(write_conditions(headers_of(if_match="*")), None) is CommandOutcome.NO_SUCH_KEY
    assert judge(write_conditions(headers_of(if_none_match="*")), None) is CommandOutcome.DONE


def test_both_conditions_on_a_change_are_not_implemented():
    with pytest.raises(S3Error, match="NotImplemented"):
        write_conditions(headers_of(if_match="*", if_none_match="*"))


@pytest.mark.parametrize(
    "headers",
    [
        *({"if_match": text} for text in ("", " ", '"a"b"', ",", ",".join(["a"] * 17))),
        *({"if_none_match": text} for text in ("", "*,a,", '"a,b"')),
        *({"x_ares_if_version": text} for text in ("", "null", "9" * 400, "a")),
        *({"x_amz_if_match_size": text} for text in ("", "-1", "9" * 400, "1.0", "٣")),
        *({"if_modified_since": text} for text in ("", "yesterday", "9" * 400)),
    ],
)
def test_a_condition_of_a_change_that_cannot_be_read_is_refused(headers: dict[str, str]):
    with pytest.raises(S3Error, match="InvalidArgument"):
        write_conditions(headers_of(**headers))


def test_the_source_of_a_copy_has_conditions_of_its_own():
    headers = headers_of(
        x_amz_copy_source_if_match=f'"{ETAG}"', x_amz_copy_source_if_unmodified_since=BEFORE
    )
    assert source_conditions(headers) == Conditions(etags=(ETAG,))
    assert write_conditions(headers) == UNCONDITIONAL


def test_a_document_gives_exact_conditions():
    assert judge(with_exact(UNCONDITIONAL, "5", SAME), ENTRY) is CommandOutcome.DONE
    iso = "2023-11-14T22:13:20Z"
    assert judge(with_exact(UNCONDITIONAL, None, iso), ENTRY) is CommandOutcome.DONE


@given(st.text(max_size=60))
def test_no_text_of_a_condition_makes_a_command_that_the_fold_refuses(text: str):
    try:
        found = write_conditions(headers_of(if_match=text.encode().decode("latin-1")))
    except S3Error:
        return
    except UnicodeEncodeError:
        return
    assert found != UNCONDITIONAL
    assert all(len(etag) <= 64 for etag in found.etags)
    assert len(found.etags) <= 16


# -- reads -----------------------------------------------------------------------------------------


def read(**headers: str) -> int:
    try:
        check_read_conditions(headers_of(**headers), SHOWN, {"ETag": ETAG})
    except S3Error as error:
        return error.code.status
    return 200


def test_not_modified_has_the_headers_of_the_version():
    with pytest.raises(S3Error, match="NotModified") as raised:
        check_read_conditions(headers_of(if_none_match="*"), SHOWN, {"ETag": ETAG})
    assert raised.value.headers == {"ETag": ETAG}


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {}),
        (200, {"if_match": f'"{ETAG}"'}),
        (200, {"if_match": f'"{ETAG}"', "if_unmodified_since": BEFORE}),
        (412, {"if_match": '"other"'}),
        (412, {"if_unmodified_since": BEFORE}),
        (200, {"if_unmodified_since": SAME}),
        (304, {"if_none_match": "*"}),
        (304, {"if_none_match": f'W/"{ETAG}"'}),
        (304, {"if_none_match": f'"{ETAG}"', "if_modified_since": BEFORE}),
        (200, {"if_none_match": '"other"', "if_modified_since": LATER}),
        (304, {"if_modified_since": SAME}),
        (200, {"if_modified_since": BEFORE}),
        (200, {"if_modified_since": "yesterday"}),
        (200, {"if_unmodified_since": "yesterday"}),
        (412, {"if_match": '"other"', "if_none_match": f'"{ETAG}"'}),
        (412, {"x_ares_if_version": "16"}),
        (200, {"x_ares_if_version": "17"}),
    ],
)
def test_a_read_follows_the_order_of_rfc_9110(status: int, headers: dict[str, str]):
    assert read(**headers) == status


@pytest.mark.parametrize(
    ("told", "applies"),
    [(f'"{ETAG}"', True), ('"other"', False), (f'W/"{ETAG}"', False), (SAME, True), (LATER, False)],
)
def test_a_range_applies_to_the_version_of_if_range(told: str, applies: bool):
    assert range_applies(headers_of(if_range=told), SHOWN) is applies
    assert range_applies(headers_of(), SHOWN)


def test_a_write_and_a_read_agree_on_single_conditions():
    names = ("if_match", "if_none_match", "if_modified_since", "if_unmodified_since")
    for name, text in product(names, (f'"{ETAG}"', '"other"', "*", BEFORE, SAME, LATER)):
        if ("modified" in name) != text.endswith("GMT"):
            continue
        assert (read(**{name: text}) == 200) == (outcome(**{name: text}) is CommandOutcome.DONE)
