"""Names and entries of files and directories, in the form of fsspec.

A file's name is the path of the file, and a directory is a common prefix of file names.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.msgpack import encode

from ares.client.buckets.bucket_values import ObjectInfo
from ares.fragment.divide import digest
from ares.fragment.read import FileState


def canonical(path: str) -> str:
    """Return the name for ``path``: without empty segments, "" for the root."""
    return "/".join(segment for segment in path.split("/") if segment)


def below(directory: str) -> str:
    """Return the prefix of all names in ``directory``."""
    return f"{directory}/" if directory else ""


def within(names: Iterable[str], directory: str, depth: int | None) -> list[str]:
    """Return the ``names`` in ``directory`` at most ``depth`` levels down, in order.

    Depth 1: directly in the directory.
    """
    start = len(below(directory))
    return sorted(name for name in names if depth is None or name.count("/", start) < depth)


def directories(names: Iterable[str], directory: str, depth: int | None) -> list[str]:
    """Return the directories on the way to ``names``, at most ``depth`` levels down, in order."""
    start, found = len(below(directory)), set()
    for name in names:
        parents = name[start:].split("/")[:-1][:depth]
        found |= {name[:start] + "/".join(parents[:level]) for level in range(1, len(parents) + 1)}
    return sorted(found)


def file_entry(path: str, state: FileState) -> dict[str, Any]:
    """Return fsspec's entry for a file.

    ``mtime`` and ``created`` in seconds since the epoch; ``version`` changes with every change of
    the content.
    """
    genesis = state.genesis
    version = str(state.tag)
    if not genesis.atomic:  # the blocks of such a file change without its genesis block
        version += f"-{digest(encode([(part.id, part.tag) for part in state.parts])).hex()}"
    times = {"created": float(genesis.modified_s), "mtime": float(genesis.modified_s)}
    return {
        "name": path,
        "size": state.length,
        "type": "file",
        "atomic": genesis.atomic,
        "version": version,
        **times,
    }


def object_entry(path: str, info: ObjectInfo) -> dict[str, Any]:
    """Return fsspec's entry for an object of a bucket; times as of :func:`file_entry`."""
    modified_s = info.modified_ms / 1000
    return {
        "name": path,
        "size": info.size,
        "type": "file",
        "version": info.version,
        "etag": info.etag,
        "content_type": info.content_type,
        "created": modified_s,
        "mtime": modified_s,
    }


def directory_entry(path: str) -> dict[str, Any]:
    """Return fsspec's entry for a directory, which has only a name."""
    return {"name": path, "size": 0, "type": "directory"}
