"""A linearizable, reconfigurable, erasure-coded distributed object store: ARES and ARES II.

    async with ares.connect("cluster.toml") as store:
        await store.write("key", b"value")

The names below are loaded at their first use: ``import ares``, or importing the protocol alone,
loads no transport.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ares.bucket.bucket_requests import SessionEnded
    from ares.bucket.lifecycle.lifecycle_rules import LifecycleRule
    from ares.bucket.watching.changes_at import WatchGap
    from ares.client.blocking import connect_blocking
    from ares.client.buckets.bucket_errors import (
        BucketExists,
        BucketNotEmpty,
        BucketNotFound,
        BucketsExist,
        BucketsMissing,
        ChangeRefused,
        ChangeUncertain,
        ChunkLost,
        IndexBehind,
        IndexStopped,
        PreconditionFailed,
        UploadNotFound,
    )
    from ares.client.buckets.bucket_objects import Bucket
    from ares.client.buckets.bucket_uploads import BucketUpload
    from ares.client.buckets.bucket_values import (
        BucketInfo,
        BucketSettings,
        CommonPrefix,
        ListedVersion,
        ObjectInfo,
        PartInfo,
        SweepReport,
        UploadInfo,
    )
    from ares.client.buckets.bucket_watch import BucketChange, BucketEvent
    from ares.client.buckets.found_object import FoundObject
    from ares.client.connect import connect
    from ares.client.file import File, FileStat, FileWriter
    from ares.client.shared_log import Log, LogStat
    from ares.client.stale_reads import StaleValue
    from ares.client.store import VersionedResult
    from ares.fragment.divide import Sizes
    from ares.fragment.report import Conflict, WriteReport
    from ares.model.configuration import Configuration
    from ares.model.errors import (
        AppendUncertain,
        AresError,
        BadInput,
        BadMessage,
        ConfigurationRefused,
        ConsensusUnavailable,
        DecodeFailed,
        DomainNotFound,
        FileChanged,
        LeftBehind,
        LogSealed,
        MirrorTooOld,
        NotAuthorized,
        NotWritten,
        ObjectNotFound,
        ObjectsStuck,
        ObjectWatchGap,
        PositionTaken,
        Trimmed,
        Unavailable,
        Uncertain,
    )
    from ares.model.tag import Tag
    from ares.registers.object_watch import ObjectNotice

    __version__: str

__all__ = [
    "AppendUncertain",
    "AresError",
    "BadInput",
    "BadMessage",
    "Bucket",
    "BucketChange",
    "BucketEvent",
    "BucketExists",
    "BucketInfo",
    "BucketNotEmpty",
    "BucketNotFound",
    "BucketSettings",
    "BucketUpload",
    "BucketsExist",
    "BucketsMissing",
    "ChangeRefused",
    "ChangeUncertain",
    "ChunkLost",
    "CommonPrefix",
    "Configuration",
    "ConfigurationRefused",
    "Conflict",
    "ConsensusUnavailable",
    "DecodeFailed",
    "DomainNotFound",
    "File",
    "FileChanged",
    "FileStat",
    "FileWriter",
    "FoundObject",
    "IndexBehind",
    "IndexStopped",
    "LeftBehind",
    "LifecycleRule",
    "ListedVersion",
    "Log",
    "LogSealed",
    "LogStat",
    "MirrorTooOld",
    "NotAuthorized",
    "NotWritten",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectNotice",
    "ObjectWatchGap",
    "ObjectsStuck",
    "PartInfo",
    "PositionTaken",
    "PreconditionFailed",
    "SessionEnded",
    "Sizes",
    "StaleValue",
    "SweepReport",
    "Tag",
    "Trimmed",
    "Unavailable",
    "Uncertain",
    "UploadInfo",
    "UploadNotFound",
    "VersionedResult",
    "WatchGap",
    "WriteReport",
    "__version__",
    "connect",
    "connect_blocking",
]

_ELSEWHERE = {
    "Bucket": "client.buckets.bucket_objects",
    "BucketChange": "client.buckets.bucket_watch",
    "BucketEvent": "client.buckets.bucket_watch",
    "BucketExists": "client.buckets.bucket_errors",
    "BucketInfo": "client.buckets.bucket_values",
    "BucketNotEmpty": "client.buckets.bucket_errors",
    "BucketNotFound": "client.buckets.bucket_errors",
    "BucketSettings": "client.buckets.bucket_values",
    "BucketUpload": "client.buckets.bucket_uploads",
    "BucketsExist": "client.buckets.bucket_errors",
    "BucketsMissing": "client.buckets.bucket_errors",
    "ChangeRefused": "client.buckets.bucket_errors",
    "ChangeUncertain": "client.buckets.bucket_errors",
    "ChunkLost": "client.buckets.bucket_errors",
    "CommonPrefix": "client.buckets.bucket_values",
    "Configuration": "model.configuration",
    "Conflict": "fragment.report",
    "File": "client.file",
    "FileStat": "client.file",
    "FileWriter": "client.file",
    "FoundObject": "client.buckets.found_object",
    "IndexBehind": "client.buckets.bucket_errors",
    "IndexStopped": "client.buckets.bucket_errors",
    "LeftBehind": "model.errors",
    "LifecycleRule": "bucket.lifecycle.lifecycle_rules",
    "ListedVersion": "client.buckets.bucket_values",
    "Log": "client.shared_log",
    "LogStat": "client.shared_log",
    "ObjectInfo": "client.buckets.bucket_values",
    "ObjectNotice": "registers.object_watch",
    "ObjectsStuck": "model.errors",
    "PartInfo": "client.buckets.bucket_values",
    "PreconditionFailed": "client.buckets.bucket_errors",
    "SessionEnded": "bucket.bucket_requests",
    "Sizes": "fragment.divide",
    "StaleValue": "client.stale_reads",
    "SweepReport": "client.buckets.bucket_values",
    "Tag": "model.tag",
    "UploadInfo": "client.buckets.bucket_values",
    "UploadNotFound": "client.buckets.bucket_errors",
    "VersionedResult": "client.store",
    "WatchGap": "bucket.watching.changes_at",
    "WriteReport": "fragment.report",
    "connect": "client.connect",
    "connect_blocking": "client.blocking",
}
"""The module of every lazy name except errors."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ares' has no attribute {name!r}")
    if name == "__version__":
        from ares.platform.release import version

        return version()
    value = getattr(importlib.import_module(f"ares.{_ELSEWHERE.get(name, 'model.errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
