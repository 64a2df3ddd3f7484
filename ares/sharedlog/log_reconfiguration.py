"""The change of a log's chain: seal the last chain, decide the next chain, and finalize it.

See docs/log.md, Reconfiguration.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ares.engine.effects import Announce, Gather, Operation, Pause, Report
from ares.engine.phases import RECONFIGURE, phase
from ares.model.configuration import CHAIN_RULE, Configuration, Status, latest
from ares.model.errors import (
    ConfigurationRefused,
    ConsensusUnavailable,
    Superseded,
    Unavailable,
    Uncertain,
)
from ares.model.identity import NO_DOMAIN, ServerId
from ares.model.log_messages import Look, LookDone, Seal, SealDone, Stand, Stood
from ares.model.messages import Describe, Description
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import agree, announce_successor, gc_config, mark_finalized
from ares.reconfig.traversal import detour, read_config
from ares.sharedlog.log_operations import CHAIN_ASK_S, LogOperations

SEAL_PATIENCE_S = 0.05
"""Time that a seal waits for more answers than a majority.

The more nodes are sealed, the fewer appends have to be sent again.
"""

INSPECT_PATIENCE_S = 0.3
"""Time that an inspection waits for nodes beyond a majority."""

FULL_DISK = (
    "its disk is full, and entries have to pass it: give it space, or `ares-cli reconfig` without "
    "it"
)

EARLY_RELEASE = (
    "a release before 0.3.0 does not understand chains that commit side by side; upgrade all "
    "servers, members of consensus and clients first"
)
UNCHANGED = "nothing was changed"

STAND_AGAIN_S = 0.1
PREPARE_S = 3.0
"""Time for the servers of a new chain to say that they are up, before a node is sealed."""


def decided_end(lengths: Sequence[int], quorum: int) -> int:
    """Return `end`: the smallest length in a majority of sealed nodes.

    Of several majorities, the majority with the largest result counts.
    """
    return sorted(lengths, reverse=True)[quorum - 1]


class LogReconfiguration:
    """Steps of a log's reconfiguration. ``operations``: the same client's, on the entries."""

    def __init__(self, operations: LogOperations) -> None:
        self.view = operations.view
        self._operations = operations

    @phase(RECONFIGURE)
    def reconfigure(self, wished: Configuration) -> Operation[Configuration]:
        """Replace the last chain: seal, decide the next chain, point to it, and finalize it.

        The next chain is finalized when all of its nodes have all entries (docs/log.md,
        Reconfiguration).

        Returns the decided chain of the wished servers. If consensus decided the proposal of
        another client, the operation tries for the chain after the decided chain: the decided chain
        may name a dead server and never be finalized. A pending chain with the wished servers, left
        by another client, is finished.
        """
        check_chain(wished)
        view = self.view
        yield Report(Progress("read-config"))
        yield from read_config(view)
        target = view.sequence.last_known
        if target == view.sequence.last_finalized:
            target = yield from self._replace(wished)
        while (target.servers, target.backend) != (wished.servers, CHAIN_RULE):
            target = yield from self._replace(wished)
        try:
            yield from self.finish_move(target)
        except Uncertain as error:
            error.may_have_taken_effect = True
            error.advice = (
                f"chain {target.index} is decided: nothing is lost, appends go to "
                f"{', '.join(target.server_ids)} and wait while one of them does not answer; older "
                "entries still move there: reconfigure again to see the end"
            )
            raise
        return target

    def inspect(self) -> Operation[bool]:
        """Learn of later chains, and return whether appends stand still.

        Appends stand still if a node of the last chain is sealed and no node names a successor.
        """
        chain = self.view.sequence.last_known
        try:
            answers = yield Gather(
                chain,
                Look,
                "inspect",
                settled=lambda _: False,
                patience_s=lambda *_: INSPECT_PATIENCE_S,
                arguments=(chain.id,),
                reply=LookDone,
            )
        except Superseded as superseded:
            detour(self.view, superseded)
            return False
        yield from self._operations.learn(
            chain, latest([seen.successor for seen in answers.values()])
        )
        return self.view.sequence.last_known == chain and any(
            seen.sealed for seen in answers.values()
        )

    def full_servers(self) -> Operation[dict[ServerId, str]]:
        """Return the servers of the last chain with full disks: the head does not name them."""
        roster = self.view.sequence.last_known.at(NO_DOMAIN, 0)
        try:
            answers = yield Gather(
                roster,
                Describe,
                "whose disk is full",
                needed=1,
                settled=lambda _: False,
                patience_s=lambda *_: INSPECT_PATIENCE_S,
                arguments=(True,),
                reply=Description,
            )
        except Unavailable:
            return {}
        return {server: FULL_DISK for server, described in answers.items() if _is_full(described)}

    def replace_chain(
        self, last: Configuration, wished: Configuration
    ) -> Operation[Configuration | None]:
        """Return the chain after ``last``, or None if ``last`` is no longer the last chain.

        Appends go to the new chain; older entries have not moved yet. In the case of None the log
        stays as it is: a change made by another client is never undone. Raises the errors of
        :meth:`reconfigure`.
        """
        yield from read_config(self.view)
        return (yield from self._replace(wished)) if self.view.sequence.last_known == last else None

    def finish_move(self, target: Configuration) -> Operation[None]:
        """Make sure that ``target``, a decided chain, is finalized."""
        yield from announce_successor(self.view, target)
        yield from self._finalize(target)

    def _replace(self, wished: Configuration) -> Operation[Configuration]:
        """Return the chain after the last chain known.

        A majority of the last chain knows the returned chain.
        """
        yield from self._prepare(wished)
        try:
            target = yield from self._decide(wished)
        except Superseded as superseded:
            return detour(self.view, superseded)
        yield from announce_successor(self.view, target)
        return target

    def _prepare(self, wished: Configuration) -> Operation[None]:
        """Check that consensus and every server of the new chain answer, and know the rule.

        The servers of a last chain with the earlier rule must know the new one, too, as far as they
        answer. The check comes first because a seal cannot be undone.
        """
        yield Report(Progress("prepare"))
        try:
            known: bool = yield Announce(self.view.sequence.last_finalized, must=True)
        except ConsensusUnavailable as error:
            raise ConsensusUnavailable(f"{error.why}, so the log was not sealed") from error
        if not known:
            raise ConfigurationRefused(f"a member of consensus: {EARLY_RELEASE}; {UNCHANGED}")
        last = self.view.sequence.last_known
        if last.backend != CHAIN_RULE:
            answers = yield from self._described(last, last.quorum_size)
            members = {server.id: server.identity for server in last.servers}
            refuse_early_servers(
                {id: found for id, found in answers.items() if found.identity == members[id]}
            )
        answers = yield from self._described(wished, wished.n)
        refuse_early_servers(answers)
        wrong = [
            server.id
            for server in wished.servers
            if answers[server.id].identity != server.identity or _is_full(answers[server.id])
        ]
        if wrong:
            raise ConfigurationRefused(
                f"{', '.join(wrong)}: another identity, or no room; {UNCHANGED}"
            )

    def _described(self, chain: Configuration, needed: int) -> Operation[dict[ServerId, Any]]:
        """Return the descriptions of the chain's servers: ``needed``, and more that answer soon."""
        return (  # type: ignore[no-any-return]
            yield Gather(
                chain.at(NO_DOMAIN, 0),
                Describe,
                "are you up",
                needed=needed,
                settled=lambda answers: len(answers) == chain.n,
                patience_s=lambda *_: INSPECT_PATIENCE_S,
                give_up_s=PREPARE_S,
                arguments=(True,),
                reply=Description,
            )
        )

    def _decide(self, wished: Configuration) -> Operation[Configuration]:
        """Seal the last chain, and return the decided next chain.

        The proposal is for the index after the sealed chain and for no other index. A successor
        named by a node counts as decided.
        """
        last = self.view.sequence.last_known

        def settled(answers: Any) -> bool:
            return any(done.successor is not None for done in answers.values())

        needed = self._majority(last)
        yield Report(Progress("seal"))
        answers = yield Gather(
            last,
            Seal,
            "seal",
            needed=needed,
            settled=settled,
            patience_s=lambda *_: SEAL_PATIENCE_S,
            arguments=(last.id,),
            reply=SealDone,
        )
        named = latest([done.successor for done in answers.values()])
        if named is not None:
            yield from self._operations.learn(last, named)
            return self.view.sequence.last_known
        end = self._end_of(last, answers.values())
        chain = replace(Configuration.chain(wished.servers, allow_no_faults=True), start=end)
        proposal = chain.at(last.domain, last.index + 1, last.cluster_id)
        return (yield from agree(proposal, check_chain)).configuration

    def _end_of(self, chain: Configuration, answers: Iterable[SealDone]) -> int:
        return decided_end([done.length for done in answers], self._majority(chain))

    def _majority(self, chain: Configuration) -> int:
        """Return the number of nodes to be sealed before the next chain is proposed."""
        return chain.quorum_size

    def _finalize(self, target: Configuration) -> Operation[None]:
        """Finalize ``target`` when all nodes have all entries.

        Return without an effect when a later chain is finalized.
        """
        sequence, before = self.view.sequence, -1
        while sequence.last_finalized.index < target.index:
            try:
                answers = yield Gather(
                    target,
                    Stand,
                    "wait for the move",
                    needed=self._needed(target),
                    give_up_s=CHAIN_ASK_S,
                    arguments=(target.id,),
                    reply=Stood,
                )
            except Superseded as superseded:
                detour(self.view, superseded)
                continue
            except Unavailable as error:
                if not error.needed:
                    raise
                yield from read_config(self.view)
                yield from self._operations.pause()  # and no progress
                continue
            named = latest([stood.successor for stood in answers.values()])
            yield from self._operations.learn(target, named)
            reached = [stood.upto for stood in answers.values()]
            yield Report(Progress("fetch", min(reached), 0, target.start))
            if all(stood.complete for stood in list(answers.values())[: self._needed(target)]):
                yield from announce_successor(self.view, target, Status.FINALIZED)
                yield from mark_finalized(sequence.last_finalized)
                yield Announce(sequence.last_finalized)
                yield from gc_config(self.view)
            else:
                yield Pause(STAND_AGAIN_S, retry=sum(reached) <= before)
            before = sum(reached)

    def _needed(self, target: Configuration) -> int:
        """Return the number of nodes that must have all entries: all nodes."""
        return target.n


def check_chain(configuration: Configuration) -> None:
    """Check for a chain. Raises :class:`ConfigurationRefused` for any other configuration."""
    if configuration.dap != "chain":
        raise ConfigurationRefused(
            f"{configuration.describe()}: the configurations of a log are chains; nothing was "
            "changed"
        )


def refuse_early_servers(described: Mapping[ServerId, Description]) -> None:
    """Raise :class:`ConfigurationRefused` if a server cannot read chains of this release."""
    early = [
        f"{server} (release {found.version})"
        for server, found in described.items()
        if not found.side_by_side
    ]
    if early:
        raise ConfigurationRefused(f"{', '.join(early)}: {EARLY_RELEASE}; {UNCHANGED}")


def _is_full(description: Description) -> bool:
    return description.stored is not None and description.stored.full
