"""A member of the consensus service: the Consensus port over a replicated decision table.

A decision is the result of applying the replicated command at this member, never a look at the
member's table.

A command without an answer in time was lost, with a leader that died, or waits behind many commands
for a slow disk. In the first case the command has to be handed in again, which is safe, because the
first proposal wins from any proposer and however often it comes. In the second case every copy
delays all commands further, until every answer comes too late for the callers, who have given up
and asked again. A command therefore outlasts its callers, callers with the same command join the
command, and a command is handed in again after COMMAND_RESEND_S and afterwards after twice as long
each time.

A member with a lost directory must be started again only while all other members run; the member
copies their state in this case.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ares.cluster.addresses import split_address
from ares.cluster.tables import BEAT_S_DEFAULT
from ares.consensus.raft.directory import MemberDirectory
from ares.consensus.raft.replicated import NOTE_BYTES_MAX, Outcome, ReplicatedTable, crossing
from ares.model.configuration import Configuration
from ares.model.decision import Decision, require_place
from ares.model.errors import (
    NO_TROUBLES,
    BadInput,
    BadMessage,
    ConfigurationRefused,
    ConsensusUnavailable,
)
from ares.model.identity import NO_CALL, ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided

DECISION_BYTES_MAX = 64 * 1024

COMMAND_RESEND_S = 1.0
COMMAND_RESEND_S_MAX = 8.0

COMMAND_PAUSE_S = 0.05
"""Pause between a failure and the next attempt."""

KEPT_S = 10.0
"""Seconds for which a command without callers may still be joined."""

HandIn = Callable[[Callable[[Any, int], None]], None]
"""A function that hands a command in, with the callback for its answer."""

_configuration_decoder = msgspec.msgpack.Decoder(Configuration)


class _Command:
    """A command under way.

    ``outcome``: of any copy handed in. ``asked``: number of waiting callers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: asyncio.Future[Outcome] = loop.create_future()
        self.again_at_s = 0.0
        self.attempt_s = COMMAND_RESEND_S
        self.asked = 0
        self.end: asyncio.TimerHandle | None = None


class Commands:
    """The commands of a member under way, used on a single event loop."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Command] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def run(self, key: Hashable, hand_in: HandIn, timeout_s: float) -> Any:
        """Return the result of the command ``key``.

        Raises :class:`ConsensusUnavailable` after ``timeout_s``, and the exceptions of ``hand_in``.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        why = "no majority of the members confirmed it in time"
        while (now_s := loop.time()) < deadline_s:
            command = self._begun(key, hand_in, now_s)
            try:
                result, failure = await self._joined(
                    key, command, min(command.again_at_s, deadline_s) - now_s
                )
            except TimeoutError:
                continue
            if not failure:
                return result
            why = failure
            await asyncio.sleep(COMMAND_PAUSE_S)
        raise ConsensusUnavailable(why)

    def _begun(self, key: Hashable, hand_in: HandIn, now_s: float) -> _Command:
        """Return the command, handed in if its time has come."""
        loop = asyncio.get_running_loop()
        command = self._under_way.get(key) or _Command(loop)
        if now_s >= command.again_at_s:
            hand_in(crossing(loop, command.outcome))
            command.again_at_s = now_s + command.attempt_s
            command.attempt_s = min(2 * command.attempt_s, COMMAND_RESEND_S_MAX)
        if key not in self._under_way:
            self._under_way[key] = command
            command.outcome.add_done_callback(lambda _: self._forget(key, command))
        return command

    async def _joined(self, key: Hashable, command: _Command, wait_s: float) -> Outcome:
        command.asked += 1
        if command.end is not None:
            command.end.cancel()
        try:
            return await asyncio.wait_for(asyncio.shield(command.outcome), wait_s)
        finally:
            command.asked -= 1
            if not command.asked and not command.outcome.done():
                command.end = asyncio.get_running_loop().call_later(
                    KEPT_S, self._forget, key, command
                )

    def _forget(self, key: Hashable, command: _Command) -> None:
        if command.end is not None:
            command.end.cancel()
        if self._under_way.get(key) is command:
            del self._under_way[key]


