"""Testbeds of rounds: made on this machine, or machines named by an inventory."""

import contextlib
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from ares.model.errors import BadInput
from ares.platform.file_lock import take_lock
from experiments import CHECKOUT
from experiments.rounds.layout import RoundHost, wanted
from experiments.rounds.playbook_runs import environment, listed, program
from experiments.rounds.scenario import ScenarioRound
from experiments.testbeds import local_testbed, loopback_testbed
from experiments.testbeds.testbed_plan import Testbed, refusing

MADE = ("local", "processes")
RESERVED_BEDS = ("emulab", "fed4fire", "aws")
ROUND_DIRECTORY = "/var/lib/ares-round"
"""Directory of a round on a host with a separate file system."""

ROUND_PROGRAM = "/var/lib/ares-round-program"


class RoundTestbed(Struct, frozen=True):
    """A testbed with its hosts. ``variables`` are for all hosts in a round."""

    name: str
    testbed: Testbed
    inventory: Path
    hosts: Mapping[str, RoundHost]
    variables: Mapping[str, Any]

    def directories(self) -> dict[str, str]:
        """Return the directories of the round, by host."""
        return {host.name: _directory(host.variables) for host in self.hosts.values()}


def _directory(variables: Mapping[str, Any]) -> str:
    home = f"{variables['ares_home']}/round" if "ares_home" in variables else ROUND_DIRECTORY
    return str(variables.get("round_directory") or home)


def seen(tree: Mapping[str, Any]) -> dict[str, RoundHost]:
    """Return the hosts in the output of `ansible-inventory --list`, in the same order."""
    variables = tree.get("_meta", {}).get("hostvars", {})
    groups: dict[str, list[str]] = {}
    for group, members in tree.items():
        if group not in ("_meta", "all", "ungrouped"):
            for host in members.get("hosts", []):
                groups.setdefault(host, []).append(group)
    return {
        host: RoundHost(host, tuple(names), variables.get(host, {}))
        for host, names in groups.items()
        if host != "localhost"
    }


class RoundTestbeds:
    """A single testbed at a time for all rounds.

    ``place`` is for Ansible's own files, and for hosts that are directories. ``inventory`` is of
    reserved machines.
    """

    def __init__(
        self,
        name: str,
        rounds: Sequence[ScenarioRound],
        place: Path,
        inventory: Path | None,
        clients_per_host: int,
    ) -> None:
        if (name in RESERVED_BEDS) != (inventory is not None):
            raise BadInput(
                f"--inventory FILE goes with {', '.join(RESERVED_BEDS)}: `python -m experiments "
                "inventory` makes one. Nothing was begun"
            )
        if name == "local" and (why := local_testbed.obstacle()):
            needs = "Testbed processes needs no root"
            raise BadInput(why.replace(needs, "`--testbed processes` needs no root"))
        program("ansible-playbook")
        self.name, self._rounds, self._place = name, rounds, place
        self._inventory, self._clients_per_host = inventory, clients_per_host
        self._stack = ExitStack()
        self._bed: RoundTestbed | None = None
        place.mkdir(parents=True, exist_ok=True)

    def bed(self) -> RoundTestbed:
        """Return the testbed; make an absent testbed. Raises BadInput, NamespaceFailed."""
        if self._bed is None:
            with ExitStack() as stack:
                self._bed = self._made(stack)
                self._stack = stack.pop_all()
        return self._bed

    def _made(self, stack: ExitStack) -> RoundTestbed:
        path = str(CHECKOUT)
        ready: dict[str, Any] = {"ares_service_manager": "process"}
        testbed: Testbed
        if self._inventory is not None:
            stack.enter_context(_alone(self._inventory))
            testbed = ReservedTestbed(self._inventory, self._place)
            archive = str(_archive(self._place / "experiments.zip"))
            path = f"{ROUND_PROGRAM}/experiments.zip"
            ready |= {"round_program": ROUND_PROGRAM, "round_program_archive": archive}
        elif self.name == "local":
            plans = wanted(self._rounds, self._clients_per_host)
            made = local_testbed.LocalTestbed(plans, [], None)
            made.make()
            stack.callback(made.remove)
            testbed = made
        else:
            plans = wanted(self._rounds, self._clients_per_host)
            plans = [structs.replace(plan, disks={}) for plan in plans]
            processes = loopback_testbed.testbed(plans, self._place / "processes")
            testbed = stack.enter_context(processes)
            ready["round_user"] = ""
        ready["round_client_environment"] = {"PYTHONPATH": path}
        hosts = seen(listed(testbed.inventory, self._place))
        if not any("servers" in host.groups for host in hosts.values()):
            raise BadInput(
                f"{testbed.inventory} names no host in the group servers, so no round can be "
                "carried out there"
            )
        return RoundTestbed(self.name, testbed, testbed.inventory, hosts, ready)

    def discard(self) -> None:
        """Discard a testbed with a lost host; the next call of :meth:`bed` makes another."""
        if self.name in MADE:
            self.close()

    def close(self) -> None:
        """Remove the testbed."""
        self._bed = None
        self._stack.close()


def _archive(path: Path) -> Path:
    """Make the archive with the clients' program, for hosts without a checkout.

    Python imports from the archive.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted((CHECKOUT / "experiments").rglob("*.py")):
            archive.write(source, source.relative_to(CHECKOUT))
    return path


@contextlib.contextmanager
def _alone(inventory: Path) -> Iterator[None]:
    """Keep other engines off this inventory.

    Two engines on the same hosts would end each other's rounds.
    """
    try:
        lock = take_lock(inventory)
    except OSError as error:
        raise BadInput(f"{inventory} cannot be read: {error.strerror}. Nothing was begun") from None
    if lock is None:
        raise BadInput(f"another run works on the hosts of {inventory}; nothing was begun")
    try:
        yield
    finally:
        os.close(lock)


_MACHINES = "machines of an inventory"


class ReservedTestbed:
    """Machines elsewhere.

    A server can be killed. Faults in the machine itself or in the links between sites are refused.
    """

    def __init__(self, inventory: Path, place: Path) -> None:
        self.inventory = inventory
        self._place = place

    def kill(self, host: str, pattern: str) -> list[int]:
        script = f"pids=$(pgrep -f -- '{not_itself(pattern)}') && kill -9 $pids"
        command = [program("ansible"), host, "-i", str(self.inventory), "--become"]
        command += ["-m", "ansible.builtin.shell", "-a", script]
        where = {"cwd": self._place, "env": environment(self._place), "timeout": 60}
        asked = subprocess.run(command, capture_output=True, text=True, check=False, **where)  # type: ignore[call-overload]
        if asked.returncode:
            raise BadInput(
                f"no server of {host} was killed: none runs there, or it cannot be reached"
            )
        return []

    delay = refusing(f"{_MACHINES} have the delays that they have")
    bandwidth = refusing(f"{_MACHINES} have the rates that they have")
    cut = join = refusing(f"{_MACHINES} are not cut apart")
    slow = refusing(f"{_MACHINES} are not slowed")
    fill = refusing(f"{_MACHINES} keep the room on their disks")


def not_itself(pattern: str) -> str:
    """Return a regular expression for the same command lines, except for its own text.

    The first letter is in brackets.
    """
    return re.sub(r"[A-Za-z]", lambda letter: f"[{letter[0]}]", pattern, count=1)
