"""CORS: rules of a bucket, the question of a browser, headers of answers."""

from typing import Any

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

ALLOWED_SITE = "https://app.example.org"
RULES = [
    {
        "ID": "app",
        "AllowedOrigins": ["https://*.example.org"],
        "AllowedMethods": ["GET", "PUT"],
        "AllowedHeaders": ["x-amz-*", "Content-Type"],
        "ExposeHeaders": ["ETag"],
        "MaxAgeSeconds": 600,
    },
    {"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]},
]


@pytest.fixture
def shared(s3: Any, bucket: str) -> str:
    """Return a bucket with RULES and an object ``k``."""
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES})
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    return bucket


def test_rules_are_kept_and_removed(s3: Any, shared: str) -> None:
    assert s3.get_bucket_cors(Bucket=shared)["CORSRules"] == RULES
    s3.delete_bucket_cors(Bucket=shared)
    said = refused(s3.get_bucket_cors, Bucket=shared)
    assert said == (404, "NoSuchCORSConfiguration")


def test_a_browsers_question_is_answered(service: S3Service, shared: str) -> None:
    headers = {
        "Origin": ALLOWED_SITE,
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "x-amz-meta-a, content-type",
    }
    answer = service.send_unsigned("OPTIONS", f"/{shared}/k", headers)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == ALLOWED_SITE
    assert "PUT" in answer.headers["access-control-allow-methods"]
    assert "x-amz-meta-a" in answer.headers["access-control-allow-headers"].lower()
    assert answer.headers["access-control-max-age"] == "600"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example.com", "Access-Control-Request-Method": "PUT"},
        {"Origin": ALLOWED_SITE, "Access-Control-Request-Method": "DELETE"},
        {
            "Origin": ALLOWED_SITE,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "x-other",
        },
    ],
    ids=["origin", "method", "header"],
)
def test_a_browsers_question_is_denied(
    service: S3Service, shared: str, headers: dict[str, str]
) -> None:
    answer = service.send_unsigned("OPTIONS", f"/{shared}/k", headers)
    assert (answer.status, "access-control-allow-origin" in answer.headers) == (403, False)


def test_an_answer_names_the_allowed_origin(service: S3Service, shared: str) -> None:
    answer = service.send("GET", f"/{shared}/k", {"Origin": ALLOWED_SITE})
    assert answer.headers["access-control-allow-origin"] == ALLOWED_SITE
    assert answer.headers["access-control-expose-headers"] == "ETag"
    assert "origin" in answer.headers["vary"].lower()
    answer = service.send("GET", f"/{shared}/k", {"Origin": "https://other.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
    answer = service.send("PUT", f"/{shared}/k", {"Origin": "https://other.example"}, b"y")
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


def test_wrong_rules_are_refused(s3: Any, bucket: str) -> None:
    rule = {"AllowedOrigins": ["*"], "AllowedMethods": ["FETCH"]}
    said = refused(s3.put_bucket_cors, Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    assert said[0] == 400
    assert refused(s3.get_bucket_cors, Bucket=bucket)[0] == 404
