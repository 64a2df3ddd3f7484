"""Unix sockets beside TCP: a server and its clients on one host meet at a file.

The listener at ``host:port`` makes RUN/host:port.sock, where RUN is the directory ``run`` beside
the cluster file. Without this directory there is no socket: `ares-cli up` makes the directory, and
simulations of links between namespaces do not. The name has the address, because clients look for
the server at this address: a client that is to reach a server over another address, as over a
relay, finds no socket.

The user of the server and root may connect, by the mode of the socket and by the permissions of
RUN. A client believes a socket only if its own user, or root, listens. Any other process there is
passed over for TCP. Beyond this nothing depends on the socket: the handshake and the keys are the
same as over TCP.
"""

import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import NamedTuple

from ares.model.errors import BadInput
from ares.net.zmtp.connection import process_at
from ares.platform.trusted_files import require_unshared

PATH_BYTES_MAX = 107
"""Longest path of a Unix socket: Linux has room for 108 bytes, with a zero at the end."""

_SOCKET_MODE = 0o600
_log = logging.getLogger(__name__)


class LocalSocket(NamedTuple):
    """A Unix socket that listens, and its file."""

    raw: socket.socket
    path: Path

    def end(self) -> None:
        """Close the socket and remove the file."""
        self.raw.close()
        with contextlib.suppress(OSError):  # a file that stays is stale at the next start
            self.path.unlink()


def socket_path(directory: Path, host: str, port: int) -> Path:
    """Return the path of the socket of the server at this address."""
    return directory / f"{host}:{port}.sock"


def listen_locally(path: Path, backlog: int) -> LocalSocket | None:
    """Return a socket that listens at ``path``, in place of a socket that a killed server left.

    None without the directory; also if there can be no socket, with the reason in the log.
    """
    if not os.path.isdir(path.parent):
        return None
    raw = socket.socket(socket.AF_UNIX)
    try:
        if (length := len(os.fsencode(path))) > PATH_BYTES_MAX:
            raise BadInput(
                f"its path has {length} bytes, and at most {PATH_BYTES_MAX} are possible"
            )
        require_unshared(path.parent, "socket")
        _remove_stale(path)
        os.fchmod(raw.fileno(), _SOCKET_MODE)  # before the file exists, which gets this mode
        raw.bind(os.fspath(path))
        raw.listen(backlog)
    except (BadInput, OSError) as error:
        raw.close()
        _log.warning("no Unix socket at %s, clients use TCP: %s", path, error)
        return None
    _log.info("listening on a Unix socket, too", extra={"socket": str(path)})
    return LocalSocket(raw, path)


def _remove_stale(path: Path) -> None:
    """Remove a socket without a listener.

    Raises :class:`BadInput` if a process listens there, or if the file is no socket.
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
        except BlockingIOError:
            pass  # too many clients wait for the process that listens
    raise BadInput("another process listens there")


def connect_locally(path: Path) -> socket.socket | None:
    """Return a socket connected to the server at ``path``; None if TCP is the way."""
    raw = socket.socket(socket.AF_UNIX)
    try:
        raw.setblocking(False)
        raw.connect(os.fspath(path))
        if process_at(raw)[1] in (0, os.geteuid()):
            return raw
    except OSError:  # no such file, no listener, no permission, too long a path
        pass
    raw.close()
    return None
