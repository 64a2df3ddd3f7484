"""A file written in pieces: present whole or not at all, with few blocks under way.

No blocks stay behind.
"""

import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ares.client.file import File
from ares.client.manager import Manager
from ares.fragment.block import BLOCK_NAMES
from ares.fragment.divide import Sizes
from ares.fragment.replace import AtomicPut
from ares.fragment.report import DELETED_MEANWHILE, MADE_MEANWHILE, REPLACED_MEANWHILE
from ares.fragment.shared_memory import WINDOW_MAX
from ares.model.errors import BadInput, ObjectNotFound, Unavailable

from ..inproc.inproc_cluster import InprocCluster

SIZES = Sizes(256, 1024, 4096)


@pytest.fixture
async def cluster() -> AsyncIterator[InprocCluster]:
    cluster = InprocCluster()
    await cluster.start()
    yield cluster
    await cluster.close()


@pytest.fixture
async def manager(cluster: InprocCluster) -> Manager:
    return cluster.manager()


async def opened(manager: Manager, name: str = "f", *, atomic: bool = True) -> File:
    domain, _ = await manager.create_domain("files")
    return domain.file(name, atomic=atomic, sizes=SIZES)


async def blocks(manager: Manager) -> int:
    store = await manager.domain("files")
    return len([name async for name in store.list_named(BLOCK_NAMES)])


def content(seed: int, size: int = 100_000) -> bytes:
    return random.Random(seed).randbytes(size)


def pieces(data: bytes, seed: int) -> list[bytes]:
    chance, cuts = random.Random(seed), [0]
    while cuts[-1] < len(data):
        cuts.append(cuts[-1] + chance.choice([0, 1, 10, 1000, 20_000]))
    return [data[start:stop] for start, stop in itertools.pairwise(cuts)]


@pytest.mark.parametrize("size", [0, 1, 300, 100_000])
async def test_pieces_of_any_size_make_the_file_that_the_whole_makes(
    manager: Manager, size: int
) -> None:
    data = content(size, size)
    file = await opened(manager)
    async with file.writer() as writer:
        for piece in pieces(data, 1):
            await writer.write(piece)
    assert await (await opened(manager)).read() == data
    assert (await file.stat()).atomic
    again = await file.write(data)
    assert (again.kept, again.inserted, again.moved_bytes) == ((await file.stat()).blocks, 0, 0)


async def test_the_writer_sends_only_what_differs(manager: Manager) -> None:
    data = content(1)
    await (await opened(manager)).write(data)
    async with (await opened(manager)).writer() as writer:
        await writer.write(memoryview(data[:50_000] + b"inserted" + data[50_000:]))
    assert writer.report is not None
    assert writer.report.kept > 50
    assert writer.report.moved_bytes < 10_000


async def test_nothing_shows_before_the_end_and_then_everything(manager: Manager) -> None:
    reader, writer = await opened(manager), (await opened(manager)).writer()
    await writer.write(content(1))
    with pytest.raises(ObjectNotFound):
        await reader.read()
    report = await writer.close()
    assert await reader.read() == content(1)
    assert await writer.close() is report


async def test_leaving_by_an_error_leaves_nothing(manager: Manager) -> None:
    await (await opened(manager)).write(b"old")
    before = await blocks(manager)
    writer = (await opened(manager)).writer()

    async def fail() -> None:
        async with writer:
            await writer.write(content(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await (await opened(manager)).read() == b"old"
    assert await blocks(manager) == before
    await writer.abort()
    for late in (writer.write(b""), writer.close(), writer.begin()):
        with pytest.raises(BadInput, match="was closed, or has given up"):
            await late


async def test_few_blocks_are_under_way_at_once(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, most, place = 0, 0, AtomicPut.place

    def counted(*arguments: Any) -> Any:
        nonlocal active, most
        active += 1
        most = max(most, active)
        yield from place(*arguments)
        active -= 1

    monkeypatch.setattr(AtomicPut, "place", counted)
    async with (await opened(manager)).writer() as writer:
        await writer.write(content(1, 1_000_000))
    assert writer.report is not None
    assert writer.report.inserted > 3 * WINDOW_MAX
    assert 1 < most <= WINDOW_MAX


async def test_over_a_put_meanwhile_is_a_conflict_and_with_mine_it_is_not(manager: Manager) -> None:
    for mine, stands in ((False, b"theirs"), (True, content(1))):
        file = await opened(manager)
        await file.write(b"base", mine=True)
        writer = file.writer(mine=mine)
        await writer.write(content(1))
        await (await opened(manager)).write(b"theirs")
        report = await writer.close()
        assert [conflict.why for conflict in report.conflicts] == (
            [] if mine else [REPLACED_MEANWHILE]
        )
        assert await (await opened(manager)).read() == stands


async def test_a_refused_put_leaves_no_blocks(manager: Manager) -> None:
    writer = (await opened(manager)).writer()
    await writer.write(content(1))
    await (await opened(manager)).write(b"theirs")
    assert [conflict.why for conflict in (await writer.close()).conflicts] == [MADE_MEANWHILE]
    assert await blocks(manager) == 1


async def test_a_shared_file_is_replaced_as_a_whole(manager: Manager) -> None:
    shared = await opened(manager, atomic=False)
    await shared.write(content(1))
    async with (await opened(manager)).writer(mine=True) as writer:
        await writer.write(content(2))
    assert await shared.read() == content(2)
    assert (await shared.stat()).atomic


async def test_a_file_deleted_under_the_writer_is_not_half_there(manager: Manager) -> None:
    await (await opened(manager)).write(content(1))
    writer = (await opened(manager)).writer(mine=True)
    await writer.write(content(1))
    await (await opened(manager)).delete()
    assert [conflict.why for conflict in (await writer.close()).conflicts] == [DELETED_MEANWHILE]
    with pytest.raises(ObjectNotFound):
        await (await opened(manager)).read()
    assert await blocks(manager) == 0


async def test_a_failure_gives_up_the_whole_put_and_says_that_nothing_changed(
    cluster: InprocCluster,
) -> None:
    file = await opened(cluster.manager())
    await file.write(b"old")
    writer = (await opened(cluster.manager(timeout_s=1.0))).writer()
    await writer.begin()
    cluster.stop("s0", "s1")
    with pytest.raises(Unavailable, match="nothing was changed"):
        await writer.write(content(1, 4_000_000))
    with pytest.raises(BadInput, match="has given up"):
        await writer.close()
    cluster.restart("s0", "s1")
    assert await file.read() == b"old"


async def test_blocks_stay_after_a_publication_with_unknown_outcome(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def published(put: AtomicPut, overwrite: bool) -> Any:
        error = Unavailable(2, 1, {})
        error.may_have_taken_effect = uncertain
        raise error
        yield

    monkeypatch.setattr(AtomicPut, "publish", published)
    left = {}
    for uncertain in (False, True):
        writer = (await opened(manager)).writer()
        await writer.write(content(1))
        with pytest.raises(Unavailable):
            await writer.close()
        left[uncertain] = await blocks(manager)
    assert left[False] == 0
    assert left[True] > 50


async def test_only_bytes_are_content(manager: Manager) -> None:
    writer = (await opened(manager)).writer()
    with pytest.raises(BadInput, match="a file's content is bytes, not str"):
        await writer.write("text")  # type: ignore[arg-type]
