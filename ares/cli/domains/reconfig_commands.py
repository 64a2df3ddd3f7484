"""Commands that reconfigure a domain or a log: reconfig, domain move."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import replace

from ares.cli.domains.configuration_options import (
    AllowNoFaults,
    AnyDap,
    Delta,
    K,
    Servers,
    described,
    wished_configuration,
)
from ares.cli.options import SharedOptions, with_manager
from ares.cli.terminal import printable, progress_bar, size
from ares.model.configuration import Configuration
from ares.model.errors import AresError, BadInput, ConfigurationRefused, ObjectsStuck
from ares.model.identity import DEFAULT_DOMAIN, MIRROR_DOMAINS, shown
from ares.model.numbers import plural

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.shared_log import Log
    from ares.client.store import ObjectStore
    from ares.reconfig.mover import Progress
    from ares.reconfig.reconfigure import ReconfigurationResult

Transferred = Annotated[
    Literal["client", "servers"],
    typer.Option(
        "--transfer",
        help="How large values travel: through this command, or from server to server.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the change that would be made.")]

_DOMAIN_HELP = (
    "The domain to move (default: default); file/NAME for a file that `ares-cli put` made as a "
    "domain of its own."
)
_SKIP_HELP = (
    "Leave objects behind that provably cannot be decoded: reading them fails until they are "
    "written or deleted. `status` lists them."
)


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
                        await manager.identified(_of_kind(wished, store.configuration)),
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


def _of_kind(wished: Configuration, present: Configuration) -> Configuration:
    """Return ``wished`` as a configuration of a domain that stays write-once, or stays not."""
    is_log = "chain" in (wished.dap, present.dap)
    return wished if is_log else wished.marked(present.write_once)


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
    same = replace(before, start=wished.start).same_content(wished)
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
