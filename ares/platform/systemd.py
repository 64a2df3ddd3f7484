"""Reports of this process's state to systemd (sd_notify).

Without systemd, which sets NOTIFY_SOCKET, nothing happens.
"""

import logging
import os
import socket

VARIABLE = "NOTIFY_SOCKET"

READY = "READY=1"
STOPPING = "STOPPING=1"
PATIENCE_S = 1.0

_log = logging.getLogger(__name__)


def tell(state: str, sentence: str) -> None:
    """Report a state to systemd; never fail: a deaf service manager is no trouble.

    ``state``: READY or STOPPING; ``sentence``: the text shown by `systemctl status`.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.settimeout(PATIENCE_S)
            notify.sendto(
                f"{state}\nSTATUS={sentence}".encode(),
                "\0" + address[1:] if address.startswith("@") else address,
            )
    except OSError as error:
        _log.warning("the service manager was not told %s: %s", state, error)
