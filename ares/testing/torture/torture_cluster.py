"""The processes of a run: servers, consensus members (or an etcd's), and clients.

Each can be hurt; no process outlives the run. Every process is a child in a session of its own: a
Ctrl-C in the terminal does not reach it, and the kernel kills it when the run dies.
"""

import asyncio
import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ares.cluster.home import CLAIM_NAME
from ares.cluster.settings import Settings
from ares.model.identity import ServerId
from ares.platform.interpreter import python
from ares.testing.torture.partition import Direction, TortureNetwork
from ares.testing.torture.records import TortureFailed

CLIENT_HOSTS = ("a", "b")
"""The hosts of the client processes."""

RECONFIGURERS_HOST = "c"
"""The host of the processes that reconfigure."""

CLUSTER_READY_S = 60.0
CLUSTER_STOP_S = 5.0
ETCD_PROGRAM = "etcd"
ETCD_READY = b"ready to serve client requests"
"""The text that a member writes after joining."""

CLIENT_PORT, PEER_PORT = 2379, 2380
_CLUSTER_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1
_LOG_LINES = 12

_libc = ctypes.CDLL(None)


def last_words(log: Path) -> str:
    """Return the end of a process's log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])


def die_with(parent: int) -> None:
    """End when the process ``parent`` ends; called in its child before the program begins."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the call, and no signal comes any more


