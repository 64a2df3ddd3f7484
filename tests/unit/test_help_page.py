"""Help pages: sections of commands and options, whole sentences, and text that stays text."""

import os
import re
import subprocess
from typing import Annotated, Any

import pytest
import typer

from ares.cli import main
from ares.cli.help_page import CommandPage, GroupPage, first_sentence
from ares.cli.options import ALL_OPTIONS
from ares.platform.interpreter import python

SECTIONS = ["Objects", "Files", "Buckets", "Logs", "Cluster", "Seeing", "Upkeep"]
SWITCHES = {"--piggyback", "--gc", "--batch", "--ahead", "--fast-read", "--optimised"}
NAMES = {name.partition(" ")[0] for commands in main._COMMANDS.values() for name in commands}


@pytest.fixture(params=[80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Columns of the terminal; a page is two narrower, and at most 98."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def page(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """Return the lines of each section of the help of ``ares-cli WORDS``; "" has the first."""
    assert main.run([*words, "--help"]) == 0
    sections: dict[str, list[str]] = {"": []}
    for line in capsys.readouterr().out.splitlines():
        heading = re.fullmatch(r"(\w+):", line)
        sections.setdefault(heading[1] if heading else list(sections)[-1], []).append(line)
    return sections


def first_words(lines: list[str]) -> set[str]:
    """Return the words that begin the rows of a section, which are indented by two."""
    return {found[1] for line in lines if (found := re.match(r"  ([\w-]+)(?![\w:-])", line))}


def test_all_commands_stand_in_seven_sections(capsys, width) -> None:
    sections = page(capsys)
    assert list(sections) == ["", *SECTIONS, "Options", "Advanced"]
    assert set().union(*(first_words(sections[name]) for name in SECTIONS)) == NAMES


@pytest.mark.parametrize("group", ["", *main._GROUPS])
def test_no_sentence_of_a_command_is_cut(capsys, width, group) -> None:
    sections = page(capsys, *group.split())
    rows = [line for name in {*SECTIONS, "Commands"} for line in sections.get(name, [])]
    shown = " ".join(" ".join(rows).split())
    commands: Any = typer.main.get_command(main.app)
    for name in group.split():
        commands = commands.commands[name]
    for name, each in commands.commands.items():
        assert f"{name} {first_sentence(each.help)}" in shown
        assert re.fullmatch(r"[A-Z][^.]*[^.]+\.", first_sentence(each.help))
    assert all(len(line) <= min(width, 100) - 2 for lines in sections.values() for line in lines)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, entry[2]) for commands in main._COMMANDS.values() for name, entry in commands.items()],
)
def test_switches_of_the_protocol_stand_under_advanced(capsys, name, options) -> None:
    sections = page(capsys, *name.split())
    expected = {f"--{each.replace('_', '-')}" for each in options} & SWITCHES
    switches = first_words(sections.get("Advanced", []))
    assert {word for word in switches if word.startswith("--")} == expected
    assert not SWITCHES & first_words(sections["Options"])


def test_every_switch_is_an_option_that_exists() -> None:
    assert {f"--{name.replace('_', '-')}" for name in ALL_OPTIONS} >= SWITCHES


def test_brackets_in_a_help_stay_text(capsys) -> None:
    """Markup: the library rich would interpret such words, and leave them out."""
    app = typer.Typer(cls=GroupPage, rich_markup_mode=None)
    names = Annotated[str, typer.Option(help="One of [red]a[/red] or [1].")]

    @app.command("one", cls=CommandPage, rich_help_panel="[b]Some[/b]")
    def one(names: names = "x") -> None:
        """Do [bold]this[/bold], `that` and [/nothing]."""

    @app.command("two", cls=CommandPage)
    def two() -> None:
        """Do less."""

    app(["--help"], standalone_mode=False)
    assert "[b]Some[/b]:\n  one  Do [bold]this[/bold], `that` and [/nothing]." in (
        capsys.readouterr().out
    )
    app(["one", "--help"], standalone_mode=False)
    assert "One of [red]a[/red] or [1].  [default: x]" in capsys.readouterr().out


def test_a_pipe_gets_the_same_plain_text() -> None:
    """The page has no colour and no box, even if a program asks for colours."""
    forced = dict(os.environ, FORCE_COLOR="1", CLICOLOR_FORCE="1", TERM="xterm-256color")
    plain = {name: value for name, value in forced.items() if "COLOR" not in name}
    told = [
        subprocess.run(
            python("-m", "ares", "--help"), env=env, capture_output=True, text=True, check=True
        ).stdout
        for env in (plain, forced)
    ]
    assert told[0] == told[1]
    assert "\nObjects:\n" in told[0]
    assert "\x1b" not in told[0]
    assert told[0].isascii()
