"""The consensus service as clients reach it: over a transport, one member at a time.

Any member can answer, because followers forward to the leader. A client asks the one that answered last; if that stays silent or cannot decide, the
next, and so on until the deadline. The same request may so reach several members: the first proposal wins, so nothing is decided twice, and an answer
that comes late from an earlier member counts as well.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from ares.model.configuration import Configuration
from ares.model.decision import require_place
from ares.model.errors import ConsensusUnavailable, NotAuthorized
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
from ares.model.quorum import NO_ANSWER
from ares.net.port import Connections

SILENCE_S = 0.7
"""A member that says nothing for so long is passed over for the next."""

PAUSE_S = 0.1
"""Between a member's "cannot decide" and asking the next: an election takes a while."""

Answer = TypeVar("Answer", Decided, Hint)
Mailbox = asyncio.Queue[tuple[ServerId, AnyMessage]]


class RemoteConsensus:
    """The Consensus port (ares/consensus/port.py) over ``connections``, which it opens and closes; make it on the event loop.

    ``members``: their ids and the addresses at which they serve clients; none is allowed, and then every method but :meth:`describe` raises
    :class:`ConsensusUnavailable`.
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
        """See the port. Also raises :class:`ares.ConfigurationRefused`. After a failure the proposal may still be decided at any time."""
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

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> None:
        """See the port. Also raises :class:`ares.ConfigurationRefused`."""
        require_place(configuration)
        await self._ask(TellFinalized(next(self._calls), configuration), Hint, timeout_s)

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        return self._connections.troubles

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """What each member says of itself, in the order of their ids; waits ``timeout_s`` only if one is silent."""
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
        """Close the connections; what is still under way runs into its timeout. Idempotent."""
        await self._connections.close()

    def _deliver(self, member: ServerId, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            if (
                isinstance(message, Refused) and not message.call
            ):  # of any request: the member could not read it, or does not know the client
                for waiting in self._mailboxes.values():
                    waiting.put_nowait((member, message))
            mailbox = self._mailboxes.get(message.call)
            if mailbox is not None:
                mailbox.put_nowait((member, message))

    @contextlib.contextmanager
    def _mailbox(self, request: ConsensusRequest) -> Iterator[Mailbox]:
        """Where replies to ``request`` arrive, whichever member sends them."""
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
        said: dict[ServerId, str] = {}
        denied: dict[ServerId, bool] = {}
        with self._mailbox(request) as mailbox, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for member in itertools.cycle(tuple(self._order)):
                    first = member not in said
                    said.setdefault(member, "")
                    self._connections.post(member, [request])
                    answer = await self._listen(mailbox, member, expected, said, denied, first)
                    if answer is not None:
                        return answer
                    if len(denied) == len(self._order):
                        raise NotAuthorized(
                            f"{member}: {said[member]}",
                            "asked the consensus service",
                            untouched=all(denied.values()),
                        )
        said = {member: why or self.troubles.get(member, NO_ANSWER) for member, why in said.items()}
        words = (f"{member} ({said.get(member, 'not asked')})" for member in sorted(self._order))
        raise ConsensusUnavailable(f"within {timeout_s:g} s its members said: {', '.join(words)}")

    async def _listen(
        self,
        mailbox: Mailbox,
        asked: ServerId,
        expected: type[Answer],
        said: dict[ServerId, str],
        denied: dict[ServerId, bool],
        first: bool,
    ) -> Answer | None:
        """The answer of any member; None when ``asked`` was silent for too long, cannot decide or will not for this client.

        ``denied``: members that refuse this client; True for those that refused this request when it was put to them ``first``: they did nothing.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                while True:
                    member, message = await mailbox.get()
                    if isinstance(message, expected):
                        self._order.sort(key=lambda other: other != member)
                        return message
                    said[member] = _refusal(message)
                    if isinstance(message, Refused) and message.reason is Reason.NOT_AUTHORIZED:
                        denied[member] = denied.get(
                            member, first and member == asked and message.call > 0
                        )
                    if member == asked:
                        await asyncio.sleep(PAUSE_S)
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
