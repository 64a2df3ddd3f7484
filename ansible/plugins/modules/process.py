#!/usr/bin/python
"""A process on a host without a service manager.

The process is started in a new session, known by a file, and ended by its pid.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: process
short_description: Start, stop, restart or look at a process, without a service manager
description:
  - Runs a command in a session of its own, with its output in a file. The command outlives the
    connection.
  - The file O(pid_file) has its pid in the first word, then the time of its start and the run of
    the machine, so that a later process with the same pid is not taken for it.
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
    description: The file that gets its standard output and error, at the end.
    type: path
  exit_status:
    description: A file that gets the exit status of the command once it has ended by itself. An old
      file is removed at the start.
    type: path
  once:
    description: A command that ends by itself. It is not started again where O(exit_status) says
      that it has ended.
    type: bool
    default: false
  environment:
    description: Variables beside those of Ansible's own process.
    type: dict
    default: {}
  user:
    description: The user of the process, with the user's first group. Empty for the user of the
      module.
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
  needs:
    description: Files and programs that the process needs on the host. C(path) is a pattern or the
      name of a program, and C(how) tells how to get it.
    type: list
    elements: dict
    default: []
  ready:
    description:
      - A check that the process serves; the module waits for it. C(address) is HOST:PORT; C(send)
        is sent there, and C(expect) is a regular expression that the answer must match. Without
        both a connection is enough.
    type: dict
    default: {}
  ready_s:
    description: Seconds to wait for O(ready). The module fails at once if the process has ended.
    type: float
    default: 120
  ended_s:
    description: How long to wait for the end of a command that ends by itself. It fails where the
      command does. 0 does not wait.
    type: float
    default: 0
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
    ready:
      address: "127.0.0.1:7410"
      send: "GET /health HTTP/1.0\r\n\r\n"
      expect: "^HTTP/1.. 200"
"""

RETURN = r"""
pid:
  description: Of the process that runs, or 0.
  type: int
  returned: always
status:
  description: Content of the file O(exit_status), or null.
  type: int
  returned: always
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ares.storage.plugins.module_utils.processes import (
    PROCESS_POLL_S,
    ended_with,
    found,
    lacking,
    last_lines,
    run,
    serves,
    stop,
)


def await_serving(parameters: dict, pid_file: Path) -> str:
    """Wait, and return why the process does not serve; empty if it does."""
    deadline = time.monotonic() + parameters["ready_s"]
    while why := serves(parameters["ready"]):
        if not found(pid_file):
            return "it has ended"
        if time.monotonic() > deadline:
            return f"it does not serve after {parameters['ready_s']:g} s: {why}"
        time.sleep(PROCESS_POLL_S)
    return ""


def await_end(parameters: dict, pid_file: Path) -> str:
    """Wait, and return why the command failed; empty after success."""
    deadline = time.monotonic() + parameters["ended_s"]
    while found(pid_file):
        if time.monotonic() > deadline:
            return f"it still runs after {parameters['ended_s']:g} s"
        time.sleep(PROCESS_POLL_S)
    status = ended_with(parameters["exit_status"])
    return (
        ""
        if status == 0
        else "it was killed"
        if status is None
        else f"it ended with status {status}"
    )


def act(module: AnsibleModule) -> dict:
    """Bring the process into the requested state."""
    parameters = module.params
    state, pid_file = parameters["state"], Path(parameters["pid_file"])
    pid = found(pid_file)
    done = parameters["once"] and ended_with(parameters["exit_status"]) is not None
    starts = state == "restarted" or (state == "started" and not pid and not done)
    stops = state in ("stopped", "restarted") and bool(pid)
    leaves_file = state == "stopped" and pid_file.exists()
    if starts and (why := lacking(parameters["needs"])):
        module.fail_json(msg=f"{why}. Nothing was started")
    if (starts or stops or leaves_file) and not module.check_mode:
        if stops and stop({pid_file: pid}, parameters["stop_s"]):
            module.fail_json(
                msg=f"process {pid}, named by {pid_file}, cannot be ended, not even by SIGKILL"
            )
        if state in ("stopped", "restarted"):
            pid_file.unlink(missing_ok=True)
        pid = run(parameters, pid_file) if starts else 0
    if state != "stopped" and not module.check_mode:
        serving = state != "query" and parameters["ready"]
        why = (
            await_serving(parameters, pid_file)
            if serving
            else await_end(parameters, pid_file)
            if parameters["ended_s"]
            else ""
        )
        if why:
            what = " ".join(parameters["command"] or [pid_file.stem])[:200]
            module.fail_json(msg=f"{what}: {why}. {last_lines(parameters['log'] or '')}")
        pid = found(pid_file)
    return {
        "changed": starts or stops or leaves_file,
        "pid": pid,
        "status": ended_with(parameters["exit_status"]),
    }


def main() -> None:
    """Run the module for Ansible."""
    module = AnsibleModule(
        {
            "pid_file": {"type": "path", "required": True},
            "state": {
                "type": "str",
                "choices": ["started", "stopped", "restarted", "query"],
                "default": "started",
            },
            "command": {"type": "list", "elements": "str"},
            "log": {"type": "path"},
            "exit_status": {"type": "path"},
            "once": {"type": "bool", "default": False},
            "environment": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": ""},
            "directory": {"type": "path", "default": "/"},
            "stop_s": {"type": "float", "default": 30.0},
            "needs": {"type": "list", "elements": "dict", "default": []},
            "ready": {"type": "dict", "default": {}},
            "ready_s": {"type": "float", "default": 120.0},
            "ended_s": {"type": "float", "default": 0.0},
        },
        required_if=[
            ("state", "started", ["command"]),
            ("state", "restarted", ["command"]),
            ("once", True, ["exit_status"]),
        ],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**act(module))
    except (OSError, KeyError) as error:
        module.fail_json(
            msg=f"the process of {module.params['pid_file']} was not {module.params['state']}: "
            f"{error}"
        )


if __name__ == "__main__":
    main()
