"""Unix sockets beside TCP: a server and its clients on one host meet at a file.

The listener at ``host:port`` makes RUN/host:port.sock, where RUN is the directory ``run`` beside
the cluster file. A socket needs this directory: `ares-cli up` makes the directory, and simulations
of links between namespaces do not. Clients look for the address of a server in the name of the
socket. Hence a client finds no socket if it must reach the server at a different address, as over a
relay.

A server listens at its TCP port before it touches the file, and removes the file before it leaves
the port. Hence a single process at a time, the owner of the port, makes or removes the file: a
second process with this address fails at the port.

The user of the server and root may connect, by the mode of the socket and by the permissions of
RUN. A client believes a socket only if the client's user, or root, listens, and if no further user
can put a name into RUN. The client passes over any different socket, and uses TCP: so does a client
of root, unless root runs the server. The handshake and the keys are the same as over TCP.
"""

import contextlib
import logging
import os
import socket
import stat
from pathlib import Path
from typing import NamedTuple

from ares.model.errors import BadInput
from ares.net.zmtp.connection import process_at
from ares.platform.trusted_files import is_foreign

PATH_BYTES_MAX = 107
"""Longest path of a Unix socket: Linux has room for 108 bytes, with a zero at the end."""

_SOCKET_MODE = 0o600
_log = logging.getLogger(__name__)


class LocalSocket(NamedTuple):
    """A listening Unix socket, and the file of the socket."""

    raw: socket.socket
    path: Path

    def remove(self) -> None:
        """Remove the file, before the socket closes: later another process may own the file."""
        with contextlib.suppress(OSError):  # a file that stays is stale at the next start
            self.path.unlink()

    def end(self) -> None:
        """Remove the file and close the socket."""
        self.remove()
        self.raw.close()


def socket_path(directory: Path, host: str, port: int) -> Path:
    """Return the path of the socket of the server at this address."""
    return directory / f"{host}:{port}.sock"


def listen_locally(path: Path, backlog: int) -> LocalSocket | None:
    """Return a socket listening at ``path``, in place of a socket left by a killed server.

    Returns `None` without the directory. Returns `None` also after a failure, and logs the reason.
    """
    if not os.path.lexists(path.parent):
        return None
    try:
        raw = _listening(path, backlog)
    except (BadInput, OSError) as error:
        _log.warning("no Unix socket at %s, clients use TCP: %s", path, error)
        return None
    _log.info("listening on a Unix socket, too", extra={"socket": str(path)})
    return LocalSocket(raw, path)


def _listening(path: Path, backlog: int) -> socket.socket:
    """Return a socket listening at ``path``. Raises :class:`BadInput` and OSError."""
    if (length := len(os.fsencode(path))) > PATH_BYTES_MAX:
        raise BadInput(f"its path has {length} bytes, and at most {PATH_BYTES_MAX} are possible")
    _require_own(path.parent)
    _remove_stale(path)
    raw = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(raw.fileno(), _SOCKET_MODE)  # before the file exists, which gets this mode
        raw.bind(os.fspath(path))
        raw.listen(backlog)
    except OSError:
        raw.close()
        raise
    return raw


def _require_own(directory: Path) -> None:
    """Raise :class:`BadInput` if a user beside this user and root can put a name into it.

    The sticky bit is no help: a new name belongs to the maker of the name.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise BadInput(f"{directory} is no directory")
    if is_foreign(status):
        raise BadInput(
            f"{directory} belongs to another user ({status.st_uid}): chown {os.geteuid()} "
            f"{directory}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(f"other users can put sockets there: chmod go-w {directory}")


def _remove_stale(path: Path) -> None:
    """Remove a socket without a listener.

    Raises :class:`BadInput` if a process listens at ``path``, or if the file is no socket, or
    belongs to another user.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink()
                return
            raise BadInput("the file there is no socket") from None
        except PermissionError:
            raise BadInput(
                "this user may not connect there: if another user's process left the file, remove "
                "it"
            ) from None
        except BlockingIOError:
            pass  # too many clients wait for the process that listens
    raise BadInput("another process listens there")


def connect_locally(path: Path) -> socket.socket | None:
    """Return a socket connected to the server at ``path``; `None` if TCP is the way."""
    try:
        _require_own(path.parent)
        raw = socket.socket(socket.AF_UNIX)
    except (BadInput, OSError):  # no directory, or not ours; a sandbox without Unix sockets
        return None
    try:
        raw.setblocking(False)
        raw.connect(os.fspath(path))
        if process_at(raw)[1] in (0, os.geteuid()):
            return raw
    except OSError:  # no such file, no listener, no permission, too long a path
        pass
    raw.close()
    return None
