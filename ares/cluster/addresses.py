"""Addresses of processes: ``host:port``."""

import ipaddress
import re

from ares.model.errors import BadInput
from ares.model.numbers import PORT_MAX


def split_address(address: str, port_min: int = 1) -> tuple[str, int]:
    """Return host and port of ``host:port``.

    Raises :class:`BadInput` with the wrong part; libzmq itself would take port 99999 for 34463.
    """
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", host) or not re.fullmatch(r"[0-9]{1,9}", port):
        raise BadInput(f"expected host:port, found {address!r}; IPv4, such as 127.0.0.1:7000")
    if not port_min <= int(port) <= PORT_MAX:
        raise BadInput(f"expected a port from {port_min} to {PORT_MAX}, found {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``.

    Of a name other than localhost the answer is unknown, and False.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
