"""How commands reach a file of the cluster: its domain, what the local copy was made from, how much of it moved."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from ares.cli.command_connection import printable, size
from ares.cli.progress import Show
from ares.cli.quantities import parse_size
from ares.model.errors import AresError, BadInput, ObjectNotFound
from ares.model.identity import FILE_DOMAINS

if TYPE_CHECKING:
    from ares.client.file import File
    from ares.client.local_copy import LocalName, Remembered
    from ares.client.manager import Manager
    from ares.fragment.divide import Sizes
    from ares.fragment.read import FileProgress

Name = Annotated[str, typer.Argument(metavar="NAME", help="The file's name in the cluster.", show_default=False)]
FileDomain = Annotated[
    str | None,
    typer.Option("--domain", metavar="D", help="The domain of the file's blocks (default: one of its own, called file/NAME).", show_default=False),
]
Cache = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Use and keep what the local copy was made from. ARES_CACHE=off: never; =DIR: there.")
]


class NoSuchFile(ObjectNotFound):
    """As a person calls it who knows of files only."""

    def __str__(self) -> str:
        return f"there is no file {self.object!r} in domain {self.domain!r}; `ares-cli files` lists what is there"


class Edited(AresError):
    """The local file holds what would be lost. ``known``: it was put or brought here before, and edited since. ``what``, ``local``: the file in the
    cluster and the copy, as words of a command line.
    """

    def __init__(self, path: str, name: str, known: bool, what: str, local: str) -> None:
        super().__init__(path, name, known, what, local)
        self.path = path
        self.name = name
        self.known = known
        self.what = what
        self.local = local

    def __str__(self) -> str:
        path, differs = printable(self.path), f"differs from {printable(self.name)}"
        force = f"`ares-cli get {self.what} {self.local} --force` overwrites it"
        if self.known:
            put = f"`ares-cli put {self.local} {self.what}` puts what was edited"
            return f"{path} was edited since it was last put or brought here, and {differs}: it was left as it is. {put}, {force}"
        return f"{path} is there already, no put or get of it is known here, and it {differs}: it was left as it is. Name another file, or {force}"


@contextmanager
def speaking_of_files() -> Iterator[None]:
    """What is not found is called a file."""
    try:
        yield
    except ObjectNotFound as error:
        raise NoSuchFile(error.object, error.domain) from None


class Access(Struct, frozen=True):
    """A file and, if there is one, the local copy of it."""

    file: "File"
    domain: str
    copy: "LocalName | None"
    remembered: "Remembered"

    def recall(self) -> None:
        """Base the file on what the copy was made from."""
        if self.copy is not None:
            self.file.state = self.remembered.recall(self.copy)

    def keep(self, content: bytes) -> None:
        """Keep what the copy is based on now, and the digest of its content."""
        if self.copy is not None and self.file.state is not None:
            self.remembered.remember(self.copy, self.file.state, content)

    def known_content(self) -> bytes:
        """The digest of the copy as it was last put or brought here; empty if that is not known."""
        return self.remembered.content(self.copy) if self.copy is not None else b""

    def check_unedited(self, copy: int, what: str, local: str) -> None:
        """Raise :class:`Edited` if there is something in ``copy`` (a descriptor) that no put or get left; nobody knows where nothing is kept."""
        if self.copy is None or not self.remembered.keeps or not os.fstat(copy).st_size:
            return
        from ares.client.local_copy import digest_of_file

        known = self.known_content()
        if digest_of_file(copy) != known:
            raise Edited(os.fsdecode(self.copy.path), self.file.name, bool(known), what, local)


def content_of(path: Path) -> bytes:
    """The digest of what is in a local copy."""
    from ares.client.local_copy import digest_of_file

    with path.open("rb") as copy:
        return digest_of_file(copy.fileno())


async def open_file(
    manager: "Manager",
    name: str,
    domain: str | None,
    path: Path | None = None,
    *,
    cached: bool = True,
    atomic: bool = False,
    sizes: "Sizes | None" = None,
) -> Access:
    """The file ``name`` of ``domain`` (None: one of its own), with the copy at ``path`` (None: there is none)."""
    from ares.client.local_copy import LocalName, Remembered, cache_directory
    from ares.client.store import ObjectStore

    if domain is None:
        file, place = manager.file(name, atomic=atomic, sizes=sizes), FILE_DOMAINS + name
    else:  # of the class, because a Manager's own files are domains of their own
        file, place = ObjectStore.file(await manager.domain(domain), name, atomic=atomic, sizes=sizes), domain
    remembered = Remembered(cache_directory(os.environ) if cached else None)
    copy = LocalName(manager.configuration.cluster_id, place, name, os.fsencode(path)) if path is not None else None
    return Access(file, place, copy, remembered)


async def check_kind(access: Access, atomic: bool, sizes: "Sizes | None") -> None:
    """Raises :class:`BadInput` if a file that is there was made otherwise than is asked for now: that would be passed over in silence."""
    if not atomic and sizes is None:
        return
    try:
        genesis = (access.file.state or await access.file.snapshot()).genesis
    except ObjectNotFound:
        return
    stays = f"of file {access.file.name!r}, which is there, stay as they are; nothing was sent. Leave the option out, or delete the file first"
    if atomic and not genesis.atomic:
        raise BadInput(f"the promises {stays}: it is a shared file, not an atomic one")
    if sizes is not None and sizes != genesis.sizes:
        raise BadInput(f"the block sizes {stays}: they are min {genesis.sizes.min}, avg {genesis.sizes.avg}, max {genesis.sizes.max} bytes")


def kind(atomic: bool) -> str:
    """What a person is told of a file's guarantee."""
    return "atomic" if atomic else "shared"


def parse_sizes(low: str | None, average: str | None, high: str | None) -> "Sizes | None":
    """The block sizes asked for; those left out are as far from the average as the defaults are. None: nothing was asked for."""
    from ares.fragment.divide import Sizes

    if (low, average, high) == (None, None, None):
        return None
    middle = parse_size(average) if average is not None else Sizes().avg
    return Sizes(parse_size(low) if low is not None else middle, middle, parse_size(high) if high is not None else 2 * middle)


class Transfer:
    """What moved, from the progress of an operation, which is shown as well. ``stage``: "" before anything moved."""

    def __init__(self, show: Show, size_bytes: int | None) -> None:
        self.stage = ""
        self.moved_blocks = self.moved_bytes = 0
        self._show = show
        self._of = f" of {size(size_bytes)}" if size_bytes is not None else ""
        self._last_bytes = 0

    def follow(self, now: "FileProgress") -> None:
        """One more block; an operation that begins again counts from 0, and what it moved before has moved all the same."""
        self.stage = now.stage
        came = now.moved_bytes - self._last_bytes if now.moved_bytes >= self._last_bytes else now.moved_bytes
        self._last_bytes = now.moved_bytes
        self.moved_bytes += came
        self.moved_blocks += came > 0
        self._show(now.stage, now.done, now.total, f"{size(self.moved_bytes)}{self._of} moved")
