"""Buckets mounted as directories: rclone mount, and s3fs of FUSE."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .programs import PROGRAM_S, Program, make_tree, rclone_program, read_tree
from .s3_service import REGION, S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

FUSE = Path("/dev/fuse")


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """Return an empty directory to mount at; skip where no program may mount."""
    if not os.access(FUSE, os.R_OK | os.W_OK):
        pytest.skip(f"{FUSE} cannot be opened: run as root, or with the group of this device")
    if shutil.which("fusermount3") is None:
        pytest.skip("no fusermount3 here: apt-get install fuse3")
    point = tmp_path / "mounted"
    point.mkdir()
    return point


@contextlib.contextmanager
def mounted(program: Program, point: Path, *words: str) -> Iterator[None]:
    """Mount in the foreground; unmount at the end, which writes the remaining data."""
    log = program.directory / "mount.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [program.path, *words],
            cwd=program.directory,
            env=program.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            end = time.monotonic() + PROGRAM_S
            while not point.is_mount():
                said = log.read_text()
                if "not permitted" in said:
                    pytest.skip(f"this machine permits no mount: {said}")
                assert process.poll() is None, said
                assert time.monotonic() < end, said
                time.sleep(0.05)
            yield
        finally:
            subprocess.run(["fusermount3", "-u", point], check=False, capture_output=True)
            try:
                process.wait(PROGRAM_S)
            finally:
                process.kill()


def used(point: Path) -> dict[str, bytes]:
    """Use a mounted bucket as a directory; return the remaining files."""
    files = make_tree(point / "tree")
    (point / "tree/large.bin").rename(point / "tree/renamed.bin")
    files["renamed.bin"] = files.pop("large.bin")
    with (point / "tree/d1/f1.txt").open("ab") as file:
        file.write(b"appended")
    files["d1/f1.txt"] += b"appended"
    (point / "tree/d0/f0.txt").unlink()
    del files["d0/f0.txt"]
    assert read_tree(point / "tree") == files
    return files


def found(service: S3Service, bucket: str) -> dict[str, bytes]:
    """Return the objects below ``tree/`` at another gateway, without marks of directories."""
    s3 = service.boto(endpoint=len(service.endpoints) - 1)
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {
        key.removeprefix("tree/"): s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        for key in keys
        if not key.endswith("/")
    }


def test_rclone_mounts_a_bucket(
    service: S3Service, bucket: str, tmp_path: Path, point: Path
) -> None:
    rclone = rclone_program(service, tmp_path)
    options = ("--vfs-cache-mode", "writes", "--vfs-write-back", "100ms")
    with mounted(rclone, point, "mount", f"ares:{bucket}", str(point), *options):
        files = used(point)
        end = time.monotonic() + PROGRAM_S
        while found(service, bucket) != files:
            assert time.monotonic() < end
            time.sleep(0.2)


def test_s3fs_mounts_a_bucket(service: S3Service, bucket: str, tmp_path: Path, point: Path) -> None:
    s3fs = Program("s3fs", "apt-get install s3fs", tmp_path, {})
    passwords = tmp_path / "passwords"
    passwords.write_text(f"{service.access_key}:{service.secret_key}\n")
    passwords.chmod(0o600)
    options = {
        "url": service.endpoints[0],
        "endpoint": REGION,
        "passwd_file": str(passwords),
        "multipart_size": "5",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    with mounted(s3fs, point, bucket, str(point), "-f", *words, "-o", "use_path_request_style"):
        files = used(point)
        assert found(service, bucket) == files
