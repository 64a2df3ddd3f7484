"""Paths: a file's name is its path, and a directory is what the names of several files begin with."""

from collections.abc import Iterable, Iterator


def canonical(path: str) -> str:
    """The name for ``path``: without empty segments, "" for the root."""
    return "/".join(segment for segment in path.split("/") if segment)


def below(directory: str) -> str:
    """What the names of everything in ``directory`` begin with."""
    return f"{directory}/" if directory else ""


def within(names: Iterable[str], directory: str, depth: int | None) -> list[str]:
    """Those of the ``names`` in ``directory`` that are at most ``depth`` levels down (1: directly in it), in order."""
    start = len(below(directory))
    return sorted(name for name in names if depth is None or name.count("/", start) < depth)


def directories(names: Iterable[str], directory: str, depth: int | None) -> list[str]:
    """The directories in ``directory`` that the ``names`` go through, at most ``depth`` levels down, in order."""
    start = len(below(directory))
    return sorted({parent for name in names for parent in _parents(name, start, depth)})


def _parents(name: str, start: int, depth: int | None) -> Iterator[str]:
    level, slash = 1, name.find("/", start)
    while slash >= 0 and (depth is None or level <= depth):
        yield name[:slash]
        level, slash = level + 1, name.find("/", slash + 1)
