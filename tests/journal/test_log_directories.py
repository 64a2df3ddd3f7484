"""A server without a log's directory, or anchor, is refused like a server without a segment.

See ares/store/journal/log_directory.py.
"""

import asyncio
import errno
import gc
import os
import shutil
import threading
from functools import partial

import pytest

from ares.model.errors import BadInput, StoreDamaged
from ares.model.log_messages import Append, Appended
from ares.model.messages import Introduce, Refused
from ares.server.hosted_log import LOG_PLACE_BYTES
from ares.server.hosted_logs import HostedLogs, LogsParts
from ares.store.journal.disk import DISK_BLOCK_BYTES, Disk
from ares.store.journal.log_directory import BEGUN_NAME, LOGS_NAME, LogDirectories
from ares.store.journal.segments import ANCHOR_SUFFIX
from ares.testing.sim.shared_log.log_disk_server import SimLinks
from tests.sharedlog.chains import CLIENT, call, chain
from tests.sharedlog.hosted import OWNER

PLACE_BYTES = 64 * 1024


async def ran(journal, entries=(), answer=Appended, place_bytes=PLACE_BYTES):
    """Start a server of the log, append ``entries``, stop the server; return the log's length.

    Each append gets an ``answer`` of this type.
    """
    appended, links = asyncio.Semaphore(0), SimLinks(lambda server, messages: None)
    directories = LogDirectories(journal, OWNER, Disk(), place_bytes)
    loop, alone = asyncio.get_running_loop(), chain(0, 0, ("s0",))

    def respond(sender, messages):
        for message in messages:
            if isinstance(message, answer):
                appended.release()

    logs = HostedLogs(
        LogsParts(
            "s0",
            "s0",
            alone,
            respond,
            pytest.fail,
            loop,
            links,
            directories,
            place_bytes=place_bytes,
        )
    )
    try:
        logs.restore()
        for number, entry in enumerate(entries, 1):
            if number == 1:
                logs.handle(("client",), Introduce(call(), alone))
            logs.handle(("client",), Append(call(), alone.id, CLIENT, number, 1, 0, (entry,)))
        for _ in entries:
            await appended.acquire()
        return [segment.length for segment in logs.hosted.values()]
    finally:
        await logs.close()


@pytest.fixture
def journal(tmp_path):
    journal = tmp_path / "journal"
    assert asyncio.run(ran(journal, [b"x"] * 3)) == [3]
    return journal


def the_log(journal):
    [directory] = [path for path in (journal / LOGS_NAME).iterdir() if path.is_dir()]
    return directory


def anchor(journal):
    return the_log(journal).with_suffix(ANCHOR_SUFFIX)


def contents(directory):
    return {path: path.is_dir() or path.read_bytes() for path in directory.rglob("*")}


def gone(journal, *parts):
    for part in parts:
        shutil.rmtree(part) if part.is_dir() else part.unlink()


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (lambda journal: [the_log(journal)], "segments? .*had begun, says .*anchor, and none is"),
        (lambda journal: [anchor(journal)], "anchor is damaged: it is missing"),
        (lambda journal: [anchor(journal), the_log(journal)], "nothing of it is there"),
        (lambda journal: [journal / LOGS_NAME], "had begun, says .*logs.begun, and nothing of it"),
        (
            lambda journal: [anchor(journal), *the_log(journal).iterdir()],
            "had begun, says .*logs.begun, and nothing of it",
        ),
    ],
    ids=["directory", "anchor", "both", "all", "anchor and contents"],
)
async def test_a_start_without_a_log_is_refused_and_changes_nothing(journal, parts, why):
    gone(journal, *parts(journal))
    before = contents(journal)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=why) as caught:
            await ran(journal)
        assert contents(journal) == before
    for words in ("The server was not started", "nothing was changed", "--forget"):
        assert words in str(caught.value)


async def test_what_is_brought_back_starts(journal, tmp_path):
    kept = the_log(journal).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreDamaged):
        await ran(journal)
    kept.rename(journal / LOGS_NAME / anchor_name(journal))
    assert await ran(journal) == [3]


def anchor_name(journal):
    [path] = (journal / LOGS_NAME).glob(f"*{ANCHOR_SUFFIX}")
    return path.stem


async def test_logs_of_an_earlier_release_start_and_are_missed_then(journal):
    (journal / BEGUN_NAME).unlink()
    assert await ran(journal) == [3]
    gone(journal, journal / LOGS_NAME)
    with pytest.raises(StoreDamaged, match="nothing of it is there"):
        await ran(journal)


