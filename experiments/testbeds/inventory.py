"""Inventories for ansible: hosts with their groups and variables, as YAML.

Ansible evaluates ``{{ }}`` in an inventory, and manifests come from other people: a value with
braces is refused.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import yaml
from msgspec import Struct

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.testbeds.testbed_plan import CLIENT_GROUPS, GROUPS, check_user

Value = str | int | bool


class InventoryHost(Struct, frozen=True):
    """A host of an inventory.

    ``variables`` has ansible's own variables (``ansible_host``) and ours (``ares_address``,
    ``ares_site``).
    """

    name: str
    groups: Sequence[str]
    variables: Mapping[str, Value]


def ssh(user: str, key: Path | None, known_hosts: Path, *more: str) -> dict[str, Value]:
    """Return the variables of a host reached by SSH, if ``known_hosts`` has the host key.

    Only ``key`` is offered (`None`: the user's own keys). The user's own settings for SSH are
    ignored; ``more`` has further options.
    """
    options = [
        f"UserKnownHostsFile={known_hosts}",
        "GlobalKnownHostsFile=/dev/null",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "ConnectTimeout=10",
    ]
    options += ["IdentitiesOnly=yes"] if key else []
    words = ["-F", "/dev/null", *(word for option in [*options, *more] for word in ("-o", option))]
    variables: dict[str, Value] = {
        "ansible_user": check_user(user),
        "ansible_ssh_common_args": " ".join(quote(word) for word in words),
    }
    return variables | ({"ansible_ssh_private_key_file": str(key)} if key else {})


def write(path: Path, hosts: Sequence[InventoryHost], heading: str) -> None:
    """Write the inventory. Raises BadInput for values that ansible would evaluate."""
    children: dict[str, dict[str, Any]] = {
        group: {"hosts": {host.name: {} for host in hosts if group in host.groups}}
        for group in GROUPS
    }
    children["clients"]["children"] = {group: {} for group in CLIENT_GROUPS}
    children["controller"] = {"hosts": {"localhost": {"ansible_connection": "local"}}}
    tree = {"all": {"hosts": {host.name: _checked(host) for host in hosts}, "children": children}}
    text = yaml.safe_dump(tree, sort_keys=False, width=float("inf"))
    path.write_text(f"# {heading}\n{text}", encoding="utf-8")


def _checked(host: InventoryHost) -> dict[str, Value]:
    for name, value in host.variables.items():
        if isinstance(value, str) and re.search(r"[{}]|[^\x20-\x7e]", value):
            raise BadInput(
                f"host {host.name}: {name} cannot be {printable(value)!r}: braces and control "
                "characters are not written to an inventory"
            )
    return dict(host.variables)
