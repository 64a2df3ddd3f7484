"""The looks of an autopilot at servers: often at its own site, seldom at other sites.

Bytes between sites are dear (docs/sites.md). Each member watches the servers and the logs of the
member's site. The member's note raises an alarm when a log at this site needs the leader. The
leader looks at servers of other sites every REMOTE_S and asks their logs every REMOTE_LIST_S, and
does both as often as at its own site during an alarm. A server counts as near if the server or the
member has no site.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from ares.autopilot.handover import Notebook
from ares.client.manager import Manager
from ares.cluster.tables import AutopilotSettings
from ares.metrics import AutopilotCounters
from ares.model.configuration import Configuration, Server
from ares.model.identity import DomainName, ServerId
from ares.reconfig.mover import MoveOptions

REMOTE_S = 10.0
"""Seconds between two looks at a server of another site."""

REMOTE_LIST_S = 60.0
"""Seconds between two listings at another site, and between two questions to a log there."""


class Lookout:
    """The answers of servers to a member, over a ``manager`` that stays open.

    ``book``: the servers of the cluster file. ``sites``: the known sites of servers. ``site``: the
    member's own site; empty: unknown.
    """

    def __init__(
        self,
        manager: Manager,
        book: Mapping[ServerId, Server],
        sites: Mapping[ServerId, str] = MappingProxyType({}),
        site: str = "",
    ) -> None:
        self.manager = manager
        self.book = book
        self.sites = sites
        self.site = site
        self.alarms: Set[str] = frozenset()
        """Sites with an alarm, as told by their members."""

        self._loop = asyncio.get_running_loop()
        self._asked_at: dict[ServerId, float] = {}
        self._answers: dict[ServerId, str] = {}

    def is_near(self, server: ServerId) -> bool:
        """Return whether looks at the server stay within the member's site."""
        return not self.site or self.sites.get(server, self.site) == self.site

    def has_near(self, configuration: Configuration) -> bool:
        """Return whether all servers of the configuration are near."""
        return all(map(self.is_near, configuration.server_ids))

    def has_alarm(self, configuration: Configuration) -> bool:
        """Return whether a server of the configuration is at a site with an alarm."""
        return any(self.sites.get(id) in self.alarms for id in configuration.server_ids)

    def list_every_s(self, near_s: float) -> float:
        """Return the seconds between two listings of `default`.

        ``near_s``: the result if `default` is near, or during an alarm, which may be about a log
        not known yet.
        """
        often = bool(self.alarms) or self.has_near(self.manager.configuration)
        return near_s if often else max(near_s, REMOTE_LIST_S)

    async def look(
        self, servers: Iterable[Server], closely: Iterable[Server], patience_s: float | None = None
    ) -> dict[ServerId, str]:
        """Return the identities of servers in their last answers.

        Args:
            servers: The servers to look at.
            closely: Servers asked in every look while silent, also at other sites.
            patience_s: The time for a server to answer.
        """
        asked = {server.id: server for server in servers}
        now = self._loop.time()
        silent = {server.id for server in closely} - self._answers.keys()
        due = [server for id, server in asked.items() if id in silent or self._is_due(id, now)]
        self._asked_at.update({server.id: now for server in due})
        described = await self.manager.describe(due, brief=True, patience_s=patience_s)
        cluster = self.manager.configuration.cluster_id
        for server in due:
            self._answers.pop(server.id, None)
        self._answers |= {
            id: description.identity
            for id, description in described.items()
            if description.server == id and description.cluster == cluster
        }
        return {id: self._answers[id] for id in asked if id in self._answers}

    def _is_due(self, server: ServerId, now: float) -> bool:
        return (
            self.is_near(server)
            or self.sites.get(server) in self.alarms
            or now - self._asked_at.get(server, -REMOTE_S) >= REMOTE_S
        )

    async def logs_near(self) -> list[DomainName]:
        """Return the names of the logs at near servers, as told by the servers."""
        near = [server for id, server in self.book.items() if self.is_near(id)]
        described = await self.manager.describe(near)
        return sorted(
            {
                hosted.configuration.domain
                for description in described.values()
                for hosted in description.hosted
                if hosted.configuration.dap == "chain" and not hosted.collected
            }
        )


class PatrolTools(NamedTuple):
    """Things that all patrols of a member's autopilot share."""

    lookout: Lookout
    leads: Callable[[], bool]
    settings: AutopilotSettings
    manner: MoveOptions
    """The way of moving data."""

    counted: AutopilotCounters
    notebook: Notebook
