#!/usr/bin/python
"""A process on a host without a service manager: started in a session of its own, known by a file, ended by its pid."""

from __future__ import annotations

DOCUMENTATION = r"""
module: process
short_description: Start, stop, restart or look at a process, without a service manager
description:
  - Runs a command in a session of its own, with its output in a file. It outlives the connection.
  - The file O(pid_file) has its pid in the first word, then when it started and in which run of the machine, so that no other process that has
    the pid later is taken for it.
options:
  pid_file:
    description: The file that names the process. Its directory must be there.
    type: path
    required: true
  state:
    description: V(query) changes nothing.
    type: str
    choices: [started, stopped, restarted, query]
    default: started
  command:
    description: Program and arguments; needed to start it.
    type: list
    elements: str
  log:
    description: Where its standard output and error go, at the end of what is there.
    type: path
  exit_status:
    description: A file that gets the exit status of the command once it has ended by itself. Whatever is there is removed at the start.
    type: path
  once:
    description: A command that ends by itself. It is not started again where O(exit_status) says that it has ended.
    type: bool
    default: false
  environment:
    description: Variables beside those of Ansible's own process.
    type: dict
    default: {}
  user:
    description: Who runs it, with its first group. Empty is who runs the module.
    type: str
    default: ''
  directory:
    description: Its working directory.
    type: path
    default: /
  stop_s:
    description: How long it may take to end on SIGTERM, before it is killed.
    type: float
    default: 30
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: Start a server
  ares.storage.process:
    command: [/opt/ares/bin/ares-cli, server, /etc/ares/cluster.toml, --id, s0]
    pid_file: /run/ares/s0.pid
    log: /var/log/ares/s0.log
    user: ares
"""

RETURN = r"""
pid:
  description: Of the process that runs, or 0.
  type: int
  returned: always
status:
  description: What the file O(exit_status) says, or null.
  type: int
  returned: always
"""

import contextlib
import os
import pwd
import signal
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

POLL_S = 0.05
KILL_S = 5.0
ENDED = "ZX"
"""States of processes that are no more: nobody waits for them, perhaps because the machine's first process does not."""

SAYING_HOW_IT_ENDED = 'status=$1; shift; "$@"; echo $? > "$status.new"; mv "$status.new" "$status"'


def started(pid: int) -> str | None:
    """When the process started, in ticks since the machine did, and which run of the machine that is; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in ENDED else f"{fields[19]} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    except (OSError, IndexError):
        return None


def found(pid_file: Path) -> int:
    """The pid of the process that the file names, if it runs; 0 if not."""
    try:
        pid, _, when = pid_file.read_text().strip().partition(" ")
        return int(pid) if when and started(int(pid)) == when else 0
    except (OSError, ValueError):
        return 0


def ended_with(path: str | None) -> int | None:
    """The exit status that was written there."""
    try:
        return int(Path(path).read_text()) if path else None
    except (OSError, ValueError):
        return None


def run(parameters: dict, pid_file: Path) -> int:
    """Start the command; returns its pid."""
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


def stop(pid: int, pid_file: Path, patience_s: float) -> bool:
    """End the process and what it started in its session; whether it is gone."""
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, KILL_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        deadline = time.monotonic() + wait_s
        while found(pid_file):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        else:
            return True
    return False


def act(module: AnsibleModule) -> dict:
    """Bring the process into the state that is asked for."""
    parameters = module.params
    state, pid_file = parameters["state"], Path(parameters["pid_file"])
    pid = found(pid_file)
    done = parameters["once"] and ended_with(parameters["exit_status"]) is not None
    starts = state == "restarted" or (state == "started" and not pid and not done)
    stops = state in ("stopped", "restarted") and bool(pid)
    leaves_file = state == "stopped" and pid_file.exists()
    if (starts or stops or leaves_file) and not module.check_mode:
        if stops and not stop(pid, pid_file, parameters["stop_s"]):
            module.fail_json(msg=f"process {pid}, named by {pid_file}, cannot be ended, not even by SIGKILL")
        if state in ("stopped", "restarted"):
            pid_file.unlink(missing_ok=True)
        pid = run(parameters, pid_file) if starts else 0
    return {"changed": starts or stops or leaves_file, "pid": pid, "status": ended_with(parameters["exit_status"])}


def main() -> None:
    """What Ansible runs."""
    module = AnsibleModule(
        {
            "pid_file": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["started", "stopped", "restarted", "query"], "default": "started"},
            "command": {"type": "list", "elements": "str"},
            "log": {"type": "path"},
            "exit_status": {"type": "path"},
            "once": {"type": "bool", "default": False},
            "environment": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": ""},
            "directory": {"type": "path", "default": "/"},
            "stop_s": {"type": "float", "default": 30.0},
        },
        required_if=[("state", "started", ["command"]), ("state", "restarted", ["command"]), ("once", True, ["exit_status"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**act(module))
    except (OSError, KeyError) as error:
        module.fail_json(msg=f"the process of {module.params['pid_file']} was not {module.params['state']}: {error}")


if __name__ == "__main__":
    main()
