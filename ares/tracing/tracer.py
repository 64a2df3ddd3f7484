"""The tracer, which chooses the traced operations, and exports their spans in a separate thread.

The choice is a single comparison for each operation, and an untraced operation costs no more. A
traced operation is recorded as plain data; its spans are made in the exporter's thread. This thread
works a fraction of a millisecond at a time and rests four times as long, because an event loop lets
go of the interpreter's lock at each wait for messages, and gets the lock back from a busy thread
only after 5 ms. Where more work is done than can be traced, operations are not traced at all, by
servers neither (ares/tracing/backlog.py): they are counted, and the first time is logged.
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
from ares.engine.jobs import OperationLabel
from ares.engine.phases import DECODE, ENCODE, LOAD
from ares.engine.recording import Computed, Recording
from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.platform import tasks
from ares.replica.group_commit import Served
from ares.tracing.backlog import Backlog
from ares.tracing.operation_log import OperationLog
from ares.tracing.spans import SAMPLED, Span, TracedOperation, span_of, spans_of

WAITING_PARTS_MAX = 8_000
"""Parts of recordings in line for the exporter; some 300 bytes each."""

PARTS_PER_S = 2_000.0
"""Parts of recordings in a second: some 200 operations of a client, 1,000 requests to a server.

A traced operation costs client and servers some 0.5 ms.
"""

EXPORT_SPANS = 512
EXPORT_S = 1.0
SLICE_S = 0.0002
SLICE_SPANS = 16
EXPORT_REST_FACTOR = 4.0
WORK_S_MAX = 0.1
"""Longest work between two rests, in seconds; the exporter's thread has a fifth of a processor at
most.
"""

CLOSE_S = 2.0
"""Longest wait of the tracer's end for spans not exported yet, in seconds."""

EXPORTER_STOP_S = 0.2
"""Longest further wait of the tracer's end for the exporter's reason, in seconds."""

THREAD = "ares-tracing"
"""Name of the threads in which spans are made and exported."""

SERVED_PARTS = 2
"""Most spans of a request: the request's own, and the wait for the disk."""

LEFT_OUT = (
    "a client traces some 200 in a second, and as many as its exporter keeps up with; "
    "OTEL_TRACES_SAMPLER=traceidratio with OTEL_TRACES_SAMPLER_ARG=0.1 traces a tenth, evenly"
)

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")

Export = Callable[[Iterable[Span]], None]
"""A function that hands spans to a collector, or raises.

Spans are made individually, and the thread rests in between.
"""

Parent = Callable[[], tuple[bytes, bytes, bool] | None]
"""A function that returns the caller's own span, or None.

A span is given by the id of the trace, the id of the span, and the caller's decision to sample.
"""


class TimedCoding:
    """A coding that records the times of its computations."""

    def __init__(self, coding: Coding, computed: deque[Computed]) -> None:
        self.k = coding.k
        self._coding = coding
        self._computed = computed

    def encode(self, value: bytes) -> Sequence[Parts]:
        return self._timed(ENCODE, self._coding.encode, value)

    def decode(self, length: int, elements: Mapping[int, Parts]) -> bytes:
        return self._timed(DECODE, self._coding.decode, length, elements)

    def _timed(self, what: str, compute: Callable[..., Result], *arguments: Any) -> Result:
        began_s = time.perf_counter()
        try:
            return compute(*arguments)
        finally:
            self._computed.append((what, began_s, time.perf_counter()))


class Tracer:
    """The tracer of a process.

    ``log``: gets a line of each operation, traced or not. ``computed``: the times recorded by
    codings. ``stop``: ends the tries of an export, which fails in this case.
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
        """Return the coding of :func:`ares.dap.coding.coding_for`, recorded in time."""
        began_s = time.perf_counter()
        coding = coding_for(configuration)
        self.computed.append((LOAD, began_s, time.perf_counter()))
        return TimedCoding(coding, self.computed)

    def begin(self, label: object) -> TracedOperation | None:
        """Begin an operation and return the recording, or None for an untraced operation.

        ``label`` prints as the operation: ``read of 'x'``.
        """
        above = self._parent()
        sampled = self._chance() < self._share if above is None else above[2]
        sampled = sampled and (self.backlog.begin(time.perf_counter()) or self._left_out())
        if not sampled and self._log is None:
            return None
        name = label.what if isinstance(label, OperationLabel) else str(label).partition(" of ")[0]
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
        """End the operation with a result or an error."""
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
        """Record a server's work for a request traced by the client.

        ``address``: the server's address, as attributes.
        """
        if self.backlog.add(SERVED_PARTS, time.perf_counter()) or self._left_out():
            self._hand_in(SERVED_PARTS, span_of, served, server, address)

    def chooses(self) -> bool:
        """Return whether a request above operations is traced; :meth:`take` follows then."""
        sampled = self._chance() < self._share
        return sampled and (self.backlog.begin(time.perf_counter()) or self._left_out())

    def take(self, span: Span) -> None:
        """Take the span of a request above operations."""
        if self.backlog.end(1) or self._left_out():
            self._hand_in(1, lambda *_: (span,))

    def _hand_in(self, parts: int, make: Callable[..., Iterable[Span]], *what: Any) -> None:
        """Let the thread make spans of ``what`` by ``make``."""
        self._waiting.append((parts, make, what))
        if self._thread is None and not self._closing:
            thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            with contextlib.suppress(RuntimeError):
                # no more threads may be started: later, perhaps
                thread.start()
                self._thread = thread
        if self.backlog.waiting >= EXPORT_SPANS and not self._wake.is_set():
            self._wake.set()

    def _left_out(self) -> bool:
        """Return False; log the first time."""
        if self.backlog.left_out == 1:
            _logger.warning("some operations are not traced, and counted: %s", LEFT_OUT)
        return False

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(EXPORT_S)
            self._wake.clear()
            with tasks.supervised("export of traces"):
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
        """Yield the spans of the waiting operations."""
        # the time at which the clock of recordings was 0
        count, epoch_ns = (
            0,
            time.time_ns() - time.perf_counter_ns(),
        )
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
        """Rest after some work in the exporter's thread, for the other threads."""
        worked_s = time.thread_time() - self._rested_s
        if worked_s > SLICE_S and not self._closing:
            time.sleep(EXPORT_REST_FACTOR * min(worked_s, WORK_S_MAX))
            self._rested_s = time.thread_time()

    def close(self) -> None:
        """Export the waiting spans, for CLOSE_S at most, and close the log of operations."""
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
                last.join(EXPORTER_STOP_S)
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
"""Random ids without secrecy.

The kernel's ids would cost a system call each, which lets go of the interpreter's lock. A child of
a fork begins with different ids.
"""

os.register_at_fork(after_in_child=_ids.seed)


def _new_ids(count: int) -> bytes:
    return _ids.getrandbits(64 * count).to_bytes(8 * count, "big")
