"""Decides which operations are traced, and hands what they did to an exporter in a thread of its own.

The decision is one comparison for an operation, and what is not traced costs nothing more. What is traced is recorded as plain data; spans are made
of it in the exporter's thread. That works a fraction of a millisecond at a time and rests four times as long, for an event loop lets go of the
interpreter's lock each time that it waits for messages, and gets it back from a busy thread only after 5 ms. Where more is done than can be traced,
operations are not traced at all, not by servers either (ares/tracing/backlog.py): they are counted, and the first time is logged.
"""

import contextlib
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from ares.cluster.tables import TracingSettings
from ares.dap.coding import Coding, Parts, coding_for
from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.operation.jobs import About
from ares.operation.recording import Computed, Recording
from ares.replica.unsynced import Served
from ares.tracing.backlog import Backlog
from ares.tracing.operation_log import OperationLog
from ares.tracing.spans import SAMPLED, Span, TracedOperation, span_of, spans_of

WAITING_PARTS_MAX = 8_000
"""Parts of recordings that wait for the exporter; some 300 bytes each."""

PARTS_PER_S = 2_000.0
"""Of recordings: some 200 operations of a client, 1,000 requests to a server. An operation that is traced costs client and servers some 0.5 ms."""

EXPORT_SPANS = 512
EXPORT_S = 1.0
SLICE_S = 0.0002
SLICE_SPANS = 16
RESTS = 4.0
WORK_S_MAX = 0.1
"""The exporter's thread has a fifth of a processor, at most."""

CLOSE_S = 2.0
"""How long an end waits for what is not exported yet."""

STOP_S = 0.2
"""How long it waits then for the exporter to say why."""

THREAD = "ares-tracing"
"""What the threads are called in which spans are made and exported."""

SERVED_PARTS = 2
"""Spans of a request, at most: its own, and its wait for the disk."""

LEFT_OUT = (
    "a client traces some 200 in a second, and as many as its exporter keeps up with; OTEL_TRACES_SAMPLER=traceidratio with "
    "OTEL_TRACES_SAMPLER_ARG=0.1 traces a tenth, evenly"
)

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")

Export = Callable[[Iterable[Span]], None]
"""Hands spans to whoever collects them, or raises. They are made one by one, and the thread rests in between."""

Parent = Callable[[], tuple[bytes, bytes, bool] | None]
"""The caller's own span: the ids of its trace and of the span, and whether it is sampled; None if it has none."""


class TimedCoding:
    """A coding that writes down when it computed."""

    def __init__(self, coding: Coding, computed: deque[Computed]) -> None:
        self.k = coding.k
        self._coding = coding
        self._computed = computed

    def encode(self, value: bytes) -> Sequence[Parts]:
        return self._timed("encode", self._coding.encode, value)

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        return self._timed("decode", self._coding.decode, length, elements)

    def _timed(self, what: str, compute: Callable[..., Result], *arguments: Any) -> Result:
        began_s = time.perf_counter()
        try:
            return compute(*arguments)
        finally:
            self._computed.append((what, began_s, time.perf_counter()))


