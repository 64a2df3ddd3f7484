"""Commands about objects: write, read, delete, ls, stat, watch."""

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.local_files import (
    STANDARD_STREAM,
    check_output,
    naming,
    opened_source,
    reporting_interruption,
    standard_output,
    write_output,
)
from ares.cli.options import NamePrefix, Result, SharedOptions, print_line, with_manager
from ares.cli.terminal import printable, size
from ares.model.errors import BadInput
from ares.model.identity import DEFAULT_DOMAIN

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.store import ObjectStat, ObjectStore
    from ares.model.configuration import Configuration

Domain = Annotated[
    str, typer.Option("--domain", metavar="NAME", help="The domain that the object is in.")
]
Input = Annotated[
    Path,
    typer.Argument(
        metavar="[FILE|-]", help="The file to store; standard input by default.", show_default=False
    ),
]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The object's name: 1 to 1024 bytes of UTF-8.", show_default=False
    ),
]

Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        help="KEY is as messages show it, with `\\x00` for a NUL, and may be reserved.",
    ),
]


def write(
    common: SharedOptions,
    key: Key,
    file: Input = STANDARD_STREAM,
    domain: Domain = DEFAULT_DOMAIN,
    raw: Raw = False,
) -> None:
    """Store a file, or standard input, as the object KEY; prints the new version's tag."""
    value = read_input(file, common.settings().limits.value_bytes)
    name = _unescaped(key) if raw else key
    tag = _with_store(common, domain, lambda store: store.write(name, value, raw=raw))
    common.report(
        _about(key, domain) | {"bytes": len(value), "tag": str(tag)},
        f"{printable(key)}: {size(len(value))}, tag {tag}",
    )


def read(
    common: SharedOptions,
    key: Key,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Write to FILE, wholly or not at all."),
    ] = STANDARD_STREAM,
    domain: Domain = DEFAULT_DOMAIN,
    stale_ok: Annotated[
        bool,
        typer.Option(
            "--stale-ok",
            help="A mirror at this client's site may answer; stderr tells the age of its copy.",
        ),
    ] = False,
    max_age_s: Annotated[
        float | None,
        typer.Option(
            "--max-age",
            metavar="S",
            min=0.0,
            help="With --stale-ok: ask no mirror older than S seconds.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the object KEY, byte for byte, or write it to a file.

    With --json and no FILE: as base64.
    """
    if max_age_s is not None and not stale_ok:
        raise BadInput("--max-age belongs to --stale-ok: other reads are never stale")
    if output != STANDARD_STREAM:
        check_output(output)
    about = _about(key, domain)
    if stale_ok:
        found = with_manager(
            common, lambda manager: manager.read_stale(key, domain=domain, max_age_s=max_age_s)
        )
        value = found.value
        about |= {"age_s": found.age_s, "mirror": found.site}
        if not common.json:
            typer.echo(
                "latest"
                if found.site is None
                else f"{found.age_s:.1f} s old, from the mirror at {found.site}",
                err=True,
            )
    else:
        value = _with_store(common, domain, lambda store: store.read(key))
    about |= {"bytes": len(value)}
    if output != STANDARD_STREAM:
        with naming(output):
            write_output(output, value)
        common.report(
            about | {"file": str(output)}, f"{printable(key)}: {size(len(value))}, in {output}"
        )
    elif common.json:
        common.report(about | {"base64": base64.b64encode(value).decode("ascii")}, "")
    else:
        with standard_output() as out:
            out.write(value)


def delete(
    common: SharedOptions, key: Key, domain: Domain = DEFAULT_DOMAIN, raw: Raw = False
) -> None:
    """Delete the object KEY."""
    name = _unescaped(key) if raw else key
    tag = _with_store(common, domain, lambda store: store.delete(name, raw=raw))
    common.report(_about(key, domain) | {"tag": str(tag)}, f"{printable(key)}: deleted, tag {tag}")


def _unescaped(key: str) -> str:
    """Return the name that messages show as ``key``. Raise :class:`BadInput`."""
    try:
        return key.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"after a backslash --raw takes the escapes of Python: {error.reason}"
        ) from error


def ls(
    common: SharedOptions,
    prefix: NamePrefix = "",
    domain: Domain = DEFAULT_DOMAIN,
) -> None:
    """List the objects of a domain, one name per line, in order.

    A name with control characters is shown as a Python literal.
    """

    async def use(store: "ObjectStore") -> list[str]:
        names = []
        async for name in store.list(prefix):
            if common.json:
                names.append(name)
            else:
                print_line(printable(name))
        return names

    names = _with_store(common, domain, use)
    if common.json:
        common.report({"domain": domain, "prefix": prefix, "keys": names}, "")


def stat(common: SharedOptions, key: Key, domain: Domain = DEFAULT_DOMAIN) -> None:
    """Show version, size and place of the object KEY without reading it."""

    async def use(store: "ObjectStore") -> "tuple[ObjectStat, Configuration]":
        return await store.stat(key), store.configuration

    found, configuration = _with_store(common, domain, use)
    place = {"configuration": configuration.describe(), "index": configuration.index}
    lines = [
        f"key            {printable(key)}",
        f"size           {found.size_bytes} bytes",
        f"tag            {found.tag}",
        f"domain         {domain}",
        f"configuration  {configuration.index}: {configuration.describe()}",
    ]
    common.report(
        _about(key, domain) | {"bytes": found.size_bytes, "tag": str(found.tag)} | place,
        "\n".join(lines),
    )


def watch(
    common: SharedOptions,
    prefix: NamePrefix = "",
    domain: Domain = DEFAULT_DOMAIN,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="POINT",
            help="Only later changes, and some of them again; as an earlier watch printed it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print every object and then the changes of the objects as they come, until Ctrl-C.

    A line is a version that every later read finds, or a newer one; of several changes the last is
    sure to come. With --json a line has the point from which another watch goes on.
    """
    point = since

    async def use(store: "ObjectStore") -> None:
        nonlocal point
        async for notice in store.watch(prefix, since=since):
            point = notice.since or point
            kind = "delete" if notice.deleted else "write"
            if common.json:
                about = _about(notice.key, domain) | {"tag": str(notice.tag), "kind": kind}
                print_line(json.dumps(about | {"since": notice.since}))
            else:
                print_line(f"{kind:<6}  {notice.tag!s:>20}  {printable(notice.key)}")

    def outcome() -> str:
        return "no change was told" if point is None else f"--since {point} goes on here"

    with reporting_interruption(outcome):
        _with_store(common, domain, use)


def _with_store(
    common: SharedOptions, domain: str, use: "Callable[[ObjectStore], Awaitable[Result]]"
) -> Result:
    """Return the result of ``use`` with the objects of ``domain``.

    Raises :class:`ares.DomainNotFound`.
    """

    async def opened(manager: "Manager") -> Result:
        return await use(await manager.domain(domain))

    return with_manager(common, opened)


def _about(key: str, domain: str) -> dict[str, object]:
    return {"key": key, "domain": domain}


def read_input(file: Path, value_bytes: int) -> bytes:
    """Return all bytes of a file or of standard input.

    Raises :class:`BadInput` for an unreadable file or more than ``value_bytes``.
    """
    try:
        with opened_source(file) as stream:
            value = stream.read(value_bytes + 1)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}; nothing was sent") from error
    if len(value) > value_bytes:
        name = "standard input" if file == STANDARD_STREAM else file
        raise BadInput(
            f"{name} has more than the {value_bytes} bytes that a value may have (value_bytes "
            "under [limits] of the cluster file); nothing was sent"
        )
    return value