class TortureCluster:
    """The servers and consensus members of a cluster file, each by id.

    ``network``: the network with a host for each process, if any. ``etcd``: the commands of the
    members of a deciding etcd, by id, if the cluster file names an etcd.
    """

    def __init__(
        self,
        settings: Settings,
        network: TortureNetwork | None,
        etcd: Mapping[ServerId, Sequence[str]] | None = None,
    ) -> None:
        self.settings = settings
        self.deciders = tuple(etcd or settings.members)
        self._etcd = etcd or {}
        self._network = network
        self.hosts = (*CLIENT_HOSTS, RECONFIGURERS_HOST)
        self.has_network = network is not None
        self._logs = settings.path.parent / "logs"
        self._children: dict[ServerId, subprocess.Popen[bytes]] = {}
        self._logs.mkdir(exist_ok=True)

    async def start(self) -> None:
        """Start all processes, and return when all serve. Raises :class:`TortureFailed`."""
        await asyncio.gather(*map(self.launch, self.processes()))

    def processes(self) -> list[ServerId]:
        """Return the ids of the servers and of the deciding members."""
        return [*self.settings.servers, *self.deciders]

    async def launch(self, id: ServerId, slow: bool = False) -> None:
        """Start a stopped process, and return when it serves. Raises :class:`TortureFailed`.

        ``slow``: a server with a slow disk.
        """
        loop = asyncio.get_running_loop()
        begin, deadline = self._spawn(id, slow), loop.time() + CLUSTER_READY_S
        ready = ETCD_READY if id in self._etcd else f"READY {id} ".encode()
        while ready not in self._output_since(id, begin):
            if self._children[id].poll() is not None or loop.time() > deadline:
                raise TortureFailed(
                    f"{id} did not start. The end of its log:\n{self.last_words(id)}"
                )
            await asyncio.sleep(_CLUSTER_POLL_S)

    def inside(self, host: str) -> list[str]:
        """Return the words that begin a command on the place of ``host``."""
        return [] if self._network is None else self._network.inside(host)

    def identity(self, server: ServerId) -> str:
        """Return the identity under which the server serves."""
        return (self.settings.servers[server].data / CLAIM_NAME).read_text(encoding="ascii").strip()

    def pid(self, id: ServerId) -> int:
        """Return the pid of a running process."""
        return self._children[id].pid

    def kill(self, id: ServerId) -> None:
        """Kill with signal 9, and return when the process is gone."""
        child = self._children.pop(id)
        child.kill()
        child.wait(CLUSTER_STOP_S)

    def freeze(self, id: ServerId) -> None:
        self._children[id].send_signal(signal.SIGSTOP)

    def thaw(self, id: ServerId) -> None:
        self._children[id].send_signal(signal.SIGCONT)

    def cut(self, id: ServerId, peers: list[str], direction: Direction) -> None:
        """Drop packets between ``id`` and ``peers``; for a cluster with a network."""
        assert self._network is not None
        self._network.cut(id, peers, direction)

    def mend(self, id: ServerId) -> None:
        """Drop no more packets of ``id``."""
        assert self._network is not None
        self._network.mend(id)

    def ended(self) -> list[ServerId]:
        """Return the processes that ended by themselves, each reported once."""
        ended = [id for id, child in self._children.items() if child.poll() is not None]
        for id in ended:
            del self._children[id]
        return ended

    def last_words(self, id: ServerId) -> str:
        return last_words(self._log(id))

    def stop(self) -> None:
        for id in list(self._children):
            self.kill(id)

    def _spawn(self, id: ServerId, slow: bool) -> int:
        """Start the process, and return the start of the new output in the log."""
        kind = "server" if id in self.settings.servers else "consensus"
        command = self._etcd.get(id) or python("-m", "ares", kind, self.settings.path, "--id", id)
        if slow:
            command = python(
                "-m", "ares.testing.torture", "slow-disk", f"{self.settings.path}\n{id}"
            )
        with open(self._log(id), "ab") as log:
            self._children[id] = subprocess.Popen(
                [*self.inside(id), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )
            return log.tell()

    def _log(self, id: str) -> Path:
        return self._logs / f"{id}.log"

    def _output_since(self, id: str, begin: int) -> bytes:
        with open(self._log(id), "rb") as log:
            log.seek(begin)
            return log.read()


class Helper:
    """A process of clients that speaks JSON lines.

    Its command is ``python -P -m ares.testing.torture ROLE PLAN``.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @staticmethod
    async def start(prefix: Sequence[str], role: str, plan: bytes, log: Path) -> "Helper":
        """Start the process; stderr goes to ``log``."""
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *prefix,
                *python("-m", "ares.testing.torture", role, os.fsdecode(plan)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )
        return Helper(process, log)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def send_line(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")

    async def hear(self) -> bytes:
        """Return the next line; empty when the process has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        return line if line.endswith(b"\n") else b""

    def ask_to_end(self) -> None:
        if self.alive:
            self._process.terminate()

    async def end(self) -> int:
        """Wait for the end, and return the exit status."""
        return await self._process.wait()

    async def kill(self) -> None:
        """Kill with signal 9, and return when the process is gone."""
        if self.alive:
            self._process.kill()
        await self._process.wait()

    def last_words(self) -> str:
        """Return the end of the output on stderr."""
        return last_words(self._log)


def etcd_ids(count: int) -> list[ServerId]:
    """Return the names of ``count`` members of an etcd."""
    return [ServerId(f"e{index}") for index in range(count)]


def etcd_members(
    directory: Path, count: int, network: TortureNetwork | None
) -> tuple[tuple[str, ...], dict[ServerId, list[str]]]:
    """Return the client addresses of ``count`` members of an etcd, and the commands by id.

    Each command starts a member, the first time and again. Each address is of the member's host in
    ``network`` or on loopback. Raises :class:`TortureFailed` without etcd.
    """
    if shutil.which(ETCD_PROGRAM) is None:
        raise TortureFailed(
            "etcd is not installed (Debian: apt-get install etcd-server): nothing was started"
        )
    ids, ports = etcd_ids(count), iter(_free_ports(2 * count))
    if network is None:
        clients, peers = ({id: f"127.0.0.1:{next(ports)}" for id in ids} for _ in range(2))
    else:
        clients, peers = (
            {id: f"{network.address(id)}:{port}" for id in ids} for port in (CLIENT_PORT, PEER_PORT)
        )
    token = secrets.token_hex(4)
    commands = {}
    for id in ids:
        client, peer = f"http://{clients[id]}", f"http://{peers[id]}"
        options = {
            "name": id,
            "data-dir": str(directory / id),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(
                f"{other}=http://{address}" for other, address in peers.items()
            ),
            "initial-cluster-token": token,
            "heartbeat-interval": "50",
            "election-timeout": "500",
        }
        commands[id] = [ETCD_PROGRAM, *(f"--{name}={value}" for name, value in options.items())]
    return tuple(clients.values()), commands


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
