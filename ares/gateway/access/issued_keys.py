"""The issue, listing and revocation of access keys, for operators.

The first key of a cluster comes with a new seal. An object beside the keys has the fingerprint of
the seal, put if absent: of operators with different seals one wins. An operator or a gateway with a
wrong seal gets an error about the seal's file, before a client gets an error about its key.
"""

from pathlib import Path
from typing import NamedTuple

from ares.bucket.index_records import INDEX_DATA_BYTES_MAX
from ares.client.buckets.bucket_errors import KeyNotFound, PreconditionFailed
from ares.client.buckets.bucket_objects import Bucket
from ares.client.buckets.bucket_values import CommonPrefix
from ares.gateway.access.sealed_keys import AccessKey, GatewaySeal, is_access_key_id, is_there
from ares.model.errors import AresError, BadInput

FINGERPRINT_KEY = "fingerprint-of-gateway.key"
FINGERPRINT_BYTES_MAX = 64


class AccessKeyNotFound(AresError):
    """No access key has this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no access key {id!r}; nothing was changed")


class IssuedKey(NamedTuple):
    """An object in the bucket of keys. ``key``: None for bytes under another seal."""

    id: str
    made_ms: int
    key: AccessKey | None


async def open_seal(keys: Bucket, cluster_file: Path, path: Path) -> GatewaySeal:
    """Return the seal in the file at ``path``, made if the cluster has none yet.

    Raises :class:`ares.BadInput` if the file is missing or has another seal than the cluster.
    """
    kept = await _fingerprint(keys)
    if not is_there(path):
        if kept is not None:
            raise BadInput(
                f"{path} is missing, and the access keys of this cluster are sealed with it: copy "
                "it from a gateway, or from the machine that made the first key, or name it with "
                "--seal-key. Nothing was changed; docs/security.md tells what to do if it is lost"
            )
        GatewaySeal.make(path)  # durable before the first word about it
    seal = GatewaySeal.read(cluster_file, path)
    if kept is None:
        try:
            await keys.put(FINGERPRINT_KEY, seal.fingerprint.encode(), if_absent=True)
        except PreconditionFailed:
            kept = await _fingerprint(keys)
    check_fingerprint(seal, kept, path)
    return seal


async def seal_in_use(keys: Bucket, cluster_file: Path, path: Path) -> GatewaySeal:
    """Return the seal in the file at ``path``, for a gateway.

    Raises :class:`ares.BadInput` if the file is missing or has another seal than the cluster.
    """
    seal = GatewaySeal.read(cluster_file, path)
    check_fingerprint(seal, await _fingerprint(keys), path)
    return seal


def check_fingerprint(seal: GatewaySeal, kept: str | None, path: Path) -> None:
    """Raise :class:`ares.BadInput` if the cluster keeps another seal's fingerprint."""
    if kept not in (None, seal.fingerprint):
        raise BadInput(
            f"{path} is another key than the one of this cluster's gateways, which the access keys "
            "are sealed with: copy that one from a gateway, or from the machine that made the "
            "first key. Nothing was changed; docs/security.md tells what to do if it is lost"
        )


async def _fingerprint(keys: Bucket) -> str | None:
    try:
        found = await keys.get(FINGERPRINT_KEY, length=FINGERPRINT_BYTES_MAX)
    except KeyNotFound:
        return None
    return (await found.read()).decode("ascii", "replace")


async def issue(keys: Bucket, seal: GatewaySeal, key: AccessKey) -> None:
    """Keep a new key."""
    await keys.put(key.id, seal.seal(key), if_absent=True)


async def issued_keys(keys: Bucket, seal: GatewaySeal) -> list[IssuedKey]:
    """Return all keys, in the order of their ids."""
    issued = []
    async for entry in keys.list():
        if isinstance(entry, CommonPrefix) or not is_access_key_id(entry.key):
            continue
        key = None
        if entry.size <= INDEX_DATA_BYTES_MAX:
            try:
                found = await keys.get(entry.key)
            except KeyNotFound:
                continue  # revoked meanwhile
            key = seal.unseal(entry.key, await found.read())
        issued.append(IssuedKey(entry.key, entry.modified_ms, key))
    return issued


async def revoke(keys: Bucket, id: str) -> None:
    """Revoke a key: every request that begins after the return is refused.

    Raises :class:`AccessKeyNotFound`, and :class:`ares.BadInput` for a text without the form of an
    id; the error does not repeat the text, which may be a secret.
    """
    if not is_access_key_id(id):
        raise BadInput("an access key's id has ARES and 16 letters or digits; nothing was changed")
    try:
        await keys.delete(id)
    except KeyNotFound:
        raise AccessKeyNotFound(id) from None
