"""The rules of the architecture, as functions over a source tree.

Each function returns sentences with the faults and their places. A folder is a floor. PACKAGES has
the folders of ``ares``, lowest first: imports point down, or stay in the folder. Imports for type
checkers alone count for circles of modules, and for no other rule.
"""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PURE = (
    *("model", "engine", "dap", "reconfig", "replica", "registers", "fragment", "sharedlog"),
    "bucket",
)
"""Packages without clock, socket, disk and random source."""

PURE_PARTS = ("ares.gateway.signing.",)
"""Parts, by prefix, of packages above the line, without clock, socket, disk and random source."""

PACKAGES = (
    *PURE,
    *("platform", "compiled", "metrics", "security", "cluster", "net", "store"),
    *("consensus", "tracing", "results"),
    *("client", "autopilot", "server", "gateway", "filesystem", "testing", "cli"),
    *("__main__", "__init__"),
)

IMPURE = {
    "asyncio", "concurrent", "fcntl", "logging", "multiprocessing", "os", "pathlib", "pysyncobj",
    "queue", "random", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "sqlite3",
    "subprocess", "sys", "tempfile", "threading", "time", "uuid",
    "uvloop", "zmq", "datetime", "io", "aetcd", "grpc",
    "nacl",
}  # fmt: skip

ADAPTERS = ("ares.net.", "ares.consensus.", "ares.store.")
"""Packages behind the ports: named only by modules that assemble a program."""

ROOTS = ("ares.client.connect", "ares.server.", "ares.testing.", "ares.cli.")
SHELLS = (
    "ares.server.storage_server",
    "ares.server.commit_loop",
    "ares.server.hosted_logs",
    "ares.server.hosted_log",
    "ares.server.space_reclaimer",
    "ares.server.scrub",
    "ares.server.log_scrub",
    "ares.server.storage_process",
)
"""Modules of a server as such, which know ports only: the simulator runs them."""

OWNERS = {
    "zmq": "ares.net.libzmq",
    "nacl": ("ares.net.zmtp.curve", "ares.gateway.access.sealed_keys"),
    "pysyncobj": "ares.consensus.raft.",
    "aetcd": "ares.consensus.etcd",
    "grpc": "ares.consensus.etcd",
    "pyeclib": "ares.dap.coding",
    "fastcdc": "ares.fragment.divide",
    "awscrt": "ares.gateway.signing.checksums",
    "fsspec": "ares.filesystem",
    "prometheus_client": "ares.server.prometheus",
    "rapidfuzz": "ares.fragment.match",
    "httptools": "ares.gateway.http.s3_connection",
    "influxdb_client": "ares.results.influx",
    "opentelemetry": "ares.tracing.",
}
"""The only modules (by prefix) with the right to import a library."""

WIRE = "ares.net.zmtp."
WIRE_KNOWS = (WIRE, "ares.model.errors", "ares.model.codec")
"""Modules of ``ares`` open to the wire protocol: errors, and the limits of a frame."""

LIBZMQ = "ares.net.libzmq"
LIBZMQ_CHOOSERS = (LIBZMQ, "ares.net.transports")

FILE_LINES_MAX = 780
FUNCTION_LINES_MAX = 60
"""Lines of a body below the signature and the docstring."""
FOLDER_FILES_MAX = 15
JUNK_DRAWERS = {"utils", "util", "helpers", "common", "misc"}
SHARED_NAMES = {"__init__", "__main__", "port", "conftest"}
"""Module names which may occur several times."""

ANSIBLE_CLASSES = {"ActionModule", "CallbackModule"}
"""Names of classes by which Ansible finds a plugin."""


class Import(NamedTuple):
    importer: str
    imported: str


class Module(NamedTuple):
    name: str
    path: Path
    text: str
    tree: ast.Module


def modules(root: Path) -> list[Module]:
    """Return every module of the package ``root``, a directory named after the package."""
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts if len(parts) == 2 or parts[-1] != "__init__" else parts[:-1])
        found.append(Module(name, path, text, ast.parse(text)))
    return found


def imports(module: Module, names: set[str], types: bool = False) -> Iterator[Import]:
    """Yield the imports of a module, with imports inside functions.

    ``names`` has the package's modules, which distinguish a submodule from a name in a module.
    ``types``: yield the imports for type checkers, too.
    """
    for node in _import_statements(module, types):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module.name, alias.name)
        else:
            base = _absolute(module, node)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield Import(module.name, whole if whole in names else base)


