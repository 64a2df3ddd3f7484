"""Playbooks as a user runs them, on "hosts" that are directories and ports of this machine."""

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import ares
from ares.platform.interpreter import python
from tests.ports import free_addresses

CHECKOUT = Path(ares.__file__).parent.parent
COLLECTION = CHECKOUT / "ansible"
PLAYBOOKS = CHECKOUT / "playbooks"
PYTHON = python()[0]
PROGRAMS = Path(PYTHON).parent

MISSING = "ansible-core is not installed: pip install 'ares-storage[ansible]'"


def module_of(name: str) -> ModuleType:
    """Import a module of the collection, with shared modules found as by ansible."""
    if str(PLAYBOOKS / "collections") not in sys.path:
        sys.path.append(str(PLAYBOOKS / "collections"))
    spec = importlib.util.spec_from_file_location(
        f"ares_{name}_module", COLLECTION / "plugins" / "modules" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def environment(place: Path) -> dict[str, str]:
    """Return an environment without the user's settings of Ansible."""
    (place / "ansible.cfg").touch()
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ANSIBLE_", "ARES_", "OTEL_"))
    }
    places = {
        "ANSIBLE_CONFIG": place / "ansible.cfg",
        "ANSIBLE_HOME": place / "ansible-home",
        "ANSIBLE_LOCAL_TEMP": place / "ansible-tmp",
    }
    chosen = {
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_NOCOLOR": "1",
    }
    return kept | chosen | {name: str(path) for name, path in places.items()}


def ports(count: int) -> list[int]:
    """Return free ports of loopback."""
    return [int(address.rpartition(":")[2]) for address in free_addresses(count)]


def inventory(place: Path, servers: int = 3, **more: Any) -> Path:
    """Write an inventory of ``servers`` hosts below ``place``.

    The first has a consensus member, too, and the second a gateway of S3.
    """
    hosts: dict[str, dict[str, Any]] = {}
    for number in range(servers):
        port, http, consensus, raft, consensus_http = ports(5)
        hosts[f"n{number}"] = {"ares_server_port": port, "ares_server_http_port": http}
        if number == 0:
            hosts["n0"] |= {
                "ares_consensus_port": consensus,
                "ares_consensus_raft_port": raft,
                "ares_consensus_http_port": consensus_http,
            }
    gateway_port, gateway_http = ports(2)
    gateway = {
        "ares_gateway_port": gateway_port,
        "ares_gateway_http_port": gateway_http,
        "ares_gateway_key": f"{place}/controller/keys/gateways.secret",
    }
    below = f"{place}/{{{{ inventory_hostname }}}}"
    names = {"config": "config", "data": "data", "log": "logs", "run": "run"}
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": PYTHON,
        "ares_python": PYTHON,
        "ares_become": False,
        "ares_service_manager": "process",
        "ares_cluster_name": "trial",
        "ares_address": "127.0.0.1",
        "common_user": "{{ ansible_facts.user_id }}",
        "common_controller_directory": f"{place}/controller",
        "common_prefix": f"{below}/prefix",
        **{f"common_{key}_directory": f"{below}/{name}" for key, name in names.items()},
    }
    path = place / "inventory.json"
    path.write_text(
        json.dumps(
            {
                "all": {"vars": variables | more},
                "servers": {"hosts": hosts},
                "consensus": {"hosts": {"n0": {}}},
                "gateways": {"hosts": {"n1": gateway}},
            }
        )
    )
    return path


class Played:
    """The result of a playbook.

    ``recap`` has, by host, the numbers of tasks that were ok, changed, failed, ...
    """

    def __init__(self, status: int, output: str) -> None:
        self.status = status
        self.output = output
        rows = [
            line.partition(":")
            for line in output.partition("PLAY RECAP")[2].splitlines()
            if " : " in line
        ]
        self.recap = {
            host.strip(): {
                key: int(value) for key, _, value in (word.partition("=") for word in row.split())
            }
            for host, _, row in rows
        }

    @property
    def changed(self) -> int:
        return sum(host["changed"] for host in self.recap.values())

    def well(self) -> "Played":
        """Return the result itself if the playbook succeeded."""
        assert self.status == 0, self.output[-6000:]
        return self


async def play(name: str, inventory: Path, *words: str, playbooks: Path = PLAYBOOKS) -> Played:
    """Run a playbook of the checkout, or of a copy, to its end."""
    command = [
        str(PROGRAMS / "ansible-playbook"),
        "-i",
        str(inventory),
        "--forks",
        "8",
        str(playbooks / f"{name}.yml"),
        *words,
    ]
    place = inventory.parent
    remembered = {
        "ANSIBLE_GATHERING": "smart",
        "ANSIBLE_CACHE_PLUGIN": "jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(place / "ansible-facts"),
    }
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=both, cwd=place, env=environment(place) | remembered
    )
    output = (await process.communicate())[0].decode(errors="replace")
    assert process.returncode is not None
    return Played(process.returncode, output)