class Tracer:
    """``log``: has a line of each operation, traced or not. ``computed``: where codings write down what they computed.

    ``stop``: ends the tries of an export, which fails then.
    """

    def __init__(
        self,
        settings: TracingSettings,
        export: Export,
        parent: Parent = lambda: None,
        log: OperationLog | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._stop = stop
        self._log = log
        self.computed: deque[Computed] = deque(maxlen=64)
        self.backlog = Backlog(WAITING_PARTS_MAX, PARTS_PER_S)
        self._share = settings.share
        self._export = export
        self._parent = parent if settings.parent else lambda: None
        self._chance = random.Random().random
        self._waiting: deque[tuple[int, Callable[..., Iterable[Span]], tuple[Any, ...]]] = deque()
        self._given = 0
        self._lost = 0
        self._rested_s = 0.0
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def coding_for(self, configuration: Configuration) -> Coding:
        """As :func:`ares.dap.coding.coding_for`, and what it computes is in the recordings."""
        began_s = time.perf_counter()
        coding = coding_for(configuration)
        self.computed.append(("load", began_s, time.perf_counter()))
        return TimedCoding(coding, self.computed)

    def begin(self, label: object) -> TracedOperation | None:
        """Before an operation: what it is to be recorded in, or None if it is not traced. ``label`` prints as what it is: ``read of 'x'``."""
        above = self._parent()
        sampled = self._chance() < self._share if above is None else above[2]
        sampled = sampled and (self.backlog.begin(time.perf_counter()) or self._left_out())
        if not sampled and self._log is None:
            return None
        name = label.what if isinstance(label, About) else str(label).partition(" of ")[0]
        if not sampled:
            return TracedOperation(
                Recording(name, time.perf_counter, self.computed), b"", b"", label
            )
        trace, parent = (_new_ids(2), b"") if above is None else above[:2]
        return TracedOperation(
            Recording(
                name, time.perf_counter, self.computed, lambda: trace + _new_ids(1) + SAMPLED
            ),
            trace,
            parent,
            label,
        )

    def end(self, begun: TracedOperation, result: object, error: BaseException | None) -> None:
        """The operation has ended: with this, or with this error."""
        recording = begun.recording
        recording.close()
        if self._log is not None:
            self._log.write(recording, begun.label, result, error)
        if not begun.trace:
            return
        begun.result, begun.error, begun.left_out = result, error, self.backlog.left_out
        if self.backlog.end(len(recording.parts)) or self._left_out():
            self._hand_in(len(recording.parts), spans_of, begun)

    def served(self, server: ServerId, address: Mapping[str, Any], served: Served) -> None:
        """A server did this for a request that its client traces. ``address``: the server's, as attributes."""
        if self.backlog.add(SERVED_PARTS, time.perf_counter()) or self._left_out():
            self._hand_in(SERVED_PARTS, span_of, served, server, address)

    def _hand_in(self, parts: int, make: Callable[..., Iterable[Span]], *what: Any) -> None:
        """The thread will have ``make`` make spans of ``what``."""
        self._waiting.append((parts, make, what))
        if self._thread is None and not self._closing:
            thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            with contextlib.suppress(
                RuntimeError
            ):  # no more threads may be started: later, perhaps
                thread.start()
                self._thread = thread
        if self.backlog.waiting >= EXPORT_SPANS and not self._wake.is_set():
            self._wake.set()

    def _left_out(self) -> bool:
        """False; the first time, the log says so."""
        if self.backlog.left_out == 1:
            _logger.warning("some operations are not traced, and counted: %s", LEFT_OUT)
        return False

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(EXPORT_S)
            self._wake.clear()
            self._flush()

    def _flush(self) -> None:
        self._rested_s = time.thread_time()
        while self._waiting:
            try:
                made = self._made()
                for span in made:
                    self._export(chain((span,), islice(made, EXPORT_SPANS - 1)))
                    self._rest()
            except Exception as error:
                if not self._lost:
                    _logger.warning(
                        "traces cannot be exported to %s: %s; %d spans are lost, and more "
                        "until it takes them, but no operation fails",
                        self.settings.exporter,
                        error,
                        self._given,
                    )
                self._lost += max(self._given, 1)
            else:
                if self._lost:
                    _logger.info("traces are exported again; %d spans were lost", self._lost)
                self._lost = 0
            self._given = 0

    def _made(self) -> Iterator[Span]:
        """The spans of what waits."""
        count, epoch_ns = (
            0,
            time.time_ns() - time.perf_counter_ns(),
        )  # when the clock of recordings was 0
        while self._waiting and count < EXPORT_SPANS:
            parts, make, what = self._waiting.popleft()
            self.backlog.take(parts)
            for span in make(*what, epoch_ns, _new_ids, self.settings.keys):
                self._given += 1
                yield span
                count += 1
                if not count % SLICE_SPANS:
                    self._rest()

    def _rest(self) -> None:
        """In the exporter's thread: after some work, let others go on."""
        worked_s = time.thread_time() - self._rested_s
        if worked_s > SLICE_S and not self._closing:
            time.sleep(RESTS * min(worked_s, WORK_S_MAX))
            self._rested_s = time.thread_time()

    def close(self) -> None:
        """Export what waits, for CLOSE_S at most, and close the log of operations."""
        if self._log is not None:
            self._log.close()
        if self.backlog.left_out:
            _logger.warning(
                "%d operations, or requests of them, were not traced: %s",
                self.backlog.left_out,
                LEFT_OUT,
            )
        thread, self._closing = self._thread, True
        if thread is not None:
            last = threading.Thread(target=self._end_with, args=(thread,), name=THREAD, daemon=True)
            last.start()
            last.join(CLOSE_S)
            if last.is_alive():
                threading.Thread(target=self._stop, daemon=True).start()
                last.join(STOP_S)
            if last.is_alive():
                _logger.warning(
                    "%s did not take the last traces within %g s: they are lost",
                    self.settings.exporter,
                    CLOSE_S,
                )
        if self._lost:
            _logger.warning(
                "%s did not take %d spans: they are lost", self.settings.exporter, self._lost
            )

    def _end_with(self, thread: threading.Thread) -> None:
        self._wake.set()
        thread.join()
        self._flush()


_ids = random.Random()
"""No secrets: the kernel's would cost a system call for each, in which the interpreter's lock is let go. A child of a fork begins with others."""

os.register_at_fork(after_in_child=_ids.seed)


def _new_ids(count: int) -> bytes:
    return _ids.getrandbits(64 * count).to_bytes(8 * count, "big")
