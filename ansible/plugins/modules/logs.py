#!/usr/bin/python
"""The parameters of `logs`; the controller does the work (plugins/action/logs.py)."""

from __future__ import annotations

DOCUMENTATION = r"""
module: logs
short_description: Fetch a directory of a host, packed
description:
  - Packs O(src) on the host, fetches that and unpacks it into O(dest) on the controller. Only plain
    files and directories below it are unpacked.
  - Needs no Python on the host.
options:
  src:
    description: A directory of the host.
    type: path
    required: true
  dest:
    description: A directory of the controller, made if it is not there.
    type: path
    required: true
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: Fetch the logs
  ares.storage.logs:
    src: /var/tmp/round/logs
    dest: "results/logs/{{ inventory_hostname }}"
"""

RETURN = r"""
files:
  description: How many files there are now.
  type: int
  returned: always
"""
