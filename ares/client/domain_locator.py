"""The servers that a client asks for the place of a domain before the directory.

The directory may be far away. The client first asks servers of its own site, and afterwards the
servers that had the domain last.

The memory has only names of servers of the cluster file. The client asks these servers, and takes
only their answers. Hence an old, cut or forged memory costs a question, and has no other effect.
The memory may be deleted at any time.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ares.client.local_copy import cache_directory
from ares.model.configuration import SERVERS_MAX, Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, DOMAIN_BYTES_MAX, DomainName, ServerId
from ares.platform.named_files import read_named
from ares.platform.replacement import replace_file

DOMAINS_MAX = 1000
"""Domains kept in the memory: the domains used last."""

KNOWN_DOMAINS_BYTES_MAX = 4 * 1024 * 1024

log = logging.getLogger(__name__)

_Domains = dict[
    Annotated[str, Meta(max_length=DOMAIN_BYTES_MAX)],
    Annotated[list[str], Meta(max_length=SERVERS_MAX)],
]
_decode = msgspec.json.Decoder(_Domains).decode


def known_domains_path(cluster: bytes, environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's memory of a cluster, beside the entries of local copies.

    None: no memory is kept.
    """
    directory = cache_directory(environment)
    return None if directory is None else directory / f"domains-{cluster.hex()}.json"


class KnownDomains:
    """A memory of the last servers of each domain, in a file; in memory if ``path`` is None.

    An unusable file counts as empty.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._servers: dict[str, list[str]] | None = None

    def of(self, domain: DomainName) -> Sequence[str]:
        """Return the servers of ``domain`` in the order of its configuration; empty if unknown."""
        if self._servers is None:
            self._servers = self._read()
        return self._servers.get(domain, ())

    def remember(self, servers: Mapping[DomainName, Sequence[ServerId]]) -> None:
        """Add ``servers`` to the present content of the file, as the domains used last.

        The file is not written if the content stays the same.
        """
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
            return _decode(read_named(self._path, KNOWN_DOMAINS_BYTES_MAX, streams=False)[0])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.debug("no memory of domains: %s", error)
            return {}

    def _write(self, path: Path, content: bytes) -> None:
        """Write the file, wholly or not at all. Of concurrent writes the last write stays."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, content, 0o600)
        except OSError as error:
            log.debug("domains are not remembered: %s", error)


class DomainLocator:
    """The places where a client looks for domains.

    ``book``: the servers of the cluster file. ``near``: the servers at the client's site. Without
    servers, only the directory is asked.
    """

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
        """Yield groups of servers to ask together, each of at most SERVERS_MAX servers.

        The next group is asked if no server of the last group knows the domain.
        """
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
        """Remember the servers of the domains used last by this client.

        The first configuration of `default` is in the cluster file, and needs no memory.
        """
        found = {
            each.domain: each.server_ids
            for each in configurations
            if each.domain != DEFAULT_DOMAIN or each.index
        }
        if found and self._book:
            self._known.remember(found)
