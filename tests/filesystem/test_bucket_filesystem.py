"""Buckets through fsspec, on real servers in fsspec's event loop."""

import errno
import pickle
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import pytest
from fsspec.asyn import get_loop, sync
from fsspec.callbacks import Callback

from ares.bucket.index_records import BLOB_CHUNK_BYTES
from ares.client.buckets.bucket_errors import BucketExists, BucketNotEmpty, BucketNotFound
from ares.filesystem import AresBucketFileSystem, cluster_connection
from ares.filesystem.os_errors import as_os_error
from ares.model.configuration import Configuration
from ares.model.units import MIB
from tests.client.conftest import LogCluster

from .test_abstract import Fixtures

ROOT = Path(__file__).parents[2]
STREAMED = bytes(range(256)) * (5 * MIB // 256 * 2 + 1)
"""More than two blocks of an open file, and more than a chunk."""


@pytest.fixture(scope="module")
def bucket_cluster() -> Iterator[LogCluster]:
    async def begin() -> LogCluster:
        cluster = LogCluster(5)
        await cluster.start()
        await cluster.manager().create_bucket_domains(Configuration.ec(list(cluster.book), 3))
        await cluster.managers[0].create_bucket("photos")
        return cluster

    cluster = sync(get_loop(), begin)

    async def connect(_: object) -> Any:
        return cluster.manager()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_connection, "connect", connect)
        patch.setattr(cluster_connection, "settings_of", lambda path: path)
        fsspec.register_implementation("ares-bucket", AresBucketFileSystem, clobber=True)
        yield cluster
    sync(get_loop(), cluster.close)


@pytest.fixture
def bucket_fs(bucket_cluster: LogCluster) -> Any:
    return fsspec.filesystem("ares-bucket", cluster="cluster.toml")


@pytest.fixture
def other_fs(bucket_cluster: LogCluster) -> Any:
    return AresBucketFileSystem("cluster.toml", skip_instance_cache=True)


@pytest.fixture
def here(here: str) -> str:
    """Return an empty directory of the bucket."""
    return f"photos/{here}"


def bucket_of(fs: Any) -> Any:
    return sync(get_loop(), fs._connection.bucket, "photos")


class InBucket(Fixtures):
    @pytest.fixture
    def fs(self, bucket_fs: Any) -> Any:
        return bucket_fs


@pytest.mark.slow
class TestBucketCopy(abstract.AbstractCopyTests, InBucket):
    pass


@pytest.mark.slow
class TestBucketGet(abstract.AbstractGetTests, InBucket):
    pass


@pytest.mark.slow
class TestBucketPut(abstract.AbstractPutTests, InBucket):
    pass


class TestBucketOpen(abstract.AbstractOpenTests, InBucket):
    pass


class TestBucketPipe(abstract.AbstractPipeTests, InBucket):
    pass


def test_the_protocol_is_an_entry_point() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for name, place in declared["fsspec.specs"].items():
        module, _, member = place.partition(":")
        assert getattr(import_module(module), member).protocol == name


# -- the tree --------------------------------------------------------------------------------------


def test_directories_are_the_common_prefixes_of_keys(bucket_fs: Any, here: str) -> None:
    names = ["a", "d/b", "d/c", "d/e/f", "d/e/g/h", "d.txt"]
    bucket_fs.pipe({f"{here}/{name}": name.encode() for name in names})

    def within(*found: str) -> list[str]:
        return [f"{here}/{name}" for name in found]

    assert bucket_fs.ls(here, detail=False) == within("a", "d", "d.txt")
    assert [entry["type"] for entry in bucket_fs.ls(here)] == ["file", "directory", "file"]
    assert bucket_fs.ls(f"{here}/a", detail=False) == within("a")
    assert bucket_fs.find(here) == within("a", "d.txt", "d/b", "d/c", "d/e/f", "d/e/g/h")
    assert bucket_fs.find(here, maxdepth=2) == within("a", "d.txt", "d/b", "d/c")
    assert bucket_fs.find(f"{here}/d", withdirs=True, maxdepth=1) == within(
        "d", "d/b", "d/c", "d/e"
    )
    assert bucket_fs.glob(f"{here}/**/[fh]") == within("d/e/f", "d/e/g/h")
    assert bucket_fs.du(here) == sum(map(len, names))
    assert bucket_fs.info(f"{here}/d") == {"name": f"{here}/d", "size": 0, "type": "directory"}
    with pytest.raises(FileNotFoundError):
        bucket_fs.ls(f"{here}/none")
    with pytest.raises(IsADirectoryError):
        bucket_fs.rm(f"{here}/d")
    bucket_fs.rm(f"{here}/d", recursive=True)
    assert bucket_fs.find(here) == within("a", "d.txt")


