#!/usr/bin/python
"""The end of every process started below a directory, and of the directory.

These are the remains of a round of an experiment on a host, of any kind.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: clear
short_description: End the processes that files below a directory name, and remove the directory
description:
  - Every file O(directory)/**/*.pid names a process, as the module M(ares.storage.process) writes
    it. All these processes are ended at once.
options:
  directory:
    description: An absolute path below another directory. The directory is removed with its
      content.
    type: path
    required: true
  stop_s:
    description: How long processes may take to end on SIGTERM, before they are killed.
    type: float
    default: 5
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: End the round before
  ares.storage.clear:
    directory: /var/tmp/round
"""

RETURN = r"""
ended:
  description: The pids of the processes that were ended.
  type: list
  elements: int
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ares.storage.plugins.module_utils.directories import clear, started_below


def act(module: AnsibleModule) -> dict:
    """End the processes, and remove the directory."""
    directory = Path(module.params["directory"])
    try:
        pids = started_below(directory)
        there = directory.is_symlink() or directory.exists()
        if there and not module.check_mode:
            clear(directory, module.params["stop_s"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    return {"changed": there, "ended": sorted(pids.values())}


def main() -> None:
    """Run the module for Ansible."""
    module = AnsibleModule(
        {
            "directory": {"type": "path", "required": True},
            "stop_s": {"type": "float", "default": 5.0},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**act(module))
    except OSError as error:
        module.fail_json(msg=f"{module.params['directory']} was not removed: {error}")


if __name__ == "__main__":
    main()
