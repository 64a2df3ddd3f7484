"""restic: backup, restore, check, forget."""

from pathlib import Path

import pytest

from .programs import Program, make_tree, read_tree
from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_backup_comes_back(service: S3Service, bucket: str, tmp_path: Path) -> None:
    repository = {
        "RESTIC_REPOSITORY": f"s3:{service.endpoints[0]}/{bucket}/backups",
        "RESTIC_PASSWORD": "secret",
    }
    restic = Program("restic", "apt-get install restic", tmp_path, service.environment | repository)
    files = make_tree(tmp_path / "tree")
    restic.ok("init")
    restic.ok("backup", "tree")
    (tmp_path / "tree/new").write_bytes(b"second backup")
    restic.ok("backup", "tree")
    restic.ok("forget", "--keep-last", "1", "--prune")
    restic.ok("check", "--read-data")
    restic.ok("restore", "latest", "--target", "back")
    assert read_tree(tmp_path / "back/tree") == files | {"new": b"second backup"}
