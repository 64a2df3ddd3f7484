"""Consensus by an etcd cluster: every decision is on the disks of a majority of etcd's members.

For users with an etcd of their own. A key for every (domain, index) is made by a transaction which
puts an absent key and otherwise reads the key: the first proposal stays, for ever, and the answer
to the transaction is the decision (ARES II section 3, c.Con; Alg. 5:17). Such a transaction may be
made any number of times. A lost transaction, or a transaction with a lost answer, is therefore sent
again, to any member.

The keys: PREFIX/CLUSTER/decision/DOMAIN/INDEX and PREFIX/CLUSTER/hint/DOMAIN, where CLUSTER is the
id of c0 in hex. ares removes no key, and no other program may: with a decision gone, or an etcd set
back to an older state, another configuration could be decided for the place (servers refuse a
second decision where they know the first).

aetcd brings etcd's protocol for asyncio. aetcd's client speaks to a single endpoint, without TLS,
under a single deadline and with a login that ends when etcd restarts; this module therefore has the
channels, the fail-over between them, TLS and the login. A single endpoint is asked at a time.
Asking several in turn is safe only if they belong to the same etcd cluster: two clusters would
decide apart. Every endpoint therefore names its cluster before the first request, and an answer
from another cluster is dropped.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import msgspec
from aetcd import rpc

from ares.cluster.tables import EtcdSettings
from ares.model.configuration import Configuration
from ares.model.decision import Decision, Finalized, require_place
from ares.model.errors import (
    NO_TROUBLES,
    ConfigurationRefused,
    ConsensusUnavailable,
    UnreadableDecision,
)
from ares.model.identity import NO_CALL, ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided

ETCD_MAGIC = b"ares"
ETCD_FORMAT = 1
"""Format of a value: ETCD_MAGIC, a byte for the format, MessagePack of a Decision or Finalized."""

ETCD_VALUE_BYTES_MAX = 64 * 1024

Kept = TypeVar("Kept", Decision[Configuration], Finalized[Configuration])

ETCD_SILENCE_S = 1.0
"""Seconds after which a silent endpoint is passed over for the next.

At each of its further turns the endpoint has as many seconds more.
"""

ETCD_PAUSE_S = 0.1
"""Pause between a failure and the next endpoint: an election takes a while."""

_GRPC_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
)

_HOPELESS = {
    rpc.StatusCode.INVALID_ARGUMENT,
    rpc.StatusCode.FAILED_PRECONDITION,
    rpc.StatusCode.PERMISSION_DENIED,
    rpc.StatusCode.UNAUTHENTICATED,
    rpc.StatusCode.UNIMPLEMENTED,
}
"""Answers which another attempt, or another endpoint, does not change."""


class _Endpoint:
    """The channel to a member, and the login there.

    gRPC connects at the first request, and again whenever needed.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.met = False
        self.token: str | None = None
        if credentials is None:
            self.channel = rpc.insecure_channel(address, options=_GRPC_OPTIONS)
        else:
            self.channel = rpc.secure_channel(address, credentials, options=_GRPC_OPTIONS)
        self.kv = rpc.KVStub(self.channel)
        self.auth = rpc.AuthStub(self.channel)
        self.cluster = rpc.ClusterStub(self.channel)
        self.maintenance = rpc.MaintenanceStub(self.channel)


Method = Callable[..., Awaitable[Any]]
Said = tuple[_Endpoint, rpc.StatusResponse, rpc.MemberListResponse, rpc.RangeResponse]


