"""The rules of the architecture, as functions over a source tree: each returns the sentences that say what is broken, and where.

A module's floor is that of the longest entry of FLOORS that it begins with. Imports point down or stay on their floor; what is imported only for type
checkers does not count.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FLOORS = {
    **dict.fromkeys(["ares.identity", "ares.tag", "ares.value", "ares.configuration", "ares.quorum", "ares.messages", "ares.pointer"], 0),
    **dict.fromkeys(["ares.effects", "ares.errors", "ares.codec", "ares.version", "ares.readiness", "ares.envelope", "ares.consensus_messages"], 0),
    "ares.object_errors": 0,
    **dict.fromkeys(["ares.dap", "ares.reconfig", "ares.verify"], 1),
    **dict.fromkeys(["ares.server", "ares.client", "ares.fragment"], 2),
    "ares.runtime": 3,
    "ares.interpreter": 3,
    **dict.fromkeys(["ares.server.host", "ares.server.durable_host", "ares.server.durable_server"], 4),
    **dict.fromkeys(["ares.server.reclaiming", "ares.server.repairs", "ares.server.scrubbing"], 4),
    **dict.fromkeys(["ares.client.manager", "ares.client.store", "ares.client.runner"], 4),
    **dict.fromkeys(["ares.client.autopilot", "ares.client.flight", "ares.client.bulletin"], 4),
    **dict.fromkeys(["ares.fragment.store", "ares.fragment.local", "ares.fragment.remembered", "ares.fragment.writer"], 4),
    **dict.fromkeys(["ares.cli", "ares.api", "ares.blocking", "ares.filesystem", "ares.torture", "ares.sim", "ares.__main__", "ares.__init__"], 5),
}
SIMULATED = ("ares.runtime.ports", "ares.runtime.journal_")
"""What the simulator runs of the adapters: the journal, on a model of a disk."""

PURE_FLOORS = 2
PORTS = ("ares.runtime.ports", "ares.runtime.logs", "ares.runtime.resident")
"""What a shell may know of the world: seams, from which level on to log, and how much memory there is."""

SHELLS = 4
ENTRY_POINTS = 5

IMPURE = {
    "asyncio", "concurrent", "fcntl", "logging", "multiprocessing", "os", "pathlib", "pysyncobj", "queue", "random", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid", "uvloop", "zmq", "datetime", "io", "aetcd", "grpc",
    "nacl",
}  # fmt: skip

OWNERS = {
    "zmq": "ares.runtime.zmq_",
    "nacl": "ares.runtime.curve",
    "pysyncobj": "ares.runtime.raft_",
    "aetcd": "ares.runtime.etcd_",
    "grpc": "ares.runtime.etcd_",
    "pyeclib": "ares.dap.coding",
    "fastcdc": "ares.fragment.division",
    "fsspec": "ares.filesystem",
    "prometheus_client": "ares.runtime.prometheus",
    "rapidfuzz": "ares.fragment.matching",
}
"""The only modules (by prefix) that may import a library."""

FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
JUNK_DRAWERS = {"utils", "util", "helpers", "common", "misc"}


class Import(NamedTuple):
    importer: str
    imported: str


class Module(NamedTuple):
    name: str
    path: Path
    text: str
    tree: ast.Module


def modules(root: Path) -> list[Module]:
    """Every module of the package ``root``, a directory named after it."""
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts if len(parts) == 2 or parts[-1] != "__init__" else parts[:-1])
        found.append(Module(name, path, text, ast.parse(text)))
    return found


def imports(module: Module, names: set[str]) -> Iterator[Import]:
    """What the module imports, inside functions too; ``names``: the package's modules, to tell a submodule from a name."""
    for node in _without_type_checking(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module.name, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield Import(module.name, whole if whole in names else base)


def _without_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        yield child
        yield from _without_type_checking(child)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.path.name == "__init__.py" and module.name.count(".") != 1 else module.name.split(".")[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, node.module] if node.module else package)


def floor(name: str) -> int | None:
    """None: the architecture does not say."""
    while name:
        if name in FLOORS:
            return FLOORS[name]
        name = name.rpartition(".")[0]
    return None


def _edges(tree: list[Module]) -> list[Import]:
    names = {module.name for module in tree}
    return [edge for module in tree for edge in imports(module, names)]


def _inner(tree: list[Module]) -> list[Import]:
    """Edges between modules of the package; importing the package itself is importing its entry."""
    inner = [edge for edge in _edges(tree) if _top(edge.imported) == "ares"]
    return [Import(edge.importer, "ares.__init__" if edge.imported == "ares" else edge.imported) for edge in inner]


def _top(name: str) -> str:
    return name.partition(".")[0]


def homeless(tree: list[Module]) -> list[str]:
    return [f"{module.name} has no floor: decide where it belongs and add it to FLOORS" for module in tree if floor(module.name) is None]


