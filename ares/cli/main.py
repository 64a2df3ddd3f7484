"""The app: the table of commands, and the conversion of errors.

Exit status: 0 done; 1 the operation failed; 2 wrong usage or unreadable input; 130 interrupted; 143
ended by SIGTERM, which is handled as Ctrl-C is. An error is a paragraph on stderr, or a JSON object
with --json, and never a traceback: a mistake in this program names its place.
"""

import contextlib
import json
import logging
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from ares.cli import (
    history_command,
    keys_commands,
    log_commands,
    object_commands,
    status_command,
    torture_command,
    upkeep_commands,
)
from ares.cli.buckets import (
    access_key_commands,
    bucket_commands,
    gateway_command,
    transfer_commands,
    watch_command,
)
from ares.cli.demo import demo_command
from ares.cli.domains import domain_commands, reconfig_commands
from ares.cli.files import file_commands
from ares.cli.help_page import WIDTH_MAX, GroupPage
from ares.cli.local import init_command, process_commands, up_commands
from ares.cli.local_files import Interrupted, naming
from ares.cli.observe import results_commands, top_command, trace_commands
from ares.cli.options import (
    ALL_OPTIONS,
    SharedOptions,
    command,
    print_core_advice,
    print_line,
    taking_options,
)
from ares.cli.terminal import STATUS_INTERRUPTED
from ares.model.errors import AresError, BadInput, Uncertain
from ares.platform.named_files import without_long_hex
from ares.platform.release import version

STATUS_FAILED = 1
STATUS_MISUSED = 2
STATUS_TERMINATED = 143
CUT_SHORT = "interrupted; the operation may have taken effect or not: check before you repeat it"


class _InTheTablesOrder(GroupPage):
    """All commands, in the order of ``_COMMANDS``; typer puts groups behind single commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands and groups."""
        names = (name for commands in _COMMANDS.values() for name in commands)
        return list(dict.fromkeys(name.partition(" ")[0] for name in names))


