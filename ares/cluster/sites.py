"""Sites: labels on servers and clients, and configurations at a single site (docs/sites.md)."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple
from zlib import crc32

from ares.cluster.addresses import split_address
from ares.cluster.new_cluster import largest_k
from ares.cluster.settings import Settings
from ares.model.configuration import (
    BACKEND_DEFAULT,
    DELTA_DEFAULT,
    Algorithm,
    Configuration,
    Server,
)
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import MIRROR_DOMAINS, ServerId


def sites_of(settings: Settings) -> dict[str, list[ServerId]]:
    """Return the servers at each site, both in the order of the cluster file.

    Servers without a site are left out.
    """
    sites: dict[str, list[ServerId]] = {}
    for id, site in labels_of(settings).items():
        sites.setdefault(site, []).append(id)
    return sites


def labels_of(settings: Settings) -> dict[ServerId, str]:
    """Return the site of each server that has a site."""
    return {server.id: server.site for server in settings.servers.values() if server.site}


def site_of(labels: Mapping[ServerId, str], configuration: Configuration) -> str:
    """Return the site of a configuration.

    Several sites are joined with plus signs; a question mark stands for servers without a site.
    Empty if no server has a site.
    """
    sites = sorted({labels[id] for id in configuration.server_ids if id in labels})
    return "+".join(
        [*sites, "?"]
        if sites and any(id not in labels for id in configuration.server_ids)
        else sites
    )


def servers_near(settings: Settings) -> list[ServerId]:
    """Return the servers at the client's site, in the order of the cluster file.

    Empty if the client has no site.
    """
    site = settings.client.site
    return [id for id, server in settings.servers.items() if site and server.site == site]


def remote_servers(settings: Settings) -> frozenset[ServerId]:
    """Return the servers at another site than the client; empty for a client without a site.

    Raises :class:`BadInput` if no server is at the client's site.
    """
    here = settings.client.site
    if here is None:
        return frozenset()
    _known(settings, here, "this client is at site")
    return frozenset(id for id, site in labels_of(settings).items() if site != here)


class CodeChoice(NamedTuple):
    """A choice of algorithm, k and delta; None leaves a value as it was."""

    dap: Algorithm | None = None
    k: int | None = None
    delta: int | None = None


def at_site(
    settings: Settings,
    site: str,
    name: str,
    like: Configuration,
    code: CodeChoice | None = None,
    allow_no_faults: bool = False,
) -> Configuration:
    """Return the configuration that domain ``name`` may have at ``site``.

    The configuration has as many servers as ``like``, or all servers at the site, on as many hosts
    as the site has. If ``like`` is the domain's own configuration, its servers at the site stay.

    ``code``: in place of the code of ``like``. The k of ``like`` is kept if k survives a crash at
    the site. Raises :class:`BadInput` for an unknown site and :class:`ConfigurationRefused` if the
    site has too few servers.
    """
    dap, k, delta = code or CodeChoice()
    known = _known(settings, site, "there is no site")
    stay = [server for server in like.servers if server.id in known and like.domain == name]
    there = [
        *stay,
        *(
            server
            for server in _spread(settings, known, name)
            if all(server.id != other.id for other in stay)
        ),
    ]
    servers, chosen = there[: like.n], dap or like.dap
    if chosen != "ec" and (k, delta) != (None, None):
        raise BadInput(f"--k and --delta belong to --dap ec: {chosen} replicates whole values")
    try:
        if chosen == "ec":
            same = like.dap == "ec" and (len(servers) - like.k) // 2 >= 1
            k = k if k is not None else like.k if same else largest_k(len(servers))
            delta = delta if delta is not None else like.delta or DELTA_DEFAULT
            return Configuration.ec(
                servers,
                k,
                delta,
                like.code or BACKEND_DEFAULT,
                write_once=like.write_once,
                allow_no_faults=allow_no_faults,
            )
        if chosen == "chain":
            return Configuration.chain(servers, allow_no_faults=allow_no_faults)
        return Configuration.abd(
            servers, write_once=like.write_once, allow_no_faults=allow_no_faults
        )
    except (BadInput, ConfigurationRefused) as error:
        raise ConfigurationRefused(
            f"at site {site!r} are {len(there)} servers. {error}. Nothing was changed"
        ) from error


def mirror_at(
    settings: Settings, site: str, name: str, like: Configuration, allow_no_faults: bool = False
) -> Configuration:
    """Return the configuration of a mirror at ``site`` of the domain ``name`` with ``like``.

    Raises the errors of :func:`at_site`; and :class:`BadInput` if the domain itself is at the site,
    or if no autopilot would copy the domain.
    """
    if settings.autopilot is None:
        raise BadInput(
            f"the autopilot copies domains to their mirrors, and {settings.path} has no table "
            "[autopilot] (docs/autopilot.md)"
        )
    if site_of(labels_of(settings), like) == site:
        raise BadInput(
            f"domain {name!r} lives at site {site!r} itself, and needs no mirror there; nothing "
            "was changed"
        )
    return at_site(settings, site, MIRROR_DOMAINS + name, like, allow_no_faults=allow_no_faults)


def _known(settings: Settings, site: str, what: str) -> list[ServerId]:
    sites = sites_of(settings)
    if site not in sites:
        known = ", ".join(sites) or 'none: write site = "..." into [[server]] tables'
        raise BadInput(
            f"{what} {site!r}, where no server of {settings.path} is; known sites: {known}"
        )
    return sites[site]


def _spread(settings: Settings, servers: Sequence[ServerId], name: str) -> list[Server]:
    """Return the first server of each host, followed by the second servers, and further rows.

    The first of all depends on the domain's name.
    """
    book, hosts = settings.book(), dict[str, list[Server]]()
    for id in servers:
        hosts.setdefault(split_address(settings.servers[id].address)[0], []).append(book[id])
    spread = [
        server for row in zip_longest(*hosts.values()) for server in row if server is not None
    ]
    turn = crc32(name.encode()) % len(spread)
    return spread[turn:] + spread[:turn]