class EtcdCluster:
    """An etcd cluster, made on the event loop.

    Raises :class:`ares.BadInput` when a file named in ``settings`` cannot be used. :meth:`change`
    and :meth:`look` raise :class:`ConsensusUnavailable` when ``timeout_s`` passes without an
    answer, and at once when etcd refuses or when the endpoints belong to different clusters. A
    failed change may have been made, or be made later.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        credentials = None
        if settings.ca is not None:
            pem = [
                settings.pem(name, path)
                for name, path in (
                    ("ca", settings.ca),
                    ("key", settings.key),
                    ("certificate", settings.certificate),
                )
            ]
            credentials = grpc.ssl_channel_credentials(*pem)
        self._user = settings.user
        self._password = settings.password()
        self._endpoints = [_Endpoint(address, credentials) for address in settings.endpoints]
        self._order = list(self._endpoints)
        self._cluster: tuple[int, str] | None = None
        self._all_met = False
        self._closed = False

    async def change(self, request: rpc.TxnRequest, timeout_s: float) -> rpc.TxnResponse:
        """Return the answer to a transaction, which must be repeatable."""
        return await self._ask(lambda endpoint: endpoint.kv.Txn, request, timeout_s)

    async def look(self, request: rpc.RangeRequest, timeout_s: float) -> rpc.RangeResponse:
        """Return the answer to a read."""
        return await self._ask(lambda endpoint: endpoint.kv.Range, request, timeout_s)

    async def reports(self, count: rpc.RangeRequest, timeout_s: float) -> list[Said]:
        """Return the self-description of each answering endpoint, with its answer to ``count``.

        Waits ``timeout_s`` only if an endpoint is silent.
        """
        asked = (self._report(endpoint, count, timeout_s) for endpoint in self._endpoints)
        return [report for report in await asyncio.gather(*asked) if report is not None]

    async def close(self) -> None:
        """Close the channels; requests under way end as unavailable. Idempotent."""
        self._closed = True
        for endpoint in self._endpoints:
            await endpoint.channel.close()

    async def _ask(
        self, method: Callable[[_Endpoint], Method], request: Any, timeout_s: float
    ) -> Any:
        """Return the first answer of any endpoint, beginning with the last one to answer."""
        clock = asyncio.get_running_loop()
        deadline_s = clock.time() + timeout_s
        if not self._all_met:
            await self._meet_all(min(ETCD_SILENCE_S, timeout_s))
        order, turn, detail = (
            tuple(self._order),
            0,
            dict.fromkeys((endpoint.address for endpoint in self._endpoints), "not asked"),
        )
        while (left_s := deadline_s - clock.time()) > 0:
            endpoint = order[turn % len(order)]
            try:
                async with asyncio.timeout(min(left_s, ETCD_SILENCE_S * (1 + turn // len(order)))):
                    if not endpoint.met:
                        await self._meet(endpoint)
                    answer = await self._call(endpoint, method(endpoint), request)
            except TimeoutError:
                detail[endpoint.address] = "no answer"
            except rpc.AioRpcError as error:
                detail[endpoint.address] = _words(error)
                if error.code() in _HOPELESS:
                    raise ConsensusUnavailable(
                        f"etcd at {endpoint.address} refuses: {detail[endpoint.address]}"
                    ) from error
            else:
                self._check_cluster(endpoint, answer)
                self._order.sort(key=lambda other: other is not endpoint)
                return answer
            turn += 1
            await asyncio.sleep(min(ETCD_PAUSE_S, max(deadline_s - clock.time(), 0)))
        words = ", ".join(f"{address} ({what})" for address, what in sorted(detail.items()))
        raise ConsensusUnavailable(f"within {timeout_s:g} s etcd said: {words}")

    async def _meet_all(self, timeout_s: float) -> None:
        """Meet all endpoints before the first request.

        Endpoints of different clusters are found out while both can still be asked. Endpoints
        silent now come last from now on; a short request would otherwise be over before the others
        are asked.
        """

        async def meet(endpoint: _Endpoint) -> None:
            with contextlib.suppress(TimeoutError, rpc.AioRpcError):
                async with asyncio.timeout(timeout_s):
                    await self._meet(endpoint)

        await asyncio.gather(*(meet(endpoint) for endpoint in self._endpoints))
        self._order.sort(key=lambda endpoint: not endpoint.met)
        self._all_met = True

    async def _meet(self, endpoint: _Endpoint) -> None:
        answer = await self._call(endpoint, endpoint.maintenance.Status, rpc.StatusRequest())
        self._check_cluster(endpoint, answer)
        endpoint.met = True

    def _check_cluster(self, endpoint: _Endpoint, answer: Any) -> None:
        cluster = answer.header.cluster_id
        self._cluster = self._cluster or (cluster, endpoint.address)
        if cluster != self._cluster[0]:
            known = f"{self._cluster[1]} (cluster {self._cluster[0]:x})"
            why = (
                f"{endpoint.address} (cluster {cluster:x}) and {known} are no members of one "
                "etcd cluster, and two would decide apart"
            )
            raise ConsensusUnavailable(f"{why}; name the endpoints of one in the cluster file")

    async def _call(self, endpoint: _Endpoint, method: Method, request: Any) -> Any:
        """Send a request to an endpoint, with a second login if needed.

        Logins end when unused for a while or when etcd restarts. A channel closed in between
        cancels the tasks that wait for it: this method turns the cancellation into an error.
        """
        try:
            if self._user is None:
                return await method(request)
            if endpoint.token is not None:
                try:
                    return await method(request, metadata=(("token", endpoint.token),))
                except rpc.AioRpcError as error:
                    if error.code() is not rpc.StatusCode.UNAUTHENTICATED:
                        raise
            answer = await endpoint.auth.Authenticate(
                rpc.AuthenticateRequest(name=self._user, password=self._password)
            )
            endpoint.token = answer.token
            return await method(request, metadata=(("token", endpoint.token),))
        except (grpc.aio.UsageError, asyncio.CancelledError):
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            raise ConsensusUnavailable("the connection to etcd was closed") from None

    async def _report(
        self, endpoint: _Endpoint, count: rpc.RangeRequest, timeout_s: float
    ) -> Said | None:
        try:
            async with asyncio.timeout(timeout_s):
                status = await self._call(
                    endpoint, endpoint.maintenance.Status, rpc.StatusRequest()
                )
                members = await self._call(
                    endpoint, endpoint.cluster.MemberList, rpc.MemberListRequest()
                )
                return (
                    endpoint,
                    status,
                    members,
                    await self._call(endpoint, endpoint.kv.Range, count),
                )
        except (TimeoutError, rpc.AioRpcError, ConsensusUnavailable):
            return None


def _words(error: rpc.AioRpcError) -> str:
    """Return etcd's words, or the last part of gRPC's words about a failed connection."""
    detail = str(error.details() or error.code().name)
    return (
        f"unreachable: {detail.rpartition(': ')[2]}"
        if detail.startswith("failed to connect to all addresses")
        else detail
    )


class EtcdConsensus:
    """The Consensus port (ares/consensus/port.py) over etcd, made on the event loop.

    ``cluster`` is the id of the cluster's c0. Raises :class:`UnreadableDecision`, too, when a key
    holds a value unreadable by this release, and :class:`ConfigurationRefused` for a configuration
    without a place or too large. Raises :class:`ares.BadInput` when a file named in ``settings``
    cannot be used.
    """

    troubles = NO_TROUBLES

    def __init__(self, settings: EtcdSettings, cluster: bytes) -> None:
        self._etcd = EtcdCluster(settings)
        self._root = f"{settings.prefix}/{cluster.hex()}"

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        """Propose as in the port.

        After a failure the proposal may still be decided, at any time.
        """
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
        return Decided(NO_CALL, made.content, made.client)

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        key = self._hint_key(domain)
        answer = await self._etcd.look(rpc.RangeRequest(key=key.encode()), timeout_s)
        if not answer.kvs:
            return None
        kept = _read(key, answer.kvs[0].value, Finalized[Configuration])
        _check_place(key, kept.content, domain, kept.index)
        return kept.content

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> bool:
        """Keep a hint as in the port.

        The transaction replaces only the revision which was seen to be older.
        """
        require_place(configuration)
        key = self._hint_key(configuration.domain)
        value = _written(Finalized(configuration.index, configuration))
        revision = 0
        while not (
            answer := await self._etcd.change(_put_if(key, revision, value), timeout_s)
        ).succeeded:
            kept, revision = _found(answer)
            if _read(key, kept, Finalized[Configuration]).index >= configuration.index:
                break
        return True

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """Return a description for each answering endpoint, named by its address.

        ``decisions`` is the number of decisions known to that member.
        """
        decisions = f"{self._root}/decision/".encode()
        after_them = decisions[:-1] + b"0"  # "0" follows "/"
        count = rpc.RangeRequest(
            key=decisions, range_end=after_them, serializable=True, count_only=True
        )
        reports = await self._etcd.reports(count, timeout_s)
        addresses = {
            status.header.member_id: endpoint.address for endpoint, status, _, _ in reports
        }
        return [_described(report, addresses) for report in reports]

    async def close(self) -> None:
        await self._etcd.close()

    def _hint_key(self, domain: DomainName) -> str:
        return f"{self._root}/hint/{domain}"


def _put_if(key: str, revision: int, value: bytes) -> rpc.TxnRequest:
    """Return a transaction which puts ``value`` in an unchanged key, and else reads the key.

    ``revision``: the last known change of the key; 0: the key is absent.
    """
    name = key.encode()
    compare = rpc.Compare(
        key=name, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision
    )
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=value))
    look = rpc.RequestOp(request_range=rpc.RangeRequest(key=name))
    return rpc.TxnRequest(compare=[compare], success=[put], failure=[look])


def _found(answer: rpc.TxnResponse) -> tuple[bytes, int]:
    """Return the value read by a transaction instead of putting its own, with its revision."""
    for response in answer.responses:
        for pair in response.response_range.kvs:
            return pair.value, pair.mod_revision
    return b"", 0


def _written(kept: Decision[Configuration] | Finalized[Configuration]) -> bytes:
    value = ETCD_MAGIC + bytes([ETCD_FORMAT]) + msgspec.msgpack.encode(kept)
    if len(value) > ETCD_VALUE_BYTES_MAX:
        raise ConfigurationRefused(
            f"the description of a configuration takes at most {ETCD_VALUE_BYTES_MAX} bytes, not "
            f"{len(value)}; nothing was sent"
        )
    return value


def _read(key: str, value: bytes, kind: type[Kept]) -> Kept:
    head, content = value[: len(ETCD_MAGIC) + 1], value[len(ETCD_MAGIC) + 1 :]
    if head[:-1] != ETCD_MAGIC:
        raise UnreadableDecision(
            f"a value of {len(value)} bytes that ares did not write; see that the prefix in the "
            "cluster file is its own",
            key,
        )
    if head[-1] != ETCD_FORMAT:
        raise UnreadableDecision(
            f"it has format {head[-1]}, this release reads {ETCD_FORMAT}: use the same release of "
            "ares everywhere",
            key,
        )
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableDecision(
            f"it is damaged, or a later release wrote it ({error})", key
        ) from error


def _check_place(key: str, content: Configuration, domain: DomainName, index: int) -> None:
    if (content.domain, content.index) != (domain, index):
        raise UnreadableDecision(
            f"it is for index {content.index} of domain {content.domain!r}: the entry was copied "
            "or moved",
            key,
        )


def _described(report: Said, addresses: Mapping[int, str]) -> ConsensusDescription:
    """Return the description of an endpoint. A leader with id 0 is none.

    ``addresses``: of the answering endpoints, by etcd's member ids.
    """
    endpoint, status, members, counted = report
    voters = {member.ID: member.name for member in members.members if not member.isLearner}
    leader = (
        addresses.get(status.leader)
        or voters.get(status.leader)
        or (f"{status.leader:x}" if status.leader else "")
    )
    reachable = len(addresses.keys() & voters.keys())
    return ConsensusDescription(
        NO_CALL,
        ServerId(endpoint.address),
        leader,
        status.raftTerm,
        counted.count,
        reachable,
        len(voters),
    )