async def test_a_directory_of_an_earlier_release_without_files_starts(journal):
    """A crash of an earlier release left the directory before the first append."""
    (journal / BEGUN_NAME).unlink()
    gone(journal, anchor(journal), *the_log(journal).iterdir())
    assert await ran(journal) == []
    assert await ran(journal, [b"x"]) == [1]


async def test_a_log_without_room_for_its_anchor_does_not_begin(tmp_path, monkeypatch, caplog):
    """The list does not name the log, and the next start has no logs."""
    journal = tmp_path / "journal"

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "allocate", full)
        assert await ran(journal, [b"x"], answer=Refused) == []
    assert "cannot begin here: [Errno 28] No space left on device" in caplog.text
    assert not (journal / BEGUN_NAME).exists()
    assert await ran(journal, [b"x"]) == [1]


@pytest.mark.parametrize("moment", range(4))
async def test_a_crash_while_a_log_begins_leaves_a_start(tmp_path, monkeypatch, moment):
    """No reply was sent before, and the list names only directories on the disk."""
    journal, steps = tmp_path / "journal", []

    def crash_at(name, step, *arguments):
        steps.append(name)
        if len(steps) > moment:
            raise KeyboardInterrupt
        return step(*arguments)

    module = "ares.store.journal.log_directory"
    disk = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(
            f"{module}.replace_durably",
            partial(crash_at, "list", __import__(module, fromlist=["_"]).replace_durably),
        )
        for name in ("make_directory", "rename"):
            patch.setattr(Disk, name, partial(crash_at, name, getattr(disk, name)))
        with pytest.raises(KeyboardInterrupt):
            await ran(journal, [b"x"])
    assert await ran(journal) in ([], [0])
    assert await ran(journal, [b"x"]) == [1]


async def test_a_list_that_cannot_be_read_is_named(journal):
    (journal / BEGUN_NAME).unlink()
    (journal / BEGUN_NAME).mkdir()
    with pytest.raises(BadInput, match=r"cannot be opened: .*logs.begun"):
        await ran(journal)


async def test_a_start_that_a_damaged_log_refuses_leaves_no_file_open_and_no_thread(journal):
    def open_here():
        return {
            path
            for each in os.listdir("/proc/self/fd")
            if (path := os.path.realpath(f"/proc/self/fd/{each}")).startswith(str(journal))
        }

    [place] = journal.glob("logs/*/00000001.log")
    content = bytearray(place.read_bytes())
    content[: DISK_BLOCK_BYTES // 4] = bytes(DISK_BLOCK_BYTES // 4)
    place.write_bytes(content)
    before = threading.active_count()
    with pytest.raises(StoreDamaged):
        await ran(journal)
    assert threading.active_count() == before
    gc.collect()  # the error's traceback holds a map
    assert not open_here()


def test_each_start_has_a_number_of_its_own(tmp_path):
    directories = LogDirectories(tmp_path / "journal", OWNER, Disk(), PLACE_BYTES)
    assert [directories.begin_life() for _ in range(11)] == list(range(1, 12))
    assert [path.name for path in tmp_path.glob("journal/logs.life.*")] == ["logs.life.11"]


async def test_a_start_of_a_server_is_a_life_of_its_nodes(tmp_path):
    for life in (1, 2, 3):
        loop, links = asyncio.get_running_loop(), SimLinks(lambda server, messages: None)
        directories = LogDirectories(tmp_path / "journal", OWNER, Disk(), PLACE_BYTES)
        alone = chain(0, 0, ("s0",))
        logs = HostedLogs(
            LogsParts(
                *("s0", "s0", alone, lambda *_: None, pytest.fail, loop, links, directories),
                place_bytes=PLACE_BYTES,
            )
        )
        logs.restore()
        logs.handle(("client",), Introduce(call(), alone))
        logs.handle(("client",), Append(call(), alone.id, CLIENT, life, 1, 0, (b"x",)))
        await asyncio.sleep(0.1)
        assert [node.life for node in logs.nodes] == [life]
        await logs.close()


def test_a_new_log_takes_less_than_a_mebibyte(tmp_path):
    assert asyncio.run(ran(tmp_path, [b"x"] * 3, place_bytes=LOG_PLACE_BYTES)) == [3]
    taken = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file())
    assert taken < 1 << 20
    assert asyncio.run(ran(tmp_path, [bytes(60_000)] * 200, place_bytes=LOG_PLACE_BYTES)) == [200]
