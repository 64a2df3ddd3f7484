"""Records of the parts of a testbed `local`, which allow removal after the maker is gone.

A record is written before the testbed is made. PLACE has a directory for each testbed, named by its
number. The names of all parts begin with ``arestb`` and the number; nothing else is ever removed.
The maker holds a lock for as long as it lives: a locked testbed is left alone.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.model.errors import AresError, BadInput
from ares.platform.file_lock import lock_directory, take_lock
from ares.platform.replacement import replace_file
from ares.testing import namespaces
from ares.testing.namespaces import NamespaceFailed
from ares.tracing.tree import printable

PLACE = Path("/run/ares-testbed")
TESTBEDS_MAX = 8
_SLOT_END_S = 10.0
_SLOT_ASK_S = 0.02


class Leftover(AresError):
    """A part of a testbed could not be removed."""


class SlotState(Struct, frozen=True):
    """The existing or planned parts of a testbed.

    ``directory`` has the testbed's files and no others. ``link`` is the interface on the machine.
    """

    number: int
    maker: int
    directory: str
    link: str
    namespaces: list[str]
    hosts: dict[str, str] = {}
    """Site of each host."""


class Slot:
    """The slot of a testbed while a process holds the lock."""

    def __init__(self, number: int, lock: int) -> None:
        self.number = number
        self.place = PLACE / str(number)
        self.prefix = f"arestb{number}"
        self._lock = lock

    def write(self, directory: str, others: Iterable[str], hosts: dict[str, str]) -> None:
        """Write the record, before any part of the testbed is made.

        ``others`` are the namespaces beside the namespace with the name of the testbed.
        """
        names = [self.prefix, *others]
        state = SlotState(self.number, os.getpid(), directory, self.prefix, names, hosts)
        content = msgspec.json.format(msgspec.json.encode(state), indent=2)
        replace_file(self.place / "state.json", content)

    def read(self) -> SlotState | None:
        """Read the record, if any. Raises Leftover if the record is unusable.

        Without a record nothing was made.
        """
        path = self.place / "state.json"
        try:
            state = msgspec.json.decode(path.read_bytes(), type=SlotState)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise Leftover(
                f"{path} cannot be read ({error}). Nothing was removed; `ip netns` shows "
                f"namespaces named {self.prefix}"
            ) from None
        names = [state.link, *state.namespaces]
        if any(name != self.prefix and not name.startswith(f"{self.prefix}-") for name in names):
            raise Leftover(
                f"{path} names a resource that is not of testbed {self.number}; nothing was removed"
            )
        return state

    def release(self) -> None:
        """Release the lock, and leave the testbed standing."""
        os.close(self._lock)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lock PLACE. Make an absent directory, and remove an empty directory at the end."""
    directory = lock_directory(PLACE.parent)
    try:
        PLACE.mkdir(mode=0o700, exist_ok=True)
        yield
        with contextlib.suppress(OSError):
            PLACE.rmdir()
    finally:
        os.close(directory)


def claim() -> Slot:
    """Claim a free slot. Raises BadInput if all are taken."""
    taken = []
    with _one_at_a_time():
        for number in range(TESTBEDS_MAX):
            place = PLACE / str(number)
            if place.exists():
                taken.append("a testbed")
            elif network := _overlapping(network_of(number)):
                taken.append(f"a route of this machine to {network}")
            else:
                place.mkdir(mode=0o700)
                slot = _hold(number)
                assert slot is not None
                return slot
    first, by = network_of(0), " and ".join(dict.fromkeys(taken))
    raise BadInput(
        f"no network is free for a testbed: {first}.0.0/16 and the {TESTBEDS_MAX - 1} after it "
        f"are taken by {by}. Nothing was made. `python -m experiments local status` shows "
        "testbeds, `clean NAME` removes one"
    )


def network_of(number: int) -> str:
    """Return the first two bytes of the addresses of a testbed."""
    return f"10.{160 + number}"


def _overlapping(network: str) -> str:
    """Return a network with a route on the machine that the testbed would hide."""
    ours = f"{network}.0.0/16"
    shown = namespaces.run("ip", "-json", "-4", "route", "show", "table", "all", "root", ours)
    above = namespaces.run("ip", "-json", "-4", "route", "show", "table", "all", "match", ours)
    routes = [route["dst"] for text in (shown, above) for route in json.loads(text or "[]")]
    return next((route for route in routes if route not in ("default", "0.0.0.0/0")), "")


def _hold(number: int) -> Slot | None:
    """Lock a slot, or return `None` if another process holds the lock."""
    lock = take_lock(PLACE / str(number) / "lock", make=True)
    return None if lock is None else Slot(number, lock)


