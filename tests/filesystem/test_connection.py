"""Places of use of a file system: with and without an event loop, in threads, in processes."""

import asyncio
import gc
import os
import pickle
import subprocess
import threading
import weakref
from collections.abc import Callable

import fsspec
import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.filesystem import AresFileSystem
from ares.platform.interpreter import python

from .conftest import DOMAIN

Make = Callable[..., AresFileSystem]


def test_the_protocol_is_registered(settings: Settings, here: str) -> None:
    assert fsspec.get_filesystem_class("ares") is AresFileSystem
    options = {"cluster": str(settings.path), "domain": DOMAIN, "create": True}
    with fsspec.open(f"ares://{here}/f.txt", "w", **options) as file:
        file.write("text")
    with fsspec.open(f"ares://{here}/f.txt", **options) as file:
        assert file.read() == b"text"
    fs, path = fsspec.url_to_fs(f"ares://{here}", **options)
    assert fs.ls(path, detail=False) == [f"{here}/f.txt"]
    assert fs is fsspec.filesystem("ares", **options)
    assert fs.to_dict() == {
        "cls": "ares.filesystem.system:AresFileSystem",
        "protocol": "ares",
        "args": [],
        **options,
    }


def test_a_file_system_pickles_by_its_options(make: Make, here: str) -> None:
    fs = make(shared=True)
    fs.pipe_file(f"{here}/f", b"x")
    again = pickle.loads(pickle.dumps(fs))
    assert again == fs
    assert again.cat_file(f"{here}/f") == b"x"


def test_another_process_connects_anew(make: Make, here: str) -> None:
    fs = make()
    fs.pipe_file(f"{here}/f", b"x")
    program = (
        "import sys, pickle; fs, path = pickle.load(sys.stdin.buffer); print(fs.cat_file(path), "
        "fs.ls('', detail=False) != [])"
    )
    done = subprocess.run(
        python("-c", program),
        input=pickle.dumps((fs, f"{here}/f")),
        capture_output=True,
        timeout=240,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == ([b"b'x'", b"True"], b"")


FORKS = """
import os, sys, fsspec
fs = fsspec.filesystem("ares", cluster=sys.argv[1], domain=sys.argv[2])
fs.pipe_file(sys.argv[3], b"parent")
child = os.fork()
if not child:
    fs.pipe_file(sys.argv[3], fs.cat_file(sys.argv[3]) + b" and child")
    fresh = fsspec.filesystem("ares", cluster=sys.argv[1], domain=sys.argv[2])
    os._exit(fresh is fs or fresh.cat_file(sys.argv[3]) != b"parent and child")
assert os.waitpid(child, 0)[1] == 0
print(fs.cat_file(sys.argv[3]).decode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_process_connects_anew(settings: Settings, fs: AresFileSystem, here: str) -> None:
    fs.pipe_file(f"{here}/f", b"")
    command = python("-c", FORKS, str(settings.path), DOMAIN, f"{here}/f")
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.stdout, done.stderr) == ("parent and child\n", "")


async def test_without_threads_in_an_event_loop(make: Make, here: str) -> None:
    fs = make(asynchronous=True)
    threads = threading.active_count()
    await asyncio.gather(
        *(fs._pipe_file(f"{here}/{number}", b"%d" % number) for number in range(20))
    )
    assert await fs._cat(await fs._find(here)) == {
        f"{here}/{number}": b"%d" % number for number in range(20)
    }
    assert [name async for name, _, _ in fs._walk(here)] == [here]
    await fs._rm(here, recursive=True)
    assert not await fs._exists(here)
    await fs.aclose()
    assert threading.active_count() <= threads + 8  # the threads of to_thread
    assert await fs._exists("")
    await fs.aclose()


def test_one_event_loop_after_the_other(make: Make, here: str) -> None:
    fs = make(asynchronous=True)

    async def put(data: bytes) -> bytes:
        await fs._pipe_file(f"{here}/f", data)
        found: bytes = await fs._cat_file(f"{here}/f")
        if data != b"left open":
            await fs.aclose()
        return found

    for data in (b"left open", b"closed", b"again"):
        assert asyncio.run(put(data)) == data
        gc.collect()


def test_many_threads_share_one(fs: AresFileSystem, here: str) -> None:
    def work(number: int) -> None:
        for count in range(5):
            with fs.open(f"{here}/{number}", "wb") as file:
                file.write(b"%d" % count)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fs.cat(fs.find(here)) == {f"{here}/{number}": b"4" for number in range(5)}


def test_an_unused_connection_is_closed(settings: Settings) -> None:
    fs = fsspec.filesystem(
        "ares", cluster=str(settings.path), domain=DOMAIN, create=True, skip_instance_cache=True
    )
    fs.exists("f")
    connection = fs._connection
    manager = connection._manager
    gone = weakref.ref(fs)
    del fs
    gc.collect()
    assert gone() is None
    assert connection._manager is None
    closed = asyncio.run_coroutine_threadsafe(manager.close(), fsspec.asyn.get_loop())
    closed.result(10)
    assert manager._runner._closed


def test_a_program_that_closes_nothing_ends(
    settings: Settings, fs: AresFileSystem, here: str
) -> None:
    fs.pipe_file(f"{here}/f", b"x")
    program = (
        "import sys, fsspec; print(fsspec.open(sys.argv[1], cluster=sys.argv[2], "
        "domain=sys.argv[3]).open().read())"
    )
    command = python("-c", program, f"ares://{here}/f", str(settings.path), DOMAIN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'x'\n", "")


def test_the_key_is_the_one_that_the_environment_names(tmp_path, monkeypatch, make: Make) -> None:
    keyed = create(
        tmp_path / "keyed", InitPlan(servers=3, consensus=0, base_port=0, security="curve")
    )
    monkeypatch.setenv("ARES_KEY", str(tmp_path / "mine.key"))
    with pytest.raises(ValueError, match=r"mine\.key"):
        make(cluster=str(keyed.path)).exists("f.txt")
