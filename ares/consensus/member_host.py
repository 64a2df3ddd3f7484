"""A consensus member as a process: requests from a Listener go to the member, and answers back.

A decision takes a round of Raft, or an election: the decision is awaited beside the loop, and many
are under way at once. A member unable to decide says so after a while (``Undecided``), and the
client asks another member.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from ares.consensus.port import Consensus, Notes
from ares.consensus.raft.member import RaftMember
from ares.metrics import AutopilotCounters
from ares.model.errors import AresError, BadInput, ConsensusUnavailable, StoreFailed
from ares.model.identity import DOMAIN_BYTES_MAX, is_domain_name
from ares.model.messages import (
    AnyMessage,
    ConsensusDescription,
    ConsensusReply,
    ConsensusRequest,
    DescribeConsensus,
    FollowReport,
    GetHint,
    Hint,
    Propose,
    Reason,
    Refused,
    RequestDone,
    SetLogLevel,
    TellFinalized,
    Undecided,
)
from ares.net.port import Listener, Sender
from ares.platform import tasks
from ares.platform.json_logs import set_level
from ares.platform.release import version
from ares.security.roles import Admission

RAFT_LOOK_S = 1.0
"""Time between two looks at Raft's thread, whose end is the end of the process."""

DECISION_PATIENCE_S = 2.0
"""Seconds for which a member tries before it gives up a decision."""

UNDER_WAY_MAX = 1_000
UNDER_WAY_OF_CLIENT_MAX = UNDER_WAY_MAX // 2
"""Most requests of a client under way: no client alone keeps other clients from deciding."""

DECISION_WORK = 64 * 1024
"""Work of a request to a member beside its content: a task, a step of Raft, a batch for the reply.
"""

_log = logging.getLogger(__name__)


class Pilot(Protocol):
    """The autopilot beside a member, as long as the member runs (ares/autopilot/pilot.py)."""

    def sentence(self) -> str:
        """Return a sentence about its present or last action."""

    def followed(self) -> tuple[FollowReport, ...]:
        """Return its decisions about the domains that follow their users."""

    @property
    def counted(self) -> AutopilotCounters:
        """Return the same in numbers."""

    async def run(self) -> None:
        """Run until cancelled."""


