"""The view of `top` as lines of text that fit the terminal: a function of the figures alone."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ares.cli.observe.top_history import HISTORY_STEPS_MAX, sparkline
from ares.cli.status_command import duration
from ares.cli.terminal import printable, size
from ares.model.errors import STARTING

COLUMNS_MIN, ROWS_MIN = 72, 14
WIDE_COLUMNS = 112
"""The narrowest terminals for which the view shows servers' holdings, and the last minutes."""

_BESIDE_HISTORY = 76
"""Columns of a line of history outside its two series."""

SILENT_MAX = 3
"""The largest number of lines with reasons of silent servers."""

MOVES_MAX = 3
USE_BAR_COLUMNS = 20
_COLOURS = {"up": "green", "slow": "yellow"}


def lines(
    figures: Mapping[str, Any], columns: int, rows: int, colours: bool = True, live: bool = True
) -> list[str]:
    """Return at most ``rows`` lines. ``live``: mention the key q.

    Names cannot contain control characters here, whatever the peers chose.
    """
    if columns < COLUMNS_MIN or rows < ROWS_MIN:
        return [
            f"needs {COLUMNS_MIN} x {ROWS_MIN}, this is"[:columns],
            f"{columns} x {rows}; q quits"[:columns],
        ][:rows]
    out = io.StringIO()
    console = Console(
        file=out,
        width=columns,
        height=rows,
        force_terminal=colours,
        highlight=False,
        legacy_windows=False,
    )
    console.print(_page(figures, columns, rows, live))
    return out.getvalue().splitlines()[:rows]


