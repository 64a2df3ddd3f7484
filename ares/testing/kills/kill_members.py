"""Consensus members killed by the thousand while clients propose.

An index never has two decisions, whichever member is asked.
"""

import asyncio
import itertools
import time
from contextlib import suppress
from random import Random

from msgspec import Struct

from ares.client.connect import connections_of
from ares.cluster.settings import Settings
from ares.consensus.remote import RemoteConsensus
from ares.model.configuration import Configuration
from ares.model.errors import ConsensusUnavailable
from ares.model.identity import ClientId, DomainName, ServerId
from ares.testing.kills.storm import ForkedProcesses, Storm, StormCounts, StormLimits, end
from ares.testing.socket_runs import not_over_sockets

PROPOSERS = 4
DOMAINS = 3
AT_ONCE_S = (0.0, 0.1)
AT_ONCE_SHARE = 0.4
"""The share of rounds that begin at most ``AT_ONCE_S`` after the last round.

Further rounds wait for decisions, for which a leader must have been elected.
"""

DECISIONS_MAX = 20
MEMBERS_STANDSTILL_S = 5.0
PROPOSAL_PATIENCE_S = 3.0
AUDIT_S = 60.0
ASKED_AT_ONCE = 50

Place = tuple[DomainName, int]


class MembersReport(Struct, frozen=True):
    """The outcome of a run.

    ``proposals``: answered proposals; each answer told the decision for the place. ``checked``:
    decisions asked for again, of a single member each time.
    """

    seconds: float
    toll: StormCounts
    proposals: int
    unanswered: int
    decisions: int
    checked: int
    findings: list[str]


class ProposerDecisions:
    """The decisions in proposers' answers; ``findings``: contradictions among them."""

    def __init__(self) -> None:
        self.known: dict[Place, Configuration] = {}
        self.findings: list[str] = []
        self.proposals = 0
        self._wanted = 0
        self._enough = asyncio.Event()

    def hear(self, place: Place, decided: Configuration, proposer: str) -> None:
        """Note an answer to ``proposer`` (a proposer or member): ``decided`` has this place."""
        self.proposals += 1
        before = self.known.setdefault(place, decided)
        if before.id != decided.id or place != (decided.domain, decided.index):
            self.findings.append(
                f"{place[0]} {place[1]} was decided as {before.describe()}, and {proposer} was "
                f"told {decided.describe()}"
            )
        if len(self.known) >= self._wanted:
            self._enough.set()

    async def more(self, count: int) -> None:
        """Wait until ``count`` more places are decided; a single task may wait at a time."""
        self._wanted = len(self.known) + count
        self._enough.clear()
        await self._enough.wait()

    def next_index(self, domain: DomainName) -> int:
        """Return the first place of ``domain`` without a known decision."""
        return next(index for index in itertools.count(1) if (domain, index) not in self.known)


class MembersRun:
    """A run on the cluster of ``settings``, set up and not started, without its storage servers."""

    def __init__(
        self, settings: Settings, limits: StormLimits, seed: int, compact_after: int
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._chance = Random(f"{seed} kills of members")
        self._processes = ForkedProcesses(settings, compact_after)
        self._decisions = ProposerDecisions()
        self._unanswered = 0
        self._checked = 0
        self._over_sockets = set[ServerId]()

    async def perform(self) -> MembersReport:
        """Perform the whole run. An interruption leaves no process running."""
        begin = time.monotonic()
        members = list(self._settings.members)
        storm = Storm(self._processes, members, self._chance, self._rest, self._audit_some)
        try:
            for member in members:
                self._processes.start(member)
            proposers = [
                asyncio.create_task(self._keep_proposing(number)) for number in range(PROPOSERS)
            ]
            try:
                await storm.rage(self._limits)
            finally:
                await end(proposers)
            proposals = self._decisions.proposals
            lost = [
                finding
                for member in members
                for finding in await self._audit(member, list(self._decisions.known))
            ]
            lost += not_over_sockets(self._settings, members, self._over_sockets)
        finally:
            await self._processes.close()
        findings = [*storm.findings, *self._decisions.findings, *lost]
        seconds = round(time.monotonic() - begin, 1)
        return MembersReport(
            seconds,
            storm.toll,
            proposals,
            self._unanswered,
            len(self._decisions.known),
            self._checked,
            findings,
        )

    async def _rest(self) -> None:
        if self._chance.random() < AT_ONCE_SHARE:
            await asyncio.sleep(self._chance.uniform(*AT_ONCE_S))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(MEMBERS_STANDSTILL_S):
                await self._decisions.more(self._chance.randint(1, DECISIONS_MAX))

    # -- proposing ---------------------------------------------------------------------------------

    async def _keep_proposing(self, number: int) -> None:
        """Propose as a separate client; proposers want the same places, with different choices."""
        consensus = RemoteConsensus(
            connections_of(self._settings), self._settings.member_addresses()
        )
        chance = Random(f"{self._chance.random()}")
        try:
            while True:
                domain = DomainName(f"domain{chance.randrange(DOMAINS)}")
                place = domain, self._decisions.next_index(domain)
                try:
                    decided = await consensus.propose(
                        self._anything(place, chance),
                        ClientId(chance.randrange(1 << 32)),
                        PROPOSAL_PATIENCE_S,
                    )
                except ConsensusUnavailable:
                    self._unanswered += 1
                else:
                    self._decisions.hear(place, decided.configuration, f"proposer {number}")
        finally:
            await consensus.close()

    def _anything(self, place: Place, chance: Random) -> Configuration:
        """Return a configuration for ``place`` that further proposers are unlikely to choose."""
        servers = chance.sample(list(self._settings.servers.values()), 3)
        named = Configuration.ec([server.id for server in servers], 1, chance.randint(1, 1000))
        return named.at(*place, self._settings.initial.id)

    # -- asking each member ------------------------------------------------------------------------

    async def _audit_some(self, member: ServerId) -> list[str]:
        """Check only that the member runs: while more members are dead, no answer may come."""
        await asyncio.sleep(0)
        return (
            [f"it does not start: {self._processes.last_words(member)}"]
            if self._processes.ended(member)
            else []
        )

    async def _audit(self, member: ServerId, places: list[Place]) -> list[str]:
        """Propose a new configuration for every place, to this member alone.

        The member must answer with the decision applied before.
        """
        connections = connections_of(self._settings)
        consensus = RemoteConsensus(connections, {member: self._settings.members[member].address})
        waiting, silent = iter(places), []

        async def ask() -> None:
            for place in waiting:
                try:
                    decided = await consensus.propose(
                        self._anything(place, self._chance), ClientId(1), AUDIT_S
                    )
                except ConsensusUnavailable as error:
                    silent.append(f"{member} does not answer, although all members run: {error}")
                    return
                self._checked += 1
                self._decisions.hear(place, decided.configuration, member)

        await asyncio.gather(*(ask() for _ in range(ASKED_AT_ONCE)))
        self._over_sockets |= connections.over_sockets
        await consensus.close()
        return silent
