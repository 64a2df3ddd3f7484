"""The rules of a bucket's lifecycle as documents of S3.

A rule with an action that has no answer, such as a move to another storage class, is refused.
"""

from collections.abc import Sequence

from msgspec import structs

from ares.bucket.index_records import OBJECT_BYTES_MAX
from ares.bucket.lifecycle.lifecycle_rules import (
    DAY_MS,
    DAYS_MAX,
    LIFECYCLE_RULES_MAX,
    LifecycleRule,
    encode_lifecycle,
)
from ares.gateway.s3.answer_documents import tag_elements
from ares.gateway.s3.parsing import check_key
from ares.gateway.s3.request_documents import CONFIGURATION_XML_BYTES_MAX, tag_of
from ares.gateway.s3.request_numbers import number_of
from ares.gateway.s3.rules.cors_rules import RULE_ID_CHARACTERS_MAX
from ares.gateway.s3.s3_dates import iso_date, ms_of_iso_date
from ares.gateway.s3.s3_errors import S3Code, S3Error, bad_argument, not_answered
from ares.gateway.s3.s3_tags import checked_s3_tags
from ares.gateway.s3.xml_reading import XmlElement, malformed, parse_xml
from ares.gateway.s3.xml_text import text_element, xml_document

_KEPT_MAX = 100
_SIZES = ("ObjectSizeGreaterThan", "ObjectSizeLessThan")
_FILTERS = ("Prefix", "Tag", *_SIZES)
_EXPIRY, _MARKERS = "Expiration", "ExpiredObjectDeleteMarker"
_NONCURRENT, _ABORT = "NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"
_UNANSWERED_ACTIONS = ("Transition", "NoncurrentVersionTransition")


def parse_lifecycle(data: bytes) -> tuple[LifecycleRule, ...]:
    """Return the rules of LifecycleConfiguration.

    Raises MalformedXML, InvalidRequest or InvalidArgument, and NotImplemented for transitions.
    """
    root = parse_xml(data, "LifecycleConfiguration", bytes_max=CONFIGURATION_XML_BYTES_MAX)
    root.check_children("Rule")
    if not 1 <= len(root.children) <= LIFECYCLE_RULES_MAX:
        raise malformed(f"there are 1 to {LIFECYCLE_RULES_MAX} rules")
    rules = tuple(map(_lifecycle_rule, root.children))
    try:
        encode_lifecycle(rules)
    except ValueError as error:
        raise S3Error(S3Code.InvalidRequest, f"The lifecycle has {error}.") from error
    return rules


def _lifecycle_rule(element: XmlElement) -> LifecycleRule:
    if any(element.child(name) is not None for name in _UNANSWERED_ACTIONS):
        raise not_answered("moves to another storage class")
    element.check_children("ID", "Status", "Prefix", "Filter", _EXPIRY, _NONCURRENT, _ABORT)
    status = element.value("Status").strip()
    if status not in ("Enabled", "Disabled"):
        raise malformed("Status is Enabled or Disabled")
    filters, prefix = element.child("Filter"), element.child("Prefix")
    if (filters is None) == (prefix is None):
        raise malformed("a rule has either Filter or Prefix")
    rule = LifecycleRule(
        id=element.value("ID", ""), enabled=status == "Enabled", old_form=filters is None
    )
    if len(rule.id) > RULE_ID_CHARACTERS_MAX:
        raise bad_argument("ID", rule.id, f"an ID has at most {RULE_ID_CHARACTERS_MAX} characters")
    if prefix is not None:
        rule = structs.replace(rule, prefix=_prefix(prefix))
    elif filters is not None:
        rule = _with_filter(rule, filters)
    for name, change in _ACTIONS.items():
        action = element.child(name)
        rule = rule if action is None else change(rule, action)
    if rule.tags and (rule.abort_days is not None or rule.expire_markers):
        raise S3Error(S3Code.InvalidRequest, "Uploads and deletions have no tags to filter by.")
    return rule


def _prefix(element: XmlElement) -> str:
    prefix = element.leaf()
    check_key(prefix)
    return prefix


