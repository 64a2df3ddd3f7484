"""The rules of the architecture: the source tree keeps each, and a small broken tree fails each."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ares
from ares.platform.interpreter import python

from .floors import (
    FILE_LINES_MAX,
    FOLDER_FILES_MAX,
    FUNCTION_LINES_MAX,
    RULES,
    Module,
    borrowed_constants,
    modules,
    named_twice,
    unsafe_advice,
)

PACKAGE = Path(ares.__file__).parent
CHECKOUT = PACKAGE.parent


@functools.cache
def parsed(root: Path) -> list[Module]:
    """Parse a tree of the checkout once for all rules."""
    return modules(root)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_source_tree_keeps(rule):
    assert rule(parsed(PACKAGE)) == []


@pytest.mark.parametrize("root", ["tests", "experiments"])
def test_imports_name_modules_and_names_that_exist(root):
    """Mypy says so of ares; an experiment may need a library that is not installed."""
    assert [fault for module in parsed(CHECKOUT / root) for fault in absent(module)] == []


def absent(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        path = CHECKOUT.joinpath(*(node.module or "").split("."))
        if path.relative_to(CHECKOUT).parts[0] not in ("ares", "tests", "experiments"):
            continue
        source = path.with_suffix(".py")
        source = source if source.is_file() else path / "__init__.py"
        text = source.read_text() if source.is_file() else ""
        for name in node.names:
            is_module = (path / name.name).is_dir() or (path / f"{name.name}.py").is_file()
            is_core = node.module == "ares" and name.name == "_core"
            if not (is_module or is_core or re.search(rf"\b{name.name}\b", text)):
                yield f"{module.name}: {node.module} has no {name.name}"


def test_experiments_import_in_no_circle():
    assert RULES["cycles"](parsed(CHECKOUT / "experiments")) == []


def test_experiments_do_nothing_twice():
    assert RULES["done_twice"](parsed(CHECKOUT / "experiments")) == []


def test_a_constant_of_the_product_has_one_home():
    roots = ("ares", "experiments", "ansible/plugins", "packaging")
    assert RULES["repeated_constants"]([m for root in roots for m in parsed(CHECKOUT / root)]) == []


def test_tests_have_no_constants_by_names_of_ares():
    assert borrowed_constants(parsed(CHECKOUT / "tests"), parsed(PACKAGE)) == []


@pytest.mark.parametrize("root", ["tests", "experiments"])
def test_sections_that_are_cited_elsewhere_are_there(root):
    assert RULES["citations"](parsed(CHECKOUT / root)) == []


@pytest.mark.parametrize("root", ["tests", "experiments"])
def test_nothing_else_starts_python_otherwise(root):
    assert RULES["starting_python"](parsed(CHECKOUT / root)) == []


def test_no_document_says_to_start_python_otherwise():
    texts = [
        *CHECKOUT.glob("*.md"),
        *CHECKOUT.glob("docs/*.md"),
        *CHECKOUT.glob("packaging/**/*"),
        CHECKOUT / "Makefile",
        CHECKOUT / ".ci/run",
    ]
    texts = [path for path in texts if path.is_file() and path.suffix != ".pyc"]
    assert [said for path in texts for said in unsafe_advice(path.name, path.read_text())] == []


def test_one_name_stands_for_one_thing_in_product_and_tests():
    product = [
        module
        for root in ("ares", "experiments", "packaging", "ansible/plugins")
        for module in parsed(CHECKOUT / root)
    ]
    assert list(named_twice(product, parsed(CHECKOUT / "tests"))) == []


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"dap__reading": "", "engine__reading": ""}, "reading stands for several things"),
        ({"dap__reading": "class A: ...", "net__links": "class A: ..."}, "class A stands for"),
        ({"dap__reading": "class A: ...", "tests__test_a": "class A: ..."}, "class A stands for"),
        ({"tests__a__test_b": "", "tests__c__test_b": ""}, "test_b stands for several things"),
    ],
)
def test_a_name_of_two_things_is_rejected(tmp_path, files, sentence):
    made = tree(tmp_path, **files)
    tests = [module for module in made if module.name.startswith("ares.tests.")]
    told = named_twice([module for module in made if module not in tests], tests)
    assert any(sentence in each for each in told)


def test_classes_of_one_name_in_two_tests_are_accepted(tmp_path):
    made = tree(tmp_path, tests__test_a="class Rig: ...", tests__test_b="class Rig: ...")
    assert list(named_twice([], made)) == []


def tree(root: Path, **files: str):
    """Write a package ``ares`` of the given modules, and a document with the section Rules.

    "dap__primitives" is ares/dap/primitives.py.
    """
    (root / "docs").mkdir()
    (root / "docs/protocol.md").write_text("# The protocol\n\n## Rules\n")
    for name, text in {dotted.replace("__", "/"): text for dotted, text in files.items()}.items():
        path = root / "ares" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return modules(root / "ares")


BREACHES = [
    ("homeless", {"elsewhere": ""}, "ares.elsewhere is not among PACKAGES"),
    ("homeless", {"elsewhere__tag": ""}, "ares.elsewhere is not among PACKAGES"),
    (
        "upward",
        {"model__tag": "from ares.dap.version_list import Versions"},
        "ares.model.tag imports ares.dap.version_list, which is above it",
    ),
    (
        "upward",
        {"dap__version_list": "def f():\n    import ares.replica.replica"},
        "ares.dap.version_list imports ares.replica.replica, which is above it",
    ),
    (
        "upward",
        {"dap__version_list": "from ..replica import replica", "replica__replica": ""},
        "imports ares.replica.replica, which is above it",
    ),
    (
        "upward",
        {"net__libzmq": "from ares.client.manager import Manager"},
        "imports ares.client.manager, which is above it",
    ),
    (
        "upward",
        {"client__manager": "import ares"},
        "ares.client.manager imports ares.__init__, which is above it",
    ),
    (
        "cycles",
        {
            "dap__version_list": "import ares.dap.coding",
            "dap__coding": "import ares.dap.version_list",
        },
        "ares.dap.coding -> ares.dap.version_list -> ares.dap.coding",
    ),
    (
        "cycles",
        {
            "dap__version_list": "def f():\n    from ares.dap.reading import x",
            "dap__reading": "from ares.dap import coding",
            "dap__coding": (
                "from typing import TYPE_CHECKING\n"
                "if TYPE_CHECKING:\n    from .version_list import x"
            ),
        },
        "ares.dap.coding -> ares.dap.version_list -> ares.dap.reading -> ares.dap.coding",
    ),
    *[
        (
            "impure",
            {"engine__session": f"import {name}"},
            f"imports {name} below the purity line",
        )
        for name in ("asyncio", "socket", "threading")
    ],
    *[
        ("impure", {"dap__version_list": f"from {name} import x"}, f"imports {name} below")
        for name in ("time", "random", "uuid", "os", "secrets", "zmq")
    ],
    ("impure", {"replica__replica": "import logging"}, "imports logging below"),
    ("impure", {"gateway__signing__x": "import asyncio"}, "imports asyncio below"),
    ("impure", {"replica__replica": "def f():\n    import os.path"}, "imports os.path below"),
    (
        "strangers",
        {"client__manager": "from ares.net.libzmq import ZmqConnections"},
        "only those who put a program together",
    ),
    (
        "strangers",
        {"server__storage_server": "import ares.net.native"},
        "only those who put a program together",
    ),
    (
        "wire_protocol",
        {"net__zmtp__frames": "from ares.security.keys import SecretKey"},
        "the wire protocol knows only errors and the limits",
    ),
    (
        "wire_protocol",
        {"net__zmtp__connection": "from ares.net.links import tune"},
        "ares.net.zmtp.connection imports ares.net.links",
    ),
    (
        "wire_protocol",
        {"net__native": "from ares.net.libzmq import ready"},
        "only the choice of a transport names libzmq's",
    ),
    ("foreign_libraries", {"net__batching": "import zmq"}, "ares.net.batching imports zmq"),
    (
        "foreign_libraries",
        {"consensus__local": "from pysyncobj.journal import FileJournal"},
        "only ares.consensus.raft.*",
    ),
    (
        "foreign_libraries",
        {"dap__primitives": "from pyeclib.ec_iface import ECDriver"},
        "only ares.dap.coding*",
    ),
    (
        "shape",
        {f"dap__file{number}": "" for number in range(FOLDER_FILES_MAX + 1)},
        f"dap/ has {FOLDER_FILES_MAX + 1} files",
    ),
    (
        "shape",
        {"dap__coding": "", "net__coding": ""},
        "coding stands for several things: ares.dap.coding, ares.net.coding",
    ),
    (
        "shape",
        {"dap__coding": "class Coding: ...", "net__wire": "class Coding: ..."},
        "class Coding stands for several things",
    ),
    (
        "shape",
        {"model__tag": "x = 1\n" * FILE_LINES_MAX},
        f"ares.model.tag has {FILE_LINES_MAX + 1} lines",
    ),
    (
        "shape",
        {"model__tag": "async def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX + 1)},
        f"ares.model.tag.f has {FUNCTION_LINES_MAX + 1} lines",
    ),
    (
        "shape",
        {"model__tag": "try:\n    x = 1\nexcept:\n    pass"},
        "ares.model.tag:3: bare except",
    ),
    *[
        ("shape", {f"dap__{name}": ""}, f"ares.dap.{name}: name it")
        for name in ("utils", "helpers", "common", "misc")
    ],
    (
        "asserted_input",
        {"model__codec": "def decode(frames):\n    assert frames"},
        "ares.model.codec:2: assert in a module that checks input",
    ),
    (
        "starting_python",
        {"cli__up": "import sys\ncommand = [sys.executable, '-m', 'x']"},
        "ares.cli.up:2: sys.executable: only",
    ),
    (
        "starting_python",
        {"cli__up": "command = ['/usr/bin/python3.11', '-m', 'x']"},
        "ares.cli.up:1: /usr/bin/python3.11: only",
    ),
    (
        "starting_python",
        {"cli__up": "# as python3 \x2dm ares.cli does"},
        "python3 \x2dm ares: say python -P -m",
    ),
    *[
        (
            "unsupervised",
            {"server__storage_process": f"import asyncio\ndef f(loop):\n    {call}"},
            f"ares.server.storage_process:3: {name}: only ares.platform.tasks",
        )
        for name, call in [
            ("create_task", "asyncio.create_task(g())"),
            ("create_task", "asyncio.get_running_loop().create_task(g())"),
            ("ensure_future", "loop.ensure_future(g())"),
            ("call_later", "loop.call_later(1.0, g)"),
            ("call_at", "return loop.call_at"),
        ]
    ],
    *[
        (
            "done_twice",
            {"cluster__home": f"import fcntl, os\n{call}"},
            f"ares.cluster.home:2: {name}: only {home} does that",
        )
        for name, call, home in [
            ("flock", "fcntl.flock(1, fcntl.LOCK_EX)", "ares.platform.file_lock"),
            ("replace", "os.replace('new', 'old')", "ares.platform.replacement"),
            ("replace", "path.with_suffix('.new').replace(path)", "ares.platform.replacement"),
            ("rpartition", "host, _, port = address.rpartition(':')", "ares.cluster.addresses"),
        ]
    ],
    (
        "citations",
        {"dap__version_list": "x = 1  # docs/nowhere\x2emd, Rules"},
        "ares.dap.version_list: docs/nowhere.md has no section 'Rules'",
    ),
    (
        "citations",
        {"dap__version_list": "# docs/protocol\x2emd,\n# Rule, R1"},
        "ares.dap.version_list: docs/protocol.md has no section 'Rule, R1'",
    ),
    (
        "references",
        {"dap__version_list": "x = 1  # ares\x2fdap/lists.py"},
        "ares.dap.version_list: there is no ares/dap/lists\x2epy",
    ),
    (
        "references",
        {"dap__version_list": '"""See :class:`ares.dap.version_list.Version`."""\nVersions = 1'},
        "there is no :class:`ares.dap.version_list.Version`",
    ),
    (
        "repeated_constants",
        {"dap__cache": "ASK_S = 1.0", "engine__room": "ASK_S: float = 2.0"},
        "constant ASK_S stands for several things: ares.dap.cache, ares.engine.room",
    ),
    (
        "repeated_constants",
        {"dap__cache": "N, K = 5, 3", "engine__room": "if x:\n    K = 3"},
        "constant K stands for several things: ares.dap.cache, ares.engine.room",
    ),
    (
        "asserted_input",
        {"client__store": "class Store:\n    def f(self, key):\n        assert len(key) > 0"},
        "assert on an argument of f",
    ),
]


@pytest.mark.parametrize(("rule", "files", "sentence"), BREACHES)
def test_a_tree_that_breaks_a_rule_is_rejected(tmp_path, rule, files, sentence):
    broken = RULES[rule](tree(tmp_path, **files))
    assert any(sentence in told for told in broken), broken


def test_a_tree_that_keeps_the_rules_is_accepted(tmp_path):
    kept = tree(
        tmp_path,
        model__tag="import enum",
        dap__primitives="from typing import TYPE_CHECKING\n"
        "from ares.model.configuration import latest\n"
        "if TYPE_CHECKING:\n"
        "    import zmq",
        dap__reading="import ares.model.configuration\n"
        "x = 1  # docs/protocol.md, Rules; and docs/limits.md, too",
        dap__coding="import pyeclib.ec_iface\n"
        "# See ares\x2fmodel/tag.py and :data:`x`, :func:`ares.dap.reading.x`",
        reconfig__view="from ..model.tag import Tag\ndef f(x):\n    y = x\n    assert y",
        net__libzmq="import zmq\nfrom . import port",
        net__port="import asyncio",
        cluster__home="import os\nos.rename('a', 'b')\n'a-b'.rpartition('-')",
        store__port="x = 'a'.replace('a', 'b')\ny = structs.replace(x, y=1)",
        store__disk="LIMIT = 1\nRETURN = ''\nclass C:\n    ASK_S = 1\ndef f():\n    ASK_S = 2",
        store__memory="from ares.store.disk import LIMIT\nRETURN = ''\nASK_S = LIMIT",
        platform__tasks="import asyncio\ndef f():\n    asyncio.create_task(g())",
        autopilot__pilot="import asyncio\n"
        "async def f():\n"
        "    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(g())",
        client__manager="import asyncio\nfrom ares.net.port import Connections",
        client__connect="from ares.net.libzmq import ZmqConnections",
    )
    assert [sentence for rule in RULES.values() for sentence in rule(kept)] == []


def test_a_test_with_a_constant_by_a_name_of_ares_is_rejected(tmp_path):
    product = tree(tmp_path, dap__cache="ASK_S = 1.0")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_cache.py").write_text("ASK_S, KEYS = 0.1, ['a']\n")
    (tmp_path / "tests/test_room.py").write_text("from ares.dap.cache import ASK_S\nKEYS = []\n")
    assert borrowed_constants(modules(tmp_path / "tests"), product) == [
        "constant ASK_S of tests.test_cache has its home in ares.dap.cache"
    ]


@pytest.mark.parametrize(
    "module",
    [
        "ares",
        "ares.dap.primitives",
        "ares.engine.session",
        "ares.replica.replica",
        "ares.client.manager",
    ],
)
def test_importing_a_part_loads_no_adapter(module):
    heavy = "('zmq', 'pysyncobj', 'uvloop', 'typer', 'rich')"
    program = f"import sys, {module}; print(*[name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run(python("-c", program), capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


def test_a_help_page_loads_no_protocol():
    """A machine whose erasure coding is broken prints help and figures nevertheless."""
    parts = ("ares.dap", "ares.engine", "ares.fragment", "ares.registers", "pyeclib")
    program = (
        f"import sys, ares.cli.main; print(*[each for each in {parts} if each in sys.modules])"
    )
    shown = subprocess.run(python("-c", program), capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


def test_the_subprocess_would_show_an_adapter():
    program = (
        "import sys, ares.net.libzmq; print(*[name for name in ('zmq',) if name in sys.modules])"
    )
    assert subprocess.run(
        python("-c", program), capture_output=True, text=True, check=True
    ).stdout.split() == ["zmq"]
