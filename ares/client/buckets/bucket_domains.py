"""The domains of buckets: the log of the index, the blobs, and the snapshots."""

from ares.client.buckets.bucket_errors import BucketsExist, BucketsMissing
from ares.client.domain_directory import DomainDirectory
from ares.client.shared_log import Log
from ares.client.store import ObjectStore
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, DomainNotFound

INDEX_LOG = "s3/meta/0"
"""The log of the index; later partitions have the next numbers."""

BLOB_DOMAIN = "s3/blobs"
SNAPSHOT_DOMAIN = "s3/snapshots"

INDEX_SERVERS = 3
"""Servers of the log's chain, the first of the blobs' servers."""


def bucket_configurations(blobs: Configuration) -> dict[str, Configuration]:
    """Return the first configurations of the domains, by name, on the servers of ``blobs``.

    ``blobs``: of the blobs, ABD or EC, made write-once here.
    """
    if blobs.dap == "chain":
        raise BadInput("blobs are replicated (abd) or erasure-coded (ec), and never in a chain")
    servers, weak = blobs.servers, blobs.crashes_survived == 0
    write_once = (
        Configuration.abd(servers, write_once=True, allow_no_faults=weak)
        if blobs.dap == "abd"
        else Configuration.ec(
            servers, blobs.k, blobs.delta, blobs.code, write_once=True, allow_no_faults=weak
        )
    )
    chain = servers[:INDEX_SERVERS]
    return {
        INDEX_LOG: Configuration.chain(chain, allow_no_faults=weak),
        BLOB_DOMAIN: write_once,
        SNAPSHOT_DOMAIN: Configuration.abd(servers, write_once=True, allow_no_faults=weak),
    }


async def make_bucket_domains(
    directory: DomainDirectory, blobs: Configuration, timeout_s: float | None
) -> dict[str, Configuration]:
    """Make the domains that are not there yet, and return all of them.

    Raises :class:`BucketsExist` if all of them were there.
    """
    made, found = False, {}
    for name, wished in bucket_configurations(blobs).items():
        try:
            there = await directory.domain_or_log(name, timeout_s=timeout_s)
        except DomainNotFound:
            create = directory.create_log if wished.dap == "chain" else directory.create_domain
            made, there = True, (await create(name, wished, timeout_s=timeout_s))[0]
        found[name] = there.configuration
    if not made:
        raise BucketsExist(BLOB_DOMAIN, found[BLOB_DOMAIN].describe())
    return found


async def open_bucket_domains(
    directory: DomainDirectory, timeout_s: float | None
) -> tuple[Log, ObjectStore, ObjectStore]:
    """Return the log of the index, and the domains of blobs and of snapshots.

    Raises :class:`BucketsMissing`.
    """
    try:
        log = await directory.log(INDEX_LOG, timeout_s=timeout_s)
        blobs = await directory.domain(BLOB_DOMAIN, timeout_s=timeout_s)
        return log, blobs, await directory.domain(SNAPSHOT_DOMAIN, timeout_s=timeout_s)
    except DomainNotFound:
        raise BucketsMissing from None
