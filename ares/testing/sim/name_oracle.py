"""The names of a simulated write-once domain: their operations, and a check of the answers (R25).

An index outside the domain decides which names may be dropped. Here a name may be dropped at any
time, and promises hold only for names that no client was asked to drop:

- A fetch which begins after the end of a create returns the value, unless a drop of the name began
  before the fetch ended.
- A fetch never returns another value than the name's, and none before the create began.
- After all faults, a drop of all names that the index lacks, by a client which knows the first
  configuration only, leaves none of them at any server of the last finalized configuration, and
  each completed name keeps its value; also after a restart.
"""

from collections.abc import Iterator

from msgspec import Struct

from ares.engine.effects import Operation
from ares.reconfig.view import View
from ares.registers.write_once import list_names, members
from ares.testing.sim.invariants import PromiseBroken

PAGE_NAMES = 3
"""Names on a page of a server's listing."""


class NameOperation(Struct, eq=False):
    """An operation on a name. ``found``: the value that a fetch returned; None: the name is absent.

    ``ended``: None for an operation under way, and for an operation of a client that died.
    """

    kind: str
    name: str
    began: float
    ended: float | None = None
    found: bytes | None = None
    failed: bool = False


class NameOracle:
    """The operations of a run on names of a write-once domain."""

    def __init__(self) -> None:
        self.operations: list[NameOperation] = []

    def begin(self, kind: str, name: str, now: float) -> NameOperation:
        operation = NameOperation(kind, name, now)
        self.operations.append(operation)
        return operation

    def _of(self, kind: str, name: str) -> Iterator[NameOperation]:
        return (each for each in self.operations if (each.kind, each.name) == (kind, name))

    def completed(self) -> list[str]:
        """Return the names of ended creates that no client was asked to drop, in order."""
        return sorted(
            each.name
            for each in self.operations
            if each.kind == "create"
            and each.ended is not None
            and not each.failed
            and not any(self._of("drop", each.name))
        )

    def kept(self) -> set[str]:
        """Return the names that the index may name: created, and not dropped."""
        return {
            each.name
            for each in self.operations
            if each.kind == "create" and not any(self._of("drop", each.name))
        }

    def forget(self) -> None:
        """Empty the index: from now on no name is kept."""
        self.operations.clear()

    def may_be_gone(self, name: str) -> bool:
        """Return whether a client began to drop the name."""
        return any(self._of("drop", name))

    def judge(self) -> None:
        """Check all fetches. Raises :class:`PromiseBroken`."""
        for fetch in self.operations:
            if fetch.kind != "fetch" or fetch.ended is None or fetch.failed:
                continue
            creates = [each for each in self._of("create", fetch.name) if each.began <= fetch.ended]
            if fetch.found is not None:
                if not creates or fetch.found.rstrip(b".") != fetch.name.encode():
                    raise PromiseBroken(f"a fetch of {fetch.name} returned {fetch.found!r}")
                continue
            drops = [each for each in self._of("drop", fetch.name) if each.began <= fetch.ended]
            before = [
                each
                for each in creates
                if each.ended is not None and not each.failed and each.ended < fetch.began
            ]
            if before and not drops:
                raise PromiseBroken(
                    f"a fetch of {fetch.name} found nothing, which was created at "
                    f"{before[0].ended:.4f} s and never dropped"
                )


def unnamed(view: View, kept: set[str]) -> Operation[list[str]]:
    """Return the names at any server that are not among ``kept``."""
    found: set[str] = set()
    for server in (yield from members(view)):
        after: str | None = ""
        while after is not None:
            page = yield from list_names(view, server, after, PAGE_NAMES)
            found.update(set(page.names) - kept)
            after = page.after
    return sorted(found)
