"""The local end of a transfer: bytes, and files of this machine."""

import os
import stat

import pytest
from hypothesis import given, settings

from ares.client.local_copy import AssemblySink, LocalCopy, content_of_file, digest_of_file
from ares.fragment.read import fm_read
from ares.model.errors import BadInput

from .contents import changes, contents
from .memory_world import SIZES, BlockWorld, content, noise

MASK = 0o777


@pytest.fixture
def world():
    return BlockWorld(ticks_max=1)


def brought(client, path, state=None, replacing=None):
    """Call read_into, and return whether the copy changed."""
    copy = LocalCopy(path, SIZES, replacing)
    try:
        copy.open()
        client.run(fm_read(client.blocks, "f", state, copy))
        return copy.finish()
    finally:
        copy.close()


def left(path):
    return sorted(entry.name for entry in path.iterdir())


@settings(max_examples=40, deadline=None)
@given(contents, changes, changes)
def test_any_copy_becomes_the_file(tmp_path_factory, data, first, second):
    """The copy may have been of other content, longer or shorter, or absent."""
    path = tmp_path_factory.mktemp("copy") / "file"
    for atomic in (False, True):
        world = BlockWorld(ticks_max=1)
        client = world.client()
        client.make(data, atomic=atomic)
        for there in (None, first.on(data), second.on(first.on(data)), data):
            path.unlink(missing_ok=True)
            if there is not None:
                path.write_bytes(there)
            assert brought(client, path) is (there != data)
            assert path.read_bytes() == data
            assert left(path.parent) == ["file"]
            assert brought(client, path) is False


@pytest.mark.parametrize(
    "there",
    [
        None,
        b"",
        noise(1, 5000)[:2000],
        noise(1, 5000) + b"more",
        noise(2, 3000),
        noise(1, 5000)[300:],
    ],
)
def test_missing_shorter_longer_and_other_copies(world, tmp_path, there):
    client = world.client()
    client.make(noise(1, 5000))
    if there is not None:
        (tmp_path / "copy").write_bytes(there)
    assert brought(client, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == noise(1, 5000)


def test_only_what_differs_moves(world, tmp_path):
    client, data = world.client(), noise(3, 50_000)
    state = client.make(data)
    (tmp_path / "copy").write_bytes(data[:20_000] + b"x" + data[20_000:])
    before = world.moved_bytes
    assert brought(client, tmp_path / "copy", state)
    assert world.moved_bytes - before < 4 * SIZES.max
    assert (tmp_path / "copy").read_bytes() == data


def test_an_unchanged_file_is_not_touched(world, tmp_path):
    client = world.client()
    client.make(noise(4, 5000))
    path = tmp_path / "copy"
    path.write_bytes(noise(4, 5000))
    os.utime(path, ns=(1, 1))
    before = path.stat()
    assert not brought(client, path)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, 1)


