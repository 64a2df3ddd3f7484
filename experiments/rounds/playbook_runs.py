"""Runs of playbooks: their events, and the reason of a failure in a sentence."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ares.model.errors import AresError, BadInput
from ares.platform.interpreter import python
from ares.tracing.tree import printable

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
FORKS = 50
REASON_CHARACTERS = 300
_PLAY_END_S = 10.0
_SSH = (
    "-o ControlMaster=auto -o ControlPersist=120s -o ServerAliveInterval=15 -o "
    "ServerAliveCountMax=4"
)

MISSING = "ansible-core is not installed: pip install 'ares-storage[ansible]'"


class RoundFailed(AresError):
    """A round failed; other rounds can succeed. ``unreachable`` names the lost hosts."""

    def __init__(self, reason: str, unreachable: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.unreachable = tuple(unreachable)


class PlayFailure(Struct, frozen=True):
    """A failure of a host in a task."""

    host: str
    task: str
    reason: str
    unreachable: bool


def reason_of(message: str) -> str:
    """Return a module's message as a single line.

    The line has the first sentence, and the last line of the quoted log.
    """
    first, _, log = message.removeprefix("Task failed: ").partition(" ends with:\n")
    first = re.sub(r"\.? ?[^ ]+$", "", first) if log else first
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    text = " ".join((first.strip().splitlines() or ["it does not say why"])[0].split())
    return printable(f"{text[:REASON_CHARACTERS]}{f': {last[:REASON_CHARACTERS]}' if last else ''}")


def failure_of(event: Mapping[str, Any]) -> PlayFailure | None:
    """Return the failure in an event of the callback, or `None` for another event.

    The callback is ansible/plugins/callback/events.py.
    """
    if event.get("event") not in ("failed", "unreachable"):
        return None
    play, task, host = (str(event.get(name)) for name in ("play", "task", "host"))
    reason = reason_of(str(event.get("message")))
    where = f"{play}: {task}" if play != task else task
    return PlayFailure(host, where, reason, event["event"] == "unreachable")


def failure_sentence(failures: Sequence[PlayFailure], status: int, stderr: str) -> str:
    """Return why a playbook failed, in a sentence; ``stderr`` is its standard error."""
    if failures:
        first, more = failures[0], len({failure.host for failure in failures} - {failures[0].host})
        others = f" ({more} more {'host' if more == 1 else 'hosts'} failed)" if more else ""
        what = "cannot be reached" if first.unreachable else first.task
        return f"{first.host}: {what}: {first.reason}{others}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = (line for line in lines if re.match(r"(\[?ERROR|fatal)", line))
    cause = next(errors, lines[-1] if lines else "it said nothing")
    return f"ansible-playbook ended with status {status}: {printable(cause[:REASON_CHARACTERS])}"


def environment(place: Path) -> dict[str, str]:
    """Return Ansible's environment, without the user's settings; cached facts are in ``place``."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ANSIBLE_", "ARES_", "OTEL_", "PYTHONDONTWRITEBYTECODE"))
    }
    (place / "ansible.cfg").touch()
    return kept | {
        "ANSIBLE_CONFIG": str(place / "ansible.cfg"),
        "ANSIBLE_HOME": str(place / "home"),
        "ANSIBLE_LOCAL_TEMP": str(place / "tmp"),
        "ANSIBLE_COLLECTIONS_PATH": str(PLAYBOOKS / "collections"),
        "ANSIBLE_STDOUT_CALLBACK": "ares.storage.events",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_ARGS": _SSH,
        "ANSIBLE_FORKS": str(FORKS),
        "ANSIBLE_GATHERING": "smart",
        "ANSIBLE_CACHE_PLUGIN": "jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(place / "facts"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
    }


def program(name: str) -> str:
    """Return Ansible's program from this interpreter's environment. Raises BadInput if absent."""
    path = Path(python()[0]).parent / name
    if not path.exists():
        raise BadInput(MISSING)
    return str(path)


def play(
    names: Sequence[str],
    inventory: Path,
    place: Path,
    timeout_s: float,
    hear: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """Run playbooks sequentially; ``hear`` gets the callback's events as they happen.

    Raises :class:`RoundFailed`. On every way out, ansible-playbook has ended, too.
    """
    files = (str(PLAYBOOKS / f"{name}.yml") for name in names)
    command = [program("ansible-playbook"), "-i", str(inventory), *files]
    failures: list[PlayFailure] = []
    late = threading.Event()
    with tempfile.TemporaryFile() as errors:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
        where = {"cwd": place, "env": environment(place), "start_new_session": True}
        process = subprocess.Popen(command, **pipes, **where)  # type: ignore[call-overload]

        def give_up() -> None:
            late.set()
            _end(process)

        timer = threading.Timer(timeout_s, give_up)
        timer.start()
        try:
            for line in process.stdout:
                event = _event(line)
                if failure := failure_of(event):
                    failures.append(failure)
                hear(event)
            status = process.wait()
        finally:
            timer.cancel()
            _end(process)
        if late.is_set():
            raise RoundFailed(f"the playbooks still ran after {timeout_s:.0f} s")
        if status or failures:
            errors.seek(0)
            why = failure_sentence(failures, status, errors.read(1 << 20).decode(errors="replace"))
            raise RoundFailed(why, {failure.host for failure in failures if failure.unreachable})


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process with its whole session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        deadline = time.monotonic() + _PLAY_END_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)


def listed(inventory: Path, place: Path) -> dict[str, Any]:
    """Return an inventory as Ansible understands it. Raises BadInput."""
    command = [program("ansible-inventory"), "-i", str(inventory), "--list"]
    where = {"cwd": place, "env": environment(place)}
    asked = subprocess.run(command, capture_output=True, text=True, check=False, **where)  # type: ignore[call-overload]
    if asked.returncode:
        why = failure_sentence([], asked.returncode, asked.stderr)
        raise BadInput(f"{inventory} is no inventory: {why}")
    found: dict[str, Any] = json.loads(asked.stdout)
    return found
