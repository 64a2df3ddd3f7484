"""Missing features of S3: each is answered by 501 without a change."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from .s3_service import S3Service, refused

pytestmark = [pytest.mark.process, pytest.mark.slow]

POLICY = json.dumps({"Version": "2012-10-17", "Statement": []})
TARGET = {"Bucket": "arn:aws:s3:::other"}
LOCK = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": "2040-01-01"}
OWNER = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
KMS = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]}
REPLICATION = {"Role": "r", "Rules": [{"Status": "Enabled", "Destination": TARGET, "Prefix": ""}]}
INVENTORY = {
    "Id": "i",
    "IsEnabled": True,
    "IncludedObjectVersions": "All",
    "Schedule": {"Frequency": "Daily"},
    "Destination": {"S3BucketDestination": {"Bucket": "b", "Format": "CSV"}},
}
SELECT = {
    "Expression": "select * from s3object",
    "ExpressionType": "SQL",
    "InputSerialization": {"CSV": {}},
    "OutputSerialization": {"CSV": {}},
}

OF_BUCKETS: dict[str, dict[str, Any]] = {
    "put_bucket_policy": {"Policy": POLICY},
    "get_bucket_policy": {},
    "delete_bucket_policy": {},
    "put_bucket_website": {"WebsiteConfiguration": {"IndexDocument": {"Suffix": "index.html"}}},
    "get_bucket_website": {},
    "delete_bucket_website": {},
    "put_bucket_replication": {"ReplicationConfiguration": REPLICATION},
    "get_bucket_replication": {},
    "put_bucket_encryption": {"ServerSideEncryptionConfiguration": KMS},
    "get_bucket_encryption": {},
    "get_object_lock_configuration": {},
    "put_object_lock_configuration": {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}},
    "put_bucket_logging": {"BucketLoggingStatus": {}},
    "get_bucket_logging": {},
    "put_bucket_notification_configuration": {"NotificationConfiguration": {}},
    "get_bucket_notification_configuration": {},
    "put_bucket_accelerate_configuration": {"AccelerateConfiguration": {"Status": "Enabled"}},
    "get_bucket_accelerate_configuration": {},
    "put_bucket_request_payment": {"RequestPaymentConfiguration": {"Payer": "Requester"}},
    "get_bucket_request_payment": {},
    "put_bucket_ownership_controls": {"OwnershipControls": OWNER},
    "get_bucket_ownership_controls": {},
    "put_public_access_block": {"PublicAccessBlockConfiguration": {"BlockPublicAcls": True}},
    "get_public_access_block": {},
    "list_bucket_analytics_configurations": {},
    "list_bucket_metrics_configurations": {},
    "list_bucket_inventory_configurations": {},
    "put_bucket_inventory_configuration": {"Id": "i", "InventoryConfiguration": INVENTORY},
    "list_bucket_intelligent_tiering_configurations": {},
}

OF_OBJECTS: dict[str, dict[str, Any]] = {
    "get_object_torrent": {},
    "get_object_retention": {},
    "put_object_retention": {"Retention": {"Mode": "GOVERNANCE"}},
    "get_object_legal_hold": {},
    "put_object_legal_hold": {"LegalHold": {"Status": "ON"}},
    "restore_object": {"RestoreRequest": {"Days": 1}},
    "select_object_content": SELECT,
}

OF_PUTS: dict[str, dict[str, Any]] = {
    "kms": {"ServerSideEncryption": "aws:kms"},
    "kms_key": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"},
    "customer_key": {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0" * 32},
    "lock": LOCK,
    "legal_hold": {"ObjectLockLegalHoldStatus": "ON"},
    "append": {"WriteOffsetBytes": 1},
    "redirect": {"WebsiteRedirectLocation": "/other"},
    "public_read_write": {"ACL": "public-read-write"},
    "grants": {"GrantRead": 'uri="http://acs.amazonaws.com/groups/global/AllUsers"'},
    "glacier": {"StorageClass": "GLACIER"},
}


@pytest.fixture
def unchanged(s3: Any, bucket: str) -> Any:
    """Put the object ``k``, and return a function that checks the object for changes."""
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"a": "1"})["ETag"]

    def check() -> None:
        head = s3.head_object(Bucket=bucket, Key="k")
        assert (head["ETag"], head["Metadata"]) == (etag, {"a": "1"})
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1

    return check


@pytest.mark.parametrize("name", OF_BUCKETS)
def test_a_configuration_is_not_implemented(s3: Any, bucket: str, name: str) -> None:
    said = refused(getattr(s3, name), Bucket=bucket, **OF_BUCKETS[name])
    assert said == (501, "NotImplemented")


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_an_operation_on_objects_is_not_implemented(
    s3: Any, bucket: str, unchanged: Callable[[], None], name: str
) -> None:
    said = refused(getattr(s3, name), Bucket=bucket, Key="k", **OF_OBJECTS[name])
    assert said == (501, "NotImplemented")
    unchanged()


@pytest.mark.parametrize("name", OF_PUTS)
def test_a_put_that_wants_more_is_not_implemented(
    s3: Any, bucket: str, unchanged: Callable[[], None], name: str
) -> None:
    words = {"Bucket": bucket, "Key": "k", **OF_PUTS[name]}
    assert refused(s3.put_object, Body=b"y", **words) == (501, "NotImplemented")
    if name != "append":
        assert refused(s3.create_multipart_upload, **words) == (501, "NotImplemented")
        words["Key"] = "copy"
        said = refused(s3.copy_object, CopySource=f"{bucket}/k", **words)
        assert said == (501, "NotImplemented")
    unchanged()


def test_a_bucket_with_locks_is_not_implemented(s3: Any) -> None:
    said = refused(s3.create_bucket, Bucket="locked-bucket", ObjectLockEnabledForBucket=True)
    assert said == (501, "NotImplemented")
    assert refused(s3.head_bucket, Bucket="locked-bucket") == (404, "404")


@pytest.mark.parametrize("query", ["session", "requestPayment", "policyStatus", "unheard-of"])
def test_a_resource_of_another_name_is_not_implemented(
    service: S3Service, bucket: str, query: str
) -> None:
    answer = service.send("GET", f"/{bucket}?{query}")
    assert (answer.status, answer.code) == (501, "NotImplemented")


def test_a_mark_of_a_client_hinders_no_read(service: S3Service, bucket: str) -> None:
    assert service.send("GET", f"/{bucket}?unheard-of=1").status == 200


def test_methods_that_s3_has_not_are_refused(service: S3Service, bucket: str) -> None:
    for method in ("PATCH", "TRACE", "MKCOL"):
        assert service.send(method, f"/{bucket}/k").status in (400, 405, 501), method
