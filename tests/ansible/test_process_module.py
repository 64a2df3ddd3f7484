"""The module `process`: it ends what it started, and takes no other process for it."""

import importlib.util
import os
import subprocess
import time
from types import SimpleNamespace

import pytest

from .playing import COLLECTION, MISSING, PYTHON

pytest.importorskip("ansible.release", reason=MISSING)


@pytest.fixture(scope="module")
def module():
    """The module itself, which lies in no package."""
    spec = importlib.util.spec_from_file_location("ares_process_module", COLLECTION / "plugins" / "modules" / "process.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def act(module, tmp_path, state, command=("sleep", "60"), check_mode=False, **more):
    parameters = {"state": state, "pid_file": str(tmp_path / "p.pid"), "command": list(command), "log": str(tmp_path / "p.log"), "exit_status": None}
    parameters |= {"once": False, "environment": {}, "user": "", "directory": "/", "stop_s": 5.0} | more

    def fail(msg):
        raise AssertionError(msg)

    return module.act(SimpleNamespace(params=parameters, check_mode=check_mode, fail_json=fail))


def ended(module, tmp_path, **more):
    deadline = time.monotonic() + 20
    while (found := act(module, tmp_path, "query", **more))["pid"] and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_it_is_started_once_and_ended(module, tmp_path):
    first = act(module, tmp_path, "started")
    assert first["changed"]
    assert act(module, tmp_path, "started") == {"changed": False, "pid": first["pid"], "status": None}
    second = act(module, tmp_path, "restarted")
    assert second["pid"] not in (0, first["pid"])
    assert act(module, tmp_path, "stopped")["changed"]
    assert module.started(second["pid"]) is None
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
def test_a_torn_pid_file_names_nobody(module, tmp_path, text):
    (tmp_path / "p.pid").write_text(text)
    assert act(module, tmp_path, "query")["pid"] == 0


def test_what_ignores_sigterm_is_killed_with_what_it_started(module, tmp_path):
    script = f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/child; touch {tmp_path}/up; while :; do sleep 0.05; done"
    act(module, tmp_path, "started", ("sh", "-c", script))
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    assert act(module, tmp_path, "stopped", stop_s=0.3)["changed"]
    child = int((tmp_path / "child").read_text())
    assert module.started(child) is None


def test_how_a_command_ended_is_kept_and_it_is_not_started_again(module, tmp_path):
    more = {"exit_status": str(tmp_path / "p.status"), "once": True}
    command = (PYTHON, "-c", "import os, sys; print(os.environ['A']); sys.exit(3)")
    act(module, tmp_path, "started", command, environment={"A": "said"}, **more)
    assert ended(module, tmp_path, **more)["status"] == 3
    assert (tmp_path / "p.log").read_text() == "said\n"
    assert not act(module, tmp_path, "started", command, **more)["changed"]


def test_in_check_mode_nothing_is_done(module, tmp_path):
    assert act(module, tmp_path, "started", check_mode=True)["changed"]
    assert os.listdir(tmp_path) == []
