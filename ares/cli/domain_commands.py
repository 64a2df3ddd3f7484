"""Commands about domains and their configurations: domain create, domain ls, reconfig."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ares.cli.connection import printable, size, with_manager
from ares.cli.options import Common, command
from ares.cli.policy import AllowNoFaults, DapOption, Delta, K, Policy, Servers
from ares.errors import AresError, BadInput
from ares.identity import DEFAULT_DOMAIN

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.store import ObjectStore
    from ares.configuration import Configuration
    from ares.reconfig.reconfigure import Progress, Reconfigured


class Conflict(AresError):
    """Somebody else was first; what they decided is in force."""


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    domains = typer.Typer(help="Make and list domains, sets of objects with a configuration.", rich_markup_mode=None)
    command(domains, "create", example="ares-cli domain create photos --dap ec --k 3 --servers s0,s1,s2,s3,s4")(create)
    command(domains, "ls", example="ares-cli domain ls")(ls)
    app.add_typer(domains, name="domain")
    command(app, "reconfig", example="ares-cli reconfig --dap ec --k 2 --servers s1,s2,s3,s4")(reconfig)


def create(
    common: Common,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new domain's name.", show_default=False)],
    dap: DapOption = None,
    k: K = None,
    delta: Delta = None,
    servers: Servers = None,
    allow_no_faults: AllowNoFaults = False,
) -> None:
    """Make a domain: a set of objects with a configuration of its own. Without options: the configuration that `default` has."""
    policy = Policy(dap, k, delta, servers, allow_no_faults)
    wished = policy.configuration(common.settings().book()) if policy.given else None

    async def use(manager: "Manager") -> "tuple[Configuration, bool]":
        store, created = await manager.create_domain(name, wished or await manager.current())
        return store.configuration if created else await store.current(), created

    configuration, created = with_manager(common, use)
    if not created:
        raise Conflict(f"domain {name!r} exists already, with {configuration.describe()}; `ares-cli reconfig --domain` changes that")
    common.report(_described(name, configuration), f"domain {printable(name)}: {configuration.describe()}")


def ls(common: Common) -> None:
    """List the domains and the configuration that each has now."""

    async def use(manager: "Manager") -> "list[tuple[str, Configuration]]":
        return [(store.name, await store.current()) async for store in manager.domains()]

    found = with_manager(common, use)
    width = max(len(printable(name)) for name, _ in found)
    lines = [f"{printable(name):{width}}  {configuration.describe()}" for name, configuration in found]
    common.report({"domains": [_described(name, configuration) for name, configuration in found]}, "\n".join(lines))


def reconfig(
    common: Common,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="The domain to move (default: default).", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Move every domain, one after the other.")] = False,
    dap: DapOption = None,
    k: K = None,
    delta: Delta = None,
    servers: Servers = None,
    allow_no_faults: AllowNoFaults = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
) -> None:
    """Move a domain to other servers, another redundancy or other data access primitives. Reads and writes go on meanwhile."""
    if every and domain is not None:
        raise BadInput("--domain and --all exclude each other")
    wished = Policy(dap, k, delta, servers, allow_no_faults).configuration(common.settings().book())
    outcomes: list[dict[str, Any]] = []

    async def use(manager: "Manager") -> None:
        stores = [store async for store in manager.domains()] if every else [await manager.domain(domain or DEFAULT_DOMAIN)]
        for store in stores:
            outcomes.append(await _move(common, store, await manager.identified(wished), dry_run))

    try:
        with_manager(common, use)
    finally:  # with --all, what was done before a failure is done
        if common.json and outcomes:
            common.report({"dry_run": dry_run, "domains": outcomes}, "")
    if not all(outcome.get("ours", True) for outcome in outcomes):
        raise typer.Exit(1)


async def _move(common: Common, store: "ObjectStore", wished: "Configuration", dry_run: bool) -> dict[str, Any]:
    before = await store.current()
    say = _silence if common.json else typer.echo
    say(f"domain {printable(store.name)}\n  now   {before.describe()}\n  then  {wished.describe()}")
    outcome = {"domain": store.name, "before": _described(store.name, before), "wished": _described(store.name, wished)}
    if dry_run:
        say("  nothing was changed (--dry-run)")
        return outcome
    with _progress_bar() as progress:
        result = await store.reconfigure(wished, progress=progress)
    say(_told(result))
    return outcome | {
        "ours": result.ours,
        "after": _described(store.name, result.configuration),
        "moved": result.moved,
        "skipped": result.skipped,
        "bytes": result.bytes,
        "uncollected": [configuration.describe() for configuration in result.uncollected],
        "announced": result.announced,
    }


def _told(result: "Reconfigured") -> str:
    there = f", {result.skipped} were there already" if result.skipped else ""
    lines = [f"  done: {result.moved} objects moved ({size(result.bytes)}){there}; index {result.configuration.index}"]
    if not result.ours:
        what = f"{result.configuration.describe()} is in force now"
        lines = [f"  somebody else's proposal was decided first and is completed: {what}. Yours was not; run the command again if it is still wanted"]
    for configuration in result.uncollected:
        lines.append(f"  note: no quorum of the retired {configuration.describe()} answered: its servers may still hold data that nobody needs")
    if not result.announced:
        lines.append("  note: the consensus service did not hear of it: a new client finds its way only while a retired configuration still answers")
    return "\n".join(lines)


def _silence(_: str) -> None:
    """With --json there is one object at the end and nothing before."""


def _described(domain: str, configuration: "Configuration") -> dict[str, Any]:
    """``index`` is -1 for a configuration that has no place in the sequence yet."""
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


@contextmanager
def _progress_bar() -> "Iterator[Callable[[Progress], None]]":
    """On stderr, and only if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("  {task.description:15}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[size]}"), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("read-config", total=None, size="")

        def show(progress: "Progress") -> None:
            done = progress.moved + progress.skipped
            bar.update(task, description=progress.stage, completed=done, total=progress.total or None, size=size(progress.bytes))

        yield show
