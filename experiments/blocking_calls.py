"""Blocking client libraries beside an event loop: calls in threads, and answers from threads."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

T = TypeVar("T")


def landing() -> tuple[asyncio.Future[Any], Callable[[Any], None], Callable[[BaseException], None]]:
    """Return a future of this loop, and functions for another thread to set result or error.

    The functions do nothing if the future was cancelled, or the loop is closed.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(settled: Callable[[Any], None], with_what: Any) -> None:
        if not outcome.done():
            settled(with_what)

    def over(settled: Callable[[Any], None], with_what: Any) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, settled, with_what)

    return outcome, partial(over, outcome.set_result), partial(over, outcome.set_exception)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run the function in a new thread; return the result or raise the error.

    Unlike an executor's threads, such threads do not keep a process from ending: a store behind a
    cut may never answer.
    """
    outcome, succeed, fail = landing()

    def work() -> None:
        try:
            succeed(function(*arguments))
        except Exception as error:
            fail(error)

    threading.Thread(target=work, daemon=True).start()
    return cast(T, await outcome)
