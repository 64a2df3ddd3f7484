"""Processes that take orders and answer them: both sides. Every message is a line of JSON.

A process connects after its first order, says READY, and works from the next line on.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.bench.store_processes import BenchError

WORKER_IS_READY = b"READY"
Message = TypeVar("Message")


class GeneratorFailed(BenchError):
    """A process ended or sent an unexpected line; its messages are on standard error."""


class WorkerProcess:
    """A process of a module, as its starter sees it.

    ``inside`` are the first words of a command that leads into other namespaces. ``how`` is for
    :class:`subprocess.Popen`.
    """

    def __init__(self, module: str, inside: Sequence[str] = (), **how: Any) -> None:
        self._module, pipe = module, subprocess.PIPE
        self._process = subprocess.Popen(
            [*inside, *python("-m", module)], stdin=pipe, stdout=pipe, env=ENVIRONMENT, **how
        )
        self.pid = self._process.pid

    def send(self, message: Struct) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def await_ready(self) -> None:
        """Wait until the process is ready. Raises :class:`GeneratorFailed`."""
        if self._line().strip() != WORKER_IS_READY:
            raise GeneratorFailed(f"{self._module} did not get ready")

    def receive(self, kind: type[Message]) -> Message:
        """Wait for an answer. Raises :class:`GeneratorFailed`."""
        if not (line := self._line()):
            raise GeneratorFailed(f"{self._module} ended in the middle of its work")
        return msgspec.json.decode(line, type=kind)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> None:
        """Let the process end."""
        self._process.terminate()

    def join(self, timeout_s: float | None = None) -> None:
        """Close the input, and wait for the end; after ``timeout_s`` kill the process."""
        try:
            self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def workers(*modules: str) -> Iterator[list[WorkerProcess]]:
    """Run a process for each module, ended at the end."""
    made = list[WorkerProcess]()
    try:
        made += (WorkerProcess(module) for module in modules)  # one by one: a start may fail
        yield made
    finally:
        for worker in made:
            worker.end()
        for worker in made:
            worker.join()


def received(kind: type[Message]) -> Message | None:
    """Return the next message to this process, or `None` at the end of the input."""
    line = sys.stdin.buffer.readline()
    return msgspec.json.decode(line, type=kind) if line else None


def send_line(line: bytes) -> None:
    """Send a whole line to the starting process.

    If Python does not buffer standard output, a write may take only a part.
    """
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(line + b"\n")


def answer(message: Struct) -> None:
    """Send an answer to the starting process."""
    send_line(msgspec.json.encode(message))
