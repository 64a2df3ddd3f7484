"""Consensus by an etcd cluster, for those who run one already or want it to be etcd's: every decision is on the disks of a majority.

One key for every (domain, index), made by a transaction that puts it only if it is not there and otherwise reads it: the first proposal stays, for
ever, and the answer to that transaction is the decision (ARES II section 3, c.Con; Alg. 5:17). Such a transaction may be made any number of times,
so one that was lost on its way, or its answer, is sent again, to any member.

The keys: PREFIX/CLUSTER/decision/DOMAIN/INDEX and PREFIX/CLUSTER/hint/DOMAIN, where CLUSTER is the id of c0 in hex. Nothing in ares removes one, and
nobody else may: with a decision gone, or an etcd set back to an older state, something else could be decided in its place (servers refuse a second
one where they know the first).
"""

from typing import TypeVar

import msgspec
from aetcd import rpc

from ares.cluster.etcd_settings import EtcdSettings
from ares.consensus.etcd.endpoints import EndpointReport, EtcdCluster
from ares.consensus.local import NO_CALL
from ares.model.configuration import Configuration
from ares.model.decision import Decision, Finalized, require_place
from ares.model.errors import ConfigurationRefused, ConsensusUnavailable, UnreadableDecision
from ares.model.identity import ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided
from ares.model.quorum import NO_TROUBLES

MAGIC = b"ares"
FORMAT = 1
"""A value is MAGIC, a byte for the format, and MessagePack: of a Decision or of a Finalized."""

VALUE_BYTES_MAX = 64 * 1024

Kept = TypeVar("Kept", Decision[Configuration], Finalized[Configuration])


class EtcdConsensus:
    """The Consensus port (ares/consensus/port.py) over etcd; make it on the event loop.

    ``cluster`` is the id of the cluster's c0. Also raises :class:`UnreadableDecision` when a key holds what this release cannot read, and
    :class:`ConfigurationRefused` for a configuration that has no place or is too large. Raises :class:`ares.BadInput` when a file that
    ``settings`` names cannot be used.
    """

    troubles = NO_TROUBLES

    def __init__(self, settings: EtcdSettings, cluster: bytes) -> None:
        self._etcd = EtcdCluster(settings)
        self._root = f"{settings.prefix}/{cluster.hex()}"

    async def propose(self, configuration: Configuration, proposer: ClientId, timeout_s: float) -> Decided:
        """See the port. After a failure the proposal may still be decided, at any time."""
        require_place(configuration)
        key = f"{self._root}/decision/{configuration.domain}/{configuration.index:020d}"
        mine = Decision(configuration, int(proposer))
        try:
            answer = await self._etcd.change(_put_if(key, 0, _written(mine)), timeout_s)
        except ConsensusUnavailable as error:
            error.may_have_taken_effect = True
            raise
        made = mine if answer.succeeded else _read(key, _found(answer)[0], Decision[Configuration])
        _check_place(key, made.content, configuration.domain, configuration.index)
        return Decided(NO_CALL, made.content, ClientId(made.proposer))

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        """See the port."""
        key = self._hint_key(domain)
        answer = await self._etcd.look(rpc.RangeRequest(key=key.encode()), timeout_s)
        if not answer.kvs:
            return None
        kept = _read(key, answer.kvs[0].value, Finalized[Configuration])
        _check_place(key, kept.content, domain, kept.index)
        return kept.content

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> None:
        """See the port. The transaction replaces the revision that was seen to be older, and nothing else."""
        require_place(configuration)
        key = self._hint_key(configuration.domain)
        value = _written(Finalized(configuration.index, configuration))
        revision = 0
        while not (answer := await self._etcd.change(_put_if(key, revision, value), timeout_s)).succeeded:
            kept, revision = _found(answer)
            if _read(key, kept, Finalized[Configuration]).index >= configuration.index:
                return

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """One for each endpoint that answers, named by its address; ``decisions`` is what that member has heard of."""
        decisions = f"{self._root}/decision/".encode()
        after_them = decisions[:-1] + b"0"  # "0" follows "/"
        count = rpc.RangeRequest(key=decisions, range_end=after_them, serializable=True, count_only=True)
        reports = await self._etcd.reports(count, timeout_s)
        return [_described(report, reports) for report in reports]

    async def close(self) -> None:
        """See the port."""
        await self._etcd.close()

    def _hint_key(self, domain: DomainName) -> str:
        return f"{self._root}/hint/{domain}"


def _put_if(key: str, revision: int, value: bytes) -> rpc.TxnRequest:
    """Put ``value`` if the key was last changed in ``revision`` (0: if there is no such key), else read the key."""
    name = key.encode()
    compare = rpc.Compare(key=name, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=value))
    look = rpc.RequestOp(request_range=rpc.RangeRequest(key=name))
    return rpc.TxnRequest(compare=[compare], success=[put], failure=[look])


def _found(answer: rpc.TxnResponse) -> tuple[bytes, int]:
    """The value that a transaction read instead of putting its own, and the revision of that."""
    for response in answer.responses:
        for pair in response.response_range.kvs:
            return pair.value, pair.mod_revision
    return b"", 0


def _written(kept: Decision[Configuration] | Finalized[Configuration]) -> bytes:
    value = MAGIC + bytes([FORMAT]) + msgspec.msgpack.encode(kept)
    if len(value) > VALUE_BYTES_MAX:
        raise ConfigurationRefused(f"the description of a configuration takes at most {VALUE_BYTES_MAX} bytes, not {len(value)}; nothing was sent")
    return value


def _read(key: str, value: bytes, kind: type[Kept]) -> Kept:
    head, content = value[: len(MAGIC) + 1], value[len(MAGIC) + 1 :]
    if head[:-1] != MAGIC:
        raise UnreadableDecision(key, f"a value of {len(value)} bytes that ares did not write; see that the prefix in the cluster file is its own")
    if head[-1] != FORMAT:
        raise UnreadableDecision(key, f"it has format {head[-1]}, this release reads {FORMAT}: use the same release of ares everywhere")
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableDecision(key, f"it is damaged, or a later release wrote it ({error})") from error


def _check_place(key: str, content: Configuration, domain: DomainName, index: int) -> None:
    if (content.domain, content.index) != (domain, index):
        raise UnreadableDecision(key, f"it is for index {content.index} of domain {content.domain!r}: somebody copied or moved it")


def _described(report: EndpointReport, reports: list[EndpointReport]) -> ConsensusDescription:
    addresses = {other.member: other.address for other in reports}
    leader = addresses.get(report.leader) or report.names.get(report.leader) or (f"{report.leader:x}" if report.leader else "")
    reachable = len(addresses.keys() & report.names.keys())
    return ConsensusDescription(NO_CALL, ServerId(report.address), leader, report.term, report.keys, reachable, len(report.names))
