"""Citations of lines of ARES II's algorithms in source files, such as `Alg. 3:9-22`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRANSCRIPTION = "ares/testing/published"
"""The package that has the algorithms as they are printed."""

_lines = r"(\d+)(?:-(\d+))?\b"
_citation = re.compile(
    rf"\bAlg\.\s+(?:#\s+)?\d+:{_lines}(?:(?:,|\s+and)\s+(?:#\s+)?(?:\d+:)?{_lines})*"
)
_part = re.compile(rf"(?:(\d+):)?{_lines}")
_definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Citation(NamedTuple):
    """A citation of lines ``first`` to ``last`` of an algorithm, at ``path::name`` or in a module.

    ``name``: the function, class, or method that holds the citation; empty for a module.
    """

    algorithm: int
    first: int
    last: int
    path: str
    name: str

    @property
    def length(self) -> int:
        return self.last - self.first

    @property
    def place(self) -> str:
        return f"{self.path}::{self.name}" if self.name else self.path


def citations(path: str, text: str) -> Iterator[Citation]:
    """Yield the citations of a Python file, with the innermost definition of each.

    ``Alg. 1:17-23, 40-46 and 2:1`` are three. A part inherits the algorithm of its predecessor.
    """
    named = definitions(text) if _citation.search(text) else []
    for found in _citation.finditer(text):
        at = text.count("\n", 0, found.start()) + 1
        holding = [name for first, last, name in named if first <= at <= last]
        name = max(holding, key=len, default="")
        algorithm = ""
        for part in _part.finditer(found[0]):
            algorithm = part[1] or algorithm
            yield Citation(int(algorithm), int(part[2]), int(part[3] or part[2]), path, name)


def definitions(text: str) -> list[tuple[int, int, str]]:
    """Return first line, last line and name of functions, classes and methods.

    A definition within a function belongs to the function.
    """
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, _definitions):
            found.append((node.lineno, node.end_lineno or 0, node.name))
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found += [
                (each.lineno, each.end_lineno or 0, f"{node.name}.{each.name}")
                for each in inner
                if isinstance(each, _definitions)
            ]
    return found


def defined(text: str) -> set[str]:
    """Return the names that a file defines: also those of values."""
    values = {
        target.id
        for node in ast.parse(text).body
        for target in (
            [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        )
        if isinstance(target, ast.Name)
    }
    return values | {name for _, _, name in definitions(text)}


def cited_in(root: Path, folder: str) -> list[Citation]:
    """Return the citations in the Python files of a folder of the checkout."""
    return [
        citation
        for file in sorted((root / folder).rglob("*.py"))
        for citation in citations(
            file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        )
    ]