@functools.cache
def _import_statements(module: Module, types: bool) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Find the import statements of a module; imports for type checkers only with ``types``."""
    found, nodes = [], [module.tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module):
            checking = isinstance(node, ast.If) and ast.unparse(node.test) in (
                "TYPE_CHECKING",
                "typing.TYPE_CHECKING",
            )
            nodes += () if checking and not types else ast.iter_child_nodes(node)
    return tuple(found)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = (
        module.name.split(".")
        if module.path.name == "__init__.py" and module.name.count(".") != 1
        else module.name.split(".")[:-1]
    )
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, node.module] if node.module else package)


def package(name: str) -> str:
    """Return the folder of ``ares`` with the module, or the module's own name."""
    return name.split(".")[1] if "." in name else "__init__"


def _edges(tree: list[Module], types: bool = False) -> list[Import]:
    names = {module.name for module in tree}
    return [edge for module in tree for edge in imports(module, names, types)]


def _inner(tree: list[Module]) -> list[Import]:
    """Return the edges between modules of the package.

    An import of the package itself is an import of the package's entry.
    """
    inner = [edge for edge in _edges(tree) if _top(edge.imported) == "ares"]
    return [
        Import(edge.importer, "ares.__init__" if edge.imported == "ares" else edge.imported)
        for edge in inner
    ]


def _top(name: str) -> str:
    return name.partition(".")[0]


def homeless(tree: list[Module]) -> list[str]:
    return [
        f"{module.name}: ares.{package(module.name)} is not among PACKAGES"
        for module in tree
        if package(module.name) not in PACKAGES
    ]


def upward(tree: list[Module]) -> list[str]:
    """Find imports from a higher package."""
    return [
        f"{importer} imports {imported}, which is above it"
        for importer, imported in _inner(tree)
        if package(importer) in PACKAGES
        and package(imported) in PACKAGES[PACKAGES.index(package(importer)) + 1 :]
    ]


def cycles(tree: list[Module]) -> list[str]:
    """Find circles of modules, of any length, also circles of types alone.

    A reader of one module of a circle has to read them all.
    """
    names = {module.name for module in tree}
    below: dict[str, set[str]] = defaultdict(set)
    for importer, imported in _edges(tree, types=True):
        if imported in names:
            below[importer].add(imported)
    broken: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            broken.append(f"a cycle of imports: {' -> '.join([*path[path.index(name) :], name])}")
        elif name not in done:
            for other in sorted(below[name]):
                visit(other, [*path, name])
            done.add(name)

    for name in sorted(names):
        visit(name, [])
    return broken


def impure(tree: list[Module]) -> list[str]:
    edges = [
        edge
        for edge in _edges(tree)
        if (package(edge.importer) in PURE or edge.importer.startswith(PURE_PARTS))
        and _top(edge.imported) in IMPURE
    ]
    return [
        f"{edge.importer} imports {edge.imported} below the purity line: take it as an argument"
        for edge in edges
    ]


def strangers(tree: list[Module]) -> list[str]:
    """Find modules that name an adapter without assembling a program."""
    return [
        f"{importer} imports {imported}: only those who put a program together name adapters"
        for importer, imported in _inner(tree)
        if _is_adapter(imported)
        and not importer.startswith(ADAPTERS)
        and (importer.startswith(SHELLS) or not importer.startswith(ROOTS))
    ]


def _is_adapter(name: str) -> bool:
    return name.startswith(ADAPTERS) and not name.endswith(".port")


def wire_protocol(tree: list[Module]) -> list[str]:
    """Find imports of the wire protocol beyond errors and limits.

    Also find a transport that uses the other transport, libzmq's.
    """
    broken = []
    for importer, imported in _inner(tree):
        if importer.startswith(WIRE) and not imported.startswith(WIRE_KNOWS):
            broken.append(
                f"{importer} imports {imported}: the wire protocol knows only errors and the "
                "limits it is given"
            )
        if (
            imported.startswith(LIBZMQ)
            and importer.startswith("ares.net.")
            and not importer.startswith(LIBZMQ_CHOOSERS)
        ):
            broken.append(
                f"{importer} imports {imported}: only the choice of a transport names libzmq's"
            )
    return broken


def foreign_libraries(tree: list[Module]) -> list[str]:
    broken = []
    for importer, imported in _edges(tree):
        owner = OWNERS.get(_top(imported))
        if owner is not None and not importer.startswith(owner):
            broken.append(f"{importer} imports {imported}, which only {owner}* may")
    return broken


