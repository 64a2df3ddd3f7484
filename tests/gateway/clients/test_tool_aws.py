"""AWS's command line: `aws s3` and `aws s3api`."""

import json
from pathlib import Path

import pytest

from .programs import Program, make_tree, read_tree
from .s3_service import S3Service, new_name

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def aws(service: S3Service, tmp_path: Path) -> Program:
    return Program("aws", "pip install awscli", tmp_path, service.environment)


def test_a_tree_is_synchronised(aws: Program, tmp_path: Path) -> None:
    name = new_name()
    files = make_tree(tmp_path / "tree")
    aws.ok("s3", "mb", f"s3://{name}")
    aws.ok("s3", "sync", "tree", f"s3://{name}/tree", "--no-progress")
    assert aws.ok("s3", "sync", "tree", f"s3://{name}/tree", "--no-progress") == ""
    aws.ok("s3", "cp", f"s3://{name}/tree", "back", "--recursive", "--no-progress")
    assert read_tree(tmp_path / "back") == files
    aws.ok("s3", "rb", f"s3://{name}", "--force")


def test_a_conditional_put(aws: Program, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    place = ("--bucket", bucket, "--key", "k")
    put = ("s3api", "put-object", *place, "--body", "file", "--if-none-match", "*")
    etag = json.loads(aws.ok(*put))["ETag"]
    done = aws.run(*put)
    assert done.returncode != 0
    assert b"PreconditionFailed" in done.stderr
    assert json.loads(aws.ok("s3api", "head-object", *place))["ETag"] == etag
