"""An etcd cluster as its clients reach it: several endpoints, one asked at a time, over gRPC. With etcd_consensus.py the only importer of aetcd.

aetcd brings etcd's protocol for asyncio. Its own client speaks to one endpoint, without TLS, under one deadline and with a login that ends when etcd
restarts; so the channels, the fail-over between them, TLS and the login are here.

Asking several endpoints in turn is safe only if they belong to one etcd cluster: two would decide apart. So every endpoint says which it is in
before it is sent anything, and no answer of another is taken.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from aetcd import rpc
from msgspec import Struct

from ares.cluster.tables import EtcdSettings
from ares.model.errors import ConsensusUnavailable

SILENCE_S = 1.0
"""An endpoint that says nothing for so long is passed over for the next; it is given as much more every time its turn comes again."""

PAUSE_S = 0.1
"""Between a failure and asking the next: an election takes a while."""

_OPTIONS = (
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
"""What asking again, or somebody else, does not change."""


class EndpointReport(Struct, frozen=True):
    """What one endpoint says: itself and its leader (etcd's member ids; 0: none), Raft's term, names of all voting members, keys counted."""

    address: str
    member: int
    leader: int
    term: int
    names: dict[int, str]
    keys: int


class _Endpoint:
    """The channel to one member, and the login there. gRPC connects at the first request, and again whenever that is needed."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.met = False
        self.token: str | None = None
        if credentials is None:
            self.channel = rpc.insecure_channel(address, options=_OPTIONS)
        else:
            self.channel = rpc.secure_channel(address, credentials, options=_OPTIONS)
        self.kv = rpc.KVStub(self.channel)
        self.auth = rpc.AuthStub(self.channel)
        self.cluster = rpc.ClusterStub(self.channel)
        self.maintenance = rpc.MaintenanceStub(self.channel)


Method = Callable[[_Endpoint], Callable[..., Awaitable[Any]]]


class EtcdCluster:
    """One etcd cluster; make it on the event loop. Raises :class:`ares.BadInput` when a file that ``settings`` names cannot be used.

    :meth:`change` and :meth:`look` raise :class:`ConsensusUnavailable` when ``timeout_s`` passes without an answer, and at once when etcd
    refuses or when the endpoints belong to different clusters. A change that failed may have been made, or be made later.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        credentials = None
        if settings.ca is not None:
            pem = [settings.pem(name, path) for name, path in (("ca", settings.ca), ("key", settings.key), ("certificate", settings.certificate))]
            credentials = grpc.ssl_channel_credentials(*pem)
        self._user = settings.user
        self._password = settings.password()
        self._endpoints = [_Endpoint(address, credentials) for address in settings.endpoints]
        self._order = list(self._endpoints)
        self._cluster: tuple[int, str] | None = None
        self._all_met = False
        self._closed = False

    async def change(self, request: rpc.TxnRequest, timeout_s: float) -> rpc.TxnResponse:
        """The answer to a transaction, which must be one that may be made twice."""
        return await self._ask(lambda endpoint: endpoint.kv.Txn, request, timeout_s)

    async def look(self, request: rpc.RangeRequest, timeout_s: float) -> rpc.RangeResponse:
        """The answer to a read."""
        return await self._ask(lambda endpoint: endpoint.kv.Range, request, timeout_s)

    async def reports(self, count: rpc.RangeRequest, timeout_s: float) -> list[EndpointReport]:
        """What each endpoint that answers says of itself, and the count that it answers to ``count``; waits ``timeout_s`` only if one is silent."""
        asked = (self._report(endpoint, count, timeout_s) for endpoint in self._endpoints)
        return [report for report in await asyncio.gather(*asked) if report is not None]

    async def close(self) -> None:
        """Close the channels; what is under way ends as unavailable. Idempotent."""
        self._closed = True
        for endpoint in self._endpoints:
            await endpoint.channel.close()

    async def _ask(self, method: Method, request: Any, timeout_s: float) -> Any:
        """The answer of the first endpoint that gives one, beginning with the one that answered last."""
        clock = asyncio.get_running_loop()
        deadline_s = clock.time() + timeout_s
        if not self._all_met:
            await self._meet_all(min(SILENCE_S, timeout_s))
        order, turn, said = tuple(self._order), 0, dict.fromkeys((endpoint.address for endpoint in self._endpoints), "not asked")
        while (left_s := deadline_s - clock.time()) > 0:
            endpoint = order[turn % len(order)]
            try:
                async with asyncio.timeout(min(left_s, SILENCE_S * (1 + turn // len(order)))):
                    if not endpoint.met:
                        await self._meet(endpoint)
                    answer = await self._call(endpoint, method, request)
            except TimeoutError:
                said[endpoint.address] = "no answer"
            except rpc.AioRpcError as error:
                said[endpoint.address] = _words(error)
                if error.code() in _HOPELESS:
                    raise ConsensusUnavailable(f"etcd at {endpoint.address} refuses: {said[endpoint.address]}") from error
            else:
                self._check_cluster(endpoint, answer)
                self._order.sort(key=lambda other: other is not endpoint)
                return answer
            turn += 1
            await asyncio.sleep(min(PAUSE_S, max(deadline_s - clock.time(), 0)))
        words = ", ".join(f"{address} ({what})" for address, what in sorted(said.items()))
        raise ConsensusUnavailable(f"within {timeout_s:g} s etcd said: {words}")

    async def _meet_all(self, timeout_s: float) -> None:
        """Before the first request: endpoints that belong to different clusters are found out while both can still be asked.

        Those that were silent come last from then on; a short request would otherwise be over before it gets to the others.
        """

        async def meet(endpoint: _Endpoint) -> None:
            with contextlib.suppress(TimeoutError, rpc.AioRpcError):
                async with asyncio.timeout(timeout_s):
                    await self._meet(endpoint)

        await asyncio.gather(*(meet(endpoint) for endpoint in self._endpoints))
        self._order.sort(key=lambda endpoint: not endpoint.met)
        self._all_met = True

    async def _meet(self, endpoint: _Endpoint) -> None:
        answer = await self._call(endpoint, lambda endpoint: endpoint.maintenance.Status, rpc.StatusRequest())
        self._check_cluster(endpoint, answer)
        endpoint.met = True

    def _check_cluster(self, endpoint: _Endpoint, answer: Any) -> None:
        cluster = answer.header.cluster_id
        self._cluster = self._cluster or (cluster, endpoint.address)
        if cluster != self._cluster[0]:
            known = f"{self._cluster[1]} (cluster {self._cluster[0]:x})"
            why = f"{endpoint.address} (cluster {cluster:x}) and {known} are no members of one etcd cluster, and two would decide apart"
            raise ConsensusUnavailable(f"{why}; name the endpoints of one in the cluster file")

    async def _call(self, endpoint: _Endpoint, method: Method, request: Any) -> Any:
        """One request to one endpoint. A channel that is closed meanwhile cancels whoever waits for it, who did nothing to deserve that."""
        try:
            return await self._call_logged_in(endpoint, method, request)
        except (grpc.aio.UsageError, asyncio.CancelledError):
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            raise ConsensusUnavailable("the connection to etcd was closed") from None

    async def _call_logged_in(self, endpoint: _Endpoint, method: Method, request: Any) -> Any:
        """Logins end, when unused for a while or when etcd restarts, so a second one is tried."""
        if self._user is None:
            return await method(endpoint)(request)
        if endpoint.token is not None:
            try:
                return await method(endpoint)(request, metadata=(("token", endpoint.token),))
            except rpc.AioRpcError as error:
                if error.code() is not rpc.StatusCode.UNAUTHENTICATED:
                    raise
        answer = await endpoint.auth.Authenticate(rpc.AuthenticateRequest(name=self._user, password=self._password))
        endpoint.token = answer.token
        return await method(endpoint)(request, metadata=(("token", endpoint.token),))

    async def _report(self, endpoint: _Endpoint, count: rpc.RangeRequest, timeout_s: float) -> EndpointReport | None:
        try:
            async with asyncio.timeout(timeout_s):
                status = await self._call(endpoint, lambda endpoint: endpoint.maintenance.Status, rpc.StatusRequest())
                members = await self._call(endpoint, lambda endpoint: endpoint.cluster.MemberList, rpc.MemberListRequest())
                counted = await self._call(endpoint, lambda endpoint: endpoint.kv.Range, count)
        except (TimeoutError, rpc.AioRpcError, ConsensusUnavailable):
            return None
        names = {member.ID: member.name for member in members.members if not member.isLearner}
        return EndpointReport(endpoint.address, status.header.member_id, status.leader, status.raftTerm, names, counted.count)


def _words(error: rpc.AioRpcError) -> str:
    """What etcd said, or the last of what gRPC says about a connection that it could not make."""
    said = str(error.details() or error.code().name)
    return f"unreachable: {said.rpartition(': ')[2]}" if said.startswith("failed to connect to all addresses") else said
