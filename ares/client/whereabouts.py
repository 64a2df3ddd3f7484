"""Whom a client asks where a domain is before it asks the directory, which may be far away: servers of its own site, then those that had it last.

What is remembered is no more than names of servers of the cluster file. They are asked, and say what they know: so a memory that is old, cut short or
forged costs a question, and nothing else depends on it. It may be deleted at any time.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ares.client.local_copy import cache_directory, replace_file
from ares.machine.named_files import read_named
from ares.model.configuration import SERVERS_MAX, Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, DOMAIN_BYTES_MAX, DomainName, ServerId

DOMAINS_MAX = 1000
"""The ones used last."""

FILE_BYTES_MAX = 4 * 1024 * 1024

log = logging.getLogger(__name__)

_Domains = dict[
    Annotated[str, Meta(max_length=DOMAIN_BYTES_MAX)],
    Annotated[list[str], Meta(max_length=SERVERS_MAX)],
]
_decode = msgspec.json.Decoder(_Domains).decode


def known_domains_path(cluster: bytes, environment: Mapping[str, str]) -> Path | None:
    """The file for what this user's clients remember of a cluster, beside what is kept of local copies; None: nothing is kept."""
    directory = cache_directory(environment)
    return None if directory is None else directory / f"domains-{cluster.hex()}.json"


class KnownDomains:
    """The names of the servers that had a domain last, kept in a file; ``path`` None: in memory. A file that cannot be used counts as empty."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._servers: dict[str, list[str]] | None = None

    def of(self, domain: DomainName) -> Sequence[str]:
        """In the order of its configuration; empty: not known."""
        if self._servers is None:
            self._servers = self._read()
        return self._servers.get(domain, ())

    def remember(self, servers: Mapping[DomainName, Sequence[ServerId]]) -> None:
        """Add these to what the file has by now, as the ones used last. It is not written if that changes nothing."""
        before = self._read() if self._path is not None else self._servers or {}
        after = {domain: list(names) for domain, names in before.items() if domain not in servers}
        after |= {domain: list(names) for domain, names in servers.items()}
        self._servers = dict(list(after.items())[-DOMAINS_MAX:])
        if self._path is not None and self._servers != before:
            self._write(self._path, msgspec.json.encode(self._servers))

    def _read(self) -> dict[str, list[str]]:
        if self._path is None:
            return {}
        try:
            return _decode(read_named(self._path, FILE_BYTES_MAX, streams=False)[0])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.debug("no memory of domains: %s", error)
            return {}

    def _write(self, path: Path, content: bytes) -> None:
        """Whole or not at all; several clients may write at once, and the last one stays."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, content)
        except OSError as error:
            log.debug("domains are not remembered: %s", error)


class Whereabouts:
    """``book``: the servers of the cluster file; ``near``: those at the client's site. Without any, nobody is asked but the directory."""

    def __init__(
        self,
        book: Mapping[ServerId, Server] = {},
        near: Sequence[ServerId] = (),
        known: KnownDomains | None = None,
    ) -> None:
        self._book = book
        self._near = near
        self._known = known or KnownDomains()

    def of(self, domain: DomainName) -> Iterator[list[Server]]:
        """Servers to ask together, SERVERS_MAX at most; the next ones if these do not know."""
        for first in range(0, len(self._near), SERVERS_MAX):
            yield [self._book[server] for server in self._near[first : first + SERVERS_MAX]]
        remembered = dict.fromkeys(ServerId(name) for name in self._known.of(domain))
        if others := [
            self._book[server]
            for server in remembered
            if server in self._book and server not in self._near
        ]:
            yield others

    def remember(self, configurations: Collection[Configuration]) -> None:
        """Where domains were when this client used them last. What `default` begins with is in the cluster file; it is not worth a file."""
        found = {
            each.domain: each.server_ids
            for each in configurations
            if each.domain != DEFAULT_DOMAIN or each.index
        }
        if found and self._book:
            self._known.remember(found)