app = typer.Typer(
    name="ares-cli",
    cls=_InTheTablesOrder,
    context_settings={"max_content_width": WIDTH_MAX},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ares import compiled  # which loads the protocol; a help page does not need it

        print_line(f"ares {version()} ({compiled.CORE_NAME} core)")
        print_core_advice()
        raise typer.Exit()


def _shared(
    common: SharedOptions,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Store objects and large files on a cluster of servers that may crash and be replaced.

    The protocols are ARES and ARES II. The options below may stand before or after the command's
    name.
    """


app.callback()(taking_options(_shared, ALL_OPTIONS))

_ONLY_JSON = ("json",)
_NO_SITE = tuple(name for name in ALL_OPTIONS if name != "site")  # their --site is that of a domain
_KEYS_OPTIONS = ("cluster", "json")
_PROCESS_OPTIONS = ("cluster", "timeout_s", "key_file", "json")

# For each section of the help and each command: the function, the example's words, and the
# command's shared options.
_COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str, Sequence[str]]]] = {
    "Objects": {
        "write": (object_commands.write, "greeting hello.txt", ALL_OPTIONS),
        "read": (object_commands.read, "greeting -o hello.txt", ALL_OPTIONS),
        "delete": (object_commands.delete, "greeting", ALL_OPTIONS),
        "ls": (object_commands.ls, "photos/", ALL_OPTIONS),
        "stat": (object_commands.stat, "greeting", ALL_OPTIONS),
        "watch": (object_commands.watch, "photos/", ALL_OPTIONS),
    },
    "Files": {
        "put": (file_commands.put, "movie.mkv movies/big", ALL_OPTIONS),
        "get": (file_commands.get, "movies/big movie.mkv", ALL_OPTIONS),
        "files": (file_commands.files, "movies/", ALL_OPTIONS),
        "rm": (file_commands.rm, "movies/big", ALL_OPTIONS),
    },
    "Buckets": {
        "bucket init": (bucket_commands.init, "--dap ec --k 3", ALL_OPTIONS),
        "bucket create": (bucket_commands.create, "photos", ALL_OPTIONS),
        "bucket ls": (bucket_commands.ls, "photos/2026/ --delimiter /", ALL_OPTIONS),
        "bucket put": (transfer_commands.put, "cat.jpg photos/cat.jpg --if-absent", ALL_OPTIONS),
        "bucket get": (transfer_commands.get, "photos/cat.jpg cat.jpg", ALL_OPTIONS),
        "bucket cp": (transfer_commands.cp, "photos/cat.jpg photos/dog.jpg", ALL_OPTIONS),
        "bucket mv": (transfer_commands.mv, "photos/cat.jpg photos/old/cat.jpg", ALL_OPTIONS),
        "bucket rm": (bucket_commands.rm, "photos/cat.jpg", ALL_OPTIONS),
        "bucket stat": (bucket_commands.stat, "photos/cat.jpg", ALL_OPTIONS),
        "bucket set": (
            bucket_commands.set_,
            "photos --versioning on --quota 10G",
            ALL_OPTIONS,
        ),
        "bucket sweep": (bucket_commands.sweep, "", ALL_OPTIONS),
        "bucket watch": (watch_command.watch, "photos/2026/", ALL_OPTIONS),
        "bucket key new": (
            access_key_commands.new,
            "backup --role read --bucket photos",
            ALL_OPTIONS,
        ),
        "bucket key ls": (access_key_commands.ls, "", ALL_OPTIONS),
        "bucket key rm": (access_key_commands.rm, "ARESKQ7V2M4XW3ZJH5TB", ALL_OPTIONS),
        "gateway": (gateway_command.gateway, "--listen 127.0.0.1:9000", _PROCESS_OPTIONS),
    },
    "Logs": {
        "log create": (log_commands.create, "events --servers s0,s1,s2", ALL_OPTIONS),
        "log append": (log_commands.append, "events --lines access.log", ALL_OPTIONS),
        "log read": (log_commands.read, "events 0 --to 10", ALL_OPTIONS),
        "log tail": (log_commands.tail, "events", ALL_OPTIONS),
        "log follow": (log_commands.follow, "events --from 17", ALL_OPTIONS),
        "log trim": (log_commands.trim, "events 100", ALL_OPTIONS),
        "log stat": (log_commands.stat, "events", ALL_OPTIONS),
    },
    "Cluster": {
        "init": (init_command.init, "./cluster --servers 5 --dap ec --k 3", _ONLY_JSON),
        "up": (up_commands.up, "./cluster --detach", ("json", "timeout_s")),
        "down": (up_commands.down, "./cluster", _ONLY_JSON),
        "prepare": (process_commands.prepare, "/etc/ares/cluster.toml s1", _ONLY_JSON),
        "server": (process_commands.server, "./cluster/cluster.toml --id s0", ()),
        "consensus": (process_commands.consensus, "./cluster/cluster.toml --id r0", ()),
        "domain create": (
            domain_commands.create,
            "photos --dap ec --k 3 --servers s0,s1,s2,s3,s4",
            _NO_SITE,
        ),
        "domain follow": (domain_commands.follow, "photos", ALL_OPTIONS),
        "domain ls": (domain_commands.ls, "", ALL_OPTIONS),
        "domain move": (reconfig_commands.move, "photos --site rennes", _NO_SITE),
        "domain mirror": (domain_commands.mirror, "photos --site nantes", _NO_SITE),
        "reconfig": (
            reconfig_commands.reconfig,
            "--dap ec --k 2 --servers s1,s2,s3,s4",
            ALL_OPTIONS,
        ),
        "keys new": (keys_commands.new, "backup --role read", _KEYS_OPTIONS),
        "keys list": (keys_commands.list_, "", _KEYS_OPTIONS),
        "keys revoke": (keys_commands.revoke, "backup", _KEYS_OPTIONS),
        "demo": (demo_command.demo, "", [name for name in ALL_OPTIONS if name != "cluster"]),
    },
    "Seeing": {
        "status": (status_command.status, "", ALL_OPTIONS),
        "top": (top_command.top, "--once --json", ("cluster", "key_file", "json")),
        "trace read": (trace_commands.read, "greeting", ALL_OPTIONS),
        "trace write": (trace_commands.write, "greeting hello.txt", ALL_OPTIONS),
        "trace show": (trace_commands.show, "spans.json", _ONLY_JSON),
        "results pack": (results_commands.pack, "runs/ runs.tar.gz", _ONLY_JSON),
        "results import": (results_commands.import_, "runs/ --into results.db", _ONLY_JSON),
        "results summary": (results_commands.summary, "results.db --csv", _ONLY_JSON),
        "results report": (results_commands.report, "results.db -o report.html", _ONLY_JSON),
    },
    "Upkeep": {
        "collect": (file_commands.collect, "--grace 24h", ALL_OPTIONS),
        "scrub": (upkeep_commands.scrub, "--rate 50MiB", _PROCESS_OPTIONS),
        "log-level": (upkeep_commands.log_level, "debug --server s0", _PROCESS_OPTIONS),
        "check-history": (history_command.check_history, "run.jsonl --tags", _ONLY_JSON),
        "torture": (torture_command.torture, "--minutes 3 --out ./torture", _ONLY_JSON),
    },
}


class _Traces(GroupPage):
    """The group `trace`: `trace FILE...` means `trace show FILE...`.

    Options may stand before or behind the files.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = not args or args[0] in {*self.commands, *self.get_help_option_names(ctx)}
        return super().parse_args(ctx, args if known else ["show", *args])


_GROUPS = {
    "bucket": "Store objects in buckets, with conditions: of rivals for a key one wins.",
    "bucket key": "Make, list and revoke the access keys of S3 clients.",
    "domain": "Make, list, move and mirror domains, sets of objects with a configuration.",
    "keys": "Make, list and revoke the keys that clients are known by.",
    "log": "Append to, read and follow shared logs: ordered entries, kept by chains of servers.",
    "results": "Pack and import operation logs of runs, and show their figures.",
    "trace": "Show where the time of a read or write went, or of the operations in FILEs.",
}
_groups: dict[str, typer.Typer] = {}
for section, commands in _COMMANDS.items():
    for name, (function, words, options) in commands.items():
        of, _, own = name.rpartition(" ")
        if of and of not in _groups:
            _groups[of] = typer.Typer(
                cls=_Traces if of == "trace" else GroupPage, help=_GROUPS[of], rich_markup_mode=None
            )
            above, _, of_own = of.rpartition(" ")
            panel = "Commands" if above else section
            _groups.get(above, app).add_typer(_groups[of], name=of_own, rich_help_panel=panel)
        command(
            _groups.get(of, app),
            own,
            example=f"ares-cli {name} {words}".rstrip(),
            options=options,
            **({} if of else {"section": section}),
        )(function)


class TerminationHandler:
    """A handler of SIGTERM that acts as Ctrl-C.

    ``status``: the exit status of an interrupted command.
    """

    def __init__(self) -> None:
        self.status = STATUS_INTERRUPTED

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.status = STATUS_TERMINATED
        # an event loop has its own; a job in the background ignores it
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)


def run(arguments: Sequence[str], ending: TerminationHandler | None = None) -> int:
    """Run a command line, and return the exit status."""
    as_json, interrupted = "--json" in arguments, ending or TerminationHandler()
    try:
        with (
            naming("standard output")
            if "--help" in (arguments or ["--help"])
            else contextlib.nullcontext()
        ):
            status = app(list(arguments) or ["--help"], prog_name="ares-cli", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error, as_json, interrupted)
    except SystemExit:  # of rich, for an output without a reader: only the status is left
        return STATUS_FAILED
    if status == STATUS_INTERRUPTED:
        return _fail(CUT_SHORT, "Interrupted", interrupted.status, as_json)
    return status if isinstance(status, int) else 0


def report_error(
    error: Exception | KeyboardInterrupt, as_json: bool, ending: TerminationHandler
) -> int:
    """Report the end of a command to the user, and return the exit status."""
    match error:
        case typer.TyperException():  # of typer: an unknown command or option, a missing argument
            # a key may have been typed by mistake
            from ares.security.keys import (
                without_keys,
            )

            return _fail(without_keys(error.format_message()), "BadInput", STATUS_MISUSED, as_json)
        case typer.Abort() | KeyboardInterrupt():
            return _fail(CUT_SHORT, "Interrupted", ending.status, as_json)
        case Interrupted():
            return _fail(str(error), "Interrupted", ending.status, as_json)
        case AresError():
            uncertain = (
                {"may_have_taken_effect": error.may_have_taken_effect}
                if isinstance(error, Uncertain)
                else {}
            )
            kind = getattr(error, "kind", type(error).__name__)
            return _fail(
                str(error),
                kind,
                STATUS_MISUSED if isinstance(error, BadInput) else STATUS_FAILED,
                as_json,
                **uncertain,
            )
        case OSError():  # of the machine: a full disk, a directory without write permission
            return _fail(_unusable(error), type(error).__name__, STATUS_FAILED, as_json)
        case _:
            return _fail(_mistake(error), "Mistake", STATUS_FAILED, as_json)


def _unusable(error: OSError) -> str:
    """Return the words for an error of the machine, with the file."""
    if error.filename:
        return f"{error.strerror}: {error.filename}"
    try:
        os.getcwd()
    except FileNotFoundError:
        return (
            "the directory in which this was started does not exist any more: start it in another "
            "one"
        )
    return error.strerror or str(error)


def _fail(message: str, kind: str, status: int, as_json: bool, **more: object) -> int:
    message = without_long_hex(message)  # a key may have been typed by mistake
    with contextlib.suppress(OSError):  # no output works, only the status
        typer.echo(
            json.dumps({"error": message, "kind": kind, "status": status} | more)
            if as_json
            else f"error: {message}",
            err=True,
        )
    return status


def _mistake(error: BaseException) -> str:
    """Return the message for an unforeseen error; a log, if any, has the whole error."""
    if logging.getLogger().handlers:
        logging.getLogger(__name__).critical("a mistake in ares ends this process", exc_info=error)
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    advice = "the operation may have taken effect or not. Please report this line"
    return f"a mistake in ares itself, {type(error).__name__}: {error} (at {places}); {advice}"
