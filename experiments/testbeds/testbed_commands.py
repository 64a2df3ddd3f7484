"""`local`: a testbed on this machine; `inventory`: an inventory of machines reserved elsewhere."""

import argparse
import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.testbeds import aws, inventory, reserved, rspec, slots
from experiments.testbeds.local_testbed import LocalTestbed
from experiments.testbeds.reserved import GROUP_PATTERNS, ControllerAccess
from experiments.testbeds.testbed_plan import GROUPS, HostPlan, LinkPlan

_HOST = re.compile(r"(?P<name>[^@=]+)(@(?P<site>[^@=]+))?(=(?P<groups>[a-z,]*))?")
_LOCAL_HELP = """\
Hosts on this machine, as root: namespaces with their own files, processes, address and sshd.

    python -m experiments local up 3                               # server0 to server2, one site
    python -m experiments local up server0@nantes server1@lille writer0@lille --delay 10
    python -m experiments local up a@x=servers,consensus b@y=writers    # groups by hand
    ansible -i DIRECTORY/testbed/inventory.yml servers -m ping
    python -m experiments local clean 0                                       # asks first
"""
_INVENTORY = """\
An inventory for ansible of machines that were reserved elsewhere. The command only reads a file.

    python -m experiments inventory fed4fire manifest.rspec --known-hosts known_hosts \\
        --user jdoe --key ~/.ssh/id_ed25519 --out inventory.yml
    python -m experiments inventory emulab manifest.xml --known-hosts known_hosts \\
        --group 'servers=node[0-4]' --group 'writers=node5'
    aws ec2 describe-instances --output json > instances.json
    python -m experiments inventory aws instances.json --known-hosts known_hosts

A plain list for aws has lines ADDRESS [NAME [SITE]]. Without --group, hosts are in the groups that
their names begin with: server0, writer1, recon0. The host keys have to be in the file of
--known-hosts, taken with ssh-keyscan and compared with the keys that the testbed shows.
"""


def add(commands: Any) -> None:
    """Add the commands to the ``commands`` of a parser.

    Each sets ``run``: a function that is called with the arguments and returns the exit status.
    """
    _add_local(commands)
    _add_inventory(commands)


def _add_local(commands: Any) -> None:
    words = "hosts as namespaces of this machine: up, status, clean"
    local = _command(commands, "local", words, _LOCAL_HELP)
    actions = local.add_subparsers(title="actions", metavar="ACTION", required=True)
    up = _command(actions, "up", "make a testbed and leave it standing", _LOCAL_HELP)
    words = "NAME[@SITE][=GROUP,GROUP], or a number of servers"
    up.add_argument("hosts", nargs="+", metavar="HOST", help=words)
    words = "where its files go, in a directory `testbed` (default: /var/tmp/arestbN)"
    up.add_argument("--directory", type=Path, help=words)
    for flag, metavar, words in (
        ("--delay", "MS", "between any two sites, one way"),
        ("--jitter", "MS", "how far delays differ from that"),
        ("--loss", "PART", "of the packets between any two sites: 0.01 is one in a hundred"),
    ):
        up.add_argument(flag, type=float, default=0.0, metavar=metavar, help=words)
    up.set_defaults(run=_up)
    _command(actions, "status", "say which testbeds there are", "").set_defaults(
        run=lambda _: _print_lines(slots.status(), "there is no testbed")
    )
    words = "Removes its processes, namespaces, interface and files, and names them. Asks first."
    clean = _command(actions, "clean", "remove a testbed that no process uses", words)
    words = "a number that `status` shows, or all"
    clean.add_argument("names", nargs="*", metavar="NAME", help=words)
    clean.add_argument("--yes", action="store_true", help="do not ask")
    clean.set_defaults(run=_clean)


