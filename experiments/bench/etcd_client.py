"""The bench's clients of etcd: gRPC's asyncio client (its C core) over aetcd's protocol files.

No other library is in between. The clients of a generator share an HTTP/2 connection, as etcd's own
client libraries do. The requests are the simplest possible: a put, and a linearizable range over a
single key.
"""

from aetcd import rpc
from grpc import StatusCode

from experiments.bench.store_clients import Coroutines, EtcdStore

ETCD_ATTEMPT_S = 2.0
ATTEMPTS = 10
_MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
)
_TRY_ELSEWHERE = {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED}
"""Errors after which another member may succeed. Both operations may be repeated."""


class EtcdMembers:
    """A client of all members, which stays with a member until it fails."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._channels = [
            rpc.insecure_channel(endpoint, options=_OPTIONS) for endpoint in endpoints
        ]
        self._stubs = [rpc.KVStub(channel) for channel in self._channels]
        self._current = 0

    async def read(self, key: str) -> bytes | None:
        """Return the value, or `None` if the key has no value."""
        found = await self._ask("Range", rpc.RangeRequest(key=key.encode()))
        return found.kvs[0].value if found.kvs else None

    async def write(self, key: str, value: bytes) -> None:
        """Put the value."""
        await self._ask("Put", rpc.PutRequest(key=key.encode(), value=value))

    async def close(self) -> None:
        """Close every channel."""
        for channel in self._channels:
            await channel.close()

    async def _ask(self, method: str, request: object) -> "rpc.RangeResponse":
        for _ in range(ATTEMPTS - 1):
            asked = self._current
            try:
                return await getattr(self._stubs[asked], method)(request, timeout=ETCD_ATTEMPT_S)
            except rpc.AioRpcError as error:
                if error.code() not in _TRY_ELSEWHERE:
                    raise
                if self._current == asked:
                    self._current = (asked + 1) % len(self._stubs)
        return await getattr(self._stubs[self._current], method)(request, timeout=ETCD_ATTEMPT_S)


async def etcd_clients(store: EtcdStore) -> Coroutines:
    """Return clients that share a connection."""
    members = EtcdMembers(store.endpoints)
    return Coroutines(members, (rpc.AioRpcError,), members.close)
