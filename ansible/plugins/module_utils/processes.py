"""Processes that files name, for modules: whether they run and serve, and the ends of their logs.

No service manager is needed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from glob import glob
from pathlib import Path

PROCESS_POLL_S = 0.05
KILL_S = 5.0
PROCESS_ASK_S = 3.0
ANSWER_BYTES = 65536
LOG_BYTES = 4096
LOG_LINES = 8
ENDED = "ZX"
"""States of dead processes that no process has waited for, perhaps not even the machine's first."""

SAYING_HOW_IT_ENDED = 'status=$1; shift; "$@"; echo $? > "$status.new"; mv "$status.new" "$status"'


def started(pid: int) -> str | None:
    """Return the start of the process and the boot of the machine, or `None` if it is gone.

    The start is in ticks since the boot.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (
            None
            if fields[0] in ENDED
            else f"{fields[19]} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
        )
    except (OSError, IndexError):
        return None


def found(pid_file: Path) -> int:
    """Return the pid of the running process that the file names, or 0."""
    try:
        pid, _, when = pid_file.read_text().strip().partition(" ")
        return int(pid) if when and started(int(pid)) == when else 0
    except (OSError, ValueError):
        return 0


def ended_with(path: str | None) -> int | None:
    """Return the exit status in the file."""
    try:
        return int(Path(path).read_text()) if path else None
    except (OSError, ValueError):
        return None


def run(parameters: dict, pid_file: Path) -> int:
    """Start the command, and return its pid."""
    command = parameters["command"]
    if parameters["exit_status"]:
        Path(parameters["exit_status"]).unlink(missing_ok=True)
        command = ["/bin/sh", "-c", SAYING_HOW_IT_ENDED, "sh", parameters["exit_status"], *command]
    environment = os.environ | {key: str(value) for key, value in parameters["environment"].items()}
    other = {}
    if parameters["user"]:
        account = pwd.getpwnam(parameters["user"])
        if account.pw_uid != os.geteuid():
            groups = os.getgrouplist(account.pw_name, account.pw_gid)
            other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
        environment |= {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    with open(parameters["log"] or os.devnull, "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=parameters["directory"],
            env=environment,
            start_new_session=True,
            umask=0o077,
            **other,
        )
    new = pid_file.with_name(f"{pid_file.name}.new")
    new.write_text(f"{process.pid} {started(process.pid)}\n")
    new.replace(pid_file)
    return process.pid


def group_runs(group: int) -> bool:
    """Return whether a process of this process group runs."""
    for path in glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            state, _, its_group, *_ = Path(path).read_text().rpartition(")")[2].split()
            if state not in ENDED and int(its_group) == group:
                return True
    return False


def stop(pids: dict[Path, int], patience_s: float) -> list[int]:
    """End these processes, given by their files, with their sessions; return the remaining pids."""
    left = dict(pids)
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, KILL_S)):
        for pid in left.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        deadline = time.monotonic() + wait_s
        while (
            left := {file: pid for file, pid in left.items() if found(file) or group_runs(pid)}
        ) and time.monotonic() < deadline:
            time.sleep(PROCESS_POLL_S)
        if not left:
            break
    return list(left.values())


def lacking(needs: list[dict]) -> str:
    """Return the needs that the host lacks, each with the remedy; empty if complete.

    ``path`` is a pattern, or the name of a program.
    """
    missing = [
        need
        for need in needs
        if not (glob(need["path"]) if "/" in need["path"] else shutil.which(need["path"]))
    ]
    return "; ".join(f"{need['path']} is not there: {need['how']}" for need in missing)


def serves(ready: dict) -> str:
    """Return why the listener at ``address`` does not serve; empty if it does.

    A good listener answers ``send`` with a match of ``expect``.
    """
    host, _, port = ready["address"].rpartition(":")
    answer = b""
    try:
        with socket.create_connection((host, int(port)), timeout=PROCESS_ASK_S) as connection:
            connection.sendall(ready.get("send", "").encode())
            while not re.search(ready.get("expect", "").encode(), answer):
                piece = connection.recv(ANSWER_BYTES)
                answer += piece
                if not piece or len(answer) > ANSWER_BYTES:
                    return f"{ready['address']} says {answer[-200:].decode(errors='replace')!r}"
            return ""
    except (OSError, ValueError) as error:
        detail = f"; it says {answer[-200:].decode(errors='replace')!r}" if answer else ""
        return f"nothing serves at {ready['address']} ({error}{detail})"


def last_lines(log: str) -> str:
    """Return the end of the log, as a part of a sentence; empty without a log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            log_end = "\n".join(file.read().decode(errors="replace").splitlines()[-LOG_LINES:])
            return f"{log} ends with:\n{log_end}" if log_end else f"{log} is empty"
    except OSError as error:
        return f"{log} says nothing: {error.strerror or error}" if log else ""