def test_an_entry_tells_version_etag_and_time(bucket_fs: Any, here: str) -> None:
    path, seen = f"{here}/f", set()
    for data in (b"a", b"b", b"a"):
        bucket_fs.pipe_file(path, data)
        stored = sync(get_loop(), bucket_of(bucket_fs).stat, path.partition("/")[2])
        info = bucket_fs.info(path)
        assert (info["version"], info["etag"]) == (stored.version, stored.etag)
        assert bucket_fs.modified(path).timestamp() == info["mtime"] == stored.modified_ms / 1000
        seen.add(bucket_fs.ukey(path))
    assert len(seen) == 3


def test_buckets_are_the_directories_of_the_root(bucket_fs: Any) -> None:
    bucket_fs.mkdir("ares-bucket://tables")
    assert bucket_fs.ls("", detail=False) == ["photos", "tables"]
    assert bucket_fs.ls("tables") == []
    with pytest.raises(FileExistsError):
        bucket_fs.mkdir("tables")
    bucket_fs.makedirs("tables", exist_ok=True)
    bucket_fs.touch("tables/d/f")
    assert "tables/d/f" in bucket_fs.find("")
    assert "tables/d/f" not in bucket_fs.find("", maxdepth=2)
    with pytest.raises(OSError, match="has objects") as refused:
        bucket_fs.rmdir("tables")
    assert refused.value.errno == errno.ENOTEMPTY
    bucket_fs.rm("tables", recursive=True)
    bucket_fs.rmdir("tables")
    assert not bucket_fs.exists("tables")
    assert bucket_fs.find("tables") == []
    for use in (lambda: bucket_fs.pipe("tables/f", b""), lambda: bucket_fs.ls("tables")):
        with pytest.raises(FileNotFoundError):
            use()


def test_keys_that_are_no_paths_are_not_listed(bucket_fs: Any, here: str) -> None:
    key = here.partition("/")[2]
    for name in ("marker/", "a//b", "/c"):
        sync(get_loop(), bucket_of(bucket_fs).put, f"{key}/{name}", b"x")
    assert bucket_fs.ls(here, detail=False) == [f"{here}/a", f"{here}/marker"]
    assert bucket_fs.find(here) == []
    assert bucket_fs.ls(f"{here}/marker") == []


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, 3), (2, None), (-3, None), (1, -1), (-4, -2), (5, 2), (3, 100), (99, None)],
)
def test_a_part_of_an_object(bucket_fs: Any, here: str, start: int | None, end: int | None) -> None:
    bucket_fs.pipe_file(f"{here}/f", b"0123456789")
    assert bucket_fs.cat_file(f"{here}/f", start, end) == b"0123456789"[start:end]


def test_an_open_object_is_read_ahead_and_at_any_place(bucket_fs: Any, here: str) -> None:
    bucket_fs.pipe_file(f"{here}/f", STREAMED)
    with bucket_fs.open(f"{here}/f", block_size=MIB) as file:
        for at in (BLOB_CHUNK_BYTES - 2, 1, len(STREAMED) - 2):
            file.seek(at)
            assert file.read(5) == STREAMED[at : at + 5]
        file.seek(0)
        assert file.read(10) + file.read() == STREAMED
        file.seek(0)
        assert file.read(7) == STREAMED[:7]
        hits = file.cache.hit_count
        assert file.read(7) == STREAMED[7:14]
        assert file.cache.hit_count == hits + 1


