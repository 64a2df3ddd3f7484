"""The place of a torture run: a temporary directory, a cluster file, a network if there can be one. Nothing of it is left afterwards."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ares.runtime.cluster_file import Plan, create
from ares.runtime.loop import run
from ares.runtime.settings import Settings
from ares.torture.partition import Network, obstacle
from ares.torture.run import ENDINGS, Options, Progress, Run
from ares.torture.verdict import Summary
from ares.torture.victims import CLIENTS, RECONFIGURERS


def torture(options: Options, show: Callable[[Progress], None], say: Callable[[str], None]) -> Summary:
    """Make a place for the run, carry it out, write what came of it, and clear up. Raises :class:`ares.torture.records.TortureFailed`.

    ``show`` is called with the progress twice a second, ``say`` with what a person should know at once. SIGINT, SIGTERM and SIGHUP end it with
    KeyboardInterrupt, when everything is stopped and removed.
    """
    notes: list[str] = []
    options.out.mkdir(parents=True, exist_ok=True)
    with _signals(_interrupt), contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ares-torture-")))
        settings = create(home, Plan(options.servers, options.consensus, base_port=0, security="none"))
        network = None
        if options.partitions and (why := obstacle()):
            notes.append(why)
            say(why)
        elif options.partitions:
            hosts = [*CLIENTS, RECONFIGURERS, *(process.id for process in settings.processes())]
            network = stack.enter_context(Network(hosts))
            settings = _moved(settings, network)
        try:
            summary = run(Run(options, settings, network, notes, show).perform())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            stack.enter_context(_signals(signal.SIG_IGN))
        if not summary.ok:
            shutil.copytree(home / "logs", options.out / "logs", dirs_exist_ok=True)
        return summary


@contextlib.contextmanager
def _signals(handler: signal.Handlers | Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Meanwhile ``handler`` sees to Ctrl-C, to being asked to end, and to the end of the terminal."""
    before = {number: signal.signal(number, handler) for number in ENDINGS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _moved(settings: Settings, network: Network) -> Settings:
    """The same cluster with every process at its host's address."""
    text = settings.path.read_text(encoding="utf-8")
    for server in settings.servers.values():
        text = text.replace(f'"{server.address}"', f'"{network.address(server.id)}:7400"')
    for member in settings.members.values():
        text = text.replace(f'"{member.address}"', f'"{network.address(member.id)}:7400"')
        text = text.replace(f'"{member.raft}"', f'"{network.address(member.id)}:7401"')
    settings.path.write_text(text, encoding="utf-8")
    return Settings.load(settings.path)
