"""The shared options of commands, before or after the command's name, and access to the cluster.

An option after the name wins. A command is a function whose first parameter is a
:class:`SharedOptions`::

    def read(common: SharedOptions, key: str) -> None:
        settings = common.settings()  # the cluster file, with the options laid over it
        ...
        common.report({"key": key, "bytes": size}, f"{size} bytes")

Every shared option is ``None`` unless given: the two places can be laid over each other, and both
over the cluster file.
"""

import functools
import inspect
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from msgspec import Struct, structs

from ares.cli.help_page import ADVANCED, CommandPage
from ares.cli.local_files import naming
from ares.model.errors import BadInput
from ares.model.numbers import SECONDS_MAX
from ares.platform.environment import CLUSTER_VARIABLE, KEY_VARIABLE, SITE_VARIABLE
from ares.platform.loop import run

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.cluster.settings import Settings

Result = TypeVar("Result")

NamePrefix = Annotated[
    str,
    typer.Argument(
        metavar="[PREFIX]", help="Only names that begin with PREFIX.", show_default=False
    ),
]


def _switch(name: str, help: str) -> Any:
    return typer.Option(
        f"--{name}/--no-{name}",
        help=f"{help} (default: the cluster file's).",
        show_default=False,
        rich_help_panel=ADVANCED,
    )


class SharedOptions(Struct, frozen=True, dict=True):
    """The shared options of an invocation; ``None``: not given."""

    cluster: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--cluster",
            metavar="FILE",
            help=f"Use this cluster file (default: ${CLUSTER_VARIABLE}).",
        ),
    ] = None
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="S",
            min=0.001,
            max=SECONDS_MAX,
            help="Give up after S seconds.",
        ),
    ] = None
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help=f"Use this client key (default: ${KEY_VARIABLE}, or the file's).",
        ),
    ] = None
    json: Annotated[
        bool | None,
        typer.Option("--json", help="Print answers and errors as JSON.", show_default=False),
    ] = None
    piggyback: Annotated[
        bool | None, _switch("piggyback", "Learn of new configurations from any reply (ARES II)")
    ] = None
    gc: Annotated[
        bool | None, _switch("gc", "Retire old configurations after a reconfiguration")
    ] = None
    batch: Annotated[bool | None, _switch("batch", "Reconfigure many objects at once")] = None
    ahead: Annotated[
        bool | None, _switch("ahead", "Copy most data before a reconfiguration is decided")
    ] = None
    fast_read: Annotated[
        bool | None,
        _switch("fast-read", "Skip a read's second phase when a quorum holds the value"),
    ] = None
    optimised: Annotated[
        bool | None,
        _switch(
            "optimised",
            "Send a version of a file's block or of a coverable object only if the receiver lacks "
            "it (CoARES)",
        ),
    ] = None
    operation_log: Annotated[
        str | None,
        typer.Option(
            "--log-operations",
            metavar="FILE",
            help="Add a line of JSON for each operation to this file (docs/tracing.md).",
        ),
    ] = None
    site: Annotated[
        str | None,
        typer.Option(
            "--site",
            metavar="SITE",
            help=f"Say that this client is at SITE (default: ${SITE_VARIABLE}, or the file's).",
        ),
    ] = None

    def over(self, other: "SharedOptions") -> "SharedOptions":
        """Return the given values, completed from ``other``."""
        return structs.replace(
            other,
            **{name: value for name in ALL_OPTIONS if (value := getattr(self, name)) is not None},
        )

    @functools.cached_property
    def _file(self) -> "Settings":
        """Return the cluster file, which is read once: it may be a pipe."""
        from ares.cluster.settings import Settings

        path = self.cluster or os.environ.get(CLUSTER_VARIABLE)
        if not path:
            raise BadInput(
                f"which cluster? Give -c FILE or set {CLUSTER_VARIABLE}; `ares-cli init DIR` "
                "writes DIR/cluster.toml"
            )
        return Settings.load(path)

    def settings(self) -> "Settings":
        """Return the settings of -c or ARES_CLUSTER, with ``client`` as this command line wants.

        Raises :class:`BadInput`.
        """
        settings = self._file
        key = self.key_file or os.environ.get(KEY_VARIABLE)
        if self.key_file and settings.security is None:
            raise BadInput(
                f"--key: the cluster of {settings.path} has no keys, and this key would secure "
                "nothing"
            )
        if key and settings.security is not None:
            settings = structs.replace(
                settings, client=structs.replace(settings.client, key=str(key))
            )
        given: dict[str, Any] = {"site": site} if (site := os.environ.get(SITE_VARIABLE)) else {}
        given |= {
            name: value for name in _CLIENT_OPTIONS if (value := getattr(self, name)) is not None
        }
        return structs.replace(settings, client=structs.replace(settings.client, **given))

    def report(self, data: object, text: str) -> None:
        """Print the answer: ``data`` on a single line with --json, else ``text``."""
        print_line(json.dumps(data) if self.json else text)


_OPTION_TYPES = get_type_hints(SharedOptions, include_extras=True)
ALL_OPTIONS = tuple(_OPTION_TYPES)
_CLIENT_OPTIONS = ("timeout_s", *ALL_OPTIONS[4:])


def with_manager(
    common: SharedOptions, use: Callable[["Manager"], Awaitable[Result]], as_user: bool = True
) -> Result:
    """Return the result of ``use`` with a connection to the cluster of the command line.

    ``as_user``: the requests count as use from the client's site.
    """
    from ares.client.connect import connections_of, consensus_of, manager_of
    from ares.platform.memory import CLIENT_BYTES, keep_freed_memory

    settings = common.settings()
    chosen = (
        settings
        if as_user
        else structs.replace(settings, client=structs.replace(settings.client, site=None))
    )

    async def connected() -> Result:
        keep_freed_memory(CLIENT_BYTES)
        async with manager_of(
            settings, lambda: connections_of(chosen), consensus_of(chosen)
        ) as manager:
            return await use(manager)

    return run(connected())


def print_line(text: str) -> None:
    """Print a line of an answer."""
    with naming("standard output"):
        typer.echo(text)


def print_core_advice() -> None:
    """Print on standard error that the slower core runs, with a remedy, unless it was chosen."""
    from ares import compiled  # which loads the protocol; a help page does not need it

    if line := compiled.advice():
        typer.echo(line, err=True)


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    options: Sequence[str] = ALL_OPTIONS,
    section: str = "Commands",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that takes the shared ``options`` (fields of :class:`SharedOptions`).

    ``section`` is the section of the group's help; ``example`` ends the command's own help.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, cls=CommandPage, epilog=f"Example: {example}", rich_help_panel=section)(
            taking_options(function, options)
        )
        return function

    return register


def taking_options(function: Callable[..., None], options: Sequence[str]) -> Callable[..., None]:
    """Return ``function`` with the shared ``options`` in the signature, which typer reads.

    The options become the first argument.
    """

    @functools.wraps(function)
    def with_common(ctx: typer.Context, **arguments: Any) -> None:
        here = SharedOptions(**{name: arguments.pop(name) for name in options})
        ctx.obj = here.over(ctx.obj or SharedOptions())
        function(ctx.obj, **arguments)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTION_TYPES[name]
        )
        for name in options
    ]
    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    signature = inspect.Signature([context, *keyword_only, *shared])
    with_common.__signature__ = signature  # type: ignore[attr-defined]
    with_common.__annotations__ = {
        parameter.name: parameter.annotation for parameter in signature.parameters.values()
    }
    return with_common
