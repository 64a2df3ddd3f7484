"""The library without asyncio, over a small real cluster; and the public names of `ares`."""

import asyncio
import functools
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from enum import StrEnum
from pathlib import Path

import pytest

import ares
from ares.cli.local.supervisor import Supervisor, members_of
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.errors import ConnectionClosed
from ares.platform.interpreter import python
from ares.reconfig.mover import Progress


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = create(
        tmp_path_factory.mktemp("cluster"), InitPlan(servers=3, consensus=1, base_port=0)
    )
    supervisor = Supervisor(settings.path)
    with supervisor.alone():
        supervisor.start(members_of(settings), 30.0, lambda: False)
    yield settings
    supervisor.stop()


@pytest.mark.process
def test_objects_through_the_blocking_client(settings: Settings) -> None:
    with ares.connect_blocking(str(settings.path)) as store:
        tag = store.write("objects/a", b"value")
        assert isinstance(tag, ares.Tag)
        assert store.read("objects/a") == b"value"
        store.write("objects/b", b"", timeout_s=10.0)
        assert store.stat("objects/a").tag == tag
        assert list(store.list("objects/")) == ["objects/a", "objects/b"]
        assert next(store.list(prefix="objects/")) == "objects/a"
        store.delete("objects/b")
        with pytest.raises(ares.ObjectNotFound):
            store.read("objects/b")
        store.write(StrEnum("Key", {"A": "objects/a"}).A, b"of an enumeration")
        assert store.read("objects/a") == b"of an enumeration"
        with pytest.raises(ares.BadInput):
            store.write("", b"")
        assert store.configuration.n == 3
        assert store.status().servers["s0"].server == "s0"


@pytest.mark.process
def test_arguments_that_cannot_be_meant_are_refused_before_anything_is_sent(
    settings: Settings,
) -> None:
    with ares.connect_blocking(str(settings.path)) as store:
        for key in (b"bytes", 7, None):
            with pytest.raises(
                ares.BadInput, match=f"a key is text .str., not {type(key).__name__}"
            ):
                store.read(key)
        for value in ("text", 7, None, [1, 2]):
            with pytest.raises(
                ares.BadInput,
                match=f"a value is bytes, not {type(value).__name__}; nothing was sent",
            ):
                store.write("refused", value)
        for timeout_s in (0, -1.0, float("nan")):
            with pytest.raises(
                ares.BadInput, match="a timeout is a number of seconds, more than 0 and"
            ):
                store.write("refused", b"value", timeout_s=timeout_s)
        with pytest.raises(ares.ObjectNotFound):
            store.read("refused")
        for value in (bytearray(b"value"), memoryview(b"v.a.l.u.e")[::2], memoryview(b"")):
            store.write("taken", value)
            assert store.read("taken") == bytes(value)


def call_until_refused(call: Callable[[], object], ends: list[BaseException]) -> None:
    while not any(isinstance(end, ares.BadInput) for end in ends[-1:]):
        try:
            call()
        except BaseException as error:
            ends.append(error)


@pytest.mark.process
def test_what_other_threads_call_while_it_is_closed_ends(settings: Settings) -> None:
    """Each call, however late, has a result or an error of ares."""
    for _ in range(5):
        with ares.connect_blocking(settings) as store:
            store.write("closing", b"value")
            read = functools.partial(store.read, "closing", timeout_s=5.0)
            ends: list[list[BaseException]] = [[] for _ in range(10)]
            threads = [
                threading.Thread(target=call_until_refused, args=(read, those), daemon=True)
                for those in ends
            ]
            threads += [threading.Thread(target=store.close, daemon=True) for _ in range(2)]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join(20.0)
        assert not any(thread.is_alive() for thread in threads), ends
        assert {type(error) for those in ends for error in those} <= {
            ConnectionClosed,
            ares.BadInput,
        }