def standing() -> Iterator[tuple[int, Slot | None]]:
    """Yield every testbed by number, with `None` for the slot while the maker lives.

    The other slots are locked while the caller looks at them.
    """
    if os.geteuid() != 0:
        raise BadInput("testbeds on this machine are root's. Run it as root (sudo)")
    if not PLACE.exists():
        return
    with _one_at_a_time():
        for place in sorted(PLACE.iterdir()):
            if place.name.isdecimal():
                slot = _hold(int(place.name))
                yield int(place.name), slot
                if slot is not None:
                    slot.release()


def status() -> list[str]:
    """Return a line for each testbed."""
    lines = []
    for number, slot in standing():
        try:
            state = Slot(number, -1).read()
        except Leftover as error:
            lines.append(str(error))
            continue
        if state is None:
            lines.append(f"testbed {number}: nothing was made yet")
            continue
        user = f"used by process {state.maker}" if slot is None else "standing by itself"
        there = len(_namespaces().intersection(state.namespaces))
        counts = f"hosts: {len(state.hosts)}, sites: {len(set(state.hosts.values()))}"
        lines.append(f"testbed {number}: {user}; {counts}, namespaces: {there}")
        lines.append(f"  inventory: {state.directory}/inventory.yml")
    return lines


def named(names: Sequence[str]) -> list[int]:
    """Return the numbers of the testbeds with these names, as shown by ``status``.

    The name `all` stands for each testbed.

    Raises:
        BadInput: No testbed has such a name.
    """
    there = [number for number, _ in standing()]
    known = {f"{before}{number}": [number] for number in there for before in ("", "arestb")}
    found: list[int] = []
    for name in names:
        if (numbers := (known | {"all": there}).get(name)) is None:
            shown = ", ".join(map(str, there)) or "none"
            raise BadInput(
                f"there is no testbed {printable(name)}; there are: {shown}. Nothing was removed"
            )
        found += [number for number in numbers if number not in found]
    return found


def clean(numbers: Collection[int]) -> list[str]:
    """Remove these testbeds unless their maker lives; return a line about each."""
    lines = []
    for number, slot in standing():
        if number not in numbers:
            continue
        if slot is None:
            lines.append(f"testbed {number} is in use by a process that lives; it was left alone")
            continue
        try:
            told = f"removed {', '.join(_remove(slot)) or 'nothing, as nothing was made'}"
        except (Leftover, NamespaceFailed) as error:
            told = str(error)
        lines.append(f"testbed {number}: {told}")
    return lines


def remove(slot: Slot) -> None:
    """Remove all parts of the testbed, and the slot. Raises Leftover."""
    with _one_at_a_time():
        _remove(slot)
        slot.release()


def _remove(slot: Slot) -> list[str]:
    """Remove the existing parts, and return them."""
    removed = []
    if state := slot.read():
        _end_masters(slot.place)
        there = [name for name in state.namespaces if name in _namespaces()]
        if ended := _end_processes(there):
            removed.append(f"{ended} processes")
        if (Path("/sys/class/net") / state.link).exists():
            namespaces.run("ip", "link", "del", state.link)
            removed.append(f"interface {state.link}")
        for name in there:
            namespaces.remove(name)
        if left := [name for name in there if name in _namespaces()]:
            raise Leftover(f"namespace {left[0]} could not be removed; run the same again")
        removed += [f"{len(there)} namespaces"] if there else []
        if Path(state.directory).exists():
            shutil.rmtree(state.directory)
            removed.append(state.directory)
    shutil.rmtree(slot.place)
    return removed


def processes(namespace: str) -> list[int]:
    """Return the pids in a network namespace; the list of a half-made namespace is empty."""
    try:
        return [int(pid) for pid in namespaces.run("ip", "netns", "pids", namespace).split()]
    except NamespaceFailed:
        return []


def _namespaces() -> set[str]:
    return {line.split()[0] for line in namespaces.run("ip", "netns", "list").splitlines() if line}


def _end_processes(names: list[str]) -> int:
    ended: set[int] = set()
    deadline_s = time.monotonic() + _SLOT_END_S
    while left := [pid for name in names for pid in processes(name)]:
        if time.monotonic() > deadline_s:
            raise Leftover(f"processes {left} do not end; nothing else was removed")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(left)
        time.sleep(_SLOT_ASK_S)
    return len(ended)


def _end_masters(place: Path) -> None:
    """Close the connections that ssh keeps open for reuse.

    The next testbed has the same addresses and different hosts.
    """
    for socket in place.glob("cp/*"):
        command = f"ssh -F /dev/null -o ControlPath={socket} -O exit host".split()
        subprocess.run(command, capture_output=True, timeout=_SLOT_END_S)
