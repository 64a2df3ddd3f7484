"""Waits: for servers at their start, and for blocking client libraries."""

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from experiments.sites.site_store import NotDeployed, SiteNetwork

T = TypeVar("T")

_BLOCKING_ASK_S = 0.2
_SAID_BYTES = 1500


def await_that(
    holds: Callable[[], object],
    what: str,
    timeout_s: float,
    log: Path,
    servers: dict[str, subprocess.Popen[bytes]],
) -> None:
    """Test `holds` until it is true. Raises :class:`NotDeployed` with the end of the log.

    The error follows after ``timeout_s``, or when a server ended. ``log`` is of the awaited server.
    ``servers`` has all needed servers, by the names of their logs, in the same directory.
    """
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        ended = [name for name, server in servers.items() if server.poll() is not None]
        if ended or time.monotonic() > deadline_s:
            why = f"{ended[0]} ended" if ended else f"{timeout_s:g} s went by"
            raise NotDeployed(
                f"it was waited until {what}, but {why}: "
                f"{_end_of(log.with_name(f'{ended[0]}.log') if ended else log)}"
            )
        time.sleep(_BLOCKING_ASK_S)


def answers(
    sites: SiteNetwork, site: str, *words: str, environment: dict[str, str] | None = None
) -> str:
    """Return the output of a command in the network of the site's servers; empty on failure."""
    try:
        return sites.run(site, *words, environment=environment)
    except NotDeployed:
        return ""


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


def _end_of(log: Path) -> str:
    return (
        log.read_text(errors="replace")[-_SAID_BYTES:].strip()
        if log.exists()
        else "it said nothing"
    )
