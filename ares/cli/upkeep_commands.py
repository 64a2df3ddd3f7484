"""Commands that ask each process of a cluster about itself: log-level, scrub.

They need no quorum and no configuration.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ares.cli.options import SharedOptions
from ares.cli.terminal import Show, parse_size, progress_bar, size
from ares.model.errors import NO_ANSWER, BadInput
from ares.model.identity import CallId, ServerId
from ares.model.messages import (
    AnyMessage,
    Refused,
    RequestDone,
    Scrub,
    ScrubReply,
    SetLogLevel,
    Upkeep,
)
from ares.model.numbers import plural
from ares.platform.loop import run

if TYPE_CHECKING:
    from ares.cluster.settings import Settings

UPKEEP_TIMEOUT_S = 5.0
UPKEEP_RESEND_S = 0.7
"""Seconds of silence before the request is sent again: a repeated request must do no harm."""

UPKEEP_LOOK_S = 0.2
SILENCES_MAX = 3
"""Number of silent rounds after which a server is no longer waited for."""

Level = Annotated[
    str, typer.Argument(metavar="LEVEL", help="debug, info, warning or error.", show_default=False)
]
Processes = Annotated[
    list[str] | None,
    typer.Option(
        "--server", metavar="ID", help="Only this server or consensus member; may be repeated."
    ),
]
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="ID", help="Only this server; may be repeated."),
]
Rate = Annotated[
    str,
    typer.Option(
        "--rate",
        metavar="BYTES",
        help="How much each server reads a second, for example 50MiB (default: the file's).",
    ),
]

Reply = AnyMessage | str
"""The reason for a missing answer."""

Replies = Mapping[ServerId, Reply]
Ask = Callable[[Sequence[ServerId], bool], Awaitable[Replies]]
"""A function that asks servers for their progress, or to begin."""


def log_level(common: SharedOptions, level: Level, server: Processes = None) -> None:
    """Have servers and consensus members log from LEVEL on, until told otherwise or restarted.

    The exit status is 1 if a process does not answer or refuses. In a cluster with keys the command
    needs a key with the role admin.
    """
    from ares.platform.json_logs import LOG_LEVELS

    if level not in LOG_LEVELS:
        raise BadInput(
            f"a log level is one of {', '.join(LOG_LEVELS)}, not {level!r}; nothing was changed"
        )
    settings = common.settings()
    ids = [ServerId(id) for id in server or ()] or [process.id for process in settings.processes()]
    replies = run(
        _ask_each(
            settings,
            ids,
            lambda call: SetLogLevel(CallId(call), level),
            common.timeout_s or UPKEEP_TIMEOUT_S,
        )
    )
    unchanged = {
        id: f"its level is as it was ({reply})" if isinstance(reply, str) else _complaint(reply)
        for id, reply in replies.items()
        if not isinstance(reply, RequestDone)
    }
    data = {
        "level": level,
        "changed": [id for id in replies if id not in unchanged],
        "unchanged": unchanged,
    }
    common.report(
        data, "\n".join(f"{id}: {unchanged.get(id, f'logs from {level} on')}" for id in replies)
    )
    if unchanged:
        raise typer.Exit(1)


def scrub(common: SharedOptions, server: Servers = None, rate: Rate = "") -> None:
    """Let servers verify all data on their disks now, and repair damage from the other servers.

    Servers also do this by themselves. The command ends when all are done. The exit status is 1 if
    damage is not repaired yet (servers go on trying), or a server does not answer. In a cluster
    with keys the command needs a key with the role admin.
    """
    settings = common.settings()
    bytes_per_s = parse_size(rate) if rate else 0
    if rate and not bytes_per_s:
        raise BadInput(
            f"--rate: a server reads at least 1 byte a second, not {rate}; nothing was begun"
        )
    unknown = sorted(set(server or ()) - set(settings.servers))
    if unknown:
        raise BadInput(
            f"{settings.path} has no [[server]] with id {', '.join(unknown)}; nothing was begun"
        )
    if not settings.durable:
        common.report(
            {"servers": {}, "whole": True},
            "this cluster keeps all data in memory: no disk holds data to verify",
        )
        return
    ids = [ServerId(id) for id in server or settings.servers]

    async def ask(some: Sequence[ServerId], begin: bool) -> Replies:
        return await _ask_each(
            settings,
            some,
            lambda call: Scrub(CallId(call), begin, bytes_per_s if begin else 0),
            common.timeout_s or UPKEEP_TIMEOUT_S,
        )

    with progress_bar("scrub") as show:
        replies = run(_followed(ids, ask, show))
    data = {id: _data(reply) for id, reply in replies.items()}
    whole = all(
        isinstance(reply, ScrubReply)
        and not (reply.running or reply.quarantined or reply.leaving or reply.in_logs)
        for reply in replies.values()
    )
    common.report(
        {"servers": data, "whole": whole},
        "\n".join(f"{id}: {_sentence(reply)}" for id, reply in replies.items()),
    )
    if not whole:
        raise typer.Exit(1)


async def _followed(ids: Sequence[ServerId], ask: Ask, show: Show) -> dict[ServerId, Reply]:
    """Return the last report of each server; for a silent server, the reason."""
    last: dict[ServerId, Reply] = {**await ask(ids, True)}
    silences = dict.fromkeys(ids, 0)
    while waiting := [
        id
        for id, reply in last.items()
        if isinstance(reply, ScrubReply) and reply.running and silences[id] < SILENCES_MAX
    ]:
        begun = [reply for reply in last.values() if isinstance(reply, ScrubReply)]
        done, total = (
            sum(reply.checked_bytes for reply in begun),
            sum(reply.total_bytes for reply in begun),
        )
        show(
            "verifying",
            math.ceil(done / 2**20),
            math.ceil(total / 2**20),
            f"MiB, {plural(len(waiting), 'server')}",
        )
        await asyncio.sleep(UPKEEP_LOOK_S)
        for id, reply in (await ask(waiting, False)).items():
            silences[id] = silences[id] + 1 if isinstance(reply, str) else 0
            last[id] = (
                reply if not isinstance(reply, str) or silences[id] >= SILENCES_MAX else last[id]
            )
    return last


def _data(reply: Reply) -> dict[str, Any]:
    if not isinstance(reply, ScrubReply):
        return {"reachable": not isinstance(reply, str), "why": _complaint(reply)}
    counts = ("checked_bytes", "damaged", "quarantined", "repaired", "leaving", "in_logs")
    return {"reachable": True, **{name: getattr(reply, name) for name in counts}}


def _sentence(reply: Reply) -> str:
    if not isinstance(reply, ScrubReply):
        return _complaint(reply)
    text = f"{size(reply.checked_bytes)} verified"
    if reply.damaged:
        text += f"; {plural(reply.damaged, 'file')} damaged" + (
            "" if reply.leaving else ", and written anew"
        )
    if reply.repaired:
        text += (
            f"; {plural(reply.repaired, 'element')} repaired from other servers since the "
            "server's start"
        )
    if reply.quarantined:
        text += (
            f"; {plural(reply.quarantined, 'element')} not repaired yet: too few other servers "
            "have their elements. The server goes on trying"
        )
    if reply.leaving:
        text += "; its disk is full, and damaged files are written anew only when there is room"
    if reply.in_logs:
        text += (
            f"; {plural(reply.in_logs, 'file')} of logs damaged, and not repaired yet (the log of "
            "the server names the reason): reads get these entries from other servers, and a "
            "start would refuse the file"
        )
    return (
        text
        if reply.damaged or reply.in_logs or reply.quarantined or reply.repaired
        else f"{text}, nothing is damaged"
    )


def _complaint(reply: Reply) -> str:
    """Return why a process did not fulfil the request."""
    if isinstance(reply, str):
        return reply
    return (
        reply.detail
        if isinstance(reply, Refused)
        else f"an answer that does not fit, {type(reply).__name__}"
    )


async def _ask_each(
    settings: "Settings",
    processes: Iterable[ServerId],
    request: Callable[[CallId], Upkeep],
    timeout_s: float,
) -> dict[ServerId, Reply]:
    """Return the reply of each of ``processes`` to ``request`` within ``timeout_s``, in order.

    ``processes`` are servers and consensus members. Raises :class:`BadInput` if a process is not in
    the cluster file; no process is asked in this case.
    """
    from ares.client.connect import connections_of
    from ares.security.keys import keyed

    addresses = {
        process.id: keyed(process.address, process.public_key) for process in settings.processes()
    }
    replies: dict[ServerId, Reply] = dict.fromkeys(processes, NO_ANSWER)
    unknown = [process for process in replies if process not in addresses]
    if unknown:
        raise BadInput(
            f"{settings.path} has no server or consensus member {', '.join(map(repr, unknown))}; "
            f"known: {', '.join(addresses)}"
        )
    connections, all_answered, message = (
        connections_of(settings),
        asyncio.Event(),
        request(CallId(1)),
    )

    def deliver(process: ServerId, messages: Sequence[AnyMessage]) -> None:
        replies[process] = messages[0]
        if not any(isinstance(reply, str) for reply in replies.values()):
            all_answered.set()

    connections.open(deliver)
    for process in replies:
        connections.learn(process, addresses[process])
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while silent := [
                    process for process, reply in replies.items() if isinstance(reply, str)
                ]:
                    for process in silent:
                        connections.post(process, [message])
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(UPKEEP_RESEND_S):
                            await all_answered.wait()
    finally:
        await connections.close()
    return {
        process: connections.troubles.get(process, reply) if isinstance(reply, str) else reply
        for process, reply in replies.items()
    }
