"""The command scrub: have servers verify all that is on their disks, and wait until what was damaged is repaired or cannot be."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ares.cli.command_connection import size
from ares.cli.options import Common, command
from ares.cli.terminal import Show, parse_size, progress_bar
from ares.model.errors import BadInput
from ares.model.identity import CallId, ServerId

if TYPE_CHECKING:
    from ares.cli.upkeep.asking import Reply

TIMEOUT_S = 5.0
LOOK_S = 0.2
SILENCES_MAX = 3
"""A server that was silent so many times in a row is not waited for any more."""

Some = Annotated[list[str] | None, typer.Option("--server", metavar="ID", help="Only this server; may be repeated.")]
Rate = Annotated[str, typer.Option("--rate", metavar="BYTES", help="How much each server reads a second, for example 50MiB (default: the file's).")]

Replies = Mapping[ServerId, "Reply"]
Ask = Callable[[Sequence[ServerId], bool], Awaitable[Replies]]
"""Asks servers how far they are, or to begin."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(app, "scrub", example="ares-cli scrub --rate 50MiB", options=["cluster", "timeout_s", "key_file", "json"])(scrub)


def scrub(common: Common, server: Some = None, rate: Rate = "") -> None:
    """Have servers verify everything on their disks now, and repair what is damaged from the others. Servers do it by themselves, too.

    Ends when all are done. Exit status 1 if something damaged is not repaired yet (servers go on trying), or a server does not answer. In a cluster
    with keys it takes one with the role admin.
    """
    from ares.cli.upkeep.asking import ask_each
    from ares.machine.loop import run
    from ares.model.messages import Scrub

    settings = common.settings()
    bytes_per_s = parse_size(rate) if rate else 0
    if rate and not bytes_per_s:
        raise BadInput(f"--rate: a server reads at least 1 byte a second, not {rate}; nothing was begun")
    unknown = sorted(set(server or ()) - set(settings.servers))
    if unknown:
        raise BadInput(f"{settings.path} has no [[server]] with id {', '.join(unknown)}; nothing was begun")
    if not settings.durable:
        common.report({"servers": {}, "whole": True}, "this cluster keeps everything in memory: there is nothing on a disk to verify")
        return
    ids = [ServerId(id) for id in server or settings.servers]

    async def ask(some: Sequence[ServerId], begin: bool) -> Replies:
        return await ask_each(settings, some, lambda call: Scrub(CallId(call), begin, bytes_per_s if begin else 0), common.timeout_s or TIMEOUT_S)

    with progress_bar("scrub") as show:
        replies = run(_followed(ids, ask, show))
    data = {id: _data(reply) for id, reply in replies.items()}
    whole = all(_is_whole(reply) for reply in replies.values())
    common.report({"servers": data, "whole": whole}, "\n".join(f"{id}: {_sentence(reply)}" for id, reply in replies.items()))
    if not whole:
        raise typer.Exit(1)


async def _followed(ids: Sequence[ServerId], ask: Ask, show: Show) -> dict[ServerId, "Reply"]:
    """What each server says at the end, or said last; why nothing of one that is silent."""
    from ares.model.messages import ScrubReply

    last: dict[ServerId, Reply] = {**await ask(ids, True)}
    silences = dict.fromkeys(ids, 0)
    while waiting := [id for id, reply in last.items() if isinstance(reply, ScrubReply) and reply.running and silences[id] < SILENCES_MAX]:
        begun = [reply for reply in last.values() if isinstance(reply, ScrubReply)]
        done, total = sum(reply.checked_bytes for reply in begun), sum(reply.total_bytes for reply in begun)
        show("verifying", _mib(done), _mib(total), f"MiB, {len(waiting)} servers")
        await asyncio.sleep(LOOK_S)
        for id, reply in (await ask(waiting, False)).items():
            silences[id] = silences[id] + 1 if isinstance(reply, str) else 0
            last[id] = reply if not isinstance(reply, str) or silences[id] >= SILENCES_MAX else last[id]
    return last


def _mib(bytes: int) -> int:
    return -(-bytes // 2**20)


def _is_whole(reply: "Reply") -> bool:
    from ares.model.messages import ScrubReply

    return isinstance(reply, ScrubReply) and not reply.running and not reply.quarantined and not reply.leaving


def _data(reply: "Reply") -> dict[str, Any]:
    from ares.model.messages import Refused, ScrubReply

    if not isinstance(reply, ScrubReply):
        why = reply if isinstance(reply, str) else reply.detail if isinstance(reply, Refused) else ""
        return {"reachable": not isinstance(reply, str), "why": why}
    counts = ("checked_bytes", "damaged", "quarantined", "repaired", "leaving")
    return {"reachable": True, **{name: getattr(reply, name) for name in counts}}


def _sentence(reply: "Reply") -> str:
    from ares.model.messages import Refused, ScrubReply

    if not isinstance(reply, ScrubReply):
        return reply if isinstance(reply, str) else reply.detail if isinstance(reply, Refused) else "an answer that does not fit"
    said = f"{size(reply.checked_bytes)} verified"
    if reply.damaged:
        said += f"; {_count(reply.damaged, 'file')} damaged" + ("" if reply.leaving else ", and written anew")
    if reply.repaired:
        said += f"; {_count(reply.repaired, 'element')} repaired from other servers since it was started"
    if reply.quarantined:
        said += f"; {_count(reply.quarantined, 'element')} not repaired yet: too few other servers have theirs. It goes on trying"
    if reply.leaving:
        said += "; its disk is full, and what is damaged cannot be written anew until there is room"
    return said if reply.damaged or reply.quarantined or reply.repaired else f"{said}, nothing is damaged"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
