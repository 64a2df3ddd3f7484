"""What `info` says of a path, in the fields that fsspec's users know."""

from typing import Any

from msgspec.msgpack import encode

from ares.fragment.divide import digest
from ares.fragment.read import FileState


def file_entry(path: str, state: FileState) -> dict[str, Any]:
    """``mtime`` and ``created`` in seconds since the epoch; ``version`` changes with every change of the content."""
    genesis = state.genesis
    version = str(state.tag)
    if not genesis.atomic:  # its blocks change without it
        version += f"-{digest(encode([(part.id, part.tag) for part in state.parts])).hex()}"
    times = {"created": float(genesis.modified_s), "mtime": float(genesis.modified_s)}
    return {"name": path, "size": state.length, "type": "file", "atomic": genesis.atomic, "version": version, **times}


def directory_entry(path: str) -> dict[str, Any]:
    """It has nothing but a name."""
    return {"name": path, "size": 0, "type": "directory"}
