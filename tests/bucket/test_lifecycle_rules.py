"""The rules of expiry, and tags: bytes there and back, bounds, times."""

import pytest
from msgspec.structs import replace

from ares.bucket.index_records import ObjectEntry, Version
from ares.bucket.lifecycle.lifecycle_rules import (
    DAY_MS,
    LifecycleRule,
    decode_lifecycle,
    encode_lifecycle,
    end_of_days,
    expires_ms,
)
from ares.bucket.lifecycle.object_tags import BUCKET_TAGS_MAX, decode_tags, encode_tags

ENTRY = ObjectEntry(Version(7), 100, "etag", 10 * DAY_MS + 1)


def test_tags_come_back_and_have_bounds():
    tags = {"b": "", "a": "x" * 256, "n" * 128: "é"}
    assert decode_tags(encode_tags(tags)) == tags
    assert encode_tags({}) == b""
    assert decode_tags(b"\xc1") == decode_tags(b"\x01") == {}
    for wrong in ({"": "x"}, {"n" * 129: "x"}, {"n": "x" * 257}, {1: "x"}, {"n": None}):
        with pytest.raises(ValueError, match="tag"):
            encode_tags(wrong)
    many = {str(number): "" for number in range(11)}
    with pytest.raises(ValueError, match="11 tags"):
        encode_tags(many)
    assert decode_tags(encode_tags(many, BUCKET_TAGS_MAX)) == many


def test_rules_come_back_and_have_bounds():
    rules = (
        LifecycleRule("a", prefix="logs/", tags=(("k", "v"),), expire_days=3, old_form=True),
        LifecycleRule("b", False, noncurrent_days=1, noncurrent_kept=2, abort_days=7),
        LifecycleRule(size_above=1, size_below=9, expire_on_ms=DAY_MS, expire_markers=True),
    )
    assert decode_lifecycle(encode_lifecycle(rules)) == rules
    assert decode_lifecycle(encode_lifecycle(())) == ()
    for wrong in (
        [LifecycleRule("nothing")],
        [LifecycleRule("a", abort_days=1)] * 2,
        [LifecycleRule(expire_days=0)],
        [LifecycleRule(expire_days=10**9)],
        [LifecycleRule(id="i" * 256, expire_days=1)],
        [LifecycleRule(expire_days=1)] * 1001,
        [LifecycleRule(prefix="p" * 1000, expire_days=1)] * 100,
    ):
        with pytest.raises(ValueError, match=r"."):
            encode_lifecycle(wrong)
    with pytest.raises(ValueError, match=r"."):
        decode_lifecycle(b"\xc1")


def test_days_end_at_the_next_midnight():
    assert end_of_days(0, 1) == DAY_MS
    assert end_of_days(1, 1) == 2 * DAY_MS
    assert end_of_days(10 * DAY_MS + 1, 3) == 14 * DAY_MS


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ({"expire_days": 3}, 14 * DAY_MS),
        ({"expire_days": 3, "expire_on_ms": 5}, 5),
        ({"expire_days": 3, "enabled": False}, None),
        ({"expire_days": 3, "prefix": "logs/"}, 14 * DAY_MS),
        ({"expire_days": 3, "prefix": "log/"}, None),
        ({"expire_days": 3, "size_above": 100}, None),
        ({"expire_days": 3, "size_above": 99, "size_below": 101}, 14 * DAY_MS),
        ({"expire_days": 3, "size_below": 100}, None),
        ({"expire_days": 3, "tags": (("k", "v"),)}, 14 * DAY_MS),
        ({"expire_days": 3, "tags": (("k", "w"),)}, None),
        ({"noncurrent_days": 3}, None),
    ],
)
def test_the_first_rule_that_covers_an_object_ends_it(fields, due):
    entry = replace(ENTRY, tags=encode_tags({"k": "v", "l": ""}))
    rule, late = LifecycleRule(**fields), LifecycleRule(expire_on_ms=10**15)
    found = expires_ms([late, rule], "logs/a", entry)
    assert found == ((rule, due) if due is not None else (late, 10**15))
    assert expires_ms([late, rule], "logs/a", replace(entry, marker=True)) is None
