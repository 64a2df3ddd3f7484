"""s3cmd: put, sync, ls, cp, mv, and the removal of a bucket with all objects."""

from pathlib import Path

import pytest

from .programs import Program, make_tree, read_tree
from .s3_service import REGION, S3Service, new_name

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_tree_is_synchronised(service: S3Service, tmp_path: Path) -> None:
    settings = {
        "access_key": service.access_key,
        "secret_key": service.secret_key,
        "host_base": service.address,
        "host_bucket": service.address,
        "bucket_location": REGION,
        "use_https": "False",
        "multipart_chunk_size_mb": "5",
    }
    lines = [f"{name} = {value}" for name, value in settings.items()]
    (tmp_path / ".s3cfg").write_text("\n".join(["[default]", *lines, ""]))
    s3cmd = Program("s3cmd", "pip install s3cmd, or apt-get install s3cmd", tmp_path, {})
    files = make_tree(tmp_path / "tree")
    bucket = f"s3://{new_name()}"
    s3cmd.ok("mb", bucket)
    s3cmd.ok("sync", "tree/", f"{bucket}/tree/")
    listed = s3cmd.ok("ls", "--recursive", bucket).splitlines()
    assert sorted(line.partition(f"{bucket}/tree/")[2] for line in listed) == sorted(files)
    s3cmd.ok("cp", f"{bucket}/tree/large.bin", f"{bucket}/copy")
    s3cmd.ok("mv", f"{bucket}/copy", f"{bucket}/tree/moved.bin")
    files["moved.bin"] = files["large.bin"]
    (tmp_path / "back").mkdir()
    s3cmd.ok("sync", f"{bucket}/tree/", "back/")
    assert read_tree(tmp_path / "back") == files
    assert "Block Public Access" not in s3cmd.ok("info", f"{bucket}/tree/moved.bin")
    s3cmd.ok("rb", "--recursive", "--force", bucket)
