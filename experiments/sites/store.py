"""What a store is to this study: servers that the runner deploys at sites, and clients that work in the network of a site's users.

A module of a store has three functions (:class:`StoreModule`); its rows are in stores.py. Names of objects are ``SITE/NAME``: the site is where the
object is to live. A store puts it there if it can (a domain, a keyspace, a pool of that site).
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Parameters = dict[str, Any]
"""What a client needs to get to the store; goes through JSON."""


class OperationFailed(Exception):
    """An operation of a client did not do what it was asked to; the message has the store's reason."""


class NotDeployed(Exception):
    """The store could not be started; the message has the end of what it said. The other stores are measured."""


def site_of(name: str) -> str:
    """Where the object of this name is to live."""
    return name.partition("/")[0]


class Sites(Protocol):
    """The network of the study, as a deployment sees it (:class:`experiments.sites.bed.Bed`).

    Each site has a network namespace for its servers and one for its users. Servers of one site reach each other without a delay.
    """

    sites: Sequence[str]
    directory: Path
    """For files of servers; empty in the beginning, and removed with everything in it at the end."""

    def address(self, site: str, number: int = 0) -> str:
        """An IPv4 address of the site's servers, reached from everywhere. ``number``: below 4, if a store needs several of one port."""

    def run(self, site: str, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """What a command prints that ends by itself, in the network of the site's servers. Raises NotDeployed if it fails, or takes 120 s."""

    def start(
        self, site: str, name: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A process there that stays, with its output in ``directory``/``name``.log. The bed ends those that are left when it goes.

        ``environment``: in place of this process's own.
        """

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End it: SIGTERM, and SIGKILL after 10 s."""


class Deployment(Protocol):
    """The servers of a store, held by the runner. Made by :meth:`StoreModule.deployment`."""

    async def start(self, bed: Sites, replicas: int) -> None:
        """Start it at all sites of ``bed``, so that it serves; an object has ``replicas`` copies. Raises NotDeployed."""

    async def stop(self) -> None:
        """End every process that it started; also if :meth:`start` failed half way."""

    def parameters(self, site: str) -> Parameters:
        """What :meth:`StoreModule.connect` is given by users at ``site``."""


class Client(Protocol):
    """One user's program at one site, in a process of its own. Operations run side by side. All raise OperationFailed.

    The process of the client gives up on an operation after a time, by cancelling it.
    """

    async def put(self, name: str, value: bytes) -> str:
        """Write the object; the name that it is read by from now on: ``name``, or for a store of immutable objects another one."""

    async def get(self, name: str) -> bytes:
        """The object's value. ``name``: what :meth:`put` returned, here or in another client."""

    async def close(self) -> None: ...


class StoreModule(Protocol):
    """The module of a store. Importing it needs no program and no library of the store."""

    def missing(self) -> str | None:
        """What is not installed, and how to get it; None if the store can be measured here."""

    def deployment(self, options: Mapping[str, Any]) -> Deployment:
        """``options``: those of the row in stores.py."""

    async def connect(self, parameters: Parameters, site: str) -> Client:
        """A client at ``site``; called in a process in the network of its users. Raises OperationFailed."""