def shape(tree: list[Module]) -> list[str]:
    """Find too long files and functions, too full folders, and repeated module names.

    Also find bare excepts and modules of mixed content.
    """
    broken = [*_crowded(tree), *_named_twice(tree)]
    for module in tree:
        lines = module.text.count("\n")
        if lines > FILE_LINES_MAX:
            broken.append(f"{module.name} has {lines} lines, at most {FILE_LINES_MAX}")
        if module.name.split(".")[-1] in JUNK_DRAWERS:
            broken.append(f"{module.name}: name it after what it holds")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = _body_lines(node)
                if length > FUNCTION_LINES_MAX:
                    broken.append(
                        f"{module.name}.{node.name} has {length} lines, at most "
                        f"{FUNCTION_LINES_MAX}"
                    )
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                broken.append(f"{module.name}:{node.lineno}: bare except")
    return broken


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a body below the docstring."""
    first = function.body[ast.get_docstring(function) is not None :] or function.body
    return (function.end_lineno or function.lineno) - first[0].lineno + 1


def _crowded(tree: list[Module]) -> Iterator[str]:
    folders: dict[Path, int] = defaultdict(int)
    for module in tree:
        folders[module.path.parent] += module.path.name != "__init__.py"
    return (
        f"{folder.name}/ has {count} files, at most {FOLDER_FILES_MAX}"
        for folder, count in folders.items()
        if count > FOLDER_FILES_MAX
    )


def _named_twice(tree: list[Module]) -> Iterator[str]:
    return named_twice(tree, [])


def named_twice(product: list[Module], tests: list[Module]) -> Iterator[str]:
    """Find modules of equal name, and classes of equal name unless both are in tests.

    Ansible finds an action by the name of the action's module, and names the classes of both.
    """
    places: dict[str, list[str]] = defaultdict(list)
    classes: dict[str, list[str]] = defaultdict(list)
    for module in [*product, *tests]:
        if (
            module.path.stem not in SHARED_NAMES
            and "/ansible/plugins/" not in module.path.as_posix()
        ):
            places[module.path.stem].append(module.name)
    for module in product:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in ANSIBLE_CLASSES:
                classes[node.name].append(module.name)
    for module in tests:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name in classes:
                places[f"class {node.name}"] = [*classes[node.name], module.name]
    places |= {f"class {name}": where for name, where in classes.items() if len(where) > 1}
    return (
        f"{name} stands for several things: {', '.join(where)}"
        for name, where in places.items()
        if len(where) > 1
    )


PRESCRIBED_CONSTANTS = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
"""Constants expected by Ansible in each of its modules, under these names."""


def repeated_constants(tree: list[Module]) -> list[str]:
    """Find constants of equal name in several modules: a constant's name carries its subject.

    A value with a meaning has a single home, from which all modules import the value.
    """
    return [
        f"constant {name} stands for several things: {', '.join(where)}"
        for name, where in _homes_of_constants(tree).items()
        if len(where) > 1 and name not in PRESCRIBED_CONSTANTS
    ]


def borrowed_constants(tests: list[Module], tree: list[Module]) -> list[str]:
    """Find constants of tests with the name of a constant of ``tree``: tests import these.

    Two tests may each have a constant KEYS: a test is read for itself.
    """
    homes = _homes_of_constants(tree)
    return [
        f"constant {name} of {', '.join(where)} has its home in {homes[name][0]}"
        for name, where in _homes_of_constants(tests).items()
        if name in homes
    ]


def _homes_of_constants(tree: list[Module]) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in tree:
        for name in sorted(_constants(module)):
            homes[name].append(module.name)
    return homes


def _constants(module: Module) -> set[str]:
    """Return the names in capitals assigned outside functions and classes."""
    found, nodes = set(), [*module.tree.body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
            found.add(node.id)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)
    return found


INPUT_CHECKERS = (
    "ares.model.codec",
    "ares.cluster.settings",
    "ares.cluster.tables",
    "ares.cluster.new_cluster",
    "ares.cli.",
    "ares.server.",
)
"""Modules for input from users, files and the network."""


def asserted_input(tree: list[Module]) -> list[str]:
    """Find ``assert`` statements about input, which must raise a named error.

    Such a statement is in a module for checks of input, or tests a parameter of a public function.
    """
    broken = []
    for module in tree:
        for function in [
            module.tree,
            *(
                node
                for node in ast.walk(module.tree)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ),
        ]:
            public = isinstance(function, ast.Module) or not function.name.startswith("_")
            for node in _own_asserts(function):
                if module.name.startswith(INPUT_CHECKERS):
                    broken.append(
                        f"{module.name}:{node.lineno}: assert in a module that checks input"
                    )
                elif (
                    public
                    and not isinstance(function, ast.Module)
                    and _begins_with(node.test, _parameters(function))
                ):
                    broken.append(
                        f"{module.name}:{node.lineno}: assert on an argument of {function.name}"
                    )
    return broken


def _own_asserts(function: ast.AST) -> Iterator[ast.Assert]:
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Assert):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own_asserts(child)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    return {
        argument.arg
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    } - {"self", "cls"}


def _begins_with(test: ast.expr, parameters: set[str]) -> bool:
    """Return whether the condition is about a bare parameter.

    Examples are ``assert timeout_s > 0``, ``assert isinstance(key, str)``, ``assert key``.
    """
    return any(isinstance(node, ast.Name) and node.id in parameters for node in ast.walk(test))


PYTHON = "ares.platform.interpreter"
NAMES_PYTHON = (
    PYTHON,
    "ares.compiled",
    "tests.checkout.test_core_build",
    "tests.checkout.test_editable_install",
    "tests.checkout.test_release",
    "tests.checkout.test_wheel",
    "tests.process.test_pages",
)
_INTERPRETER = re.compile(r"(.*/)?python[0-9.]*")
_UNSAFE = re.compile(r"python[0-9.]* -m ares\b")


def starting_python(tree: list[Module]) -> list[str]:
    """Find starts of Python without ``ares.platform.interpreter.python``, also in advice.

    Such a Python may import from the working directory.
    """
    broken = []
    for module in tree:
        for node in ast.walk(module.tree) if module.name not in NAMES_PYTHON else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                broken.append(
                    f"{module.name}:{node.lineno}: sys.executable: only {PYTHON} starts Python"
                )
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and _INTERPRETER.fullmatch(node.value)
            ):
                broken.append(
                    f"{module.name}:{node.lineno}: {node.value}: only {PYTHON} starts Python"
                )
        broken += unsafe_advice(module.name, module.text)
    return broken


def unsafe_advice(name: str, text: str) -> list[str]:
    return [f"{name}: {found[0]}: say python -P -m" for found in _UNSAFE.finditer(text)]


TASKS = "ares.platform.tasks"
"""Module with background tasks and timers, which reports their failures."""

BEGINNERS = {"create_task", "ensure_future", "call_later", "call_at"}

UNSUPERVISED = {
    "ares.cli.demo.": "its own traffic, awaited before the demo ends",
    "ares.cli.observe.top_command.create_task": "awaited at once, beside the screen's end",
    "ares.client.buckets.blob_store.ensure_future": "chunks under way, awaited by the put",
    "ares.client.buckets.found_object.ensure_future": "chunks ahead, awaited by the reader",
    "ares.client.file.create_task": "blocks under way, awaited by the call that sends them",
    "ares.client.runner.call_": "one timer for each tick and pause, whose step is supervised",
    "ares.client.shared_log.ensure_future": "the next piece, awaited by the iterator",
    "ares.consensus.raft.member.call_later": "one timer that forgets a command",
    "ares.filesystem.bucket_file.ensure_future": "the put of a stream, awaited by its writer",
    "ares.gateway.http.s3_connection.call_later": "one timer for each connection, which cuts it",
    "ares.net.native.call_later": "one timer for each handshake",
    "ares.net.zmtp.connection.call_later": "one timer for each slow peer at a Unix socket",
    "ares.server.http_pages.call_later": "one timer for each request, and one after each rest",
    "ares.testing.": "a run awaits its tasks before it is judged",
}
"""Permitted starts of tasks and timers, by module, with reasons. Task groups are always permitted.
"""


def unsupervised(tree: list[Module]) -> list[str]:
    """Find tasks and timers begun outside TASKS, without a report of failures."""
    broken = []
    for module in tree:
        if module.name == TASKS:
            continue
        groups = {
            item.optional_vars.id
            for node in ast.walk(module.tree)
            if isinstance(node, ast.AsyncWith)
            for item in node.items
            if isinstance(item.optional_vars, ast.Name)
            and ast.unparse(item.context_expr).endswith("TaskGroup()")
        }
        for node in ast.walk(module.tree):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            excused = f"{module.name}.{name}".startswith(tuple(UNSUPERVISED))
            if name in BEGINNERS and not excused and ast.unparse(node.value) not in groups:
                broken.append(
                    f"{module.name}:{node.lineno}: {name}: only {TASKS} begins tasks and timers"
                )
    return broken


_REPLACED = re.compile(r"^os$|(^|[._])path$|\.with_(name|suffix)\(")

ONE_HOME = {
    "flock": {"ares.platform.file_lock": "the lock of a file"},
    "lockf": {},
    "replace": {
        "ares.platform.replacement": "the replacement of a file",
        "ares.consensus.raft.replicated": "a journal that a library wrote",
    },
    "rename": {
        "ares.store.journal.": "the names of segments and anchors, through the port of a disk",
        "ares.cluster.home": "a store moved aside",
        "ares.consensus.raft.directory": "votes moved aside",
        "experiments.rounds.engine": "directories of rounds moved aside",
    },
    "rpartition": {
        "ares.cluster.addresses": "the parts of an address",
        "ares.cli.local.init_command": "a site with its number of servers",
    },
}
"""Methods with a single home: the permitted modules, by prefix, and the method's task."""


