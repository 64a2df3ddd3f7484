"""Commands and files of other stores, from the Ansible roles (ansible/roles).

The roles serve the hosts of a round and the bench alike. This module understands only the parts
needed by the roles of redis, etcd and cassandra: their defaults in order, vars/main.yml after
these, and the templates. Variables from an inventory must be given.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import msgspec
import yaml
from msgspec import Struct

from experiments import CHECKOUT, module_at
from experiments.bench.store_processes import await_that, programs

COLLECTION = CHECKOUT / "ansible"


class Need(Struct, frozen=True):
    """A file needed by a role, and the way to get the file."""

    path: str
    how: str


class RoleHost(Struct, frozen=True):
    """A host's part of a role.

    ``files`` has contents by their paths in the directory. ``ready`` is as in the module `process`
    of the collection.
    """

    command: list[str]
    needs: list[Need]
    ready: dict[str, str]
    files: dict[str, str]


def described(role: str, host: str, given: Mapping[str, Any]) -> RoleHost:
    """Return the role's commands and files on this host with these variables of the role."""
    home = COLLECTION / "roles" / role
    given = {f"{role}_{name}": value for name, value in given.items()}
    known: dict[str, Any] = {"inventory_hostname": host, **given}
    environment = jinja2.Environment(
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return environment.from_string(value).render(known) if isinstance(value, str) else value

    templates = home / "templates"
    environment.globals["lookup"] = lambda _, name: filled((templates / name).read_text())
    for file in ("defaults", "vars"):
        for name, value in yaml.safe_load((home / file / "main.yml").read_text()).items():
            known.setdefault(name, given[name] if name in given else filled(value))
    return msgspec.convert(known[f"{role}_process"] | {"files": known[f"{role}_files"]}, RoleHost)


def lacking(role: str, given: Mapping[str, Any]) -> str | None:
    """Return the role's software missing on this machine, with the remedy."""
    needs = described(role, "here", given).needs
    return f"{role}: {why}" if (why := _processes().lacking(msgspec.to_builtins(needs))) else None


@contextlib.contextmanager
def started(
    directory: Path, hosts: Mapping[str, RoleHost], timeout_s: float
) -> Iterator[dict[str, int]]:
    """Run all hosts at once, each in directory/NAME, until they serve; yield pids by name.

    Raises ProgramNotStarted.
    """
    for name, host in hosts.items():
        for place in ("data", "logs"):
            (directory / name / place).mkdir(parents=True)
        for path, content in host.files.items():
            (directory / name / path).parent.mkdir(exist_ok=True)
            (directory / name / path).write_text(content)
    serves = _processes().serves
    with programs(directory, {name: host.command for name, host in hosts.items()}) as servers:
        for name, host in hosts.items():
            log = directory / f"{name}.log"
            await_that(lambda ready=host.ready: not serves(ready), f"{name} serves", timeout_s, log)
        yield servers


def _processes() -> ModuleType:
    """Return the module for processes of the collection; it needs no Ansible."""
    file = COLLECTION / "plugins" / "module_utils" / "processes.py"
    return module_at("ares_module_processes", file)
