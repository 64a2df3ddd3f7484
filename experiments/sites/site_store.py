"""A store in this study: servers that the runner deploys at sites, and clients.

Clients work in the network of a site's users. The module of a store has three members
(:class:`StoreModule`); the rows are in store_table.py. Names of objects are ``SITE/NAME``: the
object should live at this site. A store places the object at the site if possible (a domain, a
keyspace, a pool of that site).
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from experiments.bench.store_processes import ProgramNotStarted, await_that
from experiments.blocking_calls import in_thread
from experiments.sites.fog_network import FogNetwork

Parameters = dict[str, Any]
"""Data that a client needs to reach the store; passed as JSON."""


class OperationFailed(Exception):
    """An operation of a client failed; the message has the store's reason."""


def site_of(name: str) -> str:
    """Return the site at which the object of this name should live."""
    return name.partition("/")[0]


def holders(sites: Sequence[str], site: str, copies: int) -> list[str]:
    """Return the object's own site and the next sites in the list, each with a copy.

    With too few sites, all sites are returned.
    """
    first = sites.index(site)
    return [sites[(first + further) % len(sites)] for further in range(min(copies, len(sites)))]


class Deployment:
    """The servers of a store, held by the runner."""

    def __init__(self) -> None:
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.bed: FogNetwork

    async def start(self, bed: FogNetwork, replicas: int) -> None:
        """Start the store at all sites of ``bed``; an object has ``replicas`` copies.

        The store serves on return. Raises ProgramNotStarted.
        """
        self.bed, self.replicas = bed, replicas
        await in_thread(self.deploy)

    def deploy(self) -> None:
        """Do the work of :meth:`start`."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End every process that was started, the last first; also after a failed start."""
        for server in reversed(self.servers.values()):
            await in_thread(self.bed.stop, server)

    def parameters(self, site: str) -> Parameters:
        """Return the parameters of :meth:`StoreModule.connect` for users at ``site``."""
        raise NotImplementedError

    def serve(
        self, site: str, name: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a server at the site, with its output in NAME.log."""
        self.servers[name] = self.bed.start(site, name, *words, environment=environment)

    def await_server(
        self, name: str, holds: Callable[[], object], what: str, timeout_s: float
    ) -> None:
        """Wait until the server does its part. Raises ProgramNotStarted."""
        await_that(holds, what, timeout_s, self.bed.directory / f"{name}.log", self.servers)

    def answer(self, site: str, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Return the output of a command among the site's servers; empty on failure."""
        try:
            return self.bed.run(site, *words, environment=environment)
        except ProgramNotStarted:
            return ""


class SiteClient(Protocol):
    """A user's program at a site, in a separate process.

    Operations run side by side. All raise OperationFailed. The process of the client cancels an
    operation after a time.
    """

    async def put(self, name: str, value: bytes) -> str:
        """Write the object, and return the name for reads from now on.

        The name is ``name``, or for a store of immutable objects another name.
        """

    async def get(self, name: str) -> bytes:
        """Return the object's value. ``name`` is a result of :meth:`put`, of any client."""

    async def close(self) -> None: ...


class StoreModule(Protocol):
    """The module of a store. Importing it needs no program and no library of the store."""

    deployment: Callable[..., Deployment]
    """Makes the deployment from the options of a row in store_table.py."""

    def missing(self) -> str | None:
        """Return the missing software, and how to get it, or None if complete."""

    async def connect(self, parameters: Parameters, site: str) -> SiteClient:
        """Return a client at ``site``. Raises OperationFailed.

        The caller is a process in the network of the site's users.
        """
