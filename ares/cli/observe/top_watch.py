"""A watch that asks every server and consensus member for a description, again and again.

A silent server delays only its own figures. The question is `Describe` in the brief form, which
costs a server some tens of microseconds. Servers with many configurations are seldom asked for the
full form.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from ares.cli.observe.domain_survey import KnownConfigurations
from ares.cli.observe.top_figures import (
    DatedAnswer,
    ObservedCluster,
    ObservedServer,
    figures,
    is_credible,
    moved_of,
    standings_of,
)
from ares.cli.status_command import autopilot_sentence, consensus_outlook, members_of
from ares.cluster.sites import labels_of
from ares.model.configuration import Server
from ares.model.errors import NO_ANSWER, AresError, NotAuthorized
from ares.model.identity import ServerId
from ares.model.messages import ConsensusDescription
from ares.platform import tasks

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.cluster.settings import Settings

SILENT_LOOK_S = 0.8
"""Seconds without an answer after which a server counts as silent."""

ANSWERED_LOOK_S = 0.85
"""Seconds that a look waits for servers that answered before."""

WINDOW_S = 5.0
"""Seconds covered by rates and percentiles, or two intervals if longer."""

HOLDING_S = 0.005
"""Seconds for each reported configuration before the next full question: a thousandth of a server's
time.
"""


class TopWatch:
    """A watch of the cluster of ``manager``, with a look every ``interval_s``."""

    def __init__(self, manager: "Manager", settings: "Settings", interval_s: float) -> None:
        self._manager = manager
        self._settings = settings
        self._interval_s = interval_s
        self._window_s = max(WINDOW_S, 2 * interval_s) + interval_s / 2
        self._seen = ObservedCluster({}, KnownConfigurations(), {}, sites=labels_of(settings))
        self._seen.known.note(manager.configuration, manager.configuration.index == 0)
        self._servers = settings.book()
        self._members: list[ConsensusDescription] = []
        self._asking: dict[ServerId, asyncio.Task[None]] = {}
        self._asked_s: dict[ServerId, float] = {}
        self._holding_due_s: dict[ServerId, float] = {}
        self._denied: NotAuthorized | None = None

    async def looks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a look each interval, for ever, within ``ANSWERED_LOOK_S`` of the look's beginning.

        docs/operation.md describes a look under "ares-cli top".

        Raises :class:`ares.NotAuthorized` when no server has ever answered, and a server refused
        the key as unknown.
        """
        try:
            while True:
                begun_s = monotonic()
                for server in list(self._servers.values()):
                    self._begin(server.id, self._ask(server))
                self._begin(ServerId(""), self._ask_members())
                silent = {id for id, heard in self._seen.servers.items() if heard.silent_s}
                await asyncio.wait(
                    [task for id, task in self._asking.items() if id not in silent],
                    timeout=ANSWERED_LOOK_S,
                )
                if self._denied is not None and not any(
                    heard.answers for heard in self._seen.servers.values()
                ):
                    raise self._denied
                yield self._look()
                await asyncio.sleep(begun_s + self._interval_s - monotonic())
        finally:
            for task in self._asking.values():
                task.cancel()

    def _begin(self, id: ServerId, question: Coroutine[Any, Any, None]) -> None:
        """Begin the question, unless the previous question is still open."""
        if id in self._asking and not self._asking[id].done():
            question.close()
        else:
            self._asking[id] = tasks.begin(question, "question of top")

    async def _ask(self, server: Server) -> None:
        begun_s = monotonic()
        heard = self._seen.servers.setdefault(server.id, ObservedServer(server.address, deque()))
        self._asked_s.setdefault(server.id, begun_s)
        brief = begun_s < self._holding_due_s.get(server.id, 0.0)
        try:
            description = (await self._manager.describe([server], brief)).get(server.id)
        except AresError as error:
            heard.why = str(error)
            self._denied = error if isinstance(error, NotAuthorized) else None
            return
        now_s = monotonic()
        if description is None:
            heard.why = self._manager.troubles.get(server.id, NO_ANSWER)
        elif (
            description.server != server.id
            or description.cluster != self._manager.configuration.cluster_id
        ):
            heard.why = f"{description.server} of another cluster answers there"
        elif not is_credible(description):
            heard.why = "its report about itself cannot be true"
        else:
            heard.why, heard.silent_s = "", 0.0
            del self._asked_s[server.id]
            heard.take(DatedAnswer(now_s, now_s - begun_s, description), now_s - self._window_s)
            if not brief:
                heard.hosted = description.hosted
                self._holding_due_s[server.id] = now_s + HOLDING_S * len(description.hosted)
                for hosted in description.hosted:
                    self._seen.known.note_hosted(hosted)

    async def _ask_members(self) -> None:
        self._members = await self._manager.describe_members()

    def _look(self) -> dict[str, Any]:
        seen, settings = self._seen, self._settings
        now_s = seen.now_s = monotonic()
        troubles = self._manager.troubles
        for id, asked_s in self._asked_s.items():
            if now_s - asked_s >= SILENT_LOOK_S or id in troubles:
                heard = seen.servers[id]
                heard.silent_s, heard.why = max(now_s - asked_s, 0.1), troubles.get(id, heard.why)
        standings = standings_of(seen)
        targets = {
            standing.active[-1].id: standing for standing in standings if len(standing.active) > 1
        }
        seen.begun = {target: seen.begun.get(target, deque()) for target in targets}
        for target, moved in seen.begun.items():
            while moved and moved[0][0] < now_s - self._window_s:
                moved.popleft()
            moved.append((now_s, moved_of(targets[target], seen)))
        for standing in standings:
            for server in (
                server for configuration in standing.active for server in configuration.servers
            ):
                self._servers.setdefault(server.id, server)
        members = {member.member: member for member in self._members}
        return {
            "name": settings.name,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "interval_s": self._interval_s,
            **figures(seen),
            "consensus": {
                "outlook": consensus_outlook(settings, self._members, standings),
                "leader": next((member.leader for member in self._members if member.leader), None),
                "silent": {}
                if settings.etcd
                else {
                    id: troubles.get(id, NO_ANSWER)
                    for id in members_of(settings)
                    if id not in members
                },
            },
            "autopilot": autopilot_sentence(settings, self._members),
        }
