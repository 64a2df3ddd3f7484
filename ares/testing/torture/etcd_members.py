"""Members of an etcd cluster that decides in a torture run, in place of consensus members, and is hurt in their place. Needs the program `etcd`."""

import secrets
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from ares.model.identity import ServerId
from ares.testing.torture.partition import Network
from ares.testing.torture.records import TortureFailed

PROGRAM = "etcd"
READY = b"ready to serve client requests"
"""What a member writes when it has joined the others."""

CLIENT_PORT, PEER_PORT = 2379, 2380


class EtcdMembers:
    """``count`` members named e0, e1, ..., each at its host's address in ``network`` or on loopback. Raises :class:`TortureFailed` without etcd."""

    def __init__(self, directory: Path, count: int, network: Network | None) -> None:
        if shutil.which(PROGRAM) is None:
            raise TortureFailed("etcd is not installed (Debian: apt-get install etcd-server): nothing was started")
        self.ids = ids(count)
        ports = iter(_free_ports(2 * count))
        if network is None:
            self._clients, self._peers = ({id: f"127.0.0.1:{next(ports)}" for id in self.ids} for _ in range(2))
        else:
            self._clients, self._peers = ({id: f"{network.address(id)}:{port}" for id in self.ids} for port in (CLIENT_PORT, PEER_PORT))
        self._directory = directory
        self._token = secrets.token_hex(4)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where clients reach them."""
        return tuple(self._clients.values())

    def commands(self) -> Mapping[ServerId, list[str]]:
        """What runs each of them, the first time and again."""
        return {id: self._command(id) for id in self.ids}

    def _command(self, id: ServerId) -> list[str]:
        client, peer = f"http://{self._clients[id]}", f"http://{self._peers[id]}"
        options = {
            "name": id,
            "data-dir": str(self._directory / id),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{other}=http://{address}" for other, address in self._peers.items()),
            "initial-cluster-token": self._token,
            "heartbeat-interval": "50",
            "election-timeout": "500",
        }
        return [PROGRAM, *(f"--{name}={value}" for name, value in options.items())]


def ids(count: int) -> list[ServerId]:
    """The names of so many members."""
    return [ServerId(f"e{index}") for index in range(count)]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
