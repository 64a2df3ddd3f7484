"""The library without asyncio: :func:`connect_blocking`.

The asynchronous objects live on an event loop in a thread of its own. A :class:`Blocking` stands
for an asynchronous object and has the same methods. An awaited method becomes a method that blocks.
An asynchronous iterator becomes an iterator. A returned object with asynchronous methods is wrapped
in a Blocking. An object for ``async with`` becomes an object for ``with``. Callbacks
(``progress=``) run in the calling thread. Any number of threads may use the same connection.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, get_origin

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.errors import BadInput, ConnectionClosed
from ares.platform.loop import run

_END = object()


def connect_blocking(
    cluster: str | Path | Settings,
    key: str | Path | None = None,
    *,
    operation_log: str | Path | None = None,
) -> "BlockingManager":
    """Connect to a cluster, as :func:`ares.connect` does, in a program without asyncio.

    Use as follows::

        with ares.connect_blocking("cluster.toml") as store:
            store.write("key", b"value")
            with store.file("movie.mkv") as file:
                report = file.write("movie.mkv")

    Raises :class:`ares.BadInput` if the file is not a cluster file.
    """
    connecting = connect(cluster, key, operation_log=operation_log)
    loop = _Loop()
    try:
        return BlockingManager(loop.wait(lambda: connecting), loop)
    except BaseException:
        loop.stop()
        raise


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._stop = asyncio.Event()
        self._stopped = False
        # a call begins before the loop is told to stop, which ends the call, or never
        self._lock = threading.Lock()

        async def live() -> None:
            started.set_result(asyncio.get_running_loop())
            await self._stop.wait()

        def work() -> None:
            try:
                run(live())
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

        self._thread = threading.Thread(target=work, name="ares", daemon=True)
        self._thread.start()
        self._loop = started.result()

    @property
    def runs(self) -> bool:
        return not self._stopped and self._thread.is_alive()

    def wait(
        self, start: Callable[[], Awaitable[Any]], callbacks: "queue.SimpleQueue[Any] | None" = None
    ) -> Any:
        """Return the result of ``start``, which runs on the loop; run ``callbacks`` in this thread.

        An interruption cancels the call. Raises :class:`BadInput` if the loop was stopped before,
        and :class:`ConnectionClosed` if the loop is stopped during the call.
        """
        calls = callbacks or queue.SimpleQueue()

        async def awaited() -> Any:
            return await start()

        with self._lock if self.runs else contextlib.nullcontext():
            # in a forked child no thread would release it
            if not self.runs:
                raise BadInput("this client is closed, and nothing was sent: connect again")
            future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                call()
            return future.result()
        except concurrent.futures.CancelledError:
            raise ConnectionClosed from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread, and all calls under way; idempotent."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class Blocking:
    """The blocking form of ``target``, an object with asynchronous methods.

    Attributes of ``target`` are read and set through this object.
    """

    def __init__(self, target: Any, loop: _Loop) -> None:
        self._target = target
        self._loop = loop

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self._target, name)
        return self._method(attribute) if inspect.ismethod(attribute) else attribute

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._target, name, value)

    def _method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def here(*arguments: Any, **named: Any) -> Any:
            if inspect.isasyncgenfunction(method):
                return self._iterating(method(*arguments, **named))
            if not _is_awaited(method):
                return self._handed_out(method(*arguments, **named))
            callbacks: queue.SimpleQueue[Any] = queue.SimpleQueue()
            deferred = {
                name: _deferred(value, callbacks) if callable(value) else value
                for name, value in named.items()
            }
            return self._handed_out(
                self._loop.wait(lambda: method(*arguments, **deferred), callbacks)
            )

        return here

    def _iterating(self, iterator: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while (item := self._loop.wait(lambda: anext(iterator, _END))) is not _END:
                yield self._handed_out(item)
        except GeneratorExit:  # the caller wants no more items: stop reading ahead, too
            with contextlib.suppress(BadInput, ConnectionClosed):
                self._loop.wait(iterator.aclose)
            raise

    def _handed_out(self, result: Any) -> Any:
        if type(result) is tuple:
            return tuple(map(self._handed_out, result))
        kind: type = type(result)
        if not _has_asynchronous_methods(kind):
            return result
        return (
            BlockingContext(result, self._loop)
            if hasattr(kind, "__aexit__")
            else Blocking(result, self._loop)
        )


class BlockingContext(Blocking):
    """The blocking form of an object for ``async with``."""

    def __enter__(self) -> "BlockingContext":
        self._loop.wait(self._target.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.wait(lambda: self._target.__aexit__(*raised))


class BlockingManager(Blocking):
    """The blocking form of a :class:`ares.client.manager.Manager`; closing it ends the thread."""

    def __enter__(self) -> "BlockingManager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all calls under way and close every connection; idempotent."""
        if self._loop.runs:
            try:
                with contextlib.suppress(BadInput, ConnectionClosed):
                    # another thread closes it, too
                    self._loop.wait(self._target.close)
            finally:
                self._loop.stop()


def _is_awaited(method: Callable[..., Any]) -> bool:
    """Return whether the method returns an awaitable: a coroutine, or a future."""
    return (
        inspect.iscoroutinefunction(method)
        or get_origin(inspect.get_annotations(method).get("return")) is asyncio.Future
    )


@functools.cache
def _has_asynchronous_methods(kind: type) -> bool:
    return any(
        not name.startswith("_")
        for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction)
    )


def _deferred(
    callback: Callable[..., Any], callbacks: "queue.SimpleQueue[Any]"
) -> Callable[..., None]:
    return lambda *arguments: callbacks.put(functools.partial(callback, *arguments))
