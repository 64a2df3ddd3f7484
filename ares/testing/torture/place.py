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

from ares.cluster.cluster_file import Plan, create
from ares.cluster.settings import Settings
from ares.machine.loop import run
from ares.testing.torture.cluster import Cluster
from ares.testing.torture.etcd_members import EtcdMembers
from ares.testing.torture.etcd_members import ids as etcd_ids
from ares.testing.torture.partition import Network, obstacle
from ares.testing.torture.torture_run import ENDINGS, Options, Progress, Run
from ares.testing.torture.verdict import Summary
from ares.testing.torture.victims import CLIENTS, RECONFIGURERS


def torture(options: Options, show: Callable[[Progress], None], say: Callable[[str], None]) -> Summary:
    """Make a place for the run, carry it out, write what came of it, and clear up. Raises :class:`ares.testing.torture.records.TortureFailed`.

    ``show`` is called with the progress twice a second, ``say`` with what a person should know at once. SIGINT, SIGTERM and SIGHUP end it with
    KeyboardInterrupt, when everything is stopped and removed.
    """
    notes: list[str] = []
    options.out.mkdir(parents=True, exist_ok=True)
    with _signals(_interrupt), contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ares-torture-")))
        network = None
        if options.partitions and (why := obstacle()):
            notes.append(why)
            say(why)
        elif options.partitions:
            network = stack.enter_context(Network(_hosts(options)))
        cluster = _cluster(home, options, network)
        try:
            summary = run(Run(options, cluster, network, notes, show).perform())
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


def _hosts(options: Options) -> list[str]:
    """Everybody who has an address of its own."""
    deciders = etcd_ids(options.consensus) if options.etcd else [f"r{index}" for index in range(options.consensus)]
    return [*CLIENTS, RECONFIGURERS, *(f"s{index}" for index in range(options.servers)), *deciders]


def _cluster(home: Path, options: Options, network: Network | None) -> Cluster:
    """Not yet started."""
    etcd = EtcdMembers(home / "etcd", options.consensus, network) if options.etcd else None
    members, endpoints = (0, etcd.endpoints) if etcd is not None else (options.consensus, ())
    settings = create(home, Plan(options.servers, members, base_port=0, security="none", durability=options.durability, etcd=endpoints))
    if network is not None:
        settings = _moved(settings, network)
    return Cluster(settings, network, None if etcd is None else etcd.commands())


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
