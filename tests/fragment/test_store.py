"""Files as users hold them, over a cluster: memory of updates, views of readers, reports."""

import asyncio
import os
from pathlib import Path

import pytest

from ares.client.chunking import CUTS
from ares.client.local_copy import content_of_bytes
from ares.fragment.divide import FASTCDC, RABIN, Sizes
from ares.fragment.report import CHANGED_MEANWHILE, MADE_MEANWHILE, REPLACED_MEANWHILE
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, FileChanged, ObjectNotFound, Unavailable

from ..inproc.inproc_cluster import InprocCluster
from .memory_world import noise

SIZES = Sizes(64, 256, 1024)


@pytest.fixture
async def cluster():
    cluster = InprocCluster()
    await cluster.start()
    yield cluster
    await cluster.close()


async def store(cluster, **options):
    """Make a domain for many files, as a single client sees it."""
    domain, _ = await cluster.manager(**options).create_domain("files")
    return domain


async def two(cluster, data, **options):
    """Make two clients that have read the same file."""
    ours, theirs = [(await store(cluster)).file("f", sizes=SIZES, **options) for _ in range(2)]
    await ours.write(data)
    assert await ours.read() == await theirs.read() == data
    return ours, theirs


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("size", [0, 1, 1024, 5000])
async def test_a_written_file_is_read_by_another_client(cluster, atomic, size):
    data = noise(size, size)
    here = await store(cluster)
    async with here.file("f", atomic=atomic, sizes=SIZES) as file:
        report = await file.write(data)
        assert (report.conflicts, report.merged) == ((), 0)
        assert await file.read() == data
    there = await store(cluster)
    async with there.file("f") as file:
        assert await file.read() == data
        assert await file.read() == data
        about = await file.stat()
        assert (about.name, about.domain, about.size_bytes, about.atomic) == (
            "f",
            "files",
            size,
            atomic,
        )
        assert about.modified_s > 1_000_000_000
        await file.delete()
        with pytest.raises(ObjectNotFound):
            await file.read()
        assert [name async for name in there.list_named("")] == []
        await file.write(data + b"again")
        assert await file.read() == data + b"again"
    assert list(await here.files()) == ["f"]


async def test_a_file_is_a_domain_of_its_own(cluster):
    manager = cluster.manager()
    async with manager.file("own", sizes=SIZES) as file:
        await file.write(noise(1, 3000))
        assert (await file.stat()).domain == "file/own"
        moved = await file.reconfigure(
            Configuration.abd([cluster.book[name] for name in ("s3", "s4", "s5")])
        )
        assert moved.ours
        assert await file.read() == noise(1, 3000)
    async with cluster.manager().file("own") as file:
        assert await file.read() == noise(1, 3000)


async def test_edits_of_different_blocks_merge_and_of_the_same_one_do_not(cluster):
    data = noise(2, 5000)
    ours, theirs = await two(cluster, data)
    assert not (await ours.write(b"x" + data)).conflicts
    report = await theirs.write(data + b"y")
    assert not report.conflicts
    assert report.merged == 1
    assert await ours.read() == b"x" + data + b"y"
    report = await theirs.write(b"z" + data + b"y")
    assert [found.why for found in report.conflicts] == [CHANGED_MEANWHILE]
    report = await theirs.write(b"z" + data + b"y")
    assert report.conflicts, "what was not seen stays a conflict"
    report = await theirs.write(b"z" + data + b"y", mine=True)
    assert not report.conflicts
    assert await ours.read() == b"z" + data + b"y"


async def test_asking_how_large_a_file_is_does_not_make_its_changes_seen(cluster):
    data = noise(3, 3000)
    ours, theirs = await two(cluster, data)
    await theirs.write(b"x" + data)
    assert (await ours.stat()).size_bytes == len(data) + 1
    assert (await ours.write(b"y" + data)).conflicts
    assert await ours.read() == b"x" + data
    assert not (await ours.write(b"y" + data)).conflicts