@pytest.mark.process
def test_a_domain_blocks_as_well_and_is_reconfigured_with_callbacks_in_this_thread(
    settings: Settings,
) -> None:
    with ares.connect_blocking(settings) as store:
        with pytest.raises(ares.DomainNotFound):
            store.domain("photos")
        photos = store.domain("photos", create=ares.Configuration.abd(["s0", "s1", "s2"]))
        photos.write("p", b"picture")
        assert [domain.name for domain in store.domains()] == ["default", "photos"]
        again, _ = store.create_domain("photos")
        assert again.read("p") == b"picture"
        seen: list[tuple[Progress, threading.Thread, bytes]] = []
        wished = ares.Configuration.ec(["s0", "s1", "s2"], k=1)
        result = photos.reconfigure(
            wished,
            progress=lambda progress: seen.append(
                (progress, threading.current_thread(), photos.read("p"))
            ),
        )
        assert (result.ours, result.moved, photos.configuration.dap) == (True, 1, "ec")
        assert seen[0][0].stage == "read-config"
        assert {(thread, value) for _, thread, value in seen} == {
            (threading.current_thread(), b"picture")
        }


@pytest.mark.process
def test_files_through_the_blocking_client(settings: Settings, tmp_path: Path) -> None:
    with ares.connect_blocking(settings) as store:
        seen: list[threading.Thread] = []
        with store.file("films/a", sizes=ares.Sizes(64, 256, 1024)) as film:
            report = film.write(
                b"0123456789" * 1000, progress=lambda _: seen.append(threading.current_thread())
            )
            assert isinstance(report, ares.WriteReport)
            assert set(seen) == {threading.current_thread()}
            assert film.read() == b"0123456789" * 1000
            assert film.read_into(tmp_path / "film") is True
            assert film.read_into(tmp_path / "film") is False
            assert film.read_range(film.snapshot(), 5, 8) == b"567"
            stat = film.stat()
            assert isinstance(stat, ares.FileStat)
            assert (film.name, stat.name, stat.domain, stat.size_bytes, stat.atomic) == (
                "films/a",
                "films/a",
                "file/films/a",
                10_000,
                False,
            )
            assert film.state.length == 10_000
        assert store.files("films/") == ["films/a"]
        with pytest.raises(ares.ObjectNotFound):
            store.file("films/b").read()
        with pytest.raises(ares.BadInput):
            store.file("")
        store.file("films/a").delete()
        assert store.files() == []


@pytest.mark.process
def test_a_file_has_the_base_that_it_is_given(settings: Settings) -> None:
    with ares.connect_blocking(settings) as store:
        shelf = store.domain("shelf", create=ares.Configuration.abd(["s0", "s1", "s2"]))
        ann, bob = shelf.file("book"), shelf.file("book")
        ann.write(b"first")
        bob.state = ann.state
        ann.write(b"second")
        [conflict] = bob.write(b"third").conflicts
        assert isinstance(conflict, ares.Conflict)
        assert (conflict.theirs, shelf.file("book").read()) == (b"second", b"second")
        assert shelf.files() == ["book"]


@pytest.mark.process
def test_versions_through_the_blocking_client(settings: Settings) -> None:
    with ares.connect_blocking(settings) as store:
        made = store.write_versioned("doc", b"one", None)
        assert isinstance(made, ares.VersionedResult)
        assert (made.changed, store.read_versioned("doc")) == (True, (made.version, b"one"))
        assert store.write_versioned("doc", b"two", made.version).changed
        late = store.write_versioned("doc", b"three", made.version)
        assert (late.changed, late.value) == (False, b"two")


@pytest.mark.process
def test_an_error_of_a_callback_reaches_the_caller_and_leaves_the_connection_usable(
    settings: Settings,
) -> None:
    def stumble(_: Progress) -> None:
        raise ZeroDivisionError

    with ares.connect_blocking(settings) as store:
        store.write("callback", b"kept")
        with pytest.raises(ZeroDivisionError):
            store.reconfigure(ares.Configuration.abd(["s0", "s1", "s2"]), progress=stumble)
        assert store.read("callback") == b"kept"


