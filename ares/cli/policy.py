"""The options that name a configuration, and the configuration that they name."""

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from ares.cli.local.cluster_commands import Dap
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import ServerId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ares.model.configuration import Configuration, Server

DapOption = Annotated[Dap | None, typer.Option("--dap", help="Replicate values (abd) or erasure-code them (ec).", show_default=False)]
K = Annotated[int | None, typer.Option("--k", help="With ec: how many elements rebuild a value. Default: the most that survives one crash.")]
Delta = Annotated[int | None, typer.Option("--delta", help="With ec: how many writers at once. Default: 8.")]
Servers = Annotated[str | None, typer.Option("--servers", metavar="s0,s1,...", help="The ids of the servers, with commas.", show_default=False)]
AllowNoFaults = Annotated[bool, typer.Option("--allow-no-faults", help="Accept a configuration that one crash stops.")]


class Policy(Struct, frozen=True):
    """What was said on the command line; None: nothing was."""

    dap: Dap | None
    k: int | None
    delta: int | None
    servers: str | None
    allow_no_faults: bool

    @property
    def given(self) -> bool:
        """Whether anything was said."""
        return (self.dap, self.k, self.delta, self.servers) != (None, None, None, None)

    def configuration(self, book: "Mapping[ServerId, Server]") -> "Configuration":
        """The configuration meant, with the servers' addresses from ``book``. Raises :class:`BadInput`."""
        from ares.cluster.cluster_file import largest_k
        from ares.model.configuration import DELTA_DEFAULT, Configuration

        if self.dap is None:
            raise BadInput("--dap is missing: say --dap abd to replicate values or --dap ec to erasure-code them")
        names = self._names()
        try:
            if self.dap is Dap.EC:
                k = largest_k(len(names)) if self.k is None else self.k
                delta = DELTA_DEFAULT if self.delta is None else self.delta
                return Configuration.ec(names, k, delta, allow_no_faults=self.allow_no_faults).resolved(book)
            if (self.k, self.delta) != (None, None):
                raise BadInput("--k and --delta belong to --dap ec: ABD replicates whole values")
            return Configuration.abd(names, allow_no_faults=self.allow_no_faults).resolved(book)
        except ConfigurationRefused as error:
            raise BadInput(str(error)) from error

    def _names(self) -> list[str]:
        if self.servers is None:
            raise BadInput("--servers is missing: name the servers, for example --servers s0,s1,s2")
        names = [name.strip() for name in self.servers.split(",")]
        if not all(names):
            raise BadInput(f"--servers takes ids with one comma between two of them, not {self.servers!r}")
        return names
