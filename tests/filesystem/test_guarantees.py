"""The promises of each call: puts are seen whole, and readers keep their opened version.

A write over an unseen version is refused.
"""

import errno
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ares.client.connect import connect
from ares.filesystem import AresFileSystem
from ares.filesystem.open_file import Pieces, replace
from ares.model.units import MIB

from .conftest import DOMAIN

Make = Callable[..., AresFileSystem]


def content(seed: int, size: int = 3 * MIB) -> bytes:
    return random.Random(seed).randbytes(size)


def strangers(reads: list[bytes], puts: list[bytes]) -> list[int]:
    """Return the ``reads`` of no put."""
    whole = set(puts)
    return [position for position, read in enumerate(reads) if read not in whole]


def read_in_steps(fs: AresFileSystem, path: str) -> bytes:
    with fs.open(path, "rb", block_size=MIB // 4) as file:
        return b"".join(iter(lambda: file.read(MIB // 3), b""))


def test_every_read_is_of_one_put(make: Make, here: str, tmp_path: Path) -> None:
    path, puts = f"{here}/f", [content(seed) for seed in range(12)]
    make().pipe_file(path, puts[0])

    def put(number: int) -> None:
        fs = make()
        for data in puts[number::3]:
            with fs.open(path, "wb", block_size=MIB // 2) as file:
                file.write(data)

    def read(number: int) -> list[bytes]:
        fs, local = make(), tmp_path / str(number)
        found = []
        for _ in range(3):
            fs.get_file(path, str(local))
            found += [read_in_steps(fs, path), fs.cat_file(path), local.read_bytes()]
        return found

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read, number) for number in range(2)]
        writers = [pool.submit(put, number) for number in range(3)]
        reads = [data for reader in readers for data in reader.result()]
        for writer in writers:
            writer.result()
    assert strangers(reads, puts) == []
    assert make().cat_file(path) in {series[-1] for series in (puts[0::3], puts[1::3], puts[2::3])}


def test_a_mixture_is_recognised(make: Make, here: str) -> None:
    """The check above rejects a reader that asks anew for every part.

    Such a reader pins no version.
    """
    fs, path, puts = make(), f"{here}/f", [content(1), content(2)]
    fs.pipe_file(path, puts[0])
    first = fs.cat_file(path, 0, MIB)
    fs.pipe_file(path, puts[1])
    mixed = first + fs.cat_file(path, MIB)
    assert strangers([puts[0], mixed, puts[1], b""], puts) == [1, 3]


def test_an_ended_put_is_read_by_all_and_changes_no_open_file(make: Make, here: str) -> None:
    ours, theirs, path = make(), make(), f"{here}/f"
    ours.pipe_file(path, content(1))
    with ours.open(path, "rb", block_size=MIB, cache_type="none") as file:
        begin = file.read(MIB)
        theirs.pipe_file(path, content(2))
        assert ours.cat_file(path) == content(2)
        assert begin + file.read() == content(1)
        assert file.info()["version"] != ours.info(path)["version"]


def test_an_open_file_that_is_deleted_or_changed_block_by_block_is_stale(
    make: Make, here: str
) -> None:
    fs, path = make(), f"{here}/f"
    fs.pipe_file(path, content(1))
    file = fs.open(path, "rb", cache_type="none")
    fs.rm_file(path)
    with pytest.raises(OSError, match="was changed since it was opened here") as stale:
        file.read()
    assert stale.value.errno == errno.ESTALE


async def test_a_shared_file_is_read_and_a_put_makes_it_atomic(
    make: Make, here: str, settings
) -> None:
    fs, path = make(asynchronous=True), f"{here}/shared"
    async with connect(settings) as manager:
        shared = (await manager.create_domain(DOMAIN))[0].file(path)
        await shared.write(content(1))
        before = await fs._info(path)
        assert (before["size"], before["atomic"]) == (3 * MIB, False)
        assert await fs._cat_file(path) == content(1)
        assert await fs._cat_file(path, -5) == content(1)[-5:]
        await shared.write(content(1)[:-1] + b"?")
        assert (await fs._info(path))["version"] != before["version"]
        await fs._pipe_file(path, b"whole")
        assert (await fs._info(path))["atomic"]
        assert await shared.read() == b"whole"
    await fs.aclose()


@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
def test_nothing_shows_before_it_is_closed_and_nothing_of_what_fails(
    fs: AresFileSystem, here: str, mode: str
) -> None:
    path = f"{here}/f"

    def fail() -> None:
        with fs.open(path, mode, block_size=MIB) as file:
            file.write(content(1))
            assert not fs.exists(path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not fs.exists(path)
    with fs.open(path, mode, block_size=MIB) as file:
        file.write(content(1))
    assert fs.cat_file(path) == content(1)


def test_a_transaction_publishes_at_its_end_or_not_at_all(fs: AresFileSystem, here: str) -> None:
    with fs.transaction:
        for name in "ab":
            with fs.open(f"{here}/{name}", "wb") as file:
                file.write(name.encode())
        unclosed = fs.open(f"{here}/unclosed", "wb")
        unclosed.write(b"c")
        assert fs.find(here) == []
    assert fs.cat_file(f"{here}/unclosed") == b"c"
    fs.rm_file(f"{here}/unclosed")
    assert fs.cat(fs.find(here)) == {f"{here}/a": b"a", f"{here}/b": b"b"}

    def fail() -> None:
        with fs.transaction:
            fs.pipe_file(f"{here}/c", b"at once")
            with fs.open(f"{here}/a", "wb") as file:
                file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert fs.cat_file(f"{here}/c") == b"at once"
    assert fs.cat_file(f"{here}/a") == b"a"


def test_appended_lines_follow_the_old_content(fs: AresFileSystem, here: str) -> None:
    path = f"{here}/log"
    for line in (b"one\n", b"two\n"):
        with fs.open(path, "ab") as file:
            file.write(line)
            assert file.tell() == {b"one\n": 4, b"two\n": 8}[line]
    with fs.open(path, "rt") as file:
        assert list(file) == ["one\n", "two\n"]


def test_what_was_appended_meanwhile_is_not_lost(make: Make, here: str) -> None:
    fs, path = make(), f"{here}/log"
    fs.pipe_file(path, b"one\n")
    ours = fs.open(path, "ab")
    ours.write(b"ours\n")
    with make().open(path, "ab") as theirs:
        theirs.write(b"theirs\n")
    with pytest.raises(
        OSError, match="replaced by another put meanwhile; none of the written bytes are stored"
    ) as stale:
        ours.close()
    assert stale.value.errno == errno.ESTALE
    assert fs.cat_file(path) == b"one\ntheirs\n"


def test_creating_refuses_a_file_created_meanwhile_by_another_client(make: Make, here: str) -> None:
    fs, path = make(), f"{here}/f"
    ours = fs.open(path, "xb")
    ours.write(b"ours")
    make().pipe_file(path, b"theirs", mode="create")
    with pytest.raises(FileExistsError):
        ours.close()
    assert fs.cat_file(path) == b"theirs"


def test_a_deletion_meanwhile_does_not_stop_a_put_that_can_begin_again(
    make: Make, here: str, tmp_path: Path
) -> None:
    fs, path = make(), f"{here}/f"
    fs.pipe_file(path, content(1))
    with fs.open(path, "wb", block_size=MIB) as file:
        file.write(content(1))
        make().rm_file(path)
        with pytest.raises(
            OSError,
            match="deleted meanwhile; none of the written bytes are stored, write them again",
        ):
            file.close()
    assert not fs.exists(path)
    fs.pipe_file(path, content(1))
    assert fs.cat_file(path) == content(1)


async def test_a_put_begins_again_with_its_content_when_the_file_is_deleted_under_it(
    make: Make, here: str
) -> None:
    fs, path, begun = make(asynchronous=True), f"{here}/f", 0
    await fs._pipe_file(path, content(1))

    async def pieces() -> Pieces:
        nonlocal begun
        begun += 1
        yield content(1)
        if begun == 1:
            await fs._rm_file(path)

    await replace(fs._connection, path, pieces, False)
    assert begun == 2
    assert await fs._cat_file(path) == content(1)
    await fs.aclose()


def test_the_version_changes_with_every_put(fs: AresFileSystem, here: str) -> None:
    path, versions, checksums = f"{here}/f", set(), set()
    for data in (b"a", b"b", b"a"):
        fs.pipe_file(path, data)
        versions |= {fs.ukey(path), fs.ukey(path)}
        checksums |= {fs.checksum(path)}
    assert (len(versions), len(checksums)) == (3, 3)


def test_a_pickled_reader_goes_on_with_the_same_content(make: Make, here: str) -> None:
    fs, path = make(shared=True), f"{here}/f"
    fs.pipe_file(path, content(1))
    with fs.open(path, "rb") as file:
        begin = file.read(MIB)
        pickled = pickle.dumps(file)
    fs.pipe_file(path, content(2))
    with pickle.loads(pickled) as file:
        assert begin + file.read() == content(1)
    with fs.open(path, "wb") as file, pytest.raises(RuntimeError, match="not supported"):
        pickle.dumps(file)
