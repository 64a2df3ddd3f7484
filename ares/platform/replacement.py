"""Files replaced as a whole: after any failure a file has its old content or the new."""

import os
import secrets
from pathlib import Path

from ares.platform.trusted_files import MADE_FOR_ALL, sync

COPY_BYTES = 1024 * 1024
"""Bytes of a piece when a file is copied."""


class Replacement:
    """A new file beside ``path``, which takes the place of the file at ``path`` at the end.

    ``mode``: of the new file, under the umask, or under any umask if ``exact``; None: the mode of
    the present file, or of any new file. ``alone``: no second process replaces the file; the
    remains of a replacement that was cut off by a crash are removed.
    """

    def __init__(
        self, path: Path, mode: int | None = None, *, exact: bool = False, alone: bool = False
    ) -> None:
        self.name = path.with_name(f"{path.name}.new" if alone else f".ares-{secrets.token_hex(8)}")
        self._path = path
        if alone and os.path.lexists(self.name):
            self.name.unlink()
        if mode is None:
            exact = path.exists()
            mode = path.stat().st_mode & 0o777 if exact else 0o666
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._is_open = self._is_there = False
        try:
            self.descriptor = os.open(self.name, flags, mode)
            self._is_open = self._is_there = True
            if exact:
                os.fchmod(self.descriptor, mode)
        except OSError as error:
            self.discard()
            raise self._named(error) from None

    def write(self, content: bytes | memoryview) -> None:
        """Add ``content`` to the end of the new file."""
        while content:
            content = content[os.write(self.descriptor, content) :]

    def finish(self, durable: bool = False, *, only_new: bool = False) -> None:
        """Put the new file in the place of the present file. ``durable``: survive a power cut.

        ``only_new``: raise FileExistsError where a file has the name. The name is taken first,
        since a link could not be made on every disk; hence a crash may leave an empty file.
        """
        if durable:
            os.fsync(self.descriptor)
        self._close()
        try:
            if only_new:
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            os.replace(self.name, self._path)
        except OSError as error:
            raise self._named(error) from None
        self._is_there = False
        if durable:
            sync(self._path.parent)

    def discard(self) -> None:
        """Remove the new file, unless it has taken the place; idempotent."""
        self._close()
        if self._is_there:
            self._is_there = False
            self.name.unlink(missing_ok=True)

    def _named(self, error: OSError) -> OSError:
        """Return the error with the file's name, which the user knows."""
        return OSError(error.errno, error.strerror, str(self._path))

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.descriptor)


def replace_file(
    path: Path,
    content: bytes,
    mode: int | None = None,
    *,
    exact: bool = False,
    durable: bool = False,
) -> None:
    """Replace the file at ``path``; see :class:`Replacement`.

    ``durable``: the new content survives a power cut, and the caller is alone.
    """
    new = Replacement(path, mode, exact=exact, alone=durable)
    try:
        new.write(content)
        new.finish(durable)
    finally:
        new.discard()


def replace_durably(path: Path, text: str, mode: int = MADE_FOR_ALL, exact: bool = False) -> None:
    """Replace a text file that no second process replaces, and sync it."""
    replace_file(path, text.encode(), mode, exact=exact, durable=True)
