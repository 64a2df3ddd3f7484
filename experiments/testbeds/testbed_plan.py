"""The plan of a testbed, and the operations of a running testbed."""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from msgspec import Struct

from ares.model.errors import BadInput
from ares.tracing.tree import printable

GROUPS = ("servers", "consensus", "writers", "readers", "recons", "clients")
"""Groups of hosts, as in the published rounds. Writers, readers and recons are clients, too."""

CLIENT_GROUPS = ("writers", "readers", "recons")
TESTBED_HOSTS_MAX = 200
"""Largest number of hosts of a site."""

TESTBED_SITES_MAX = 60
FIRST_HOST = 10
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?")


class HostPlan(Struct, frozen=True):
    """A host: name, site, and groups (of GROUPS).

    ``disks`` are directories with their capacity in bytes.
    """

    name: str
    site: str
    groups: Sequence[str] = ()
    disks: Mapping[str, int] = {}


class LinkPlan(Struct, frozen=True):
    """The initial link between two sites; sites without a LinkPlan have links without delay."""

    site: str
    other: str
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0


class Testbed(Protocol):
    """Running hosts. A method that cannot do its work raises BadInput, and changes nothing."""

    inventory: Path
    """Inventory for ansible."""

    def delay(
        self, site: str, other: str, ms: float, jitter_ms: float = 0.0, loss: float = 0.0
    ) -> None:
        """Delay traffic between the sites, both ways, by ``ms`` +- ``jitter_ms``.

        A fraction ``loss`` of the packets is lost.
        """

    def bandwidth(self, host: str, bits_per_s: int | None) -> None:
        """Limit the rate of sending and of receiving of the host; `None`: no limit."""

    def cut(self, site: str, other: str) -> None:
        """Cut the sites apart, both ways. Connections stay, and are silent."""

    def join(self, site: str, other: str) -> None:
        """End a cut; the delay is as before."""

    def slow(self, host: str, pattern: str, percent: float) -> list[int]:
        """Run matching processes of the host ``percent`` of the time, and return their pids.

        ``pattern`` is a regular expression for the command line. A call with 100 ends the slowing.
        """

    def kill(self, host: str, pattern: str) -> list[int]:
        """End matching processes of the host by SIGKILL, and return their pids.

        ``pattern`` is a regular expression for the command line.
        """

    def fill(self, host: str, path: str, free_bytes: int) -> None:
        """Leave ``free_bytes`` on the disk ``path`` of the host (in HostPlan.disks).

        Existing files stay.
        """


def refusing(what: str) -> Callable[..., NoReturn]:
    """Return a method that refuses: ``what`` says why this testbed cannot do its work."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise BadInput(f"{what}; testbed local can do that, as root. Nothing was changed")

    return refuse


def check(hosts: Sequence[HostPlan], links: Sequence[LinkPlan]) -> list[str]:
    """Return the sites, in the order of their first hosts. Raises BadInput."""
    if not hosts:
        raise BadInput("a testbed needs at least one host; nothing was made")
    names = Counter(host.name for host in hosts)
    sites = Counter(host.site for host in hosts)
    for name in [*names, *sites]:
        check_name(name)
    if twice := [name for name, count in names.items() if count > 1]:
        raise BadInput(f"there are two hosts {twice[0]!r}; nothing was made")
    if len(sites) > TESTBED_SITES_MAX or max(sites.values()) > TESTBED_HOSTS_MAX:
        raise BadInput(
            f"a testbed has at most {TESTBED_SITES_MAX} sites with {TESTBED_HOSTS_MAX} hosts each; "
            "nothing was made"
        )
    for host in hosts:
        if strange := set(host.groups) - set(GROUPS):
            raise BadInput(
                f"host {host.name} is to be in the group {printable(min(strange))!r}; there are "
                f"{', '.join(GROUPS)}. Nothing was made"
            )
        for path, size in host.disks.items():
            absolute = re.fullmatch(r"(/[\w.-]+)+", path) and ".." not in path.split("/")
            if not absolute or not 64 * 1024 <= size <= 1 << 40:
                raise BadInput(
                    f"host {host.name}: a disk is an absolute path and at least 64 KiB, not "
                    f"{printable(path)!r} with {size}; nothing was made"
                )
    for link in links:
        between(list(sites), link.site, link.other)
        check_shape(link.delay_ms, link.jitter_ms, link.loss)
    return list(sites)


def check_name(name: str) -> str:
    """Check that a name fits in an inventory, in a command and in /etc/hosts. Raises BadInput."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{printable(name)!r} cannot be the name of a host or a site: at most 32 letters, "
            "digits, hyphens, dots, underscores. Nothing was made"
        )
    return name


def check_user(name: str) -> str:
    """Check the name of a user of another machine. Raises BadInput."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", name):
        raise BadInput(f"{printable(name)!r} cannot be the name of a user; nothing was written")
    return name


def check_address(address: str) -> str:
    """Check an IP address or a name of the DNS. Raises BadInput."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        if len(address) <= 253 and all(
            re.fullmatch(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", part) for part in address.split(".")
        ):
            return address
    raise BadInput(f"{printable(address)!r} is neither an IP address nor a name of a host")


def between(sites: Sequence[str], site: str, other: str) -> tuple[int, int]:
    """Return the positions of two sites. Raises BadInput unless both are known and different."""
    for name in (site, other):
        if name not in sites:
            raise BadInput(
                f"there is no site {printable(name)!r}; there are {', '.join(sites)}. Nothing "
                "was changed"
            )
    if site == other:
        raise BadInput(f"a link is between two sites, and {site!r} is one; nothing was changed")
    return sites.index(site), sites.index(other)


def check_shape(ms: float, jitter_ms: float, loss: float) -> None:
    """Check a delay, a jitter and a loss. Raises BadInput."""
    if not (0 <= ms <= 60_000 and 0 <= jitter_ms <= ms and 0 <= loss <= 1):
        raise BadInput(
            f"a delay of {ms:g} ms with a jitter of {jitter_ms:g} ms and a loss of {loss:g} "
            "cannot be: the delay is at most 60,000 ms, the jitter is no more than the delay, "
            "the loss is from 0 to 1. Nothing was changed"
        )
