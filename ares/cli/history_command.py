"""The command check-history: a check of recorded histories of a cluster.

A register, or a coverable object, for each key must be able to show the recorded answers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins

from ares.cli.options import SharedOptions
from ares.cli.terminal import printable
from ares.model.errors import BadInput
from ares.model.numbers import plural

if TYPE_CHECKING:
    from ares.testing.verify.coverability import CoverabilityReport, Fork
    from ares.testing.verify.history import HistoryReport, Violation

HISTORY_BYTES_MAX = 512 << 20
HISTORY_WAIT_S = 3600.0
VIOLATIONS_SHOWN_MAX = 10
"""The number of violations of each kind shown to a person; --json has all."""


def check_history(
    common: SharedOptions,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The history: an operation a line, as JSON.", show_default=False
        ),
    ],
    tags: Annotated[
        bool, typer.Option("--tags", help="Also check that tags never go back in real time.")
    ] = False,
) -> None:
    """Check that a recorded history is linearizable, and weakly coverable where writes have a base.

    A base is the version that a write was given. A history of logs (lines with a log in place of a
    key) is checked for the promises of a shared log: a single order, each append once.

    The exit status is 1 if the check fails or cannot be decided, with the contradictory operations.
    """
    from ares.platform.named_files import read_named
    from ares.testing.verify.coverability import check_coverability
    from ares.testing.verify.history import load
    from ares.testing.verify.linearizability import check
    from ares.testing.verify.log_history import is_log_history
    from ares.testing.verify.tag_order import check_tags

    try:
        data_read, _ = read_named(file, HISTORY_BYTES_MAX, wait_s=HISTORY_WAIT_S)
    except OSError as error:
        raise BadInput(f"{file}: the history cannot be read: {error.strerror}") from error
    if is_log_history(data_read):
        _check_log_history(common, file, data_read, tags)
        return
    events = load(data_read, str(file))
    untagged = sum(event.outcome == "ok" and event.tag is None for event in events)
    if tags and all(event.tag is None for event in events):
        raise BadInput(f"{file}: no operation carries a tag, and --tags needs tags")
    report = check(events)
    disorder = check_tags(events) if tags else []
    covered = (
        check_coverability(events) if any(event.base is not None for event in events) else None
    )
    data: dict[str, Any] = {
        "ok": report.ok and not disorder and (covered is None or covered.ok),
        "operations": report.operations,
        "keys": report.keys,
        "violations": to_builtins(report.violations),
        "undecided": to_builtins(report.undecided),
    }
    if tags:
        data |= {"tag_violations": to_builtins(disorder), "untagged": untagged}
    if covered is not None:
        data["coverability"] = {"ok": covered.ok, **to_builtins(covered)}
    lines = (
        _verdict(report)
        + (_tag_verdict(disorder, untagged) if tags else [])
        + (_cover_verdict(covered) if covered is not None else [])
    )
    common.report(data, "\n".join(printable(line) for line in lines))
    if not data["ok"]:
        raise typer.Exit(1)


def _check_log_history(common: SharedOptions, file: Path, data_read: bytes, tags: bool) -> None:
    """Check the history of a log: total order, real-time order, each append once.

    No read or tail may go back (docs/log.md, Histories).
    """
    from ares.testing.verify.log_history import load_log
    from ares.testing.verify.log_order import check_log

    if tags:
        raise BadInput(f"{file}: the history of a log has no tags, and --tags needs tags")
    report = check_log(load_log(data_read, str(file)))
    data = {
        "ok": report.ok,
        "operations": report.operations,
        "logs": report.logs,
        "violations": to_builtins(report.violations),
    }
    what = f"{plural(report.operations, 'operation')} on {plural(report.logs, 'log')}"
    lines = [f"a log can show this: {what}"]
    if not report.ok:
        lines = [f"NO log can show this: {what}; {plural(len(report.violations), 'contradiction')}"]
        lines += [violation.describe() for violation in report.violations[:VIOLATIONS_SHOWN_MAX]]
        if len(report.violations) > VIOLATIONS_SHOWN_MAX:
            lines.append(
                f"... and {len(report.violations) - VIOLATIONS_SHOWN_MAX} more; --json shows all"
            )
    common.report(data, "\n".join(printable(line) for text in lines for line in text.split("\n")))
    if not report.ok:
        raise typer.Exit(1)


def _verdict(report: "HistoryReport") -> list[str]:
    what = f"{plural(report.operations, 'operation')} on {plural(report.keys, 'key')}"
    if report.ok:
        return [f"linearizable: {what}"]
    undecided = [one.describe() for one in report.undecided]
    if not report.violations:
        return [f"undecided: {what}, no contradiction found", *undecided]
    return [
        f"NOT linearizable: {what}; {plural(len(report.violations), 'contradiction')}",
        *_listed(report.violations),
        *undecided,
    ]


def _tag_verdict(disorder: "list[Violation]", untagged: int) -> list[str]:
    skipped = (
        f" ({untagged} completed operations carry no tag and were not judged)" if untagged else ""
    )
    if not disorder:
        return [f"tags in order{skipped}"]
    return [
        f"tags NOT in order: {plural(len(disorder), 'contradiction')}{skipped}",
        *_listed(disorder),
    ]


def _cover_verdict(report: "CoverabilityReport") -> list[str]:
    skipped = (
        f" ({report.unjudged} completed operations of unknown version were not judged)"
        if report.unjudged
        else ""
    )
    what = f"{plural(report.operations, 'operation')} on {plural(report.keys, 'key')} with versions"
    more_lines = (
        [
            (
                f"{plural(len(report.forks), 'fork')}, where concurrent writes covered one "
                "version, which is allowed:"
            ),
            *_listed(report.forks),
        ]
        if report.forks
        else []
    )
    if report.ok:
        return [f"weakly coverable: {what}{skipped}", *more_lines]
    return [
        f"NOT weakly coverable: {what}; {plural(len(report.violations), 'contradiction')}{skipped}",
        *_listed(report.violations),
        *more_lines,
    ]


def _listed(found: "Sequence[Violation | Fork]") -> list[str]:
    lines = [line for one in found[:VIOLATIONS_SHOWN_MAX] for line in one.describe().split("\n")]
    more = len(found) - VIOLATIONS_SHOWN_MAX
    return [*lines, f"... and {more} more; --json shows all"] if more > 0 else lines
