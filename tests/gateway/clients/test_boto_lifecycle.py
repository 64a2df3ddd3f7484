"""Lifecycle: expiry of objects, versions and uploads by rules; refused rules; told expirations."""

from datetime import UTC, datetime
from typing import Any

import pytest

from .s3_service import refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

RULES = [
    {
        "ID": "logs",
        "Status": "Enabled",
        "Filter": {"Prefix": "logs/"},
        "Expiration": {"Days": 30},
    },
    {
        "ID": "tagged",
        "Status": "Disabled",
        "Filter": {
            "And": {
                "Prefix": "tmp/",
                "Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}],
                "ObjectSizeGreaterThan": 10,
            }
        },
        "Expiration": {"Date": datetime(2040, 1, 1, tzinfo=UTC)},
    },
    {
        "ID": "versions",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
    },
    {
        "ID": "markers",
        "Status": "Enabled",
        "Filter": {"Tag": {"Key": "c", "Value": "3"}},
        "Expiration": {"ExpiredObjectDeleteMarker": True},
    },
]


def put_rules(s3: Any, bucket: str, *rules: dict[str, Any]) -> None:
    s3.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": list(rules)}
    )


def test_rules_are_kept_and_removed(s3: Any, bucket: str) -> None:
    absent = (404, "NoSuchLifecycleConfiguration")
    assert refused(s3.get_bucket_lifecycle_configuration, Bucket=bucket) == absent
    put_rules(s3, bucket, *RULES[:3])
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == RULES[:3]
    s3.delete_bucket_lifecycle(Bucket=bucket)
    assert refused(s3.get_bucket_lifecycle_configuration, Bucket=bucket) == absent


def test_a_date_in_the_past_expires_objects_soon(s3: Any, bucket: str) -> None:
    """The rule is accepted; the deletion follows a sweep, which this test does not wait for."""
    past = {"Date": datetime(2020, 1, 1, tzinfo=UTC)}
    put_rules(s3, bucket, RULES[0] | {"Expiration": past})
    (rule,) = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert rule["Expiration"] == past


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Expiration": {"Days": 0}}, 400),
        ({"Expiration": {"Days": -1}}, 400),
        ({"Status": "Perhaps"}, 400),
        ({"ID": "i" * 256}, 400),
        ({"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}, 501),
        (
            {"NoncurrentVersionTransitions": [{"NoncurrentDays": 1, "StorageClass": "GLACIER"}]},
            501,
        ),
    ],
    ids=["zero", "negative", "status", "id", "transition", "noncurrent_transition"],
)
def test_wrong_rules_are_refused(
    s3: Any, bucket: str, changes: dict[str, Any], status: int
) -> None:
    with pytest.raises(s3.exceptions.ClientError) as raised:
        put_rules(s3, bucket, RULES[0] | changes)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    said = refused(s3.get_bucket_lifecycle_configuration, Bucket=bucket)
    assert said == (404, "NoSuchLifecycleConfiguration")


def test_the_expiration_of_an_object_is_told(s3: Any, bucket: str) -> None:
    put_rules(s3, bucket, RULES[0] | {"Expiration": {"Date": datetime(2040, 1, 1, tzinfo=UTC)}})
    wanted = 'expiry-date="Sun, 01 Jan 2040 00:00:00 GMT", rule-id="logs"'
    place = {"Bucket": bucket, "Key": "logs/k"}
    answers = [s3.put_object(**place), s3.head_object(**place), s3.get_object(**place)]
    assert [each["Expiration"] for each in answers] == [wanted] * 3
    assert "Expiration" not in s3.put_object(Bucket=bucket, Key="k")
