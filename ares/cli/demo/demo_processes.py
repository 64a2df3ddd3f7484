"""The demo's processes: they really die, and start again with what their disks hold."""

import asyncio
from collections.abc import Collection

from ares.cli.local.supervisor import Supervisor, members_of
from ares.cli.local.up_command import START_TIMEOUT_S
from ares.cluster.settings import Settings


class Processes:
    """The servers and consensus members of a cluster that ``supervisor`` started."""

    def __init__(self, settings: Settings, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._members = {member.id: member for member in members_of(settings)}

    @property
    def ids(self) -> list[str]:
        """Servers and consensus members, whether they run or not."""
        return list(self._members)

    def kill(self, ids: Collection[str]) -> None:
        """kill -9, all at once; they are gone when this returns."""
        self._supervisor.kill(ids)

    async def start(self, ids: Collection[str]) -> None:
        """Start processes that do not run; they serve when this returns, and everything else goes on meanwhile.

        Raises :class:`ares.cli.local.supervisor.NotStarted`.
        """
        members = [self._members[id] for id in ids]
        with self._supervisor.alone():
            await asyncio.to_thread(self._supervisor.start, members, START_TIMEOUT_S, lambda: False)
