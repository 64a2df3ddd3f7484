"""The access log: its lines, their bounds, slow and full disks, rotation."""

import json
import os
import time

import pytest

import ares
from ares.gateway.http import access_log
from ares.gateway.http.access_log import ACCESS_LINE_BYTES_MAX, AccessLine, AccessLog


def line(key="k", **changes):
    facts = {"time": "t", "server": "g", "address": "127.0.0.1", "access_key": "AK"}
    facts |= {"operation": "GetObject", "method": "GET", "bucket": "b", "key": key, "status": 200}
    facts |= {"error": "", "received_bytes": 0, "sent_bytes": 1, "ms": 0.5, "request": "R"}
    return AccessLine(**facts | changes)


def lines_of(path):
    return [json.loads(each) for each in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "access.log"


@pytest.fixture
def log(path):
    log = AccessLog(str(path), "g")
    yield log
    log.close()


def test_lines_are_written_before_the_end(log, path):
    for number in range(1000):
        log.note(line(str(number)))
    log.close()
    assert [each["key"] for each in lines_of(path)] == list(map(str, range(1000)))
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("character", ["k", "\x01", "\x9b", "\U0001f600", '"'], ids=ascii)
def test_a_line_has_a_bound(character):
    longest = {"address": "f" * 45, "access_key": "A" * 128, "bucket": "b" * 63}
    longest |= {"operation": "o" * 64, "error": "e" * 64, "sent_bytes": 2**60}
    encoded = line(character * 1024, **longest).encoded()
    assert len(encoded) <= ACCESS_LINE_BYTES_MAX
    assert json.loads(encoded)["key"] == character * 512


def test_a_line_commands_no_terminal_and_has_one_end():
    key = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029))) + "é\u200b"
    encoded = line(key).encoded()
    assert len(encoded.decode().splitlines()) == 1
    assert not set(key[:-2]) & set(encoded.decode()[:-1])
    assert json.loads(encoded)["key"] == key


def test_a_pipe_without_a_reader_stops_no_process(log, path):
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ares.BadInput, match="No such device"):
        AccessLog(str(path), "g")
    log.reopen()
    log.close()
    assert not log._thread.is_alive()


def test_a_rotated_file_is_opened_again(log, path, tmp_path):
    log.note(line("before"))
    while not path.read_bytes():
        time.sleep(0.01)
    path.rename(tmp_path / "access.log.1")
    log.reopen()
    while not path.exists():
        time.sleep(0.01)
    log.note(line("behind"))
    log.close()
    assert [each["key"] for each in lines_of(path)] == ["behind"]
    assert [each["key"] for each in lines_of(tmp_path / "access.log.1")] == ["before"]


def test_a_name_that_cannot_be_opened_again_leaves_the_file(log, path, tmp_path, caplog):
    log.note(line("before"))
    while not path.read_bytes():
        time.sleep(0.01)
    path.rename(tmp_path / "kept")
    path.mkdir()
    log.reopen()
    log.note(line("behind"))
    log.close()
    assert len(lines_of(tmp_path / "kept")) == 2
    assert "cannot be opened again" in caplog.text


def test_a_stopped_disk_costs_lines_and_no_time_of_the_caller(tmp_path, monkeypatch):
    """A pipe without reads stands for the disk. A later line has the number of lost lines."""
    monkeypatch.setattr(access_log, "WAITING_BYTES_MAX", 100_000)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(path), "g")
    noted = 4000
    for number in range(noted):
        log.note(line(str(number)))
    assert log._waiting_bytes <= 100_000
    os.set_blocking(reader, True)
    received, lost = b"", 0
    while received.count(b"\n") + lost - (lost > 0) < noted:
        received += os.read(reader, 65536)
        told = [json.loads(each) for each in received.splitlines(True) if each.endswith(b"\n")]
        lost = sum(each.get("lost", 0) for each in told)
    assert lost > 0
    log.close()
    os.close(reader)


def test_a_full_disk_is_reported_and_lines_go_on_later(log, path, caplog):
    full, kept = os.open("/dev/full", os.O_WRONLY), os.dup(log._descriptor)
    os.dup2(full, log._descriptor)
    log.note(line("lost"))
    while "cannot be written" not in caplog.text:
        time.sleep(0.01)
    os.dup2(kept, log._descriptor)
    log.note(line("kept"))
    log.close()
    found = lines_of(path)
    assert [each["key"] for each in found if "key" in each] == ["kept"]
    assert sum(each.get("lost", 0) for each in found) == 1
    for descriptor in (full, kept):
        os.close(descriptor)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(ares.BadInput, match=r"absent/access\.log .*No such file"):
        AccessLog(str(tmp_path / "absent/access.log"), "g")


def test_a_torn_line_does_not_spoil_the_next_one(log, path, monkeypatch):
    write, torn = os.write, []

    def short(descriptor, data):
        if descriptor == log._descriptor and len(torn) < 2:
            torn.append(data)
            if len(torn) == 2:
                raise OSError(28, "full")
            return write(descriptor, data[:10])
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", short)
    log.note(line("torn"))
    while len(torn) < 2:
        time.sleep(0.01)
    log.note(line("whole"))
    log.close()
    first, *rest = path.read_bytes().splitlines()
    assert len(first) == 10
    assert "whole" in [json.loads(each).get("key") for each in rest]
