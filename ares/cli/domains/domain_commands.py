"""Commands about domains: domain create, follow, ls, mirror."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ares.cli.domains.configuration_options import (
    AllowNoFaults,
    AtSite,
    DapOption,
    Delta,
    K,
    Servers,
    described,
    wished_configuration,
)
from ares.cli.observe.domain_survey import domain_names, is_of_file
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import printable
from ares.model.configuration import Configuration
from ares.model.errors import AresError, BadInput
from ares.model.identity import MIRROR_DOMAINS
from ares.model.numbers import plural

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.mirrors import Mirror
    from ares.cluster.settings import Settings

FollowUsers = Annotated[
    bool,
    typer.Option(
        "--follow-users",
        help="Let the domain move to the site of the clients that use it most (see `domain "
        "follow`).",
    ),
]


WriteOnce = Annotated[
    bool,
    typer.Option(
        "--write-once",
        help="Each name is created once and may be dropped, as the chunks of a bucket are; there "
        "are no other writes.",
    ),
]


class DomainExists(AresError):
    """Another client made the domain first; the first decision is in force."""

    kind = "Conflict"
    """The name of this error in the JSON of earlier releases."""


def create(
    common: SharedOptions,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new domain's name.", show_default=False)
    ],
    dap: DapOption = None,
    k: K = None,
    delta: Delta = None,
    servers: Servers = None,
    site: AtSite = None,
    allow_no_faults: AllowNoFaults = False,
    follow_users: FollowUsers = False,
    write_once: WriteOnce = False,
) -> None:
    """Make a domain: a set of objects with a separate configuration.

    Without options, the domain gets the configuration of `default`. A log is made by `ares-cli log
    create`.
    """
    from ares.cluster.sites import CodeChoice, at_site

    if site is not None and servers is not None:
        raise BadInput("--site and --servers exclude each other")
    given = (dap, k, delta, servers) != (None, None, None, None)
    named = (
        wished_configuration(common, dap, k, delta, servers, allow_no_faults)
        if given and site is None
        else None
    )

    async def use(manager: "Manager") -> tuple[Configuration, bool]:
        wished = named or await manager.current()
        if site is not None:
            code = CodeChoice(dap, k, delta)
            wished = at_site(common.settings(), site, name, wished, code, allow_no_faults)
        store, created = await manager.create_domain(name, wished.marked(write_once))
        if created and follow_users:
            await manager.follow_users(name)
        return store.configuration if created else await store.current(), created

    configuration, created = with_manager(common, use)
    if not created:
        raise DomainExists(
            f"domain {name!r} exists already, with {configuration.describe()}; `ares-cli "
            "reconfig --domain` changes that"
        )
    more = f"; {followed(common.settings())}" if follow_users else ""
    common.report(
        described(name, configuration) | {"follows_users": follow_users},
        f"domain {printable(name)}: {configuration.describe()}{more}",
    )


def follow(
    common: SharedOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The domain.", show_default=False)],
    off: Annotated[
        bool, typer.Option("--off", help="Let the domain stay at its site from now on.")
    ] = False,
) -> None:
    """Let a domain follow its users: the autopilot moves it to the site with most requests.

    `status` says why the domain moves, or does not. Clients count if they name their site (--site,
    ARES_SITE, or `site` in the cluster file).
    """
    with_manager(common, lambda manager: manager.follow_users(name, not off))
    what = "stays where it is" if off else followed(common.settings())
    common.report({"domain": name, "follows_users": not off}, f"domain {printable(name)} {what}")


def followed(settings: "Settings") -> str:
    """Return the message for a domain that follows its users, with any obstacle to moves."""
    from ares.cluster.sites import sites_of

    but = ""
    if settings.autopilot is None:
        but = "; but no autopilot moves it: the cluster file has no table [autopilot]"
    elif len(sites_of(settings)) < 2:
        but = (
            "; but no other site has servers: the cluster file names servers at fewer than two "
            "sites"
        )
    elif settings.transport == "libzmq":
        but = (
            '; but no server counts requests by site: with transport = "libzmq" clients do not '
            "tell their site"
        )
    return f"follows its users{but}"


def ls(
    common: SharedOptions,
    every: Annotated[
        bool, typer.Option("--all", help="List the domains of single files, too.")
    ] = False,
) -> None:
    """List the domains, with present configuration, site, and mirrors with their age.

    Domains of single files are only counted.
    """
    from ares.cluster.sites import labels_of, site_of

    labels = labels_of(common.settings())

    async def use(
        manager: "Manager",
    ) -> "tuple[list[tuple[str, list[Configuration]]], int, list[Mirror]]":
        names = [
            name for name in await domain_names(manager) if not name.startswith(MIRROR_DOMAINS)
        ]
        wanted = [
            await manager.domain_or_log(name) for name in names if every or not is_of_file(name)
        ]
        found: list[tuple[str, list[Configuration]]] = [
            (store.name, [await store.current(), *store.pending]) for store in wanted
        ]
        return found, len(names) - len(wanted), await manager.mirrors()

    found, counted, mirrors = with_manager(common, use)
    width = max(len(printable(name)) for name, _ in found)
    sites = {name: site_of(labels, active[0]) for name, active in found}
    at = {name: f"at {site}  " if site else "" for name, site in sites.items()}
    lines = []
    for name, active in found:
        lines.append(
            f"{printable(name):{width}}  "
            f"{at[name]}{'; to follow: '.join(each.describe() for each in active)}"
        )
        lines += [
            f"{'':{width}}  {_mirror_line(mirror)}" for mirror in mirrors if mirror.domain == name
        ]
    if counted:
        lines.append(
            f"and {plural(counted, 'domain')} of single files: --all lists "
            "them, `ares-cli files` lists the files"
        )
    shown = [
        described(name, active[0])
        | {"site": sites[name], "pending": [each.describe() for each in active[1:]]}
        | {"mirrors": [_mirror_data(mirror) for mirror in mirrors if mirror.domain == name]}
        for name, active in found
    ]
    common.report({"domains": shown, "files": counted}, "\n".join(lines))


def mirror(
    common: SharedOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The domain.", show_default=False)],
    site: Annotated[
        str,
        typer.Option(
            "--site", metavar="SITE", help="Where the mirror is, or is to be.", show_default=False
        ),
    ],
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove the mirror; the autopilot deletes its data."),
    ] = False,
    allow_no_faults: AllowNoFaults = False,
) -> None:
    """Keep a read-only copy of a domain at another site, for `ares-cli read --stale-ok`.

    The autopilot brings the copy up to date.
    """
    from ares.cluster.sites import mirror_at

    settings = common.settings()

    async def drop(manager: "Manager") -> None:
        await manager.remove_mirror(name, site)

    async def make(manager: "Manager") -> tuple[Configuration, bool]:
        original = await manager.original(name)
        wished = mirror_at(settings, site, name, await original.current(), allow_no_faults)
        return await manager.create_mirror(name, site, wished)

    if remove and allow_no_faults:
        raise BadInput("--remove and --allow-no-faults exclude each other; nothing was changed")
    if remove:
        with_manager(common, drop, as_user=False)
        common.report(
            {"domain": name, "site": site, "removed": True},
            f"the mirror of {printable(name)} at {site} is removed",
        )
        return
    configuration, made = with_manager(common, make, as_user=False)
    if not made:
        raise DomainExists(
            f"domain {name!r} has a mirror at {site} already, with {configuration.describe()}; "
            "nothing was changed"
        )
    every_s = f"{settings.autopilot.mirror_every_s:g}" if settings.autopilot is not None else ""
    sentence = (
        f"mirror of {printable(name)} at {site}: {configuration.describe()}; the autopilot "
        f"copies the domain every {every_s} s"
    )
    common.report(
        {"mirror": described(configuration.domain, configuration), "domain": name, "site": site},
        sentence,
    )


def _mirror_line(mirror: "Mirror") -> str:
    age = "never complete yet" if mirror.age_s is None else f"{mirror.age_s:.1f} s old"
    return f"mirror at {mirror.site}, {age}  {mirror.configuration.describe()}"


def _mirror_data(mirror: "Mirror") -> dict[str, Any]:
    return described(mirror.configuration.domain, mirror.configuration) | {
        "site": mirror.site,
        "age_s": mirror.age_s,
    }
