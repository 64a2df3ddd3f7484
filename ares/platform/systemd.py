"""Reports of this process's state to systemd (sd_notify).

Without systemd, which sets NOTIFY_SOCKET, nothing happens.
"""

import logging
import os
import socket

NOTIFY_VARIABLE = "NOTIFY_SOCKET"

NOTIFY_READY = "READY=1"
NOTIFY_STOPPING = "STOPPING=1"
NOTIFY_PATIENCE_S = 1.0

_log = logging.getLogger(__name__)


def notify(state: str, sentence: str) -> None:
    """Report a state to systemd; never fail: a deaf service manager is no trouble.

    ``state``: NOTIFY_READY or NOTIFY_STOPPING; ``sentence``: the text shown by `systemctl status`.
    """
    address = os.environ.get(NOTIFY_VARIABLE)
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.settimeout(NOTIFY_PATIENCE_S)
            notify.sendto(
                f"{state}\nSTATUS={sentence}".encode(),
                "\0" + address[1:] if address.startswith("@") else address,
            )
    except OSError as error:
        _log.warning("the service manager was not told %s: %s", state, error)
