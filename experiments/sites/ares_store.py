"""Ares on sites: ``replicas`` servers at each, and a domain per site with ABD on them.

Servers keep values in memory: the study does not count flushing. Three consensus members are at the
first three sites (a single member with fewer sites). A user's client names its site.
"""

import re
import subprocess
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from ares.client.connect import connect as connect_to
from ares.client.connect import settings_of
from ares.client.manager import Manager
from ares.model.errors import AresError
from ares.platform.interpreter import python
from experiments.bench.store_processes import await_that
from experiments.sites.site_store import (
    Deployment,
    OperationFailed,
    Parameters,
    SiteClient,
    SiteNetwork,
    site_of,
)

FIRST_PORT = 7400
STORE_BEAT_S = 1.5
"""Beat of the consensus members in seconds.

Members at different sites exchange few messages, and take longer to find a dead leader.
"""
_ARES_UP_S = 60.0
_DECIDING_S = 60.0


def missing() -> str | None:
    """Return no missing software: ares is always present."""
    return None


def deployment(options: Mapping[str, Any]) -> Deployment:
    """Return the deployment. ``follows``: domains move to the site with the most use."""
    return AresDeployment(bool(options.get("follows")))


async def connect(parameters: Parameters, site: str) -> SiteClient:
    settings = settings_of(parameters["file"])
    try:
        return AresUser(
            await connect_to(
                structs.replace(settings, client=structs.replace(settings.client, site=site))
            )
        )
    except AresError as error:
        raise OperationFailed(str(error)) from error


class AresUser:
    """A user with a single connection; the object SITE/NAME is in the domain SITE."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def put(self, name: str, value: bytes) -> str:
        try:
            await (await self._manager.domain(site_of(name))).write(name, value)
        except AresError as error:
            raise OperationFailed(str(error)) from error
        return name

    async def get(self, name: str) -> bytes:
        try:
            return await (await self._manager.domain(site_of(name))).read(name)
        except AresError as error:
            raise OperationFailed(str(error)) from error

    async def close(self) -> None:
        await self._manager.close()


class AresDeployment:
    """A :class:`experiments.sites.site_store.Deployment` of ares."""

    def __init__(self, follows: bool) -> None:
        self._follows = follows
        self._running: list[subprocess.Popen[bytes]] = []

    async def start(self, bed: SiteNetwork, replicas: int) -> None:
        self._bed, self._file = bed, bed.directory / "ares" / "cluster.toml"
        first = bed.sites[0]
        members = 3 if len(bed.sites) >= 3 or self._follows else 1
        sites = ",".join(f"{site}:{replicas}" for site in bed.sites)
        where = f"--sites {sites} --consensus {members} --base-port {FIRST_PORT}"
        kind = "--durability memory --security none --allow-no-faults"
        shape = f"{where} {kind}".split()
        shape += ["--autopilot"] if self._follows else []
        bed.run(first, *python("-m", "ares", "init", str(self._file.parent), *shape))
        places = [site for site in bed.sites for _ in range(replicas)]
        homes = {f"s{number}": site for number, site in enumerate(places)}
        homes |= {f"r{number}": bed.sites[number % len(bed.sites)] for number in range(members)}
        text = at_homes(
            self._file.read_text(), {id: bed.address(site) for id, site in homes.items()}
        )
        self._file.write_text(
            text.replace("\n[[server]]", f"consensus_beat_s = {STORE_BEAT_S}\n\n[[server]]", 1)
        )
        for id, site in homes.items():
            kind = "consensus" if id.startswith("r") else "server"
            self._running.append(
                bed.start(site, id, *python("-m", "ares", kind, str(self._file), "--id", id))
            )
        for id in homes:
            log = bed.directory / f"{id}.log"
            await_that(
                lambda log=log: "READY" in log.read_text(errors="replace"),
                f"{id} serves",
                _ARES_UP_S,
                log,
            )  # type: ignore[misc]
        self._domains()

    def _domains(self) -> None:
        """Make a domain for each site. The first waits until a consensus member leads."""
        words = ["--allow-no-faults", "-c", str(self._file), "--timeout", f"{_DECIDING_S:g}"]
        words += ["--follow-users"] if self._follows else []
        for site in self._bed.sites:
            self._bed.run(
                site, *python("-m", "ares", "domain", "create", site, "--site", site, *words)
            )

    async def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            self._bed.stop(process)

    def parameters(self, site: str) -> Parameters:
        return {"file": str(self._file)}


def at_homes(text: str, addresses: Mapping[str, str]) -> str:
    """Return a cluster file whose processes listen on these addresses, by id.

    The addresses replace loopback.
    """
    parts = re.split(r"(?m)^(?=\[\[|# \[|\[)", text)
    for number, part in enumerate(parts):
        if found := re.search(r'(?m)^id = "(\w+)"$', part):
            parts[number] = re.sub(r'"127\.0\.0\.1:', f'"{addresses[found[1]]}:', part)
    return "".join(parts)