def test_a_copy_keeps_its_mode(world, tmp_path):
    """A copy keeps its mode; a new copy has the mode of any new file."""
    client = world.client()
    client.make(b"x")
    path = tmp_path / "copy"
    path.write_bytes(b"y")
    path.chmod(0o640)
    brought(client, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    (tmp_path / "usual").touch()
    brought(client, tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_reader_of_the_old_copy_keeps_it(world, tmp_path):
    """The new file replaces the old file at once, whole."""
    client = world.client()
    client.make(noise(5, 3000))
    path = tmp_path / "copy"
    path.write_bytes(b"old")
    with open(path, "rb") as held:
        brought(client, path)
        assert held.read() == b"old"
    assert path.read_bytes() == noise(5, 3000)


class Precious(Exception):
    """An error of a caller that wants the file to stay."""


def test_a_callback_before_the_replacement_may_keep_the_file(world, tmp_path):
    client, path = world.client(), tmp_path / "copy"
    client.make(noise(5, 9000))
    contents = []

    def keep(file):
        contents.append(digest_of_file(file))
        raise Precious

    assert brought(client, path, replacing=keep), "there was none"
    assert not brought(client, path, replacing=keep), "it is as it should be"
    for there in (b"", noise(6, 9000), noise(5, 9000)[:8000], noise(5, 9000) + b"more"):
        path.write_bytes(there)
        with pytest.raises(Precious):
            brought(client, path, replacing=keep)
        assert path.read_bytes() == there
        assert left(tmp_path) == ["copy"]
        assert brought(client, path, replacing=lambda _: None)
        assert path.read_bytes() == noise(5, 9000)
    assert len(set(contents)) == 4


def test_a_symbolic_link_stays_one(world, tmp_path):
    client = world.client()
    client.make(b"new")
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    brought(client, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_what_cannot_be_a_copy(world, tmp_path):
    """A directory, a pipe and a missing directory are refused, and left unchanged."""
    client = world.client()
    client.make(b"x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name, why in (
        ("pipe", "not a regular file"),
        ("directory", "regular file|directory"),
        ("missing/file", "cannot be written: No such file"),
    ):
        with pytest.raises(BadInput, match=why):
            brought(client, tmp_path / name)
    assert left(tmp_path) == ["directory", "pipe"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do anything")
def test_unreadable_and_unwritable_copies_are_named(world, tmp_path):
    client = world.client()
    client.make(b"x")
    (tmp_path / "secret").write_bytes(b"y")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(BadInput, match="cannot be read: Permission denied; it is as it was"):
        brought(client, tmp_path / "secret")
    (tmp_path / "shut").mkdir(mode=0o500)
    with pytest.raises(BadInput, match="cannot be written: Permission denied; it is as it was"):
        brought(client, tmp_path / "shut" / "file")


def test_a_disk_that_is_full(world, tmp_path, monkeypatch):
    client = world.client()
    client.make(noise(6, 5000))
    (tmp_path / "copy").write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(
        BadInput, match="cannot be written: No space left on device; it is as it was"
    ):
        brought(client, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"old"
    assert left(tmp_path) == ["copy"]


@pytest.mark.parametrize("how", ["in place", "replaced", "removed", "made"])
def test_a_copy_changed_meanwhile_by_another_program_is_left_alone(world, tmp_path, how):
    client = world.client()
    client.make(noise(7, 5000))
    path = tmp_path / "copy"
    if how != "made":
        path.write_bytes(noise(7, 5000)[:3000])
    copy = LocalCopy(path, SIZES)
    copy.open()
    client.run(fm_read(client.blocks, "f", None, copy))
    if how == "removed":
        path.unlink()
    elif how == "replaced":
        (tmp_path / "other").write_bytes(b"theirs")
        os.replace(tmp_path / "other", path)
    else:
        path.write_bytes(b"theirs")
    with pytest.raises(BadInput, match="was changed by another program"):
        copy.finish()
    copy.close()
    copy.close()
    assert not path.exists() if how == "removed" else path.read_bytes() == b"theirs"
    assert left(tmp_path) in (["copy"], [])


def test_a_local_file_that_changes_while_it_is_put(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(noise(8, 3000))
    file = os.open(path, os.O_RDONLY)
    try:
        source = content_of_file(file, "source", SIZES)
        assert b"".join(source.load(chunk) for chunk in source.chunks) == noise(8, 3000)
        assert source.length == 3000
        path.write_bytes(noise(8, 3000)[:2000])
        assert source.load(source.chunks[0]) == noise(8, 3000)[: source.chunks[0].length]
        with pytest.raises(BadInput, match="source changed while it was being put"):
            source.load(source.chunks[-1])
    finally:
        os.close(file)


@pytest.mark.parametrize(
    "data", [b"", b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"abcdefgh").cast("H")]
)
def test_the_chunks_of_bytes_join_to_the_bytes(data):
    whole = bytes(data)
    source = content(data)
    assert b"".join(source.load(chunk) for chunk in source.chunks) == whole
    assert source.length == len(whole)


def test_assembled_puts_repeated_blocks_together(world):
    client = world.client()
    data = b"z" * 10_000
    state = client.make(data, atomic=True)
    first = AssemblySink()
    client.run(fm_read(client.blocks, "f", None, first))
    assert first.finish() == data
    client.run(client.put(state, data + noise(9, 500)))
    again = AssemblySink(first)
    client.run(fm_read(client.blocks, "f", state, again))
    assert again.finish() == data + noise(9, 500)