@pytest.mark.process
def test_many_threads_share_a_connection(settings: Settings) -> None:
    with ares.connect_blocking(settings) as store:

        def work(number: int) -> None:
            for count in range(20):
                store.write(f"threads/{number}", b"%d" % count)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [store.read(name) for name in store.list("threads/")] == [b"19"] * 5


def test_a_loop_that_cannot_begin_is_an_error_and_no_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(main: Coroutine[None, None, None]) -> None:
        main.close()
        raise OSError("no more descriptors")

    monkeypatch.setattr("ares.client.blocking.run", run)
    settings = create(tmp_path / "cluster", InitPlan(servers=3, consensus=1, base_port=0))
    with pytest.raises(OSError, match="no more descriptors"):
        ares.connect_blocking(str(settings.path))


@pytest.mark.process
def test_closing_ends_the_thread_and_what_comes_later_is_refused(settings: Settings) -> None:
    before = threading.active_count()
    store = ares.connect_blocking(settings)
    photos = store.domain("closing", create=ares.Configuration.abd(["s0", "s1", "s2"]))
    assert threading.active_count() == before + 1
    store.close()
    store.close()
    assert threading.active_count() == before
    for late in (store, photos):
        with pytest.raises(ares.BadInput, match="closed"):
            late.read("a")


def test_a_file_that_is_no_cluster_file_starts_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(ares.BadInput):
        ares.connect_blocking(tmp_path / "missing.toml")
    assert threading.active_count() == before


@pytest.mark.process
def test_what_can_be_called_is_what_the_asynchronous_ones_have(settings: Settings) -> None:
    with ares.connect_blocking(settings) as store:
        public = {
            name
            for kind in (Manager, ObjectStore)
            for name in dir(kind)
            if not name.startswith("_")
        }
        assert set(dir(store)) == public
        assert not [
            name
            for name in public - {"name", "configuration", "pending", "troubles"}
            if not callable(getattr(store, name))
        ]
        with pytest.raises(AttributeError):
            store.no_such_method()


def test_the_lazy_names_are_all_there() -> None:
    assert {
        name: getattr(ares, name).__name__ for name in ares.__all__ if name != "__version__"
    } == {name: name for name in ares.__all__ if name != "__version__"}
    assert set(ares.__all__) <= set(dir(ares))
    assert not hasattr(ares, "no_such_name")


@pytest.mark.parametrize("module", ["ares", "ares.dap.primitives", "ares.registers.operations"])
def test_importing_the_protocol_loads_no_transport(module: str) -> None:
    program = (
        f"import sys, {module}; sys.exit(bool({{'zmq', 'asyncio', 'pysyncobj'}} & "
        "set(sys.modules)))"
    )
    assert subprocess.run(python("-c", program), check=False, timeout=240).returncode == 0


@pytest.mark.process
async def test_another_event_loop_is_refused_before_anything_is_sent(settings: Settings) -> None:
    async with ares.connect(str(settings.path)) as store:
        await store.write("here", b"value")

        async def elsewhere() -> None:
            for operation in (
                store.write("here", b"other"),
                store.read("here"),
                store.stat("here"),
                store.delete("here"),
            ):
                with pytest.raises(ares.BadInput, match="event loop where it was made"):
                    await operation

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await store.read("here") == b"value"


@pytest.mark.process
async def test_a_forked_child_is_refused_its_parents_connection(settings: Settings) -> None:
    async with ares.connect(str(settings.path)) as store:
        await store.write("here", b"value")
        child = os.fork()
        if child == 0:
            try:
                with pytest.raises(ares.BadInput, match="event loop where it was made"):
                    store.read("here").send(None)
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        assert await store.read("here") == b"value"


@pytest.mark.process
def test_an_event_loop_may_be_run_again_in_another_thread(settings: Settings) -> None:
    loop = asyncio.new_event_loop()

    async def opened() -> Manager:
        return await ares.connect(str(settings.path))

    async def used() -> bytes:
        await store.write("there", b"value")
        return await store.read("there")

    store = loop.run_until_complete(opened())
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(loop.run_until_complete(used())))
    thread.start()
    thread.join()
    loop.run_until_complete(store.close())
    loop.close()
    assert found == [b"value"]
