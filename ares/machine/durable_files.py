"""Directories and small files that are there after a power cut once a function here has returned."""

import os
from pathlib import Path

from ares.machine.ownership import opener


def make_directory(directory: Path, mode: int = 0o700) -> None:
    """With its missing parents, every entry synced: a claim in a directory that vanishes in a power cut would be none."""
    if not directory.is_dir():
        if directory.parent != directory:
            make_directory(directory.parent, mode)
        directory.mkdir(mode=mode, exist_ok=True)
        sync(directory.parent)


def replace_durably(path: Path, text: str) -> None:
    """Whatever happens, the file holds its old content or ``text``, never a part."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "w", encoding="ascii", opener=opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """fsync of a directory or file; on Linux that covers what others wrote to a file through a memory map."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
