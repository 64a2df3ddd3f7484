"""Client ids as the nodes of a log keep them: bound to a key and a secret.

See docs/log.md, Whose number it is. The head replaces the id in an append by a digest. Records,
rows and all messages among servers have only the digest. A process which learned the digest, or the
id itself, cannot append in the client's place: another key, or another secret, gives another
digest, and hence another row.
"""

from collections.abc import Hashable
from functools import lru_cache
from hashlib import blake2b

from ares.model.identity import ClientId
from ares.model.log_messages import Append

REMEMBERED_MAX = 4096
"""Digests kept in memory, to compute each digest once."""


class BoundAppend(Append, frozen=True, tag=0):
    """An append with a digest as ``client``. Never sent."""

    sent_as: ClientId = ClientId(0)
    """The id in the message, under which an earlier release stored records."""

    @property
    def names(self) -> tuple[ClientId, ...]:
        """The ids under which nodes may have records of the client."""
        return self.client, self.sent_as


def bound_append(sender: Hashable, append: Append) -> BoundAppend:
    """Bind the id in ``append`` to the secret, and to the key proved by ``sender``, if any."""
    return BoundAppend(
        append.call,
        append.configuration,
        bound_id(append.client, append.secret, getattr(sender, "key", "")),
        append.number,
        append.lowest,
        append.since,
        append.entries,
        append.at,
        sent_as=append.client,
    )


@lru_cache(REMEMBERED_MAX)
def bound_id(client: ClientId, secret: bytes, key: str) -> ClientId:
    """Return the id under which nodes keep the appends of ``client``. ``key``: in hex, or empty.

    A client of an earlier release has no secret. The id of such a client is replaced, too: a
    message without a secret could otherwise name the digest of another client.
    """
    content = client.to_bytes(8, "little") + secret
    digest = blake2b(content, digest_size=8, key=bytes.fromhex(key))
    return ClientId(int.from_bytes(digest.digest(), "little"))
