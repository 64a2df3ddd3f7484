"""Commands about single objects: write, read, delete, ls, stat."""

import base64
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ares.cli.command_connection import Domain, printable, size, with_store
from ares.cli.local_files import STANDARD_STREAM, check_output, naming, resolved, standard_output
from ares.cli.options import Common, command, say
from ares.model.errors import BadInput
from ares.model.identity import DEFAULT_DOMAIN, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from ares.client.store import ObjectStat, ObjectStore
    from ares.model.configuration import Configuration
    from ares.model.tag import Tag

Key = Annotated[str, typer.Argument(metavar="KEY", help="The object's name: 1 to 1024 bytes of UTF-8.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    command(app, "write", example="ares-cli write greeting hello.txt")(write)
    command(app, "read", example="ares-cli read greeting -o hello.txt")(read)
    command(app, "delete", example="ares-cli delete greeting")(delete)
    command(app, "ls", example="ares-cli ls photos/")(ls)
    command(app, "stat", example="ares-cli stat greeting")(stat)


def write(
    common: Common,
    key: Key,
    file: Annotated[Path, typer.Argument(metavar="[FILE|-]", help="What to store; standard input by default.", show_default=False)] = STANDARD_STREAM,
    domain: Domain = DEFAULT_DOMAIN,
) -> None:
    """Store a file, or standard input, as the object KEY; prints the new version's tag."""
    value = _read_input(file)

    async def use(store: "ObjectStore") -> "Tag":
        return await store.write(key, value)

    tag = with_store(common, domain, use)
    common.report(_about(key, domain) | {"bytes": len(value), "tag": str(tag)}, f"{printable(key)}: {size(len(value))}, tag {tag}")


def read(
    common: Common,
    key: Key,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE, wholly or not at all.")] = STANDARD_STREAM,
    domain: Domain = DEFAULT_DOMAIN,
) -> None:
    """Print the object KEY, byte for byte, or write it to a file. With --json and no FILE: as base64."""
    if output != STANDARD_STREAM:
        check_output(output)

    async def use(store: "ObjectStore") -> bytes:
        return await store.read(key)

    value = with_store(common, domain, use)
    about = _about(key, domain) | {"bytes": len(value)}
    if output != STANDARD_STREAM:
        _write_output(output, value)
        common.report(about | {"file": str(output)}, f"{printable(key)}: {size(len(value))}, in {output}")
    elif common.json:
        common.report(about | {"base64": base64.b64encode(value).decode("ascii")}, "")
    else:
        with standard_output() as out:
            out.write(value)


def delete(common: Common, key: Key, domain: Domain = DEFAULT_DOMAIN) -> None:
    """Delete the object KEY."""

    async def use(store: "ObjectStore") -> "Tag":
        return await store.delete(key)

    tag = with_store(common, domain, use)
    common.report(_about(key, domain) | {"tag": str(tag)}, f"{printable(key)}: deleted, tag {tag}")


def ls(
    common: Common,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only names that begin so.", show_default=False)] = "",
    domain: Domain = DEFAULT_DOMAIN,
) -> None:
    """List the objects of a domain, one name a line, in order. A name with control characters is shown as a Python literal."""

    async def use(store: "ObjectStore") -> list[str]:
        names = []
        async for name in store.list(prefix):
            if common.json:
                names.append(name)
            else:
                say(printable(name))
        return names

    names = with_store(common, domain, use)
    if common.json:
        common.report({"domain": domain, "prefix": prefix, "keys": names}, "")


def stat(common: Common, key: Key, domain: Domain = DEFAULT_DOMAIN) -> None:
    """Show version, size and place of the object KEY without reading it."""

    async def use(store: "ObjectStore") -> "tuple[ObjectStat, Configuration]":
        return await store.stat(key), store.configuration

    found, configuration = with_store(common, domain, use)
    place = {"configuration": configuration.describe(), "index": configuration.index}
    lines = [
        f"key            {printable(key)}",
        f"size           {found.size_bytes} bytes",
        f"tag            {found.tag}",
        f"domain         {domain}",
        f"configuration  {configuration.index}: {configuration.describe()}",
    ]
    common.report(_about(key, domain) | {"bytes": found.size_bytes, "tag": str(found.tag)} | place, "\n".join(lines))


def _about(key: str, domain: str) -> dict[str, object]:
    return {"key": key, "domain": domain}


def _read_input(file: Path) -> bytes:
    """All of a file or of standard input. Raises :class:`BadInput` when it cannot be read or has more bytes than a value may."""
    try:
        if file == STANDARD_STREAM:
            return _read_all(sys.stdin.buffer, "standard input")
        with file.open("rb") as stream:
            return _read_all(stream, str(file))
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}; nothing was sent") from error


def _read_all(stream: BinaryIO, name: str) -> bytes:
    value = stream.read(VALUE_BYTES_MAX + 1)
    if len(value) > VALUE_BYTES_MAX:
        raise BadInput(f"{name} has more than the {VALUE_BYTES_MAX} bytes that a value may have; nothing was sent")
    return value


def _write_output(output: Path, value: bytes) -> None:
    """Through a temporary file in the same directory, unless ``output`` is a device or a pipe."""
    with naming(output):
        _write(output, value)


def _write(output: Path, value: bytes) -> None:
    if output.exists() and not output.is_file():
        output.write_bytes(value)
        return
    target = resolved(output)
    temporary = target.with_name(f".ares-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as stream:
            if target.exists():
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o777)
            stream.write(value)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
