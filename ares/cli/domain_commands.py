"""Commands about domains and their configurations: domain create, ls, move, mirror; reconfig.

The module also has the options that name a configuration.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ares.cli.local.init_command import Dap
from ares.cli.observe.domain_survey import domain_names, is_of_file
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import printable, progress_bar, size
from ares.model.configuration import DELTA_DEFAULT, Algorithm, Configuration
from ares.model.errors import AresError, BadInput, ConfigurationRefused, ObjectsStuck
from ares.model.identity import DEFAULT_DOMAIN, MIRROR_DOMAINS, shown
from ares.model.numbers import plural

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.mirrors import Mirror
    from ares.client.shared_log import Log
    from ares.client.store import ObjectStore
    from ares.cluster.settings import Settings
    from ares.reconfig.mover import Progress
    from ares.reconfig.reconfigure import ReconfigurationResult

DapOption = Annotated[
    Dap | None,
    typer.Option(
        "--dap", help="Replicate values (abd) or erasure-code them (ec).", show_default=False
    ),
]
AnyDap = Annotated[
    Algorithm | None,
    typer.Option(
        "--dap",
        help="Replicate values (abd), erasure-code them (ec), or, for a log, a chain (chain).",
        show_default=False,
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k",
        help="With ec: how many elements rebuild a value. Default: the largest k that survives one "
        "crash.",
    ),
]
Delta = Annotated[
    int | None, typer.Option("--delta", help="With ec: how many writers at once. Default: 8.")
]
Servers = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="s0,s1,...",
        help="The ids of the servers, with commas.",
        show_default=False,
    ),
]
AtSite = Annotated[
    str | None,
    typer.Option(
        "--site",
        metavar="SITE",
        help="Servers of this site, as many as `default` has, in place of --servers.",
        show_default=False,
    ),
]
Transferred = Annotated[
    Literal["client", "servers"],
    typer.Option(
        "--transfer",
        help="How large values travel: through this command, or from server to server.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the change that would be made.")]
AllowNoFaults = Annotated[
    bool, typer.Option("--allow-no-faults", help="Accept a configuration that one crash stops.")
]


_DOMAIN_HELP = (
    "The domain to move (default: default); file/NAME for a file that `ares-cli put` made as a "
    "domain of its own."
)
_SKIP_HELP = (
    "Leave objects behind that provably cannot be decoded: reading them fails until they are "
    "written or deleted. `status` lists them."
)


FollowUsers = Annotated[
    bool,
    typer.Option(
        "--follow-users",
        help="Let the domain move to the site of the clients that use it most (see `domain "
        "follow`).",
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
        store, created = await manager.create_domain(name, wished)
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


def reconfig(
    common: SharedOptions,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="NAME", help=_DOMAIN_HELP, show_default=False)
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Move every domain, domains of files included, one after the other; with --dap "
            "chain, every log.",
        ),
    ] = False,
    dap: AnyDap = None,
    k: K = None,
    delta: Delta = None,
    servers: Servers = None,
    allow_no_faults: AllowNoFaults = False,
    dry_run: DryRun = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Move even if the domain has this configuration already: collects data that "
            "retired configurations left.",
        ),
    ] = False,
    skip_undecodable: Annotated[bool, typer.Option("--skip-undecodable", help=_SKIP_HELP)] = False,
    transfer: Transferred = "client",
) -> None:
    """Move a domain to other servers, another redundancy or other data access primitives.

    Reads and writes go on meanwhile, while a quorum of the old servers and a quorum of the new
    servers answer. A log (`ares-cli log create`) is moved to another chain, --dap chain; appends
    wait for a moment.

    A domain with this configuration already is left unchanged. A server with lost memory counts as
    a new server, and is taken in. Undecodable objects stop neither the remaining objects nor, with
    --all, further domains; but without --skip-undecodable the move is not final, and the exit
    status is 1.
    """
    if every and domain is not None:
        raise BadInput("--domain and --all exclude each other")
    wished = wished_configuration(common, dap, k, delta, servers, allow_no_faults)
    outcomes: list[dict[str, Any]] = []
    stuck: list[ObjectsStuck] = []

    async def use(manager: "Manager") -> None:
        stores = (
            [await manager.domain_or_log(domain or DEFAULT_DOMAIN)]
            if not every
            else [
                store
                async for store in manager.domains()
                if (store.configuration.dap == "chain") == (dap == "chain")
            ]
        )
        for store in stores:
            try:
                outcomes.append(
                    await _move(
                        common,
                        store,
                        await manager.identified(wished),
                        dry_run,
                        anyway,
                        skip_undecodable=skip_undecodable,
                        transfer=transfer,
                    )
                )
            except ObjectsStuck as error:
                stuck.append(error)
        if stuck:
            raise AresError("; ".join(map(str, stuck)))

    try:
        with_manager(common, use, as_user=False)
    finally:  # with --all, moves before a failure stay done
        if common.json and outcomes:
            common.report({"dry_run": dry_run, "domains": outcomes}, "")
    if not all(outcome.get("ours", True) for outcome in outcomes):
        raise typer.Exit(1)


def move(
    common: SharedOptions,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The domain, or log.", show_default=False)
    ],
    site: Annotated[
        str, typer.Option("--site", metavar="SITE", help="The site to move to.", show_default=False)
    ],
    dry_run: DryRun = False,
    transfer: Transferred = "client",
    allow_no_faults: AllowNoFaults = False,
) -> None:
    """Move a domain to the servers of a site, with the same redundancy if the servers suffice.

    Reads and writes go on meanwhile, while a quorum of the old servers and a quorum of the new
    servers answer.
    """
    from ares.cluster.sites import at_site

    if name.startswith(MIRROR_DOMAINS):
        raise BadInput(
            f"{name!r} is a mirror, which stays at its site: remove it, and make a mirror at the "
            "other site (`ares-cli domain mirror`)"
        )

    async def use(manager: "Manager") -> dict[str, Any]:
        store = await manager.domain_or_log(name)
        wished = at_site(
            common.settings(), site, name, await store.current(), allow_no_faults=allow_no_faults
        )
        return await _move(
            common,
            store,
            await manager.identified(wished),
            dry_run,
            anyway=False,
            skip_undecodable=False,
            transfer=transfer,
        )

    outcome = with_manager(common, use, as_user=False)
    if common.json:
        common.report(outcome | {"dry_run": dry_run}, "")
    if not outcome.get("ours", True):
        raise typer.Exit(1)


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


def wished_configuration(
    common: SharedOptions,
    dap: Algorithm | None,
    k: int | None,
    delta: int | None,
    servers: str | None,
    allow_no_faults: bool,
) -> Configuration:
    """Return the configuration of the options, with the servers' addresses of the cluster file.

    Raises :class:`BadInput`.
    """
    from ares.cluster.new_cluster import largest_k

    book = common.settings().book()
    if dap is None:
        raise BadInput(
            "--dap is missing: say --dap abd to replicate values or --dap ec to erasure-code "
            "them; a log takes --dap chain"
        )
    names = named_servers(servers)
    try:
        if dap == "ec":
            k = largest_k(len(names)) if k is None else k
            wished = Configuration.ec(
                names, k, DELTA_DEFAULT if delta is None else delta, allow_no_faults=allow_no_faults
            )
        elif (k, delta) == (None, None):
            wished = (Configuration.abd if dap == "abd" else Configuration.chain)(
                names, allow_no_faults=allow_no_faults
            )
        else:
            raise BadInput(f"--k and --delta belong to --dap ec: {dap} replicates whole values")
        return wished.resolved(book)
    except ConfigurationRefused as error:
        raise BadInput(str(error)) from error


def named_servers(servers: str | None) -> list[str]:
    """Return the ids of --servers. Raises :class:`BadInput`."""
    if servers is None:
        raise BadInput("--servers is missing: name the servers, for example --servers s0,s1,s2")
    names = [name.strip() for name in servers.split(",")]
    if not all(names):
        raise BadInput(f"--servers takes ids with one comma between two of them, not {servers!r}")
    return names


async def _move(
    common: SharedOptions,
    store: "ObjectStore | Log",
    wished: Configuration,
    dry_run: bool,
    anyway: bool,
    **how: Any,
) -> dict[str, Any]:
    """Move a domain and show the progress. ``how``: of objects, see `ObjectStore.reconfigure`."""
    from ares.client.shared_log import Log
    from ares.reconfig.reconfigure import ReconfigurationResult

    before = await store.current()
    if (before.dap == "chain") != (wished.dap == "chain"):
        what = (
            "a log, whose configurations are chains: --dap chain"
            if before.dap == "chain"
            else "no log: --dap abd or --dap ec"
        )
        raise ConfigurationRefused(f"domain {store.name!r} is {what}. Nothing was changed")

    if wished.dap == "chain" and how["transfer"] != "client":
        raise BadInput(
            f"{store.name!r} is a log, and its entries always travel from server to server: "
            "--transfer is for objects. Nothing was changed"
        )

    def echo(text: str) -> None:
        if not common.json:  # JSON is a single object at the end
            typer.echo(text)

    name = printable(store.name)
    echo(f"domain {name}\n  now   {before.describe()}\n  then  {wished.describe()}")
    outcome = {
        "domain": store.name,
        "before": described(store.name, before),
        "wished": described(store.name, wished),
    }
    same = (
        before.servers == wished.servers
        if before.dap == wished.dap == "chain"
        else before.same_content(wished)
    )
    if same and not store.pending and not anyway:
        echo(
            "  nothing to do: that is the configuration (`ares-cli reconfig --anyway` moves all "
            "the same)"
        )
        return outcome | _result(ReconfigurationResult(before, True, 0, 0, 0, []))
    if dry_run:
        echo(f"  {_outlook(wished)}")
        echo("  nothing was changed (--dry-run)")
        return outcome | {"outlook": _outlook(wished)}
    with progress_bar("read-config") as show:

        def show_progress(now: "Progress") -> None:
            show(
                now.stage,
                now.moved + now.skipped,
                now.total,
                size(now.bytes) if wished.dap != "chain" else "entries",
            )

        if isinstance(store, Log):
            result = await store.reconfigure(wished, progress=show_progress)
        else:
            result = await store.reconfigure(wished, progress=show_progress, **how)
    echo(_result_text(result))
    return outcome | _result(result)


def _outlook(wished: Configuration) -> str:
    """Return the needs of a move to ``wished`` until its end; all new servers answered just now."""
    answer = f"{'all ' * (wished.n > 1)}{wished.n} of its servers answer now"
    if wished.dap == "chain":
        return (
            f"{answer}. From the decision on appends go to them, and wait while one of them is cut "
            "off; nothing is lost"
        )
    return (
        f"{answer}; {wished.quorum_size} make a quorum. From the decision until the end of the "
        "move reads and writes need a quorum of the old servers and one of the new. While "
        "either quorum is cut off, reads and writes fail; nothing is lost, and the decision "
        "cannot be taken back"
    )


def _result(result: "ReconfigurationResult") -> dict[str, Any]:
    return {
        "ours": result.ours,
        "after": described(result.configuration.domain, result.configuration),
        "moved": result.moved,
        "skipped": result.skipped,
        "bytes": result.bytes,
        "uncollected": [configuration.describe() for configuration in result.uncollected],
        "announced": result.announced,
        "left_behind": list(result.left),
    }


def _result_text(result: "ReconfigurationResult") -> str:
    there = f", {result.skipped} were there already" if result.skipped else ""
    if result.configuration.dap == "chain":
        return (
            f"  done: chain {result.configuration.index} takes appends from position "
            f"{result.configuration.start} on, and has all before"
        )
    lines = [
        (
            f"  done: {plural(result.moved, 'object')} moved ({size(result.bytes)}){there}; index "
            f"{result.configuration.index}"
        )
    ]
    if not result.ours:
        what = f"{result.configuration.describe()} is in force now"
        lines = [
            (
                f"  another client's proposal was decided first and is completed: {what}. Yours "
                "was not decided; run the command again if you still want it"
            )
        ]
    for configuration in result.uncollected:
        lines.append(
            f"  note: no quorum of the retired {configuration.describe()} answered: its servers "
            "may still hold data that is no longer needed"
        )
    if result.left:
        names = ", ".join(map(shown, result.left))
        lines.append(
            f"  left behind, because they could not be decoded: {printable(names)}. A write or a "
            "delete replaces the rest of an object"
        )
    if not result.announced:
        lines.append(
            "  note: the consensus service was not told: a new client finds the new configuration "
            "only while a retired one still answers"
        )
    return "\n".join(lines)


def described(domain: str, configuration: Configuration) -> dict[str, Any]:
    """Return a configuration of ``domain`` as JSON shows it.

    ``index`` is -1 for a configuration without a place in the sequence yet.
    """
    return {
        "domain": domain,
        "configuration": configuration.describe(),
        "index": configuration.index,
        "dap": configuration.dap,
        "k": configuration.k,
        "delta": configuration.delta,
        "servers": list(configuration.server_ids),
        "quorum": configuration.quorum_size,
        "crashes_survived": configuration.crashes_survived,
    }