async def test_a_copy_that_could_not_be_brought_up_to_date_is_still_the_old_base(cluster, tmp_path):
    data = noise(4, 3000)
    ours, theirs = await two(cluster, data)
    await theirs.write(b"x" + data)
    with pytest.raises(BadInput):
        await ours.read_into(tmp_path / "missing" / "copy")
    assert (await ours.write(b"y" + data)).conflicts
    assert await ours.read_into(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"x" + data
    assert not await ours.read_into(tmp_path / "copy")
    assert not (await ours.write(b"y" + data)).conflicts


async def test_local_paths_are_written_and_read(cluster, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(noise(5, 5000))
    file = (await store(cluster)).file("f", sizes=SIZES)
    for path in (source, str(source), os.fsencode(source).decode()):
        report = await file.write(Path(path) if path is source else path)
        assert not report.conflicts
    assert (report.modified, report.inserted) == (0, 0)
    assert await file.read() == noise(5, 5000)
    os.mkfifo(tmp_path / "pipe")
    for bad, why in (
        (tmp_path / "none", "cannot be read: No such file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular"),
    ):
        with pytest.raises(BadInput, match=why):
            await file.write(bad)
    with pytest.raises(BadInput, match="bytes, or the path of a local file, not int"):
        await file.write(5)
    for name in ("", "x" * 2000, 5):
        with pytest.raises(BadInput):
            (await store(cluster)).file(name)


async def test_ranges_of_a_snapshot(cluster):
    data = noise(6, 5000)
    ours, theirs = await two(cluster, data)
    state = await ours.snapshot()
    assert await ours.read_range(state, 1000, 1100) == data[1000:1100]
    await theirs.write(data[:1050] + b"x" + data[1051:])
    with pytest.raises(FileChanged):
        await ours.read_range(state, 1000, 1100)


async def test_concurrent_puts_of_an_atomic_file_conflict(cluster):
    data = noise(7, 3000)
    ours, theirs = await two(cluster, data, atomic=True)
    assert not (await ours.write(b"x" + data)).conflicts
    report = await theirs.write(data + b"y")
    assert [found.why for found in report.conflicts] == [REPLACED_MEANWHILE]
    assert await theirs.read() == b"x" + data
    await ours.write(data)
    assert not (await theirs.write(data + b"y", mine=True)).conflicts
    assert await ours.read() == data + b"y"


@pytest.mark.parametrize("atomic", [False, True])
async def test_mine_prevails_over_a_file_that_was_deleted_or_made_anew(cluster, atomic):
    data = noise(8, 3000)
    ours, theirs = await two(cluster, data, atomic=atomic)
    await theirs.delete()
    assert (await ours.write(b"x" + data)).conflicts
    assert not (await ours.write(b"x" + data, mine=True)).conflicts
    assert await theirs.read() == b"x" + data
    await theirs.delete()
    await theirs.write(noise(9, 3000))
    assert not (await ours.write(b"y" + data, mine=True)).conflicts
    assert await theirs.read() == b"y" + data


async def test_two_make_a_file_at_once(cluster):
    files = [(await store(cluster)).file("new", sizes=SIZES) for _ in range(4)]
    reports = await asyncio.gather(
        *(file.write(noise(number, 2000)) for number, file in enumerate(files))
    )
    there = await files[0].read()
    assert there in [noise(number, 2000) for number in range(4)]
    assert {found.why for report in reports for found in report.conflicts} <= {
        MADE_MEANWHILE,
        REPLACED_MEANWHILE,
    }
    assert sum(not report.conflicts for report in reports) <= 2
    reports = await asyncio.gather(
        *(file.write(noise(number, 2000), mine=True) for number, file in enumerate(files))
    )
    assert not any(report.conflicts for report in reports)


async def test_many_writers_of_different_places(cluster):
    data = noise(10, 12_000)
    places = range(1000, 12_000, 2000)
    files = [(await store(cluster)).file("f", sizes=SIZES) for _ in places]
    await files[0].write(data)
    await asyncio.gather(*(file.read() for file in files))
    edits = [data[:place] + b"!" + data[place + 1 :] for place in places]
    reports = await asyncio.gather(
        *(file.write(edit) for file, edit in zip(files, edits, strict=True))
    )
    assert not any(report.conflicts for report in reports)
    merged = bytearray(data)
    for place in places:
        merged[place] = ord("!")
    assert await files[0].read() == merged


async def test_a_put_without_a_quorum_says_what_became_of_it(cluster):
    data = noise(11, 3000)
    file = (await store(cluster)).file("f", sizes=SIZES)
    await file.write(data)
    hasty = (await store(cluster, timeout_s=1.0)).file("f", sizes=SIZES)
    await hasty.read()
    cluster.stop("s0", "s1")
    with pytest.raises(Unavailable, match="put of file 'f'"):
        await hasty.write(data[:1000] + b"x" + data[1001:])
    cluster.restart("s0", "s1")
    assert not (await file.write(data[:1000] + b"x" + data[1001:])).conflicts
    assert await file.read() == data[:1000] + b"x" + data[1001:]


def expected_parts(data, chunking):
    chunks = content_of_bytes(data, SIZES, CUTS[chunking]).chunks
    return [(chunk.length, chunk.digest) for chunk in chunks]


async def parts(cluster):
    state = await (await store(cluster)).file("f").snapshot()
    return [(part.length, part.digest) for part in state.parts if part.length]


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_file_keeps_its_chunking(cluster, tmp_path, atomic):
    data = noise(7, 50_000)
    ours = (await store(cluster)).file("f", atomic=atomic, sizes=SIZES, chunking=RABIN)
    await ours.write(data)
    assert expected_parts(data, RABIN) != expected_parts(data, FASTCDC)
    assert await parts(cluster) == expected_parts(data, RABIN)
    theirs = (await store(cluster)).file("f")
    assert (await theirs.stat()).chunking == RABIN
    (tmp_path / "copy").write_bytes(data)
    moved = []
    assert not await theirs.read_into(tmp_path / "copy", progress=moved.append)
    assert moved[-1].moved_bytes == 0
    edited = data[:25_000] + b"an edit" + data[25_000:]
    (tmp_path / "copy").write_bytes(edited)
    report = await theirs.write(tmp_path / "copy")
    assert 1 <= report.modified + report.inserted <= 5
    assert await parts(cluster) == expected_parts(edited, RABIN)
    state = await ours.snapshot()
    assert await ours.read_range(state, 24_990, 25_010) == edited[24_990:25_010]
    async with ours.writer() as writer:
        await writer.write(edited[:100])
        await writer.write(edited[100:] + data)
    assert await parts(cluster) == expected_parts(edited + data, RABIN)
    await ours.collect(0)
    assert await ours.read() == edited + data
    await theirs.delete()
    await theirs.write(data)
    assert (await theirs.stat()).chunking == FASTCDC


async def test_a_chunking_that_does_not_exist_is_refused(cluster):
    domain = await store(cluster)
    for bad in ("gear", 5, None):
        with pytest.raises(BadInput, match=f"no chunking {bad!r}, only fastcdc and rabin"):
            domain.file("f", chunking=bad)


async def test_progress_is_reported_and_a_collection_leaves_dropped_blocks(cluster):
    file = (await store(cluster)).file("f", atomic=True, sizes=SIZES)
    seen = []
    await file.write(noise(12, 5000), progress=seen.append)
    assert seen[-1].done_bytes == 5000
    await file.write(noise(13, 5000))
    assert await file.collect(0) == 0, "what a put has dropped is for its readers still"
    assert await file.read(progress=seen.append) == noise(13, 5000)
    assert seen[-1].stage == "read"


async def test_a_callback_that_fails_ends_the_put(cluster):
    def fail(_):
        raise RuntimeError("the caller's own")

    file = (await store(cluster)).file("f", sizes=SIZES)
    with pytest.raises(RuntimeError, match="the caller's own"):
        await file.write(noise(14, 3000), progress=fail)
    await file.write(noise(14, 3000))
    assert await file.read() == noise(14, 3000)