class RaftMember:
    """A member, as an implementation of the Consensus port for its own process.

    ares/consensus/member_host.py serves the member to further processes. ``raft_addresses``: where
    each member, this member included, listens for the members: ``host:port``, spelled alike at
    every member; this member binds only its own address. ``beat_s``: seconds between two signs of
    life of the leader. Raises :class:`BadInput` for impossible addresses or an empty password.
    :meth:`start` comes first.
    """

    troubles = NO_TROUBLES

    def __init__(
        self,
        member: ServerId,
        raft_addresses: Mapping[ServerId, str],
        directory: Path,
        password: str,
        beat_s: float = BEAT_S_DEFAULT,
    ) -> None:
        if not password:
            raise BadInput(
                "consensus members need a password: without a password every program that reaches "
                "their port could run code there; nothing was started"
            )
        if member not in raft_addresses:
            raise BadInput(
                f"consensus member {member} is not among the members "
                f"{', '.join(raft_addresses) or '(none)'}; nothing was started"
            )
        self._names = {address: name for name, address in raft_addresses.items()}
        if len(self._names) < len(raft_addresses):
            raise BadInput(
                f"two consensus members share an address: {', '.join(raft_addresses.values())}; "
                "nothing was started"
            )
        for address, name in self._names.items():
            try:
                split_address(address)
            except BadInput as error:
                raise BadInput(
                    f"the address of consensus member {name}: {error}; nothing was started"
                ) from error
        self.member = member
        self._address = raft_addresses[member]
        self.directory = MemberDirectory(directory)
        self._password = password
        self._beat_s = beat_s
        self._machine: ReplicatedTable | None = None
        self._commands = Commands()

    def start(self) -> None:
        """Open the directory, bind, join the other members.

        Call this in the thread of the event loop; the end of the loop also ends the member. Raises
        :class:`BadInput` for an unusable directory or address.
        """
        self.directory.lock(self.member)
        try:
            others = [address for address in self._names if address != self._address]
            self._machine = ReplicatedTable.open(
                self._address, others, self.directory, self._password, self._beat_s
            )
        except BaseException:
            self.directory.unlock()
            raise

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        """Propose as in the port.

        Raises :class:`ConfigurationRefused`, too, and :class:`BadMessage` for a decision of a later
        release unreadable by this one.
        """
        require_place(configuration)
        place = (str(configuration.domain), configuration.index)
        decision: Decision[bytes] = await self._command(
            timeout_s, "decide", *place, _encode(configuration), int(proposer)
        )
        return Decided(NO_CALL, _decode(decision.content), decision.client)

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> bool:
        """Keep a hint as in the port. Raises :class:`ConfigurationRefused`, too."""
        require_place(configuration)
        await self._command(
            timeout_s,
            "tell_finalized",
            str(configuration.domain),
            configuration.index,
            _encode(configuration),
        )
        return True

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        """Return this member's hint, perhaps not the latest.

        Unavailable until the member has caught up with a leader once since its start.
        """
        machine = self._running()
        if not machine.isReady():
            raise ConsensusUnavailable(
                "it has not caught up with a leader since its start: is a majority of the members "
                "running?"
            )
        content = machine.table.hint(domain)
        return None if content is None else _decode(content)

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """Return the self-description of this member alone.

        A leader without a connection to this member does not count: alone, a follower never looks
        for another.
        """
        machine = self._running()
        leader = machine._getLeader()
        known = leader is not None and (
            leader == machine.selfNode or machine.isNodeConnected(leader)
        )
        name = self._names[leader.id] if known else ""
        reachable = 1 + sum(machine.isNodeConnected(node) for node in machine.otherNodes)
        return [
            ConsensusDescription(
                NO_CALL,
                self.member,
                name,
                machine._getTerm(),
                machine.table.count,
                reachable,
                len(self._names),
            )
        ]

    @property
    def leads(self) -> bool:
        """Return whether this member is the leader, by its own knowledge.

        A leader cut off from the members learns of the loss after a moment.
        """
        machine = self._machine
        return machine is not None and machine.tick_thread_alive() and bool(machine._isLeader())

    @property
    def failure(self) -> str:
        """Return why this member stopped by itself; empty while it works."""
        machine = self._machine
        if machine is None or machine.tick_thread_alive():
            return ""
        return "Raft's thread has ended, and its log has the details"

    def send_note(self, note: bytes) -> None:
        """Send a note to each other member now, and to those that connect later; see the port."""
        machine = self._machine
        if machine is not None and len(note) <= NOTE_BYTES_MAX:
            machine.note = machine.note[0] + 1, note

    def received_notes(self) -> list[tuple[bytes, float]]:
        """Return the last note of each other member, with its age; see the port."""
        noted = {} if self._machine is None else self._machine.noted.copy()
        return [(note, time.monotonic() - at_s) for note, at_s in noted.values()]

    async def close(self) -> None:
        """Leave the other members, flush the journal, unlock the directory; idempotent."""
        machine, self._machine = self._machine, None
        if machine is not None:
            await asyncio.to_thread(machine.destroy_synchronous)
            self.directory.unlock()

    def _running(self) -> ReplicatedTable:
        if self._machine is None:
            raise ConsensusUnavailable(f"member {self.member} is not running")
        if not self._machine.tick_thread_alive():
            raise ConsensusUnavailable(
                f"member {self.member} stopped because its disk failed: its log has the details"
            )
        return self._machine

    async def _command(self, timeout_s: float, name: str, *arguments: str | int | bytes) -> Any:
        """Return the result of the replicated command ``name``, identified by its arguments."""
        self._running()
        return await self._commands.run(
            (name, *arguments),
            lambda callback: getattr(self._running(), name)(*arguments, callback=callback),
            timeout_s,
        )


def _encode(configuration: Configuration) -> bytes:
    content = msgspec.msgpack.encode(configuration)
    if len(content) > DECISION_BYTES_MAX:
        raise ConfigurationRefused(
            f"the description of a configuration takes at most {DECISION_BYTES_MAX} bytes, "
            f"not {len(content)}"
        )
    return content


def _decode(content: bytes) -> Configuration:
    try:
        return _configuration_decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise BadMessage(
            f"a decided configuration that this release cannot read ({error}): use the same "
            "release of ares everywhere"
        ) from error
