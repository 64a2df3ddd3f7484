"""How a command reaches the cluster: connect, do one thing, let go. Also the options that several modules of commands share."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ares.cli.options import Common

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.store import ObjectStore

Result = TypeVar("Result")

Domain = Annotated[str, typer.Option("--domain", metavar="NAME", help="The domain that the object is in.")]


def with_manager(common: Common, use: Callable[["Manager"], Awaitable[Result]]) -> Result:
    """What ``use`` returns, given a connection to the cluster of the command line."""
    from ares.client.connect import connect
    from ares.machine.loop import run

    settings = common.settings()

    async def connected() -> Result:
        async with connect(settings) as manager:
            return await use(manager)

    return run(connected())


def with_store(common: Common, domain: str, use: Callable[["ObjectStore"], Awaitable[Result]]) -> Result:
    """What ``use`` returns, given the objects of ``domain``. Raises :class:`ares.DomainNotFound`."""

    async def opened(manager: "Manager") -> Result:
        return await use(await manager.domain(domain))

    return with_manager(common, opened)


def size(count: int) -> str:
    """So many bytes, for a person."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return "1 byte" if count == 1 else f"{count} bytes"


def printable(text: str) -> str:
    """``text`` as a terminal may be given it: a name with control characters is shown as a literal."""
    return text if text.isprintable() else repr(text)
