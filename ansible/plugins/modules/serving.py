#!/usr/bin/python
"""A wait on a host for a serving process, with the log's end after a failure."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving
short_description: Wait until a process of ares serves
description:
  - Asks /health until it answers 200. Ends at once where the process has ended.
options:
  http:
    description: Where the process answers, as HOST:PORT.
    type: str
    required: true
  timeout_s:
    description: How long it may take.
    type: float
    default: 120
  pid_file:
    description: The file that names the process, as the module C(process) writes it. Empty where a
      service manager watches over it.
    type: str
    default: ''
  log:
    description: Its log, whose last lines are told if it does not serve.
    type: str
    default: ''
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: Wait for a server
  ares.storage.serving:
    http: 127.0.0.1:7410
"""

RETURN = r"""
waited_s:
  description: How long it took.
  type: float
  returned: always
"""

import http.client
import json
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ares.storage.plugins.module_utils.processes import ENDED, last_lines

SERVING_POLL_S = 0.1
SERVING_ASK_S = 2.0


def asked(address: str) -> str:
    """Return why the process does not serve; empty on success. Proxies are not used."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=SERVING_ASK_S)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = answer.read(65536)
        return (
            ""
            if answer.status == 200
            else str(json.loads(body).get("why") or f"status {answer.status}")
        )
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        return f"nothing serves at http://{address}/health ({error})"
    finally:
        connection.close()


def has_ended(pid_file: str) -> bool:
    """Return whether the process in the file is gone, or a zombie."""
    if not pid_file:
        return False
    try:
        pid = Path(pid_file).read_text().split()[0]
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ENDED
    except (OSError, IndexError):
        return True


def main() -> None:
    """Run the module for Ansible."""
    module = AnsibleModule(
        {
            "http": {"type": "str", "required": True},
            "timeout_s": {"type": "float", "default": 120.0},
            "pid_file": {"type": "str", "default": ""},
            "log": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given, began = module.params, time.monotonic()
    while not module.check_mode and (why := asked(given["http"])):
        ended = has_ended(given["pid_file"])
        if ended or time.monotonic() - began > given["timeout_s"]:
            what = (
                "it has ended"
                if ended
                else f"it does not serve after {given['timeout_s']:g} s: {why}"
            )
            module.fail_json(msg=f"{what}. " + (last_lines(given["log"]) or "journalctl says more"))
        time.sleep(SERVING_POLL_S)
    module.exit_json(changed=False, waited_s=round(time.monotonic() - began, 1))


if __name__ == "__main__":
    main()
