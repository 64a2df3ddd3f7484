#!/usr/bin/python
"""A host's part in the first step of a round, in a single step.

The module clears the host, writes files, starts processes, and waits until all serve.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: round
short_description: Begin a round of an experiment on a host
description:
  - Ends the processes of the round before, removes O(directory), makes it again with the
    directories C(config), C(logs) and C(run), writes files, starts processes and waits until all of
    them serve. One call does it, as every call costs a host and the controller a third of a second
    of processor.
options:
  directory:
    description: The place of the round on this host, an absolute path below another directory. It
      is removed with all that is in it.
    type: path
    required: true
  data:
    description: The directory of the processes' data. It is removed with its content, too.
    type: path
    required: true
  user:
    description: User of the processes and owner of the files. Made if missing; ignored without
      root.
    type: str
    default: ares
  files:
    description: Contents of files, by paths below O(directory), or absolute paths below O(data).
      Only the user can read them.
    type: dict
    default: {}
  processes:
    description:
      - Dictionaries with C(name), C(command), C(needs) and C(ready), the last two as in
        M(ares.storage.process). The file C(run/NAME.pid) names the process, and C(logs/NAME.out)
        has its output.
    type: list
    elements: dict
    default: []
  environment:
    description: Variables of the processes.
    type: dict
    default: {}
  ready_s:
    description: How long it may take until they serve.
    type: float
    default: 60
  stop_s:
    description: How long processes of the round before may take to end on SIGTERM, before they are
      killed.
    type: float
    default: 5
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: Begin
  ares.storage.round:
    directory: /var/tmp/round
    data: /var/tmp/round/data
    files: {config/cluster.toml: "{{ the_file }}"}
    processes:
      - name: s0
        command: [/opt/ares/bin/ares-cli, server, /var/tmp/round/config/cluster.toml, --id, s0]
        ready:
          address: "10.0.0.10:7410"
          send: "GET /health HTTP/1.0\r\n\r\n"
          expect: "^HTTP/1.. 200"
"""

RETURN = r"""
pids:
  description: Of the processes, by name.
  type: dict
  returned: always
"""

import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ares.storage.plugins.module_utils.directories import (
    clear,
    make,
    owner,
    started_below,
)
from ansible_collections.ares.storage.plugins.module_utils.processes import (
    PROCESS_POLL_S,
    found,
    lacking,
    last_lines,
    run,
    serves,
)


def write(path: Path, content: str, uid: int, gid: int) -> None:
    """Write a file of mode 600 in a directory made for it."""
    make(path.parent, 0o755, uid, gid)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchown(descriptor, uid, gid)
        file.write(content)


def begin(parameters: dict, directory: Path, data: Path) -> dict[str, int]:
    """Make the directory and start the processes; return the pids by name.

    Raises OSError, ValueError.
    """
    if why := lacking([need for one in parameters["processes"] for need in one.get("needs", [])]):
        raise ValueError(f"{why}. Nothing was started")
    uid, gid = owner(parameters["user"])
    for path, mode in (
        (directory, 0o755),
        (data, 0o700),
        *((directory / name, 0o755) for name in ("config", "logs", "run")),
    ):
        make(path, mode, uid, gid)
    for name, content in parameters["files"].items():
        write(directory / name, content, uid, gid)
    pids = {}
    for one in parameters["processes"]:
        user = parameters["user"] if os.geteuid() == 0 else ""
        more = {
            "exit_status": None,
            "environment": parameters["environment"],
            "user": user,
            "directory": str(directory),
        }
        pids[one["name"]] = run(
            {
                "command": one["command"],
                "log": str(directory / "logs" / f"{one['name']}.out"),
                **more,
            },
            pid_file(directory, one),
        )
    return pids


def pid_file(directory: Path, process: dict) -> Path:
    """Return the file with the pid of the process."""
    return directory / "run" / f"{process['name']}.pid"


def wait(processes: list[dict], directory: Path, ready_s: float) -> None:
    """Wait until all processes serve. Raises ValueError for the first failure."""
    deadline = time.monotonic() + ready_s
    for one in processes:
        while one.get("ready") and (why := serves(one["ready"])):
            ended = not found(pid_file(directory, one))
            if ended or time.monotonic() > deadline:
                what = "has ended" if ended else f"does not serve after {ready_s:g} s: {why}"
                raise ValueError(
                    f"{one['name']} {what}. "
                    f"{last_lines(str(directory / 'logs' / one['name']) + '.out')}"
                )
            time.sleep(PROCESS_POLL_S)


def main() -> None:
    """Run the module for Ansible."""
    module = AnsibleModule(
        {
            "directory": {"type": "path", "required": True},
            "data": {"type": "path", "required": True},
            "user": {"type": "str", "default": "ares"},
            "files": {"type": "dict", "default": {}, "no_log": True},
            "processes": {"type": "list", "elements": "dict", "default": []},
            "environment": {"type": "dict", "default": {}},
            "ready_s": {"type": "float", "default": 60.0},
            "stop_s": {"type": "float", "default": 5.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    directory, data = Path(given["directory"]), Path(given["data"])
    if module.check_mode:
        module.exit_json(changed=True, pids={})
    try:
        started_below(data)  # refuses an invalid path before any change
        clear(directory, given["stop_s"])
        clear(data, given["stop_s"])
        pids = begin(given, directory, data)
        wait(given["processes"], directory, given["ready_s"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=True, pids=pids)


if __name__ == "__main__":
    main()
