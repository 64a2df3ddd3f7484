"""Files opened by a command, with the remembered base of the local copy."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ares.cli.terminal import parse_size, printable
from ares.model.errors import AresError, BadInput, ObjectNotFound
from ares.model.identity import FILE_DOMAINS

if TYPE_CHECKING:
    from ares.client.file import File
    from ares.client.local_copy import LocalName, RememberedBases
    from ares.client.manager import Manager
    from ares.fragment.divide import Sizes


class NoSuchFile(ObjectNotFound):
    """A missing object under the name that a user of files knows: a file."""

    text = "there is no file {object!r} in domain {domain!r}; `ares-cli files` lists the files"


class Edited(AresError):
    """The local file holds changes that would be lost."""


@contextmanager
def speaking_of_files() -> Iterator[None]:
    """Report missing objects as missing files."""
    try:
        yield
    except ObjectNotFound as error:
        raise NoSuchFile(error.object, error.domain) from None


class FileAccess(Struct, frozen=True):
    """A file, with the base of the local copy; for a stream no base is remembered."""

    file: "File"
    domain: str
    copy: "LocalName"
    remembered: "RememberedBases"

    def keep(self, content: bytes) -> None:
        """Remember the present base of the copy, and the digest of the content."""
        if self.file.state is not None:
            self.remembered.remember(self.copy, self.file.state, content)

    def check_unedited(self, copy: int, what: str, local: str) -> None:
        """Raise :class:`Edited` if ``copy`` (a descriptor) has content that no put or get left.

        Without a cache (--no-cache) the origin is unknown, and the check passes. ``what``,
        ``local``: the file in the cluster and the copy, as words of a command line.
        """
        from ares.client.local_copy import digest_of_file

        if not self.remembered.keeps or not os.fstat(copy).st_size:
            return
        known = self.remembered.content(self.copy)
        if digest_of_file(copy) == known:
            return
        path, differs = (
            printable(os.fsdecode(self.copy.path)),
            f"differs from {printable(self.file.name)}",
        )
        force = f"`ares-cli get {what} {local} --force` overwrites it"
        if known:
            put = f"`ares-cli put {local} {what}` puts the edited content"
            raise Edited(
                f"{path} was edited since its last put or get on this machine, and {differs}: "
                f"the file was not changed. {put}, {force}"
            )
        raise Edited(
            f"{path} exists already, no put or get of it is remembered on this machine, and it "
            f"{differs}: the file was not changed. Name another file, or {force}"
        )


def content_of(path: Path) -> bytes:
    """Return the digest of a local copy's content."""
    from ares.client.local_copy import digest_of_file

    with path.open("rb") as copy:
        return digest_of_file(copy.fileno())


class AskedKind(NamedTuple):
    """The kind, the block sizes and the chunking asked for a new file; None: the usual ones."""

    atomic: bool = False
    sizes: "Sizes | None" = None
    chunking: str | None = None


async def open_file(
    manager: "Manager",
    name: str,
    domain: str | None,
    path: Path | None = None,
    *,
    cached: bool = True,
    kind: AskedKind | None = None,
) -> FileAccess:
    """Open the file ``name`` of ``domain`` (``None``: a domain for this file alone).

    ``path``: the local copy (``None``: no copy).
    """
    from ares.client.local_copy import LocalName, RememberedBases, cache_directory
    from ares.client.store import ObjectStore
    from ares.fragment.divide import FASTCDC

    asked = kind or AskedKind()
    given = asked._asdict() | {"chunking": asked.chunking or FASTCDC}
    if domain is None:
        file, place = manager.file(name, **given), FILE_DOMAINS + name
    else:  # of the class, because a Manager's own files are domains of their own
        file, place = ObjectStore.file(await manager.domain(domain), name, **given), domain
    remembered = RememberedBases(
        cache_directory(os.environ) if cached and path is not None else None
    )
    copy = LocalName(manager.configuration.cluster_id, place, name, os.fsencode(path or ""))
    file.state = remembered.recall(copy)
    return FileAccess(file, place, copy, remembered)


async def check_kind(access: FileAccess, kind: AskedKind) -> None:
    """Raise :class:`BadInput` if an existing file has another kind than asked for.

    Without this check the wish would be ignored in silence.
    """
    if kind == AskedKind():
        return
    atomic, sizes, chunking = kind
    try:
        genesis = (access.file.state or await access.file.snapshot()).genesis
    except ObjectNotFound:
        return
    stays = (
        f"of file {access.file.name!r}, which is there, stay as they are; nothing was sent. "
        "Leave the option out, or delete the file first"
    )
    if atomic and not genesis.atomic:
        raise BadInput(f"the promises {stays}: it is a shared file, not an atomic one")
    if sizes is not None and sizes != genesis.sizes:
        raise BadInput(
            f"the block sizes {stays}: they are min {genesis.sizes.min}, avg "
            f"{genesis.sizes.avg}, max {genesis.sizes.max} bytes"
        )
    if chunking not in (None, genesis.chunking):
        raise BadInput(f"the cuts {stays}: they are by {genesis.chunking}, not by {chunking}")


def kind(atomic: bool) -> str:
    """Return the words for a file's guarantee."""
    return "atomic" if atomic else "shared"


def parse_sizes(low: str | None, average: str | None, high: str | None) -> "Sizes | None":
    """Return the block sizes asked for; ``None`` without any.

    A missing size has the same ratio to the average as in the defaults.
    """
    from ares.fragment.divide import Sizes

    if (low, average, high) == (None, None, None):
        return None
    middle = parse_size(average) if average is not None else Sizes().avg
    return Sizes(
        parse_size(low) if low is not None else middle,
        middle,
        parse_size(high) if high is not None else 2 * middle,
    )
