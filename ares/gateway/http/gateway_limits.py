"""The bounds of a gateway: connections, requests, memory and times of a process."""

from msgspec import Struct

HTTP_HEAD_BYTES_MAX = 32 * 1024
"""Bytes of a request's line and headers. S3 allows 8 KiB of headers, and keys of 1 KiB in a URL."""

HTTP_HEADERS_MAX = 128
PIPELINED_MAX = 8
"""Requests of a connection that wait for the answers of earlier requests."""

HTTP_READ_BYTES = 64 * 1024
"""Bytes of one read from a socket: a bound of the work of a turn of the event loop."""

BODY_BUFFER_BYTES = 256 * 1024
"""Bytes of a body that wait for their reader, before the socket is not read any more."""

SEND_SLICE_BYTES = 256 * 1024
"""Bytes of an answer between two waits for the peer."""

TINY_CHUNKS_MAX = 1024
TINY_CHUNK_BYTES = 64
"""After TINY_CHUNKS_MAX chunks their mean length must be at least this."""

HEAD_S = 10.0
"""Time of a request's line and headers, from the connection or their first byte on."""

BODY_IDLE_S = 30.0
BODY_IDLE_BYTES = 16 * 1024
"""A peer must send, or take, this much in BODY_IDLE_S of waiting for the peer."""

KEEP_ALIVE_S = 75.0
"""Time of a connection without a request."""

DRAINED_BYTES_MAX = 64 * 1024
"""Rest of an unread body that is read and dropped to keep the connection."""

LINGER_S = 2.0
LINGER_BYTES_MAX = 1024 * 1024
"""Time, and bytes dropped, between the last answer and the end of a connection.

A connection closed with unread bytes is reset, and the peer may not see the answer.
"""

TLS_HANDSHAKE_S = 10.0


class GatewayLimits(Struct, frozen=True):
    """The bounds of a process that an operator chooses."""

    connections: int = 1024
    address_connections: int = 512
    """Connections of a peer's address."""
    requests: int = 256
    """Requests at work."""
    memory_bytes: int = 512 * 1024 * 1024
    """Bytes of bodies and answers of all requests at work."""
    end_s: float = 30.0
    """Time in which the requests at work may finish when the process is to end."""
