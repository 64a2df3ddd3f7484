"""What a testbed is asked for, and what it can do once it is there."""

import ipaddress
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ares.model.errors import BadInput
from ares.tracing.tree import printable

GROUPS = ("servers", "consensus", "writers", "readers", "recons", "clients")
"""Of hosts, as in the published rounds. Writers, readers and recons are clients, too."""

CLIENTS = ("writers", "readers", "recons")
HOSTS_MAX = 200
"""Of one site."""

SITES_MAX = 60
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?")


class HostPlan(Struct, frozen=True):
    """A host: its name, the site it is at, and its groups (of GROUPS). ``disks``: directories that hold so many bytes and no more."""

    name: str
    site: str
    groups: Sequence[str] = ()
    disks: Mapping[str, int] = {}


class LinkPlan(Struct, frozen=True):
    """What is between two sites from the beginning; sites without one are joined by links without delay."""

    site: str
    other: str
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0


class Testbed(Protocol):
    """Hosts that are up. What cannot be done raises BadInput, and nothing changed."""

    inventory: Path
    """For ansible."""

    def delay(
        self, site: str, other: str, ms: float, jitter_ms: float = 0.0, loss: float = 0.0
    ) -> None:
        """From now on what goes between the sites, either way, takes ``ms`` +- ``jitter_ms``; ``loss``: the part of packets that get lost."""

    def bandwidth(self, host: str, bits_per_s: int | None) -> None:
        """What the host can send, and what it can be sent; None: as much as there is."""

    def cut(self, site: str, other: str) -> None:
        """Nothing goes from one site to the other, either way. Connections stay, and are silent."""

    def join(self, site: str, other: str) -> None:
        """End a cut; the delay is as before."""

    def slow(self, host: str, pattern: str, percent: float) -> list[int]:
        """Processes of the host whose command line has this regular expression run ``percent`` of the time, until they are given 100; their pids."""

    def kill(self, host: str, pattern: str) -> list[int]:
        """End processes of the host whose command line has this regular expression, by SIGKILL; their pids."""

    def fill(self, host: str, path: str, free_bytes: int) -> None:
        """Leave so much room on the disk ``path`` of the host, one of its HostPlan.disks: all that was there already stays."""

    def traffic(self) -> dict[tuple[str, str], int]:
        """Bytes that arrived, since the beginning, for each (site, other site): those that left the first for the second."""

    def through(self, site: str, host: str, port: int) -> str:
        """``address:port`` at which processes at ``site`` reach what listens on ``port`` of the host's ares_address."""


def check(hosts: Sequence[HostPlan], links: Sequence[LinkPlan]) -> list[str]:
    """The sites, in the order of their first hosts. Raises BadInput."""
    if not hosts:
        raise BadInput("a testbed needs at least one host; nothing was made")
    names = Counter(host.name for host in hosts)
    sites = Counter(host.site for host in hosts)
    for name in [*names, *sites]:
        check_name(name)
    if twice := [name for name, count in names.items() if count > 1]:
        raise BadInput(f"there are two hosts {twice[0]!r}; nothing was made")
    if len(sites) > SITES_MAX or max(sites.values()) > HOSTS_MAX:
        raise BadInput(
            f"a testbed has at most {SITES_MAX} sites with {HOSTS_MAX} hosts each; nothing was made"
        )
    for host in hosts:
        if strange := set(host.groups) - set(GROUPS):
            raise BadInput(
                f"host {host.name} is to be in the group {printable(min(strange))!r}; there are {', '.join(GROUPS)}. Nothing was made"
            )
        for path, size in host.disks.items():
            if (
                not re.fullmatch(r"(/[\w.-]+)+", path)
                or ".." in path.split("/")
                or not 64 * 1024 <= size <= 1 << 40
            ):
                raise BadInput(
                    f"host {host.name}: a disk is an absolute path and at least 64 KiB, not {printable(path)!r} with {size}; nothing was made"
                )
    for link in links:
        between(list(sites), link.site, link.other)
        check_shape(link.delay_ms, link.jitter_ms, link.loss)
    return list(sites)


def check_name(name: str) -> str:
    """A name that can stand in an inventory, in a command and in /etc/hosts. Raises BadInput."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{printable(name)!r} cannot be the name of a host or a site: at most 32 letters, digits, hyphens, dots, underscores. Nothing was made"
        )
    return name


def check_user(name: str) -> str:
    """A user of another machine. Raises BadInput."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", name):
        raise BadInput(f"{printable(name)!r} cannot be the name of a user; nothing was written")
    return name


def check_address(address: str) -> str:
    """An IP address or a name of the DNS. Raises BadInput."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        if len(address) <= 253 and all(
            re.fullmatch(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", part) for part in address.split(".")
        ):
            return address
    raise BadInput(f"{printable(address)!r} is neither an IP address nor a name of a host")


def between(sites: Sequence[str], site: str, other: str) -> tuple[int, int]:
    """The places of two sites. Raises BadInput if these are not two of ``sites``."""
    for name in (site, other):
        if name not in sites:
            raise BadInput(
                f"there is no site {printable(name)!r}; there are {', '.join(sites)}. Nothing was changed"
            )
    if site == other:
        raise BadInput(f"a link is between two sites, and {site!r} is one; nothing was changed")
    return sites.index(site), sites.index(other)


def check_shape(ms: float, jitter_ms: float, loss: float) -> None:
    """Raises BadInput."""
    if not (0 <= ms <= 60_000 and 0 <= jitter_ms <= ms and 0 <= loss <= 1):
        raise BadInput(
            f"a delay of {ms:g} ms with a jitter of {jitter_ms:g} ms and a loss of {loss:g} cannot be: the delay is at most 60,000 ms, the jitter is "
            "no more than the delay, the loss is from 0 to 1. Nothing was changed"
        )