def _page(figures: Mapping[str, Any], columns: int, rows: int, live: bool) -> Group:
    moves = [_line(_move(move), "cyan") for move in figures["moves"][:MOVES_MAX]]
    if len(figures["moves"]) > MOVES_MAX:
        moves.append(_line(f"and {len(figures['moves']) - MOVES_MAX} more moves", "cyan"))
    notes = [
        _line(
            figures["consensus"]["outlook"],
            "red" if "no majority" in figures["consensus"]["outlook"] else "",
        )
    ]
    notes += [_line(f"{id}: {why}", "yellow") for id, why in figures["consensus"]["silent"].items()]
    if figures["autopilot"] is not None:
        notes.append(_line(f"autopilot: {figures['autopilot']}"))
    if figures["files"] is not None:
        notes.append(_line(figures["files"]))
    if old := [server["id"] for server in figures["servers"] if server.get("counts") is False]:
        notes.append(
            _line(f"{', '.join(old)}: of an earlier release, which counts nothing", "yellow")
        )
    silent = _silent(figures["servers"])
    history = _history(figures.get("history"), columns)
    # without the head, two heads of tables and two empty lines
    room = rows - 8 - len(moves) - len(notes) - len(silent) - 2 * len(history)
    domains = sorted(figures["domains"], key=lambda domain: min(domain["writes_survive"], 1))
    servers = sorted(figures["servers"], key=lambda server: server["state"] == "up")
    if len(servers) <= max(room - min(len(domains), room // 3), 1):
        servers = figures["servers"]
    for_domains = max(room - len(servers), min(len(domains), room // 3), 1)
    for_servers = max(room - min(len(domains), for_domains), 1)
    return Group(
        *_head(figures, live),
        *history,
        _servers(servers, for_servers, columns),
        *silent,
        "",
        _domains(domains, for_domains, columns),
        *moves,
        "",
        *notes,
    )


def _head(figures: Mapping[str, Any], live: bool) -> list[RenderableType]:
    servers = figures["servers"]
    answering = sum(server["state"] != "silent" for server in servers)
    done = figures["operations"]
    title = Table.grid(expand=True)
    title.add_column(no_wrap=True, overflow="ellipsis")
    title.add_column(justify="right", no_wrap=True)
    name = Text(printable(figures["name"]), style="bold")
    name.append(
        f"  {answering} of {len(servers)} servers answer",
        style="green" if answering == len(servers) else "red",
    )
    title.add_row(name, f"{figures['at'][11:19]} UTC{', q quits' if live else ''}")
    rates = Table.grid(padding=(0, 2, 0, 0))
    for what, flow in (("read", "sent"), ("write", "received")):
        flows = done[f"{flow}_bytes_per_s"]
        rates.add_row(
            f"{what}s at servers",
            Text(f"{number(done[f'{what}s_per_s'])}/s", style="bold"),
            _waits(done, what),
            f"{flow} {'-' if flows is None else size(int(flows))}/s",
        )
    commit = f"commit {ms(done['commit_p50_s'])} {ms(done['commit_p99_s'])}"
    rates.add_row("queue before", "", _waits(done, "queue"), commit)
    return [title, rates]


def _waits(done: Mapping[str, Any], what: str) -> str:
    return f"p50 {ms(done[f'{what}_p50_s'])}  p99 {ms(done[f'{what}_p99_s'])}"


def _table(*heads: str) -> Table:
    """Return a table with the columns ``heads``; the first two hold words."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    for position, head in enumerate(heads):
        table.add_column(
            head, justify="left" if position < 2 else "right", no_wrap=True, overflow="ellipsis"
        )
    return table


def _servers(servers: Sequence[Mapping[str, Any]], room: int, columns: int) -> RenderableType:
    wide = columns >= WIDE_COLUMNS
    table = _table(
        "server",
        "state",
        "reply",
        "asked",
        "read p50 p99",
        "write p50 p99",
        "disk",
        "free",
        *(("objects", "memory", "uptime") if wide else ()),
    )
    shown = servers if len(servers) <= room else servers[: max(room - 1, 1)]
    for server in shown:
        if server["state"] == "silent":
            since = Text(f"> {in_words(server['silent_s'])}", style="red")
            table.add_row(_placed(server["id"], server), Text("silent", style="red"), since)
            continue
        disk, free = (
            ("memory", "")
            if server["disk_bytes"] is None
            else (brief(server["disk_bytes"]), brief(server["disk_free_bytes"]))
        )
        cells: list[str | Text] = [
            _placed(server["id"], server),
            Text(
                server["state"] if not server["damaged"] else f"{server['damaged']} damaged",
                style=_COLOURS.get(server["state"], "red") if not server["damaged"] else "red",
            ),
            ms(server["reply_s"]),
            f"{number(server['requests_per_s'])}/s",
            *(
                f"{ms(server[f'{what}_p50_s'])} {ms(server[f'{what}_p99_s'])}"
                for what in ("read", "write")
            ),
            disk,
            free,
        ]
        table.add_row(
            *cells,
            *(
                (
                    str(server["objects"]),
                    brief(server["memory_bytes"]),
                    duration(server["uptime_s"]),
                )
                if wide
                else ()
            ),
        )
    more = (
        [_line(f"and {len(servers) - len(shown)} more", "dim")] if len(servers) > len(shown) else []
    )
    return Group(table, *more)


def _silent(servers: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return lines on the silent servers, with reasons, at most ``SILENT_MAX``."""
    silent = [server for server in servers if server["state"] == "silent"]
    shown = silent if len(silent) <= SILENT_MAX else silent[: SILENT_MAX - 1]
    shown_lines = [
        _line(f"{each['id']} {each['why']}", "yellow")
        if each["why"].startswith(STARTING)
        else _line(f"{each['id']} silent for {in_words(each['silent_s'])}: {each['why']}", "red")
        for each in shown
    ]
    if len(silent) > len(shown):
        shown_lines.append(_line(f"and {len(silent) - len(shown)} more are silent", "red"))
    return shown_lines


def _history(history: Mapping[str, Any] | None, columns: int) -> list[RenderableType]:
    """Return the last minutes as two lines, of rates and of times; none on narrow terminals."""
    if history is None or columns < WIDE_COLUMNS:
        return []
    steps = min((columns - _BESIDE_HISTORY) // 2, HISTORY_STEPS_MAX)
    rows = Table.grid(padding=(0, 2, 0, 0))
    for label, ending, shown in (
        (
            f"last {in_words(steps * history['step_s'])}",
            "s_per_s",
            lambda rate: f"{number(rate)}/s",
        ),
        ("", "_p99_s", ms),
    ):
        cells: list[str | Text] = [label]
        for what in ("read", "write"):
            values = history[f"{what}{ending}"][-steps:]
            most = max((value for value in values if value is not None), default=None)
            cells += [
                f"{what}s" if label else f"{what} p99",
                Text(sparkline(values, steps), style="cyan"),
                f"at most {shown(most)}".ljust(16),
            ]
        rows.add_row(*cells)
    return [rows]


def _domains(domains: Sequence[Mapping[str, Any]], room: int, columns: int) -> RenderableType:
    table = _table("domain", "configuration", "objects", "data", "reads survive", "writes survive")
    shown = domains if len(domains) <= room else domains[: max(room - 1, 1)]
    for domain in shown:
        described = (
            domain["configuration"]
            .partition(" on " if columns >= WIDE_COLUMNS else " delta")[0]
            .partition(" on ")[0]
        )
        shape = f"{domain['index']}: {described.partition(' from position ')[0]}"
        margins = [
            Text(_survives(domain[what]), style=_margin_style(domain[what]))
            for what in ("reads_survive", "writes_survive")
        ]
        table.add_row(
            _placed(_cut(domain["domain"], 40 if columns >= WIDE_COLUMNS else 16), domain),
            shape,
            str(domain["objects"]),
            brief(domain["bytes"]),
            *margins,
        )
    more = (
        [_line(f"and {len(domains) - len(shown)} more", "dim")] if len(domains) > len(shown) else []
    )
    return Group(table, *more)


def _placed(name: str, server: Mapping[str, Any]) -> Text:
    """Return the name of the server, with the site if known."""
    return (
        Text.assemble(printable(name), (f" {printable(server['site'])}", "dim"))
        if server["site"]
        else Text(printable(name))
    )


def _survives(margin: int) -> str:
    return (
        f"{margin} more"
        if margin > 0
        else "no more"
        if margin == 0
        else f"STOPPED, {-margin} missing"
    )


def _margin_style(margin: int) -> str:
    return "green" if margin > 0 else "yellow" if margin == 0 else "bold red"


def _move(move: Mapping[str, Any]) -> str:
    total, moved = move["objects"], move["moved"]
    done = int(USE_BAR_COLUMNS * moved / total) if total else 0
    if moved >= total:
        left = "to be finalized"
    elif move["remaining_s"] is None:
        left = "none arrives now"
    else:
        left = f"about {in_words(move['remaining_s'])} left"
    return (
        f"moving {_cut(move['domain'], 16)} {move['from']} to {move['to']} "
        f"[{'#' * done}{'.' * (USE_BAR_COLUMNS - done)}] {moved} of {total}, {left}"
    )


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _cut(name: str, characters: int) -> str:
    shown = printable(name)
    return shown if len(shown) <= characters else f"{shown[: characters - 1]}…"


def ms(seconds: float | None) -> str:
    """Return a duration in three digits: ``0.12ms``, ``12.3ms``, ``1.23s``."""
    if seconds is None:
        return "-"
    return (
        f"{seconds:.2f}s"
        if seconds >= 1
        else f"{seconds * 1000:.0f}ms"
        if seconds >= 0.1
        else f"{seconds * 1000:.{1 if seconds >= 0.01 else 2}f}ms"
    )


def in_words(seconds: float) -> str:
    """Return a duration in words: ``12 s``, ``3 min``, ``2.5 h``."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def number(count: float | None) -> str:
    """Return a rate of operations a second."""
    if count is None:
        return "-"
    return f"{count:.0f}" if count >= 10 or count == 0 else f"{count:.1f}"


def brief(count: int | None) -> str:
    """Return a number of bytes: ``12.3G``."""
    if count is None:
        return ""
    for unit, name in ((2**40, "T"), (2**30, "G"), (2**20, "M"), (2**10, "K")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return str(count)