def upward(tree: list[Module]) -> list[str]:
    """Imports from a higher floor; within floor 1 reconfig stands above dap."""
    broken = []
    for importer, imported in _inner(tree):
        own, other = floor(importer), floor(imported)
        if own is not None and other is not None and other > own:
            broken.append(f"{importer} (floor {own}) imports {imported} (floor {other})")
        if importer.startswith("ares.dap") and imported.startswith("ares.reconfig"):
            broken.append(f"{importer} imports {imported}: reconfig stands above dap")
    return broken


def impure(tree: list[Module]) -> list[str]:
    edges = [edge for edge in _edges(tree) if (floor(edge.importer) or 0) <= PURE_FLOORS and _top(edge.imported) in IMPURE]
    return [f"{edge.importer} imports {edge.imported} below the purity line: take it as an argument" for edge in edges]


def strangers(tree: list[Module]) -> list[str]:
    """Client and server import each other; a shell names an adapter; the simulator reaches for real ones."""
    broken = []
    for importer, imported in _inner(tree):
        if {".".join(importer.split(".")[:2]), ".".join(imported.split(".")[:2])} == {"ares.client", "ares.server"}:
            broken.append(f"{importer} imports {imported}: client and server never import each other")
        if floor(importer) == SHELLS and floor(imported) == 3 and imported not in PORTS:
            broken.append(f"{importer} imports {imported}: only entry points and tests name adapters")
        if importer.startswith("ares.sim") and imported.startswith("ares.runtime") and not imported.startswith(SIMULATED):
            broken.append(f"{importer} imports {imported}: the simulator stands beside the adapters")
    return broken


def foreign_libraries(tree: list[Module]) -> list[str]:
    broken = []
    for importer, imported in _edges(tree):
        owner = OWNERS.get(_top(imported))
        if owner is not None and not importer.startswith(owner):
            broken.append(f"{importer} imports {imported}, which only {owner}* may")
    return broken


def shape(tree: list[Module]) -> list[str]:
    """Too long files and functions, bare excepts, junk drawers."""
    broken = []
    for module in tree:
        lines = module.text.count("\n")
        if lines > FILE_LINES_MAX:
            broken.append(f"{module.name} has {lines} lines, at most {FILE_LINES_MAX}")
        if module.name.split(".")[-1] in JUNK_DRAWERS:
            broken.append(f"{module.name}: name it after what it holds")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    broken.append(f"{module.name}.{node.name} has {length} lines, at most {FUNCTION_LINES_MAX}")
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                broken.append(f"{module.name}:{node.lineno}: bare except")
    return broken


INPUT_CHECKERS = ("ares.codec", "ares.runtime.settings", "ares.runtime.cluster_tables", "ares.runtime.cluster_file", "ares.cli.", "ares.server.")
"""Modules whose business is what users, files and the network bring."""


def asserted_input(tree: list[Module]) -> list[str]:
    """``assert`` where input is checked, and anywhere about a function's own parameter: input raises a named error."""
    broken = []
    for module in tree:
        for function in [module.tree, *(node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]:
            public = isinstance(function, ast.Module) or not function.name.startswith("_")
            for node in _own_asserts(function):
                if module.name.startswith(INPUT_CHECKERS):
                    broken.append(f"{module.name}:{node.lineno}: assert in a module that checks input")
                elif public and not isinstance(function, ast.Module) and _begins_with(node.test, _parameters(function)):
                    broken.append(f"{module.name}:{node.lineno}: assert on an argument of {function.name}")
    return broken


def _own_asserts(function: ast.AST) -> Iterator[ast.Assert]:
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Assert):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own_asserts(child)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    return {argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]} - {"self", "cls"}


def _begins_with(test: ast.expr, parameters: set[str]) -> bool:
    """Whether the condition is about a bare parameter: ``assert timeout_s > 0``, ``assert isinstance(key, str)``, ``assert key``."""
    return any(isinstance(node, ast.Name) and node.id in parameters for node in ast.walk(test))


PYTHON = "ares.interpreter"
_INTERPRETER = re.compile(r"(.*/)?python[0-9.]*")
_UNSAFE = re.compile(r"python[0-9.]* -m ares\b")


def starting_python(tree: list[Module]) -> list[str]:
    """Python that was not started by ``ares.interpreter.python``, and may import from the working directory; or advice to start it so."""
    broken = []
    for module in tree:
        for node in ast.walk(module.tree) if module.name != PYTHON else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                broken.append(f"{module.name}:{node.lineno}: sys.executable: only {PYTHON} starts Python")
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _INTERPRETER.fullmatch(node.value):
                broken.append(f"{module.name}:{node.lineno}: {node.value}: only {PYTHON} starts Python")
        broken += unsafe_advice(module.name, module.text)
    return broken


def unsafe_advice(name: str, text: str) -> list[str]:
    return [f"{name}: {found[0]}: say python -P -m" for found in _UNSAFE.finditer(text)]


RULES = {rule.__name__: rule for rule in (homeless, upward, impure, strangers, foreign_libraries, shape, asserted_input, starting_python)}