def test_a_replaced_object_is_stale_to_its_readers(
    bucket_fs: Any, other_fs: Any, here: str
) -> None:
    path = f"{here}/f"
    bucket_fs.pipe_file(path, STREAMED)
    with bucket_fs.open(path, cache_type="none") as file:
        assert file.read(5) == STREAMED[:5]
        same = pickle.loads(pickle.dumps(file))
        assert same.read(5) == STREAMED[5:10]
        other_fs.pipe_file(path, STREAMED[::-1])
        for reader in (file, same):
            with pytest.raises(OSError, match="open it again") as stale:
                reader.read(5)
            assert stale.value.errno == errno.ESTALE
    assert bucket_fs.cat_file(path) == STREAMED[::-1]


# -- writing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
@pytest.mark.parametrize("data", [b"small", STREAMED], ids=["small", "streamed"])
def test_content_is_visible_at_the_close_or_never(
    bucket_fs: Any, here: str, mode: str, data: bytes
) -> None:
    path = f"{here}/f"

    def fail() -> None:
        with bucket_fs.open(path, mode) as file:
            file.write(data)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not bucket_fs.exists(path)
    with bucket_fs.open(path, mode) as file:
        for start in range(0, len(data), MIB):
            file.write(data[start : start + MIB])
        assert not bucket_fs.exists(path)
    assert bucket_fs.cat_file(path) == data


def test_an_abandoned_stream_leaves_the_object_as_it_was(bucket_fs: Any, here: str) -> None:
    path = f"{here}/f"
    bucket_fs.pipe_file(path, b"before")
    before = bucket_fs.ukey(path)
    file = bucket_fs.open(path, "wb", block_size=MIB)
    file.write(STREAMED)
    file.discard()
    assert (bucket_fs.cat_file(path), bucket_fs.ukey(path)) == (b"before", before)


def test_a_stream_to_a_deleted_bucket_fails(bucket_fs: Any) -> None:
    bucket_fs.mkdir("shortly")
    file = bucket_fs.open("shortly/f", "wb", block_size=MIB)
    bucket_fs.rmdir("shortly")

    def write() -> None:
        with file:
            for _ in range(3):
                file.write(STREAMED)

    with pytest.raises(FileNotFoundError, match="no bucket"):
        write()


@pytest.mark.parametrize("data", [b"small", STREAMED], ids=["small", "streamed"])
def test_one_of_the_rivals_creates_an_object(
    bucket_fs: Any, other_fs: Any, here: str, data: bytes
) -> None:
    path = f"{here}/f"
    files = [fs.open(path, "xb", block_size=MIB) for fs in (bucket_fs, other_fs) * 2]

    def write(number: int) -> int | None:
        try:
            with files[number]:
                files[number].write(b"%d" % number + data)
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(len(files)) as pool:
        (winner,) = [won for won in pool.map(write, range(len(files))) if won is not None]
    assert bucket_fs.cat_file(path) == b"%d" % winner + data
    with pytest.raises(FileExistsError):
        bucket_fs.open(path, "xb")
    with pytest.raises(FileExistsError):
        bucket_fs.pipe_file(path, b"", mode="create")


def test_appended_content_follows_the_old_content(bucket_fs: Any, here: str) -> None:
    path = f"{here}/log"
    for line in (b"one\n", STREAMED, b"", b"two\n"):
        with bucket_fs.open(path, "ab", block_size=MIB) as file:
            file.write(line)
    assert bucket_fs.cat_file(path) == b"one\n" + STREAMED + b"two\n"


@pytest.mark.parametrize("pieces", [1, 6], ids=["before the old content is read", "after that"])
def test_what_was_changed_meanwhile_is_not_appended_to(
    bucket_fs: Any, other_fs: Any, here: str, pieces: int
) -> None:
    path = f"{here}/log"
    bucket_fs.pipe_file(path, b"one\n")
    ours = bucket_fs.open(path, "ab", block_size=MIB)
    for _ in range(pieces):
        ours.write(bytes(MIB))
    other_fs.pipe_file(path, b"theirs\n")
    with pytest.raises(OSError, match="none of the written bytes are stored") as stale:
        ours.close()
    assert stale.value.errno == errno.ESTALE
    assert bucket_fs.cat_file(path) == b"theirs\n"


