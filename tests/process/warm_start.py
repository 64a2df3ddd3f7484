"""`ares-cli` in milliseconds: forked from a process with all modules imported.

Starting Python and importing takes several times as long as most commands do, and the tests run
hundreds of commands. The fork runs the entry point in a separate process, with the standard
streams, the environment and the working directory of the caller; the exit status comes back.
Processes that serve, get signals or are inspected from outside are started in the usual way, like
the children of commands.
"""

import functools
import gc
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ares.platform.interpreter import python
from tests import ports

_PRELOADED = [
    "ares.client.connect",
    "ares.cli.main",
    "ares.cli.local.init_command",
    "ares.cli.local.process_commands",
    "ares.cli.local.supervisor",
    "ares.cli.local.up_commands",
    "ares.cluster.new_cluster",
    "typer._adapters",
    "uvloop",
]
_MESSAGE_BYTES_MAX = 1 << 20

_LAUNCHER = r"""
import _socket, array, os, sys
nursery = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
nursery.connect("\0" + sys.argv[1])
environment = [f"{name}={value}" for name, value in os.environ.items()]
said = "\0".join([os.getcwd(), str(len(environment)), *environment, *sys.argv[2:]])
files = array.array("i", [0, 1, 2])
nursery.sendmsg([os.fsencode(said)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
status = int(nursery.recv(16) or -9)
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status)
"""
"""Stand-in for the command, for waits and kills by the caller.

The stand-in imports almost no modules.
"""


@functools.cache
def _nursery() -> tuple[str, subprocess.Popen[bytes]]:
    """Start the forking process; return the name of the socket, and the process.

    The process ends at the end of standard input, with this process at the latest.
    """
    name = f"ares-tests-{os.getpid()}-{secrets.token_hex(4)}"
    command = python("-m", "tests.process.warm_start", name)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"READY\n"
    return name, process


def ares_cli(*words: str | Path) -> list[str | Path]:
    """Return the command line of `ares-cli` with these words."""
    name, _ = _nursery()
    return python("-IS", "-c", _LAUNCHER, name, *words)


def _become_command(name: str) -> Sequence[str]:
    """Fork for each connection to the socket, until standard input ends.

    Return, with the command's words, in processes that become a command.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        os.write(1, b"READY\n")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the watchers of commands
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        poller.register(0, select.POLLIN)
        while 0 not in dict(poller.poll()):
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return _look_after_command(connection)
        sys.exit()


def _look_after_command(connection: socket.socket) -> Sequence[str]:
    """Fork the command, and send the exit status to the launcher.

    Without the launcher the command is killed. Return in the command.
    """
    said, streams, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES_MAX, 3)
    pid = os.fork()
    if pid == 0:
        connection.close()
        return _put_in_place(os.fsdecode(said).split("\0"), streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(connection, select.POLLIN)
    if ended in dict(poller.poll()):
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    else:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _put_in_place(said: list[str], streams: Sequence[int]) -> Sequence[str]:
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    directory, count, *rest = said
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(line.split("=", 1) for line in rest[: int(count)])
    return rest[int(count) :]


if __name__ == "__main__":
    for module in _PRELOADED:
        import_module(module)
    ports.stay_in_lane()
    gc.collect()
    gc.freeze()
    sys.argv = ["ares-cli", *_become_command(sys.argv[1])]
    from ares.cli.entry import main

    main()
