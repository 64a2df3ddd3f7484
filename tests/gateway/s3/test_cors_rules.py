"""Rules of CORS: documents, matches, and the answers to browsers."""

import pytest

from ares.gateway.s3.rules.cors_rules import (
    ASKED_HEADERS_MAX,
    CorsRule,
    cors_document,
    cors_headers,
    decode_cors,
    encode_cors,
    parse_cors,
    preflight_answer,
)
from ares.gateway.s3.s3_errors import S3Error
from tests.gateway.s3.requests import headers_of

RULE = (
    "<CORSRule><ID>1</ID><AllowedOrigin>https://*.example.org</AllowedOrigin>"
    "<AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>"
    "<AllowedHeader>X-Amz-*</AllowedHeader><AllowedHeader>Content-Type</AllowedHeader>"
    "<ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule>"
)
PUBLIC = "<CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule>"


def document(*rules: str) -> bytes:
    return f"<CORSConfiguration>{''.join(rules)}</CORSConfiguration>".encode()


def test_rules_come_back_from_bytes_and_documents():
    rules = parse_cors(document(RULE, PUBLIC))
    assert rules[0].max_age_s == 60
    assert decode_cors(encode_cors(rules)) == rules
    assert parse_cors(cors_document(rules)) == rules
    assert decode_cors(b"") == ()


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://a.example.org", True),
        ("https://.example.org", True),
        ("https://example.org", False),
        ("http://a.example.org", False),
        ("https://a.example.org.evil.net", False),
        ("https://A.EXAMPLE.org", False),
        ("", False),
    ],
)
def test_a_star_in_an_origin_is_any_text(origin: str, allowed: bool):
    rules = parse_cors(document(RULE))
    assert bool(cors_headers(rules, origin, "GET")) is allowed
    assert not cors_headers(rules, origin, "DELETE")


def test_begin_and_end_of_a_pattern_do_not_overlap():
    assert not CorsRule(("aba*aba",), ("GET",)).allows("aba", "GET")
    assert CorsRule(("aba*aba",), ("GET",)).allows("abaaba", "GET")


def test_the_answer_names_the_origin_with_credentials_or_all_without():
    rules = parse_cors(document(RULE, PUBLIC))
    named = dict(cors_headers(rules, "https://a.example.org", "GET"))
    assert named["Access-Control-Allow-Origin"] == "https://a.example.org"
    assert named["Access-Control-Allow-Credentials"] == "true"
    assert named["Access-Control-Expose-Headers"] == "ETag"
    assert "Origin" in named["Vary"]
    public = dict(cors_headers(rules, "https://b.net", "GET"))
    assert public["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in public


def question(origin: str, method: str, headers: str = ""):
    told = {"origin": origin, "access_control_request_method": method}
    if headers:
        told["access_control_request_headers"] = headers
    return headers_of(**told)


def test_a_preflight_is_answered_by_the_first_rule():
    rules = parse_cors(document(RULE))
    asked = question("https://a.example.org", "PUT", "x-amz-meta-a, Content-Type")
    answer = preflight_answer(rules, asked)
    assert answer.status == 200
    assert ("Access-Control-Allow-Headers", "x-amz-meta-a, content-type") in answer.headers
    assert ("Access-Control-Max-Age", "60") in answer.headers


@pytest.mark.parametrize(
    ("origin", "method", "headers", "status"),
    [
        ("https://a.example.org", "DELETE", "", 403),
        ("https://a.example.org", "PUT", "authorization", 403),
        ("https://a.example.org", "PUT", ",".join(["x-amz-a"] * (ASKED_HEADERS_MAX + 1)), 403),
        ("https://b.net", "PUT", "", 403),
        ("https://a.example.org", "PATCH", "", 400),
        ("", "PUT", "", 400),
    ],
)
def test_a_preflight_without_a_rule_is_forbidden(
    origin: str, method: str, headers: str, status: int
):
    with pytest.raises(S3Error) as raised:
        preflight_answer(parse_cors(document(RULE)), question(origin, method, headers))
    assert raised.value.code.status == status


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (RULE.replace("<AllowedMethod>GET", "<AllowedMethod>PATCH"), "InvalidRequest"),
        (RULE.replace("*.example", "*.*"), "InvalidRequest"),
        (RULE.replace("X-Amz-*", "**"), "InvalidRequest"),
        (RULE.replace("ETag", "*"), "InvalidRequest"),
        (RULE.replace("ETag", "a&#13;&#10;Set-Cookie: b"), "InvalidRequest"),
        (RULE.replace("ETag", ""), "InvalidRequest"),
        (RULE.replace("60", "9" * 400), "InvalidArgument"),
        (RULE.replace(">1<", f">{'a' * 256}<"), "MalformedXML"),
        ("<CORSRule><AllowedMethod>GET</AllowedMethod></CORSRule>", "MalformedXML"),
        ("<CORSRule><AllowedOrigin>*</AllowedOrigin></CORSRule>", "MalformedXML"),
        ("", "MalformedXML"),
        (PUBLIC * 101, "MalformedXML"),
        (RULE * 100 + " " * 65_536, "MalformedXML"),
    ],
)
def test_rules_beyond_those_of_s3_are_refused(rule: str, code: str):
    with pytest.raises(S3Error) as raised:
        parse_cors(document(rule))
    assert raised.value.code.name == code
