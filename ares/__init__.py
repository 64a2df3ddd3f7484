"""A linearizable, reconfigurable, erasure-coded distributed object store: ARES and ARES II.

    async with ares.connect("cluster.toml") as store:
        await store.write("key", b"value")

The names below are looked up when they are first used, so that ``import ares``, or importing the protocol alone, loads no transport.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ares.version import VERSION as __version__

if TYPE_CHECKING:
    from ares.api import connect
    from ares.blocking import connect_blocking
    from ares.client.store import VersionedResult
    from ares.configuration import Configuration
    from ares.errors import (
        AresError,
        BadInput,
        BadMessage,
        ConfigurationRefused,
        ConsensusUnavailable,
        DecodeFailed,
        DomainNotFound,
        FileChanged,
        NotAuthorized,
        ObjectNotFound,
        Unavailable,
    )
    from ares.fragment.division import Sizes
    from ares.fragment.report import Conflict, WriteReport
    from ares.fragment.store import File, FileStat
    from ares.fragment.writer import FileWriter
    from ares.object_errors import LeftBehind, ObjectsStuck
    from ares.tag import Tag

__all__ = [
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
    "NotAuthorized",
    "ObjectNotFound",
    "ObjectsStuck",
    "Sizes",
    "Tag",
    "Unavailable",
    "VersionedResult",
    "WriteReport",
    "__version__",
    "connect",
    "connect_blocking",
]

_ELSEWHERE = {
    "Configuration": "configuration",
    "Conflict": "fragment.report",
    "File": "fragment.store",
    "FileStat": "fragment.store",
    "FileWriter": "fragment.writer",
    "LeftBehind": "object_errors",
    "ObjectsStuck": "object_errors",
    "Sizes": "fragment.division",
    "Tag": "tag",
    "VersionedResult": "client.store",
    "WriteReport": "fragment.report",
    "connect": "api",
    "connect_blocking": "blocking",
}
"""The module of every lazy name that is not an error."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ares' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ares.{_ELSEWHERE.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