def _add_inventory(commands: Any) -> None:
    words = "an inventory of machines at fed4fire, emulab or aws"
    made = _command(commands, "inventory", words, _INVENTORY)
    made.add_argument("testbed", choices=["fed4fire", "emulab", "aws"])
    made.add_argument("file", type=Path, help="manifest or list")
    words = "the machines' host keys, as in ~/.ssh/known_hosts"
    made.add_argument("--known-hosts", type=Path, required=True, help=words)
    made.add_argument("--user", help="whose logins to take (default: the only one)")
    made.add_argument("--key", type=Path, help="private key (default: the key that ssh chooses)")
    for flag, metavar, words in (
        ("--group", "GROUP=NAMES", f"{', '.join(GROUPS)}; names with * and ?; may be repeated"),
        ("--authority", "NAME", "of a federation, that may be in the manifest as well"),
    ):
        made.add_argument(flag, action="append", default=[], metavar=metavar, help=words)
    out = Path("inventory.yml")
    made.add_argument("--out", type=Path, default=out, help=f"default: {out}")
    made.set_defaults(run=_inventory)


def _command(commands: Any, name: str, summary: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return made


def _up(arguments: argparse.Namespace) -> int:
    hosts = planned(arguments.hosts)
    sites = list(dict.fromkeys(host.site for host in hosts))
    shape = (arguments.delay, arguments.jitter, arguments.loss)
    links = [LinkPlan(*pair, *shape) for pair in combinations(sites, 2) if any(shape)]
    made = LocalTestbed(hosts, links, arguments.directory)
    made.make()
    made.leave()
    print(f"hosts: {len(hosts)}, sites: {len(sites)}\ninventory: {made.inventory}")
    print(f"to remove all this: python -m experiments local clean {made.number}")
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    there = slots.status()
    if not arguments.names and there:
        raise BadInput(
            "say which testbed: its number, or all. Nothing was removed\n" + "\n".join(there)
        )
    numbers = slots.named(arguments.names)
    if numbers and not arguments.yes:
        _ask(numbers, there)
    return _print_lines(slots.clean(numbers), "there is no testbed; nothing was removed")


def _ask(numbers: Sequence[int], there: Sequence[str]) -> None:
    """Raise BadInput unless a person agrees."""
    print("\n".join(there))
    what = ", ".join(f"testbed {number}" for number in numbers)
    try:
        answer = input(f"Remove {what} with its hosts and their files? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise BadInput("nothing was removed; --yes removes without asking")


def planned(words: Sequence[str]) -> list[HostPlan]:
    """Return the hosts that the words of a command line stand for."""
    if len(words) == 1 and words[0].isdecimal():
        words = [f"server{number}" for number in range(min(int(words[0][:5]), 10_000))]
    hosts = []
    for word in words:
        parts = _HOST.fullmatch(word)
        if parts is None:
            what = f"{printable(word)!r} is not NAME[@SITE][=GROUP,GROUP]"
            raise BadInput(f"{what}; nothing was made")
        named = [each for each, name in GROUP_PATTERNS.items() if fnmatchcase(parts["name"], name)]
        groups = parts["groups"].split(",") if parts["groups"] else named
        hosts.append(HostPlan(parts["name"], parts["site"] or "here", groups))
    return hosts


def _inventory(arguments: argparse.Namespace) -> int:
    for path, what in ((arguments.known_hosts, "--known-hosts"), (arguments.key, "--key")):
        if path and not path.is_file():
            raise BadInput(f"{printable(str(path))} ({what}) is not a file; nothing was written")
    patterns = [text.partition("=")[::2] for text in arguments.group]
    content, testbed, user = reserved.read(arguments.file), arguments.testbed, arguments.user
    if testbed == "aws":
        machines = aws.machines(content)
    else:
        machines = rspec.machines(content, testbed, user, arguments.authority)
    key = arguments.key and arguments.key.absolute()
    access = ControllerAccess(arguments.known_hosts, key, user)
    hosts = reserved.hosts(machines, access, patterns or list(GROUP_PATTERNS.items()))
    inventory.write(arguments.out, hosts, f"Testbed {testbed}.")
    for host in hosts:
        where = f"{host.variables['ares_address']} at {host.variables['ares_site']}"
        print(f"{host.name}: {where}, {', '.join(host.groups) or 'in no group'}")
    if not any(host.groups for host in hosts):
        example = f"'servers={printable(hosts[0].name)}'"
        words = "no host is in a group: say which with --group, for example --group"
        print(f"{words} {example}", file=sys.stderr)
    return 0


def _print_lines(lines: Sequence[str], otherwise: str) -> int:
    print("\n".join(lines) or otherwise)
    return 0
