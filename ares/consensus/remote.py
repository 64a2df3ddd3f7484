"""The consensus service for clients: over a transport, a single member at a time.

Any member can answer, because followers forward to the leader. A client asks the member that
answered last; if this member stays silent or cannot decide, the next, and so on until the deadline.
The same request may reach several members in this way: the first proposal wins, hence no place is
decided twice, and a late answer from an earlier member counts as well.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from ares.model.configuration import Configuration
from ares.model.decision import require_place
from ares.model.errors import NO_ANSWER, ConsensusUnavailable, NotAuthorized
from ares.model.identity import CallId, ClientId, DomainName, ServerId
from ares.model.messages import (
    AnyMessage,
    ConsensusDescription,
    ConsensusRequest,
    Decided,
    DescribeConsensus,
    GetHint,
    Hint,
    Propose,
    Reason,
    Refused,
    TellFinalized,
    Undecided,
)
from ares.net.port import Connections

MEMBER_SILENCE_S = 0.7
"""Seconds after which a silent member is passed over for the next."""

MEMBER_PAUSE_S = 0.1
"""Pause between a member's "cannot decide" and the next member: an election takes a while."""

Answer = TypeVar("Answer", Decided, Hint)
Mailbox = asyncio.Queue[tuple[ServerId, AnyMessage]]


class RemoteConsensus:
    """The Consensus port (ares/consensus/port.py) over ``connections``, made on the event loop.

    The object opens and closes the connections. ``members``: ids, and the addresses at which they
    serve clients; an empty map is allowed, and every method except :meth:`describe` raises
    :class:`ConsensusUnavailable` in this case.
    """

    def __init__(self, connections: Connections, members: Mapping[ServerId, str]) -> None:
        self._connections = connections
        self._order = list(members)
        self._calls = map(CallId, itertools.count(1))
        self._mailboxes: dict[CallId, Mailbox] = {}
        connections.open(self._deliver)
        for member, address in members.items():
            connections.learn(member, address)

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        """Propose as in the port. Raises :class:`ares.ConfigurationRefused`, too.

        After a failure the proposal may still be decided at any time.
        """
        require_place(configuration)
        try:
            return await self._ask(
                Propose(next(self._calls), configuration, proposer), Decided, timeout_s
            )
        except (ConsensusUnavailable, NotAuthorized) as error:
            error.may_have_taken_effect = bool(self._order)
            raise

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        return (await self._ask(GetHint(next(self._calls), domain), Hint, timeout_s)).configuration

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> bool:
        """Keep a hint as in the port. Raises :class:`ares.ConfigurationRefused`, too."""
        require_place(configuration)
        told = TellFinalized(next(self._calls), configuration)
        return (await self._ask(told, Hint, timeout_s)).side_by_side

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        return self._connections.troubles

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """Return the self-description of each member, in the order of their ids.

        Waits ``timeout_s`` only if a member is silent.
        """
        request = DescribeConsensus(next(self._calls))
        silent = set(self._order)
        descriptions: list[ConsensusDescription] = []
        with self._mailbox(request) as mailbox, contextlib.suppress(TimeoutError):
            for member in self._order:
                self._connections.post(member, [request])
            async with asyncio.timeout(timeout_s):
                while silent:
                    member, message = await mailbox.get()
                    if member in silent and isinstance(message, ConsensusDescription):
                        descriptions.append(message)
                    silent.discard(member)
        return sorted(descriptions, key=lambda description: description.member)

    async def close(self) -> None:
        """Close the connections; requests under way run into their timeout. Idempotent."""
        await self._connections.close()

    def _deliver(self, member: ServerId, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, Refused) and not message.call:
                # of any request: the member could not read it, or does not know the client
                for waiting in self._mailboxes.values():
                    waiting.put_nowait((member, message))
            mailbox = self._mailboxes.get(message.call)
            if mailbox is not None:
                mailbox.put_nowait((member, message))

    @contextlib.contextmanager
    def _mailbox(self, request: ConsensusRequest) -> Iterator[Mailbox]:
        """Yield the mailbox for replies to ``request``, from any member."""
        mailbox = self._mailboxes[request.call] = asyncio.Queue()
        try:
            yield mailbox
        finally:
            del self._mailboxes[request.call]

    async def _ask(
        self, request: ConsensusRequest, expected: type[Answer], timeout_s: float
    ) -> Answer:
        if not self._order:
            raise ConsensusUnavailable("the cluster file names no consensus members")
        refusals: dict[ServerId, str] = {}
        denied: dict[ServerId, bool] = {}
        with self._mailbox(request) as mailbox, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for member in itertools.cycle(tuple(self._order)):
                    first = member not in refusals
                    refusals.setdefault(member, "")
                    self._connections.post(member, [request])
                    answer = await self._listen(mailbox, member, expected, refusals, denied, first)
                    if answer is not None:
                        return answer
                    if len(denied) == len(self._order):
                        raise NotAuthorized(
                            f"{member}: {refusals[member]}",
                            "asked the consensus service",
                            untouched=all(denied.values()),
                        )
        refusals = {
            member: why or self.troubles.get(member, NO_ANSWER) for member, why in refusals.items()
        }
        words = (
            f"{member} ({refusals.get(member, 'not asked')})" for member in sorted(self._order)
        )
        raise ConsensusUnavailable(f"within {timeout_s:g} s its members said: {', '.join(words)}")

    async def _listen(
        self,
        mailbox: Mailbox,
        asked: ServerId,
        expected: type[Answer],
        refusals: dict[ServerId, str],
        denied: dict[ServerId, bool],
        first: bool,
    ) -> Answer | None:
        """Return the answer of any member, or None without an answer from ``asked``.

        In the second case ``asked`` was silent for too long, cannot decide, or refuses this client.
        ``denied``: members which refuse this client; True for members which refused this request
        when it was put to them ``first``: the request had no effect on them.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MEMBER_SILENCE_S):
                while True:
                    member, message = await mailbox.get()
                    if isinstance(message, expected):
                        self._order.sort(key=lambda other: other != member)
                        return message
                    refusals[member] = _refusal(message)
                    if isinstance(message, Refused) and message.reason is Reason.NOT_AUTHORIZED:
                        denied[member] = denied.get(
                            member, first and member == asked and message.call > 0
                        )
                    if member == asked:
                        await asyncio.sleep(MEMBER_PAUSE_S)
                        return None
        return None


def _refusal(message: AnyMessage) -> str:
    match message:
        case Undecided(_, why):
            return why
        case Refused(_, _, detail):
            return detail
        case _:
            return f"an answer that does not fit, {type(message).__name__}"
