"""Help pages: plain text, in sections, with each command's first sentence whole.

typer shows the sections of ``rich_help_panel`` only through rich, which draws boxes and takes
brackets in a text for markup. The classes below show the same sections as plain text.
"""

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

WIDTH_MAX = 100
"""Columns of a help page on a wide terminal."""

ADVANCED = "Advanced"
"""Section of the protocol's switches, which most command lines never need."""


class CommandPage(TyperCommand):
    """A command whose options stand in sections."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, sorted by ``rich_help_panel``."""
        _write_options(self, ctx, formatter)


class GroupPage(TyperGroup):
    """A group whose commands stand in sections, before their shared options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands before the options."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first sentence of its help, in an aligned column."""
        longest = max(map(len, self.commands))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            shown = self.commands[name]
            section = sections.setdefault(_section(shown, "Commands"), [])
            section.append((name.ljust(longest), first_sentence(shown.help or "")))
        _write(sections, formatter)


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, in a single line."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def _write_options(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
        if record := parameter.get_help_record(ctx):
            sections.setdefault(_section(parameter, usual), []).append(record)
    _write(sections, formatter)


def _section(shown: Any, usual: str) -> str:
    """Return the section that a command or parameter names, or else ``usual``.

    For a group without a section, typer keeps a placeholder, which is no text.
    """
    named = getattr(shown, "rich_help_panel", None)
    return named if isinstance(named, str) else usual


def _write(sections: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