class ConsensusHost:
    """The server of ``consensus`` (a Raft member) for the clients of ``listener``.

    TellFinalized is acknowledged by a Hint with the same content. ``admission``: the rights of each
    client; None: all rights. ``pilot``: the autopilot beside the member, which appears in the
    member's description.
    """

    def __init__(
        self,
        consensus: Consensus,
        listener: Listener,
        admission: Admission | None = None,
        pilot: Pilot | None = None,
    ) -> None:
        self._consensus = consensus
        self._listener = listener
        self._admission = admission
        self._pilot = pilot
        self._under_way: set[asyncio.Task[None]] = set()
        self._of_client: Counter[Sender] = Counter()
        self._finishing = False

    async def start(self) -> str:
        """Begin to serve; return the address bound.

        Raises :class:`ares.BadInput` if the address cannot be bound.
        """
        return await self._listener.serve(self._handle)

    async def describe(self) -> tuple[ConsensusDescription, int, int, AutopilotCounters | None]:
        """Return the member's description and counters.

        The counters are the requests under way, the attempts to connect with an unknown key, and
        the counters of its pilot. Raises :class:`ConsensusUnavailable` when the member stopped.
        """
        [description] = await self._consensus.describe(DECISION_PATIENCE_S)
        description = replace(description, version=version())
        if self._pilot is not None:
            description = replace(
                description, autopilot=self._pilot.sentence(), followed=self._pilot.followed()
            )
        unknown_keys = self._admission.unknown_keys if self._admission is not None else 0
        return (
            description,
            len(self._under_way),
            unknown_keys,
            None if self._pilot is None else self._pilot.counted,
        )

    async def finish(self) -> None:
        """Drop new requests, as a network might, and wait for the requests under way.

        The wait takes at most as long as a member tries.
        """
        self._finishing = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=DECISION_PATIENCE_S)

    async def close(self) -> None:
        """Drop the requests under way (clients ask another member) and stop listening.

        The member stays as is. Idempotent.
        """
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._listener.close()

    def _handle(self, sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        at_once: list[AnyMessage] = []
        if self._finishing:
            deque(messages, 0)
            return at_once
        if self._admission is not None:
            messages, at_once = self._admission.admit(sender, messages)
        for message in messages:
            if not isinstance(message, ConsensusRequest):
                at_once.append(
                    Refused(
                        message.call,
                        Reason.BAD_REQUEST,
                        "this is a consensus member, not a storage server",
                    )
                )
            elif why := _out_of_bounds(message):
                at_once.append(Refused(message.call, Reason.BAD_REQUEST, why))
            elif len(self._under_way) >= UNDER_WAY_MAX:
                at_once.append(
                    Undecided(message.call, f"busy: {UNDER_WAY_MAX} requests are under way")
                )
            elif self._of_client[sender] >= UNDER_WAY_OF_CLIENT_MAX:
                at_once.append(
                    Undecided(
                        message.call,
                        f"busy: {UNDER_WAY_OF_CLIENT_MAX} requests of this client are under way",
                    )
                )
            else:
                self._listener.meter.spent += DECISION_WORK
                task = tasks.begin(self._serve(sender, message), "answer of a consensus member")
                self._under_way.add(task)
                self._of_client[sender] += 1
                task.add_done_callback(lambda task: self._end(task, sender))
        return at_once

    def _end(self, task: asyncio.Task[None], sender: Sender) -> None:
        self._under_way.discard(task)
        self._of_client[sender] -= 1
        if not self._of_client[sender]:
            del self._of_client[sender]

    async def _serve(self, sender: Sender, request: ConsensusRequest) -> None:
        reply: ConsensusReply | Refused | RequestDone
        try:
            reply = await self._answer(request)
        except ConsensusUnavailable as error:
            reply = Undecided(request.call, error.why)
        except BadInput as error:
            reply = Refused(request.call, Reason.BAD_REQUEST, str(error))
        except AresError as error:
            reply = Undecided(request.call, str(error))
        except Exception:
            _log.exception("a request failed: %r", request)
            reply = Undecided(request.call, "an internal error; its log has the details")
        self._listener.reply(sender, [reply])

    async def _answer(self, request: ConsensusRequest) -> ConsensusReply | RequestDone:
        match request:
            case Propose(call, configuration, proposer):
                return replace(
                    await self._consensus.propose(configuration, proposer, DECISION_PATIENCE_S),
                    call=call,
                )
            case TellFinalized(call, configuration):
                known = await self._consensus.tell_finalized(configuration, DECISION_PATIENCE_S)
                return Hint(call, configuration, known)
            case GetHint(call, domain):
                return Hint(call, await self._consensus.hint(domain, DECISION_PATIENCE_S))
            case DescribeConsensus(call):
                description, *_ = await self.describe()
                return replace(description, call=call)
            case SetLogLevel(call, level):
                set_level(level)
                return RequestDone(call)


def _out_of_bounds(request: ConsensusRequest) -> str:
    """Return why a member refuses a request unseen; empty for an acceptable request."""
    if isinstance(request, Propose | TellFinalized):
        try:
            request.configuration.check_bounds()
        except BadInput as error:
            return str(error)
    elif isinstance(request, GetHint) and not is_domain_name(request.domain):
        return f"a domain has a name of at most {DOMAIN_BYTES_MAX} bytes of printable text"
    return ""


class MemberParts(NamedTuple):
    """The parts of a consensus member around its Raft."""

    listener: Listener
    stop: asyncio.Event
    certified: Callable[[Consensus], Consensus] | None = None
    """Puts certificates on decisions."""

    admission: Admission | None = None
    """The rights of clients."""

    serving: Callable[[ConsensusHost], None] = lambda host: None
    """Called with the host."""

    piloted: Callable[[Consensus, Callable[[], bool], Notes], Pilot] | None = None
    """Makes the autopilot beside the member.

    Its arguments are the consensus service as offered by this member, a function that tells whether
    this member leads, and its notes.
    """


async def run_consensus_member(raft: RaftMember, parts: MemberParts) -> None:
    """Serve as a consensus member until ``stop`` is set and the requests are answered.

    Listener and Raft, which is started here, are closed afterwards. Raises :class:`ares.BadInput`
    if an address or the directory cannot be used, and :class:`StoreFailed` if Raft's thread ends by
    itself.
    """
    listener, stop, certified, admission, serving, piloted = parts
    raft.start()
    consensus = raft if certified is None else certified(raft)
    pilot = None if piloted is None else piloted(consensus, lambda: raft.leads, raft)
    host = ConsensusHost(consensus, listener, admission, pilot)
    flying = None if pilot is None else tasks.begin(pilot.run(), "autopilot")
    failure = ""

    def look() -> None:
        nonlocal failure
        failure = raft.failure
        if failure:
            stop.set()

    looking = tasks.every(RAFT_LOOK_S, look, "look at Raft's thread")
    try:
        await host.start()
        serving(host)
        await stop.wait()
        await host.finish()
    finally:
        await host.close()
        if flying is not None:
            flying.cancel()
            await asyncio.gather(flying, return_exceptions=True)
        looking.cancel()
        await raft.close()
    if failure:
        raise StoreFailed(raft.directory.path, failure)
