"""Machines reserved elsewhere, and the inventory that reaches them.

This module asks no service: all comes from a file.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote

from msgspec import Struct

from ares.model.errors import BadInput
from ares.platform.named_files import read_named
from ares.tracing.tree import printable
from experiments.testbeds.inventory import InventoryHost, Value, ssh
from experiments.testbeds.testbed_plan import GROUPS, check_address, check_name, check_user

FILE_BYTES_MAX = 1 << 24
GROUP_PATTERNS = {
    "servers": "server*", "consensus": "consensus*", "writers": "writer*", "readers": "reader*",
    "recons": "recon*", "clients": "client*",
}  # fmt: skip
"""Patterns for the names of the hosts of a group, unless the command line gives other patterns."""


class Jump(Struct, frozen=True):
    """A machine through which SSH reaches other machines."""

    user: str
    address: str
    port: int


class ReservedMachine(Struct, frozen=True):
    """A reserved machine.

    ``login`` is the address of sshd. ``inner`` and ``outer`` are addresses among the machines of
    the reservation, and elsewhere.
    """

    name: str
    site: str
    login: str
    port: int
    user: str
    inner: str | None
    outer: str
    jump: Jump | None = None


class ControllerAccess(Struct, frozen=True):
    """The controller's credentials.

    ``known_hosts`` has the machines' host keys: no key is trusted at first sight.
    """

    known_hosts: Path
    key: Path | None = None
    user: str | None = None


def read(path: Path) -> bytes:
    """Read a file. Raises BadInput."""
    try:
        return read_named(path, FILE_BYTES_MAX)[0]
    except OSError as error:
        raise BadInput(
            f"{printable(str(path))} cannot be read: {error.strerror}; nothing was written"
        ) from None


def hosts(
    machines: Sequence[ReservedMachine],
    access: ControllerAccess,
    patterns: Sequence[tuple[str, str]],
) -> list[InventoryHost]:
    """Return the machines as hosts of an inventory. Raises BadInput for probable mistakes.

    ``patterns`` are groups, and names with ``*`` and ``?``. Processes listen on inner addresses if
    all machines have an inner address, otherwise on outer addresses: an inner network of some
    machines does not join all.
    """
    seen: dict[str, ReservedMachine] = {}
    for machine in machines:
        if seen.setdefault(check_name(machine.name), machine) is not machine:
            raise BadInput(
                f"two machines are called {machine.name!r}; give them different names. Nothing "
                "was written"
            )
    if strange := {group for group, _ in patterns} - set(GROUPS):
        raise BadInput(
            f"there is no group {printable(min(strange))!r}; there are {', '.join(GROUPS)}. "
            "Nothing was written"
        )
    inner = all(machine.inner for machine in machines)
    made = []
    for machine in machines:
        user, known_hosts = access.user or machine.user, access.known_hosts.absolute()
        variables: dict[str, Value] = {
            "ansible_host": check_address(machine.login),
            "ansible_port": machine.port,
            **ssh(user, access.key, known_hosts, *_through(machine, access)),
            "ares_address": check_address((machine.inner if inner else None) or machine.outer),
            "ares_site": check_name(machine.site),
        }
        groups = [group for group, pattern in patterns if fnmatchcase(machine.name, pattern)]
        made.append(InventoryHost(machine.name, list(dict.fromkeys(groups)), variables))
    return made


def _through(machine: ReservedMachine, access: ControllerAccess) -> list[str]:
    """Return the options of SSH for a machine behind a jump host.

    ProxyJump would use neither our key nor our known hosts for the jump host.
    """
    if machine.jump is None:
        return []
    options = ssh(machine.jump.user, access.key, access.known_hosts.absolute())[
        "ansible_ssh_common_args"
    ]
    key = f"-i {quote(str(access.key))} " if access.key else ""
    where = f"{check_user(machine.jump.user)}@{check_address(machine.jump.address)}"
    return [f"ProxyCommand=ssh {options} {key}-p {machine.jump.port} -W [%h]:%p {where}"]


def port(text: str) -> int:
    """Return the port number in `text`. Raises BadInput."""
    if not text.isdecimal() or not 0 < int(text[:6]) < 65536:
        raise BadInput(f"{printable(text)!r} is not a port; nothing was written")
    return int(text)
