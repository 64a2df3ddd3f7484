"""Citations of lines of ARES II's algorithms in source files, such as `Alg. 3:9-22`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRANSCRIPTION = "ares/testing/published"
"""The package that has the algorithms as they are printed."""

_citation = re.compile(r"\bAlg\.\s+(?:#\s+)?(\d+):(\d+)(?:-(\d+))?")
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
    """Yield the citations of a Python file, with the innermost definition of each."""
    named = definitions(text) if _citation.search(text) else []
    for found in _citation.finditer(text):
        at = text.count("\n", 0, found.start()) + 1
        holding = [name for first, last, name in named if first <= at <= last]
        first = int(found[2])
        name = max(holding, key=len, default="")
        yield Citation(int(found[1]), first, int(found[3] or first), path, name)


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
