"""Lifecycles as documents of S3."""

import pytest

from ares.bucket.lifecycle.lifecycle_rules import DAY_MS, LifecycleRule
from ares.gateway.s3.rules.lifecycle_documents import lifecycle_document, parse_lifecycle
from ares.gateway.s3.s3_errors import S3Error

EXPIRE = "<Expiration><Days>3</Days></Expiration>"
STATUS = "<Status>Enabled</Status>"
ALL = "<Filter/>"
ABORT = (
    "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation>"
    "</AbortIncompleteMultipartUpload>"
)
TAG = "<Tag><Key>a</Key><Value>b</Value></Tag>"


def parsed(*rules: str) -> tuple[LifecycleRule, ...]:
    content = "".join(f"<Rule>{rule}</Rule>" for rule in rules)
    return parse_lifecycle(f"<LifecycleConfiguration>{content}</LifecycleConfiguration>".encode())


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (ALL + STATUS + EXPIRE, LifecycleRule(expire_days=3)),
        (
            "<ID>1</ID><Filter><Prefix>a/</Prefix></Filter><Status>Disabled</Status>" + EXPIRE,
            LifecycleRule("1", False, "a/", expire_days=3),
        ),
        (
            "<Prefix>a &amp; b/</Prefix>" + STATUS + EXPIRE,
            LifecycleRule(prefix="a & b/", expire_days=3, old_form=True),
        ),
        (
            f"<Filter><And><Prefix>a</Prefix>{TAG}<ObjectSizeGreaterThan>0</ObjectSizeGreaterThan>"
            f"<ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>{STATUS}{EXPIRE}",
            LifecycleRule(
                prefix="a", tags=(("a", "b"),), size_above=0, size_below=9, expire_days=3
            ),
        ),
        (
            f"<Filter>{TAG}</Filter>{STATUS}{EXPIRE}",
            LifecycleRule(tags=(("a", "b"),), expire_days=3),
        ),
        (
            ALL + STATUS + "<Expiration><Date>2026-11-28T00:00:00.000Z</Date></Expiration>",
            LifecycleRule(expire_on_ms=20_785 * DAY_MS),
        ),
        (
            f"{ALL}{STATUS}{ABORT}<Expiration><ExpiredObjectDeleteMarker>true"
            "</ExpiredObjectDeleteMarker></Expiration><NoncurrentVersionExpiration>"
            "<NoncurrentDays>5</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions>"
            "</NoncurrentVersionExpiration>",
            LifecycleRule(expire_markers=True, noncurrent_days=5, noncurrent_kept=2, abort_days=7),
        ),
    ],
)
def test_a_rule_comes_back_from_its_document(rule: str, found: LifecycleRule):
    assert parsed(rule) == (found,)
    assert parse_lifecycle(lifecycle_document([found])) == (found,)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (STATUS + EXPIRE, "MalformedXML"),
        (ALL + "<Prefix/>" + STATUS + EXPIRE, "MalformedXML"),
        (ALL + EXPIRE, "MalformedXML"),
        (ALL + "<Status>On</Status>" + EXPIRE, "MalformedXML"),
        (ALL + STATUS, "InvalidRequest"),
        (ALL + STATUS + "<Expiration/>", "MalformedXML"),
        (ALL + STATUS + EXPIRE.replace("3", "0"), "InvalidArgument"),
        (ALL + STATUS + EXPIRE.replace("3", "-1"), "InvalidArgument"),
        (ALL + STATUS + EXPIRE.replace("3", "9" * 400), "InvalidArgument"),
        (ALL + STATUS + EXPIRE + EXPIRE, "MalformedXML"),
        (
            ALL + STATUS + "<Expiration><Date>2026-11-28T01:00:00Z</Date></Expiration>",
            "InvalidArgument",
        ),
        (
            ALL + STATUS + "<Expiration><Days>1</Days><Date>2026-11-28</Date></Expiration>",
            "MalformedXML",
        ),
        (ALL + STATUS + EXPIRE + "<Transition><Days>1</Days></Transition>", "NotImplemented"),
        (ALL + STATUS + EXPIRE + "<NewThing/>", "MalformedXML"),
        (f"<Filter><Prefix>a</Prefix>{TAG}</Filter>{STATUS}{EXPIRE}", "MalformedXML"),
        (f"<Filter><And>{TAG}{TAG}</And></Filter>{STATUS}{EXPIRE}", "InvalidTag"),
        (f"<Filter>{TAG}</Filter>{STATUS}{ABORT}", "InvalidRequest"),
        (f"<Filter><Prefix>{'a' * 1025}</Prefix></Filter>{STATUS}{EXPIRE}", "KeyTooLongError"),
        (f"<ID>{'a' * 256}</ID>{ALL}{STATUS}{EXPIRE}", "InvalidArgument"),
        (
            "<Filter><And><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan><ObjectSizeLessThan>9"
            f"</ObjectSizeLessThan></And></Filter>{STATUS}{EXPIRE}",
            "InvalidRequest",
        ),
    ],
)
def test_a_rule_beyond_those_of_s3_is_refused(rule: str, code: str):
    with pytest.raises(S3Error) as raised:
        parsed(rule)
    assert raised.value.code.name == code


def test_rules_are_bounded_in_number_and_bytes_and_have_ids_of_their_own():
    rule = ALL + STATUS + EXPIRE
    assert len(parsed(*[rule] * 1000)) == 1000
    with pytest.raises(S3Error, match="MalformedXML"):
        parsed(*[rule] * 1001)
    with pytest.raises(S3Error, match="InvalidRequest"):
        parsed(*[f"<Filter><Prefix>{'a' * 200}</Prefix></Filter>{STATUS}{EXPIRE}"] * 500)
    with pytest.raises(S3Error, match="InvalidRequest"):
        parsed("<ID>1</ID>" + rule, "<ID>1</ID>" + rule)
