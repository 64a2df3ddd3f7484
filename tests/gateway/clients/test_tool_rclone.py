"""rclone: sync, check, move."""

from pathlib import Path

import pytest

from .programs import make_tree, rclone_program, read_tree
from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_tree_is_synchronised(service: S3Service, bucket: str, tmp_path: Path) -> None:
    rclone = rclone_program(service, tmp_path, UPLOAD_CUTOFF="5Mi")
    files = make_tree(tmp_path / "tree")
    there = f"ares:{bucket}/tree"
    rclone.ok("sync", "tree", there)
    rclone.ok("check", "tree", there, "--download")
    (tmp_path / "tree/d0/f0.txt").unlink()
    (tmp_path / "tree/d1/f1.txt").write_bytes(b"changed")
    del files["d0/f0.txt"]
    files["d1/f1.txt"] = b"changed"
    rclone.ok("sync", "tree", there)
    assert sorted(rclone.ok("lsf", "-R", "--files-only", there).splitlines()) == sorted(files)
    rclone.ok("copy", there, "back")
    assert read_tree(tmp_path / "back") == files
    rclone.ok("rcat", f"ares:{bucket}/piped", stdin=b"from standard input")
    assert rclone.ok("cat", f"ares:{bucket}/piped") == "from standard input"
    rclone.ok("move", there, f"ares:{bucket}/moved")
    assert len(rclone.ok("lsf", "-R", "--files-only", f"ares:{bucket}").split("\n")) == (
        len(files) + 2
    )
    rclone.ok("purge", f"ares:{bucket}")
