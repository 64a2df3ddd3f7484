"""The module `process`: ends its own processes, and no others."""

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from .ansible_runs import MISSING, PYTHON, module_of, ports

pytest.importorskip("ansible.release", reason=MISSING)


@pytest.fixture(scope="module")
def module():
    """Return the module, which is in no package."""
    return module_of("process")


def act(module, tmp_path, state, command=("sleep", "60"), check_mode=False, **more):
    parameters = {
        "state": state,
        "pid_file": str(tmp_path / "p.pid"),
        "command": list(command),
        "log": str(tmp_path / "p.log"),
        "exit_status": None,
    }
    parameters |= {"once": False, "environment": {}, "user": "", "directory": "/", "stop_s": 5.0}
    parameters |= {"needs": [], "ready": {}, "ready_s": 5.0, "ended_s": 0.0} | more

    def fail(msg):
        raise AssertionError(msg)

    return module.act(SimpleNamespace(params=parameters, check_mode=check_mode, fail_json=fail))


def gone(pid):
    """Return whether the process is gone; a zombie counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def ended(module, tmp_path, **more):
    deadline = time.monotonic() + 60
    while (found := act(module, tmp_path, "query", **more))["pid"] and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_it_is_started_once_and_ended(module, tmp_path):
    first = act(module, tmp_path, "started")
    assert first["changed"]
    assert act(module, tmp_path, "started") == {
        "changed": False,
        "pid": first["pid"],
        "status": None,
    }
    second = act(module, tmp_path, "restarted")
    assert second["pid"] not in (0, first["pid"])
    assert act(module, tmp_path, "stopped")["changed"]
    assert gone(second["pid"])
    assert not act(module, tmp_path, "stopped")["changed"]
    assert not (tmp_path / "p.pid").exists()


def test_another_process_with_that_pid_is_left_alone(module, tmp_path):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        try:
            (tmp_path / "p.pid").write_text(f"{other.pid} 1 another-run-of-the-machine\n")
            assert act(module, tmp_path, "query")["pid"] == 0
            assert act(module, tmp_path, "stopped")["pid"] == 0
            assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.parametrize("text", ["", "\n", "x", "12", "-1 5 b", "9" * 30 + " 1 x"])
def test_a_torn_pid_file_names_no_process(module, tmp_path, text):
    (tmp_path / "p.pid").write_text(text)
    assert act(module, tmp_path, "query")["pid"] == 0


def test_what_ignores_sigterm_is_killed_with_what_it_started(module, tmp_path):
    script = (
        f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/child; touch {tmp_path}/up; while :; do "
        "sleep 0.05; done"
    )
    act(module, tmp_path, "started", ("sh", "-c", script))
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    assert act(module, tmp_path, "stopped", stop_s=0.3)["changed"]
    child = int((tmp_path / "child").read_text())
    assert gone(child)


def test_a_child_that_outlives_the_end_of_its_parent_is_killed(module, tmp_path):
    script = (
        f"(trap '' TERM; touch {tmp_path}/ignores; exec sleep 60) & echo $! > {tmp_path}/child; "
        f"touch {tmp_path}/up; wait"
    )
    act(module, tmp_path, "started", ("sh", "-c", script))
    while not ((tmp_path / "up").exists() and (tmp_path / "ignores").exists()):
        time.sleep(0.02)
    assert act(module, tmp_path, "stopped", stop_s=0.3)["changed"]
    assert gone(int((tmp_path / "child").read_text()))


def test_how_a_command_ended_is_kept_and_it_is_not_started_again(module, tmp_path):
    more = {"exit_status": str(tmp_path / "p.status"), "once": True}
    command = (PYTHON, "-c", "import os, sys; print(os.environ['A']); sys.exit(3)")
    act(module, tmp_path, "started", command, environment={"A": "said"}, **more)
    assert ended(module, tmp_path, **more)["status"] == 3
    assert (tmp_path / "p.log").read_text() == "said\n"
    assert not act(module, tmp_path, "started", command, **more)["changed"]


def test_a_command_that_ends_is_waited_for_and_told_where_it_fails(module, tmp_path):
    more = {"exit_status": str(tmp_path / "p.status"), "once": True, "ended_s": 60.0}
    done = act(module, tmp_path, "started", ("sh", "-c", "sleep 0.2"), **more)
    assert (done["changed"], done["pid"], done["status"]) == (True, 0, 0)
    (tmp_path / "p.status").unlink()
    with pytest.raises(
        AssertionError, match=r"it ended with status 3\. .*/p\.log ends with:\nwhat went wrong"
    ):
        act(module, tmp_path, "started", ("sh", "-c", "echo what went wrong; exit 3"), **more)
    (tmp_path / "p.status").unlink()
    with pytest.raises(AssertionError, match=r"it still runs after 0\.2 s"):
        act(module, tmp_path, "started", **(more | {"ended_s": 0.2}))
    act(module, tmp_path, "stopped")


SERVER = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); c = "
    "s.accept()[0]; c.recv(9); c.send(b'I am well'); s.accept()"
)


def test_what_serves_is_waited_for_and_what_does_not_is_told(module, tmp_path):
    (port,) = ports(1)
    ready = {"address": f"127.0.0.1:{port}", "send": "well?", "expect": "^I am w"}
    assert act(module, tmp_path, "started", (PYTHON, "-c", SERVER, str(port)), ready=ready)["pid"]
    act(module, tmp_path, "stopped")
    with pytest.raises(AssertionError, match=r"it has ended\. .*/p\.log ends with:\nno such port"):
        act(module, tmp_path, "started", ("sh", "-c", "echo no such port; exit 1"), ready=ready)
    with pytest.raises(
        AssertionError, match=r"it does not serve after 0\.2 s: nothing serves at 127\.0\.0\.1"
    ):
        act(module, tmp_path, "started", ready=ready, ready_s=0.2)
    act(module, tmp_path, "stopped")


def test_what_a_host_lacks_is_told_with_how_to_get_it(module, tmp_path):
    needs = [
        {"path": path, "how": "mvn gets it"}
        for path in ("/bin/sh", "env", "no-such-program", str(tmp_path / "*.jar"))
    ]
    with pytest.raises(
        AssertionError,
        match=r"^no-such-program is not there: mvn gets it; /.*/\*\.jar is not there: mvn gets "
        r"it\. "
        r"Nothing was started",
    ):
        act(module, tmp_path, "started", needs=needs)
    assert os.listdir(tmp_path) == []


def test_a_directory_is_cleared_with_all_that_was_started_below_it(module, tmp_path):
    clear, place, other = module_of("clear"), tmp_path / "round", tmp_path / "other"
    for directory in (place / "a" / "run", place / "b", other):
        directory.mkdir(parents=True)
    pids = [
        act(module, directory, "started")["pid"]
        for directory in (place / "a" / "run", place / "b", other)
    ]

    def fail(msg):
        raise AssertionError(msg)

    def cleared(directory, check_mode=False):
        return clear.act(
            SimpleNamespace(
                params={"directory": str(directory), "stop_s": 5.0},
                check_mode=check_mode,
                fail_json=fail,
            )
        )

    assert cleared(place, check_mode=True) == {"changed": True, "ended": sorted(pids[:2])}
    assert cleared(place) == {"changed": True, "ended": sorted(pids[:2])}
    assert [gone(pid) for pid in pids] == [True, True, False]
    assert cleared(place) == {"changed": False, "ended": []}
    assert not place.exists()
    for wrong in ("/", "/var", "var/tmp", "/var/../etc"):
        with pytest.raises(AssertionError, match="nothing was ended or removed"):
            cleared(wrong)
    act(module, other, "stopped")


def test_in_check_mode_nothing_is_done(module, tmp_path):
    assert act(module, tmp_path, "started", check_mode=True)["changed"]
    assert os.listdir(tmp_path) == []
