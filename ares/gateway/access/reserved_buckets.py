"""The buckets of the gateways themselves, which no request over S3 reaches."""

KEYS_BUCKET = "ares-gateway-keys"
"""The bucket with an object for each access key."""

_RESERVED_PREFIX = "ares-gateway-"


def is_reserved(bucket: str) -> bool:
    """Return whether a bucket of this name belongs to the gateways."""
    return bucket.startswith(_RESERVED_PREFIX)
