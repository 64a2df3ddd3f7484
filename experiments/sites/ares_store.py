"""Ares on sites: ``replicas`` servers at each, and a domain per site with ABD on them.

Servers keep values in memory: the study does not count flushing. Three consensus members are at the
first three sites (a single member with fewer sites). A user's client names its site.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import structs

from ares.client.connect import connect as connect_to
from ares.client.connect import settings_of
from ares.client.manager import Manager
from ares.model.errors import AresError
from ares.platform.interpreter import python
from experiments.bench.store_processes import await_word
from experiments.sites.site_store import (
    Deployment,
    OperationFailed,
    Parameters,
    SiteClient,
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


@contextmanager
def _told() -> Iterator[None]:
    """Raise OperationFailed in place of an error of ares."""
    try:
        yield
    except AresError as error:
        raise OperationFailed(str(error)) from error


async def connect(parameters: Parameters, site: str) -> SiteClient:
    settings = settings_of(parameters["file"])
    client = structs.replace(settings.client, site=site)
    with _told():
        return AresUser(await connect_to(structs.replace(settings, client=client)))


class AresUser:
    """A user with a single connection; the object SITE/NAME is in the domain SITE."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def put(self, name: str, value: bytes) -> str:
        with _told():
            await (await self._manager.domain(site_of(name))).write(name, value)
        return name

    async def get(self, name: str) -> bytes:
        with _told():
            return await (await self._manager.domain(site_of(name))).read(name)

    async def close(self) -> None:
        await self._manager.close()


class AresDeployment(Deployment):
    """Servers and members at sites. ``follows``: domains move to the site with the most use."""

    def __init__(self, follows: bool = False) -> None:
        super().__init__()
        self._follows = follows

    def deploy(self) -> None:
        bed, file = self.bed, self.bed.directory / "ares" / "cluster.toml"
        members = 3 if len(bed.sites) >= 3 or self._follows else 1
        sites = ",".join(f"{site}:{self.replicas}" for site in bed.sites)
        shape = f"--sites {sites} --consensus {members} --base-port {FIRST_PORT}"
        shape += " --durability memory --security none --allow-no-faults"
        shape += " --autopilot" if self._follows else ""
        bed.run(bed.sites[0], *python("-m", "ares", "init", str(file.parent), *shape.split()))
        places = [site for site in bed.sites for _ in range(self.replicas)]
        homes = {f"s{number}": site for number, site in enumerate(places)}
        homes |= {f"r{number}": bed.sites[number % len(bed.sites)] for number in range(members)}
        text = at_homes(file.read_text(), {id: bed.address(site) for id, site in homes.items()})
        beat = f"consensus_beat_s = {STORE_BEAT_S}\n\n[[server]]"
        file.write_text(text.replace("\n[[server]]", beat, 1))
        for id, site in homes.items():
            kind = "consensus" if id.startswith("r") else "server"
            self.serve(site, id, *python("-m", "ares", kind, str(file), "--id", id))
        for id in homes:
            await_word(b"READY", _ARES_UP_S, bed.directory / f"{id}.log", self.servers)
        # the first domain waits until a consensus member leads
        words = f"--allow-no-faults -c {file} --timeout {_DECIDING_S:g}"
        words += " --follow-users" if self._follows else ""
        for site in bed.sites:
            create = f"domain create {site} --site {site} {words}".split()
            bed.run(site, *python("-m", "ares", *create))

    def parameters(self, site: str) -> Parameters:
        return {"file": str(self.bed.directory / "ares" / "cluster.toml")}


deployment = AresDeployment


def at_homes(text: str, addresses: Mapping[str, str]) -> str:
    """Return a cluster file whose processes listen on these addresses, by id.

    The addresses replace loopback.
    """
    parts = re.split(r"(?m)^(?=\[\[|# \[|\[)", text)
    for number, part in enumerate(parts):
        if found := re.search(r'(?m)^id = "(\w+)"$', part):
            parts[number] = re.sub(r'"127\.0\.0\.1:', f'"{addresses[found[1]]}:', part)
    return "".join(parts)
