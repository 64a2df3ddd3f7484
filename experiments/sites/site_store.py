"""A store in this study: servers that the runner deploys at sites, and clients.

Clients work in the network of a site's users. A module of a store has three functions
(:class:`StoreModule`); the rows are in store_table.py. Names of objects are ``SITE/NAME``: the
object should live at this site. A store places the object at the site if possible (a domain, a
keyspace, a pool of that site).
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from experiments.bench.store_processes import ProgramNotStarted

Parameters = dict[str, Any]
"""Data that a client needs to reach the store; passed as JSON."""


class OperationFailed(Exception):
    """An operation of a client failed; the message has the store's reason."""


def site_of(name: str) -> str:
    """Return the site at which the object of this name should live."""
    return name.partition("/")[0]


class SiteNetwork(Protocol):
    """The network of the study, as a deployment sees it (experiments/sites/fog_network.py).

    Each site has a network namespace for its servers and a network namespace for its users. Servers
    of the same site reach each other without a delay.
    """

    sites: Sequence[str]
    directory: Path
    """Directory for files of servers; empty at first, and removed with all files at the end."""

    def address(self, site: str, number: int = 0) -> str:
        """Return an IPv4 address of the site's servers, reachable from everywhere.

        ``number`` is below 4, for stores that need several addresses with the same port.
        """

    def run(self, site: str, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Return the output of a command in the network of the site's servers.

        The command ends by itself. Raises ProgramNotStarted if the command fails, or takes 120 s.
        """

    def start(
        self, site: str, name: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that stays, with its output in ``directory``/``name``.log.

        The bed ends remaining processes at its own end. ``environment`` replaces this process's
        environment.
        """

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End the process: SIGTERM, and SIGKILL after 10 s."""


class Deployment(Protocol):
    """The servers of a store, held by the runner. Made by :meth:`StoreModule.deployment`."""

    async def start(self, bed: SiteNetwork, replicas: int) -> None:
        """Start the store at all sites of ``bed``; an object has ``replicas`` copies.

        The store serves on return. Raises ProgramNotStarted.
        """

    async def stop(self) -> None:
        """End every process that was started; also after a failure of :meth:`start`."""

    def parameters(self, site: str) -> Parameters:
        """Return the parameters of :meth:`StoreModule.connect` for users at ``site``."""


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

    def missing(self) -> str | None:
        """Return the missing software, and how to get it, or None if complete."""

    def deployment(self, options: Mapping[str, Any]) -> Deployment:
        """Return the deployment. ``options`` are from the row in store_table.py."""

    async def connect(self, parameters: Parameters, site: str) -> SiteClient:
        """Return a client at ``site``. Raises OperationFailed.

        The caller is a process in the network of the site's users.
        """


def answers(
    sites: SiteNetwork, site: str, *words: str, environment: dict[str, str] | None = None
) -> str:
    """Return the output of a command in the network of the site's servers; empty on failure."""
    try:
        return sites.run(site, *words, environment=environment)
    except ProgramNotStarted:
        return ""
