"""The access keys of S3 clients, as a gateway looks them up.

A key is a sealed object of the bucket :data:`KEYS_BUCKET`, named by the key's id; the deletion of
the object revokes the key. Revocation holds from its answer on, at every gateway: a request is
judged by an index at a tail of the log asked for after the request came, and this tail is behind
every deletion that was answered before.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from ares.bucket.bucket_state import BucketState
from ares.bucket.index_records import ObjectEntry
from ares.client.buckets.buckets import Buckets
from ares.gateway.access.canned_acls import acl_of
from ares.gateway.access.grants import Caller, check, may_be_public
from ares.gateway.access.issued_keys import FINGERPRINT_KEY, check_fingerprint
from ares.gateway.access.request_look import RequestLook
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import AccessKey, GatewaySeal, is_access_key_id, new_secret
from ares.gateway.s3.exchange import S3Request
from ares.gateway.s3.s3_errors import S3Code, S3Error

UNSEALED_KEYS_MAX = 1024
_FIELD_CHARACTERS_MAX = 128

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class AccessKeys:
    """The access keys in the buckets' index. ``timeout_s`` bounds a standstill of a look-up."""

    def __init__(self, buckets: Buckets, seal: GatewaySeal, timeout_s: float) -> None:
        self._buckets = buckets
        self._seal = seal
        self._timeout_s = timeout_s
        self._stand_in = new_secret()
        # by the sealed bytes: another version of a key has other bytes
        self._unseal = lru_cache(UNSEALED_KEYS_MAX)(self._unsealed)

    def look(self) -> RequestLook:
        """Return the look of a request that came."""
        return RequestLook(self._buckets, self._timeout_s)

    async def secret(self, access_key: str, look: RequestLook) -> AccessKey | None:
        """Return the key with this id; None for an unknown, revoked or unsealable key.

        Raises :class:`ares.Unavailable` if the log tells no tail.
        """
        if not is_access_key_id(access_key):
            return None
        return self._found((await look.verified()).state, access_key)

    async def check_seal(self, path: Path) -> None:
        """Check the seal, from the file at ``path``, against the fingerprint in the bucket.

        Raises :class:`ares.BadInput`.
        """
        state = (await self.look().verified()).state
        kept = sealed_bytes(state.newest(KEYS_BUCKET, FINGERPRINT_KEY))
        told = None if kept is None else kept.decode("ascii", "replace")
        check_fingerprint(self._seal, told, path)

    async def authenticate(
        self, access_key: str, verify: Callable[[str], Result], look: RequestLook
    ) -> tuple[AccessKey, Result]:
        """Return the key, and the result of ``verify`` with the secret.

        ``verify`` raises :class:`S3Error` for a wrong signature. With an unknown id it runs with a
        random secret: a present and an absent id take the same work. Raises :class:`S3Error`.
        """
        key = await self.secret(access_key, look)
        unknown = S3Error(
            S3Code.InvalidAccessKeyId,
            fields={"AWSAccessKeyId": access_key[:_FIELD_CHARACTERS_MAX]},
        )
        try:
            result = verify(self._stand_in if key is None else key.secret)
        except S3Error as error:
            if key is None and error.code is S3Code.SignatureDoesNotMatch:
                raise unknown from None
            raise
        if key is None:
            raise unknown
        return key, result

    async def admit(self, key: AccessKey | None, request: S3Request, look: RequestLook) -> Caller:
        """Return the caller of an admitted request. ``key``: None for a stranger.

        A stranger causes a look at the log only for a request open to strangers in a public bucket.
        Raises :class:`S3Error`.
        """
        if key is None and may_be_public(request):
            state = (await look.verified()).state
        else:
            state = (await self._buckets.index(self._timeout_s)).state
        check(key, request, partial(acl_of, state))
        return Caller() if key is None else Caller(key.id, key.name, key.buckets)

    async def while_admitted(
        self, caller: Caller, request: S3Request, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of a long answer until a revocation, or a narrower grant, is folded.

        A watch tells changes in the order of the log: no change behind a revocation is told.
        """
        async with aclosing(body):
            async for piece in body:
                state = (await self._buckets.index(self._timeout_s)).state
                check(self._found(state, caller.access_key), request, partial(acl_of, state))
                yield piece

    def _found(self, state: BucketState, id: str) -> AccessKey | None:
        """Return the key of an id in the index."""
        sealed = sealed_bytes(state.newest(KEYS_BUCKET, id))
        return None if sealed is None else self._unseal(id, sealed)

    def _unsealed(self, id: str, sealed: bytes) -> AccessKey | None:
        """Return the key in the sealed bytes; tell once of bytes that are no key."""
        key = self._seal.unseal(id, sealed)
        if key is None:
            _log.error(
                "the access key %s in bucket %s cannot be unsealed with the key of this gateway, "
                "and is refused: it was sealed with another gateway.key, by a newer release, or "
                "changed in the log",
                id,
                KEYS_BUCKET,
            )
        return key


def sealed_bytes(entry: ObjectEntry | None) -> bytes | None:
    """Return the content of a key's object; None if absent, no bytes if not in the index itself."""
    if entry is None or entry.marker:
        return None
    return entry.content.data