def done_twice(tree: list[Module]) -> list[str]:
    """Find locks, replacements of files and divided addresses outside their homes."""
    broken = []
    for module in tree:
        for node in ast.walk(module.tree):
            name = node.func.attr if isinstance(node, ast.Call) and _is_method(node) else ""
            homes = ONE_HOME.get(name)
            if homes is not None and not module.name.startswith(tuple(homes)):
                where = next(iter(homes), "no module")
                broken.append(f"{module.name}:{node.lineno}: {name}: only {where} does that")
    return broken


def _is_method(call: ast.Call) -> bool:
    """Return whether the call is of a method in ONE_HOME, not of a namesake.

    A namesake is `replace` of another thing than a path, and `rpartition` at another mark.
    """
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "replace":
        return _REPLACED.search(ast.unparse(call.func.value)) is not None
    return call.func.attr != "rpartition" or ast.unparse(call.args[0]) == "':'"


_CITED = re.compile(r"docs/([\w-]+\.md), (?=[A-Z])")
_BREAKS = re.compile(r"\s*\n[ \t]*(?:# )?")


def cited_sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the citations of sections in ``text``: a document's name, and the text after.

    The text begins with the section's heading.
    """
    joined = _BREAKS.sub(" ", text)
    for found in _CITED.finditer(joined):
        yield found[1], joined[found.end() :]


def has_section(document: Path, rest: str) -> bool:
    """Return whether ``rest`` begins with a heading of the document, if the document exists."""
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return any(
        rest.startswith(heading) and not rest[len(heading) : len(heading) + 1].isalnum()
        for heading in headings
    )


def citations(tree: list[Module]) -> list[str]:
    """Find cited sections without a heading in a document of the folder docs.

    The folder docs is beside the package.
    """
    broken = []
    for module in tree:
        documents = (
            next(
                parent for parent in module.path.parents if parent.name == _top(module.name)
            ).parent
            / "docs"
        )
        for name, rest in cited_sections(module.text):
            if not has_section(documents / name, rest):
                broken.append(
                    f"{module.name}: docs/{name} has no section {' '.join(rest.split()[:3])!r}"
                )
    return broken


_NAMED = re.compile(r":(?:class|func|meth|attr):`(ares\.[\w.]+)`|\bares/([\w/]+)\.py\b")


def references(tree: list[Module]) -> list[str]:
    """Find absent modules, and absent names in modules, named in docstrings and comments."""
    texts = {module.name.removesuffix(".__init__"): module.text for module in tree}
    broken = []
    for module in tree:
        for found in _NAMED.finditer(module.text):
            parts = (
                found[1] or f"ares.{found[2].removesuffix('/__init__').replace('/', '.')}"
            ).split(".")
            known = max(
                (end for end in range(len(parts) + 1) if ".".join(parts[:end]) in texts), default=0
            )
            inside = parts[known : known + 1]
            if not known or (
                inside
                and (
                    found[2]
                    or not re.search(rf"(?<!\.)\b{inside[0]}\b", texts[".".join(parts[:known])])
                )
            ):
                broken.append(f"{module.name}: there is no {found[0]}")
    return broken


RULES = {
    rule.__name__: rule
    for rule in (
        homeless,
        upward,
        cycles,
        impure,
        strangers,
        wire_protocol,
        foreign_libraries,
        shape,
        repeated_constants,
        asserted_input,
        starting_python,
        unsupervised,
        done_twice,
        citations,
        references,
    )
}
