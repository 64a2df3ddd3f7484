"""A consensus member as a process: clients' requests come from a Listener and are put to the member, its answers go back when it has them.

A decision takes a round of Raft, or an election, so it is awaited beside the loop; many are under way at once. A member that cannot decide says so
after a while (``Undecided``), and the client asks another.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ares.errors import AresError, ConsensusUnavailable
from ares.identity import ServerId
from ares.messages import (
    AnyMessage,
    ConsensusReply,
    ConsensusRequest,
    DescribeConsensus,
    GetHint,
    Hint,
    Propose,
    Reason,
    Refused,
    TellFinalized,
    Undecided,
)
from ares.runtime.ports import Consensus, Listener, Sender
from ares.runtime.raft_member import RaftMember
from ares.server.admission import Admission

PATIENCE_S = 2.0
"""How long a member tries before it says that it cannot decide."""

UNDER_WAY_MAX = 1_000

_log = logging.getLogger(__name__)


class ConsensusHost:
    """Serves ``consensus`` (a Raft member) to the clients of ``listener``; TellFinalized is acknowledged by a Hint of what was told.

    ``admission``: what each client may ask; None: everything.
    """

    def __init__(self, consensus: Consensus, listener: Listener, admission: Admission | None = None) -> None:
        self._consensus = consensus
        self._listener = listener
        self._admission = admission
        self._under_way: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Begin to serve; returns the address bound. Raises :class:`ares.errors.BadInput` if it cannot be bound."""
        return await self._listener.serve(self._handle)

    async def close(self) -> None:
        """Drop what is under way (clients ask another member) and stop listening; the member stays as it is. Idempotent."""
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._listener.close()

    def _handle(self, sender: Sender, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        at_once: list[AnyMessage] = []
        if self._admission is not None:
            messages, at_once = self._admission.admit(sender, messages)
        for message in messages:
            if not isinstance(message, ConsensusRequest):
                at_once.append(Refused(message.call, Reason.BAD_REQUEST, "this is a consensus member, not a storage server"))
            elif len(self._under_way) >= UNDER_WAY_MAX:
                at_once.append(Undecided(message.call, f"busy: {UNDER_WAY_MAX} requests are under way"))
            else:
                task = asyncio.get_running_loop().create_task(self._serve(sender, message))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        return at_once

    async def _serve(self, sender: Sender, request: ConsensusRequest) -> None:
        try:
            reply = await self._answer(request)
        except ConsensusUnavailable as error:
            reply = Undecided(request.call, error.why)
        except AresError as error:
            reply = Undecided(request.call, str(error))
        except Exception:
            _log.exception("a request failed: %r", request)
            reply = Undecided(request.call, "an internal error; its log has the details")
        self._listener.reply(sender, [reply])

    async def _answer(self, request: ConsensusRequest) -> ConsensusReply:
        match request:
            case Propose(call, configuration, proposer):
                return replace(await self._consensus.propose(configuration, proposer, PATIENCE_S), call=call)
            case TellFinalized(call, configuration):
                await self._consensus.tell_finalized(configuration, PATIENCE_S)
                return Hint(call, configuration)
            case GetHint(call, domain):
                return Hint(call, await self._consensus.hint(domain, PATIENCE_S))
            case DescribeConsensus(call):
                [description] = await self._consensus.describe(PATIENCE_S)
                return replace(description, call=call)


async def run_consensus_member(
    member: ServerId,
    raft_addresses: Mapping[ServerId, str],
    listener: Listener,
    directory: Path,
    password: str,
    stop: asyncio.Event,
    certified: Callable[[Consensus], Consensus] | None = None,
    admission: Admission | None = None,
) -> None:
    """Be the consensus member ``member`` until ``stop`` is set; returns when listener, Raft and directory are closed.

    ``raft_addresses``: where all members, this one included, listen for each other. ``certified`` puts certificates on decisions,
    ``admission`` says who may ask. Raises :class:`ares.errors.BadInput` if an address, the password or the directory cannot be used.
    """
    raft = RaftMember(member, raft_addresses, directory, password)
    raft.start()
    host = ConsensusHost(raft if certified is None else certified(raft), listener, admission)
    try:
        await host.start()
        await stop.wait()
    finally:
        await host.close()
        await raft.close()