def test_a_transaction_publishes_streams_at_its_end(bucket_fs: Any, here: str) -> None:
    with bucket_fs.transaction:
        for name, data in (("a", b"small"), ("b", STREAMED)):
            with bucket_fs.open(f"{here}/{name}", "wb") as file:
                file.write(data)
        assert bucket_fs.find(here) == []
    assert bucket_fs.cat(bucket_fs.find(here)) == {f"{here}/a": b"small", f"{here}/b": STREAMED}


def test_copies_and_moves(bucket_fs: Any, here: str) -> None:
    bucket_fs.pipe_file(f"{here}/a", STREAMED)
    etag = bucket_fs.info(f"{here}/a")["etag"]
    bucket_fs.cp(f"{here}/a", f"{here}/b")
    bucket_fs.mv(f"{here}/b", f"{here}/c")
    bucket_fs.mv(f"{here}/c", f"{here}/c")
    bucket_fs.mv(f"{here}/c", f"{here}/d/")
    assert bucket_fs.find(here) == [f"{here}/a", f"{here}/d/c"]
    assert bucket_fs.info(f"{here}/d/c")["etag"] == etag
    bucket_fs.mv(f"{here}/d", f"{here}/e", recursive=True)
    assert bucket_fs.find(here) == [f"{here}/a", f"{here}/e/c"]
    with pytest.raises(FileNotFoundError):
        bucket_fs.mv(f"{here}/none", f"{here}/f")


def test_a_move_is_one_change(bucket_fs: Any, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_fs, "_cp_file", None)
    bucket_fs.pipe_file(f"{here}/a", b"x")
    bucket_fs.mv(f"{here}/a", f"{here}/b")
    assert bucket_fs.find(here) == [f"{here}/b"]


def test_local_files_come_and_go_with_progress(bucket_fs: Any, here: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAMED)
    put, get = Callback(), Callback()
    bucket_fs.put_file(tmp_path / "in", f"{here}/f", callback=put)
    bucket_fs.get_file(f"{here}/f", tmp_path / "out", callback=get)
    assert (tmp_path / "out").read_bytes() == STREAMED
    assert {(told.size, told.value) for told in (put, get)} == {(len(STREAMED),) * 2}
    with pytest.raises(FileNotFoundError):
        bucket_fs.get_file(f"{here}/none", tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        bucket_fs.put_file(tmp_path / "none", f"{here}/none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize(
    ("error", "kind", "number"),
    [
        (BucketNotFound("b"), FileNotFoundError, errno.ENOENT),
        (BucketExists("b"), FileExistsError, errno.EEXIST),
        (BucketNotEmpty("b"), OSError, errno.ENOTEMPTY),
    ],
)
def test_errors_of_buckets_have_numbers(error: Any, kind: type[OSError], number: int) -> None:
    seen = as_os_error(error)
    assert (type(seen), seen.errno, seen.strerror) == (kind, number, str(error))


# -- tables ----------------------------------------------------------------------------------------


def test_pandas_writes_and_reads_tables(bucket_cluster: LogCluster, here: str) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas pyarrow")
    pytest.importorskip("pyarrow", reason="pip install pandas pyarrow")
    options, url = {"cluster": "cluster.toml"}, f"ares-bucket://{here}/t"
    frame = pandas.DataFrame({"number": range(100_000)})
    frame.to_csv(f"{url}.csv.gz", index=False, storage_options=options)
    assert pandas.read_csv(f"{url}.csv.gz", storage_options=options).equals(frame)
    frame.to_parquet(f"{url}.parquet", storage_options=options)
    found = pandas.read_parquet(f"{url}.parquet", storage_options=options, columns=["number"])
    assert found.equals(frame)


def test_pyarrow_writes_and_reads_a_dataset(bucket_fs: Any, here: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import dataset

    table = pyarrow.table({"year": [2023, 2024, 2024], "value": [1, 2, 3]})
    dataset.write_dataset(
        table, here, filesystem=bucket_fs, format="parquet", partitioning=["year"]
    )
    found = dataset.dataset(here, filesystem=bucket_fs, format="parquet", partitioning=["year"])
    assert bucket_fs.ls(here, detail=False) == [f"{here}/2023", f"{here}/2024"]
    assert found.to_table(filter=dataset.field("year") == 2024).num_rows == 2
