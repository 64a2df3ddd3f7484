"""A linearizable, reconfigurable, erasure-coded distributed object store: ARES and ARES II.

    async with ares.connect("cluster.toml") as store:
        await store.write("key", b"value")

The names below are loaded at their first use: ``import ares``, or importing the protocol alone,
loads no transport.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ares.client.blocking import connect_blocking
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
        PositionTaken,
        Trimmed,
        Unavailable,
        Uncertain,
    )
    from ares.model.tag import Tag

    __version__: str

__all__ = [
    "AppendUncertain",
    "AresError",
    "BadInput",
    "BadMessage",
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
    "LeftBehind",
    "Log",
    "LogSealed",
    "LogStat",
    "MirrorTooOld",
    "NotAuthorized",
    "NotWritten",
    "ObjectNotFound",
    "ObjectsStuck",
    "PositionTaken",
    "Sizes",
    "StaleValue",
    "Tag",
    "Trimmed",
    "Unavailable",
    "Uncertain",
    "VersionedResult",
    "WriteReport",
    "__version__",
    "connect",
    "connect_blocking",
]

_ELSEWHERE = {
    "Configuration": "model.configuration",
    "Conflict": "fragment.report",
    "File": "client.file",
    "FileStat": "client.file",
    "FileWriter": "client.file",
    "LeftBehind": "model.errors",
    "Log": "client.shared_log",
    "LogStat": "client.shared_log",
    "ObjectsStuck": "model.errors",
    "Sizes": "fragment.divide",
    "StaleValue": "client.stale_reads",
    "Tag": "model.tag",
    "VersionedResult": "client.store",
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
