"""Commands about processes that run: log-level."""

from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.options import Common, command
from ares.model.errors import BadInput
from ares.model.identity import CallId, ServerId

if TYPE_CHECKING:
    from ares.cli.upkeep.asking import Reply

TIMEOUT_S = 5.0

Level = Annotated[str, typer.Argument(metavar="LEVEL", help="debug, info, warning or error.", show_default=False)]
Some = Annotated[list[str] | None, typer.Option("--server", metavar="ID", help="Only this server or consensus member; may be repeated.")]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(app, "log-level", example="ares-cli log-level debug --server s0", options=["cluster", "timeout_s", "key_file", "json"])(log_level)


def log_level(common: Common, level: Level, server: Some = None) -> None:
    """Have servers and consensus members log from LEVEL on, until told otherwise or restarted. Exit status 1 if one does not answer or refuses.

    In a cluster with keys it takes one with the role admin.
    """
    from ares.cli.upkeep.asking import ask_each
    from ares.machine.logs import LEVELS
    from ares.machine.loop import run
    from ares.model.messages import Done, SetLogLevel

    if level not in LEVELS:
        raise BadInput(f"a log level is one of {', '.join(LEVELS)}, not {level!r}; nothing was changed")
    settings = common.settings()
    ids = [ServerId(id) for id in server or ()] or [process.id for process in settings.processes()]
    replies = run(ask_each(settings, ids, lambda call: SetLogLevel(CallId(call), level), common.timeout_s or TIMEOUT_S))
    said = {id: "" if isinstance(reply, Done) else _complaint(reply) for id, reply in replies.items()}
    data = {"level": level, "changed": [id for id, why in said.items() if not why], "unchanged": {id: why for id, why in said.items() if why}}
    common.report(data, "\n".join(f"{id}: {why or f'logs from {level} on'}" for id, why in said.items()))
    if any(said.values()):
        raise typer.Exit(1)


def _complaint(reply: "Reply") -> str:
    from ares.model.messages import Refused

    if isinstance(reply, str):
        return f"its level is as it was ({reply})"
    return reply.detail if isinstance(reply, Refused) else f"an answer that does not fit, {type(reply).__name__}"