def _with_filter(rule: LifecycleRule, filters: XmlElement) -> LifecycleRule:
    """Return the rule with its filter: one predicate, or several in And."""
    filters.check_children("And", *_FILTERS)
    if len(filters.children) > 1:
        raise malformed("several predicates stand in And")
    found = filters.child("And") or filters
    found.check_children(*_FILTERS)
    prefix, sizes = found.child("Prefix"), [found.value(each, "").strip() for each in _SIZES]
    above, below = (
        number_of(text, name, 0, OBJECT_BYTES_MAX) if text else None
        for name, text in zip(_SIZES, sizes, strict=True)
    )
    if above is not None and below is not None and above >= below:
        raise S3Error(S3Code.InvalidRequest, f"{_SIZES[0]} is less than {_SIZES[1]}.")
    return structs.replace(
        rule,
        prefix="" if prefix is None else _prefix(prefix),
        tags=tuple(checked_s3_tags(map(tag_of, found.all("Tag"))).items()),
        size_above=above,
        size_below=below,
    )


def _expiration(rule: LifecycleRule, action: XmlElement) -> LifecycleRule:
    action.check_children("Days", "Date", _MARKERS)
    if len(action.children) != 1:
        raise malformed(f"{_EXPIRY} has one of Days, Date and {_MARKERS}")
    text = action.children[0].leaf().strip()
    if action.children[0].name == "Days":
        return structs.replace(rule, expire_days=_days(text, "Days"))
    if action.children[0].name == "Date":
        date = ms_of_iso_date(text)
        if date is None or date % DAY_MS:
            raise bad_argument("Date", text, "'Date' is at midnight GMT")
        return structs.replace(rule, expire_on_ms=date)
    if text not in ("true", "false"):
        raise malformed(f"{_MARKERS} is true or false")
    return structs.replace(rule, expire_markers=text == "true")


def _noncurrent_expiration(rule: LifecycleRule, action: XmlElement) -> LifecycleRule:
    action.check_children("NoncurrentDays", "NewerNoncurrentVersions")
    days = _days(action.value("NoncurrentDays").strip(), "NoncurrentDays")
    kept = action.value("NewerNoncurrentVersions", "").strip()
    count = number_of(kept, "NewerNoncurrentVersions", 1, _KEPT_MAX) if kept else 0
    return structs.replace(rule, noncurrent_days=days, noncurrent_kept=count)


def _abortion(rule: LifecycleRule, action: XmlElement) -> LifecycleRule:
    action.check_children("DaysAfterInitiation")
    days = _days(action.value("DaysAfterInitiation").strip(), "DaysAfterInitiation")
    return structs.replace(rule, abort_days=days)


_ACTIONS = {_EXPIRY: _expiration, _NONCURRENT: _noncurrent_expiration, _ABORT: _abortion}


def _days(text: str, name: str) -> int:
    return number_of(text, name, 1, DAYS_MAX)


# -- answers ---------------------------------------------------------------------------------------


def lifecycle_document(rules: Sequence[LifecycleRule]) -> bytes:
    """Return the answer to GetBucketLifecycleConfiguration."""
    return xml_document("LifecycleConfiguration", "".join(map(_rule_text, rules)))


def _rule_text(rule: LifecycleRule) -> str:
    content = text_element("ID", rule.id) if rule.id else ""
    content += text_element("Prefix", rule.prefix) if rule.old_form else _filter_text(rule)
    content += text_element("Status", "Enabled" if rule.enabled else "Disabled")
    expiration = _optional("Days", rule.expire_days)
    if rule.expire_on_ms is not None:
        expiration += text_element("Date", iso_date(rule.expire_on_ms))
    if rule.expire_markers:
        expiration += text_element(_MARKERS, True)
    noncurrent = _optional("NoncurrentDays", rule.noncurrent_days)
    noncurrent += _optional("NewerNoncurrentVersions", rule.noncurrent_kept or None)
    abort = _optional("DaysAfterInitiation", rule.abort_days)
    actions = {_EXPIRY: expiration, _NONCURRENT: noncurrent, _ABORT: abort}
    content += "".join(f"<{name}>{text}</{name}>" for name, text in actions.items() if text)
    return f"<Rule>{content}</Rule>"


def _filter_text(rule: LifecycleRule) -> str:
    predicates = [text_element("Prefix", rule.prefix)] if rule.prefix else []
    predicates += (tag_elements([tag]) for tag in rule.tags)
    sizes = zip(_SIZES, (rule.size_above, rule.size_below), strict=True)
    predicates += (text_element(name, size) for name, size in sizes if size is not None)
    content = "".join(predicates) or text_element("Prefix", "")
    return f"<Filter>{f'<And>{content}</And>' if len(predicates) > 1 else content}</Filter>"


def _optional(name: str, number: int | None) -> str:
    return "" if number is None else text_element(name, number)
