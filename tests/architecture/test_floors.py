"""The source tree keeps the rules of its architecture, and each rule rejects a small tree that breaks it."""

import subprocess
from pathlib import Path

import pytest

import ares
from ares.interpreter import python

from .floors import FILE_LINES_MAX, FUNCTION_LINES_MAX, RULES, floor, modules, unsafe_advice

PACKAGE = Path(ares.__file__).parent
CHECKOUT = PACKAGE.parent


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_source_tree_keeps(rule):
    assert rule(modules(PACKAGE)) == []


@pytest.mark.parametrize("root", ["tests", "experiments"])
def test_nothing_else_starts_python_otherwise(root):
    assert RULES["starting_python"](modules(CHECKOUT / root)) == []


def test_no_document_says_to_start_python_otherwise():
    texts = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md"), *CHECKOUT.glob("packaging/**/*"), CHECKOUT / "Makefile", CHECKOUT / ".ci/run"]
    assert [said for path in texts if path.is_file() for said in unsafe_advice(path.name, path.read_text())] == []


def tree(root: Path, **files: str):
    """A package ``ares`` of the given modules ("dap__client" is ares/dap/client.py)."""
    for name, text in {dotted.replace("__", "/"): text for dotted, text in files.items()}.items():
        path = root / "ares" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return modules(root / "ares")


BREACHES = [
    ("homeless", {"elsewhere": ""}, "ares.elsewhere has no floor"),
    ("upward", {"tag": "from ares.dap.server import Versions"}, "ares.tag (floor 0) imports ares.dap.server (floor 1)"),
    ("upward", {"dap__server": "def f():\n    import ares.server.replica"}, "ares.dap.server (floor 1) imports ares.server.replica (floor 2)"),
    ("upward", {"dap__server": "from ..server import replica", "server__replica": ""}, "imports ares.server.replica (floor 2)"),
    ("upward", {"client__session": "from ares.client import runner", "client__runner": ""}, "imports ares.client.runner (floor 4)"),
    ("upward", {"runtime__zmq_client": "from ares.client.manager import Manager"}, "(floor 3) imports ares.client.manager (floor 4)"),
    ("upward", {"client__manager": "import ares"}, "ares.client.manager (floor 4) imports ares.__init__ (floor 5)"),
    ("upward", {"dap__server": "from ares.reconfig.sequence import ConfigurationSequence"}, "reconfig stands above dap"),
    ("upward", {"dap__client": "from ares.reconfig.view import View"}, "reconfig stands above dap"),
    *[("impure", {"client__session": f"import {name}"}, f"imports {name} below the purity line") for name in ("asyncio", "socket", "threading")],
    *[("impure", {"dap__server": f"from {name} import x"}, f"imports {name} below") for name in ("time", "random", "uuid", "os", "secrets", "zmq")],
    ("impure", {"server__replica": "import logging"}, "imports logging below"),
    ("impure", {"server__replica": "def f():\n    import os.path"}, "imports os.path below"),
    ("strangers", {"client__session": "from ares.server.replica import Replica"}, "client and server never import each other"),
    ("strangers", {"server__host": "import ares.client.runner"}, "client and server never import each other"),
    ("strangers", {"client__manager": "from ares.runtime.zmq_client import ZmqConnections"}, "only entry points and tests name adapters"),
    ("strangers", {"sim__world": "import ares.runtime.inproc_transport"}, "beside the adapters"),
    ("foreign_libraries", {"runtime__batching": "import zmq"}, "ares.runtime.batching imports zmq"),
    ("foreign_libraries", {"runtime__local_consensus": "from pysyncobj.journal import FileJournal"}, "only ares.runtime.raft_*"),
    ("foreign_libraries", {"dap__client": "from pyeclib.ec_iface import ECDriver"}, "only ares.dap.coding*"),
    ("shape", {"tag": "x = 1\n" * FILE_LINES_MAX}, f"ares.tag has {FILE_LINES_MAX + 1} lines"),
    ("shape", {"tag": "async def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX}, f"ares.tag.f has {FUNCTION_LINES_MAX + 1} lines"),
    ("shape", {"tag": "try:\n    x = 1\nexcept:\n    pass"}, "ares.tag:3: bare except"),
    *[("shape", {f"dap__{name}": ""}, f"ares.dap.{name}: name it") for name in ("utils", "helpers", "common", "misc")],
    ("asserted_input", {"codec": "def decode(frames):\n    assert frames"}, "ares.codec:2: assert in a module that checks input"),
    ("starting_python", {"cli__up": "import sys\ncommand = [sys.executable, '-m', 'x']"}, "ares.cli.up:2: sys.executable: only"),
    ("starting_python", {"cli__up": "command = ['/usr/bin/python3.11', '-m', 'x']"}, "ares.cli.up:1: /usr/bin/python3.11: only"),
    ("starting_python", {"cli__up": "# as python3 \x2dm ares.cli does"}, "python3 \x2dm ares: say python -P -m"),
    ("asserted_input", {"client__store": "class Store:\n    def f(self, key):\n        assert len(key) > 0"}, "assert on an argument of f"),
]


@pytest.mark.parametrize(("rule", "files", "sentence"), BREACHES)
def test_a_tree_that_breaks_a_rule_is_rejected(tmp_path, rule, files, sentence):
    broken = RULES[rule](tree(tmp_path, **files))
    assert any(sentence in told for told in broken), broken


def test_a_tree_that_keeps_the_rules_is_accepted(tmp_path):
    kept = tree(
        tmp_path,
        tag="import enum",
        dap__client="from typing import TYPE_CHECKING\nfrom ares.pointer import latest\nif TYPE_CHECKING:\n    import zmq",
        dap__reading="import ares.pointer",
        dap__coding="import pyeclib.ec_iface",
        reconfig__pointer="from ..tag import Tag\ndef f(x):\n    y = x\n    assert y",
        runtime__zmq_client="import zmq\nfrom . import ports",
        runtime__ports="import asyncio",
        client__manager="import asyncio\nfrom ares.runtime.ports import Connections",
        api="from ares.runtime.zmq_client import ZmqConnections",
    )
    assert [sentence for rule in RULES.values() for sentence in rule(kept)] == []


def test_floors_by_longest_name():
    assert [floor(name) for name in ("ares.client.session", "ares.client.manager", "ares.dap", "ares.api", "zmq")] == [2, 4, 1, 5, None]


@pytest.mark.parametrize("module", ["ares", "ares.dap.client", "ares.client.session", "ares.server.replica", "ares.client.manager"])
def test_importing_a_part_loads_no_adapter(module):
    heavy = "('zmq', 'pysyncobj', 'uvloop', 'typer', 'rich')"
    program = f"import sys, {module}; print(*[name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run(python("-c", program), capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


def test_the_subprocess_would_show_an_adapter():
    program = "import sys, ares.runtime.zmq_sockets; print(*[name for name in ('zmq',) if name in sys.modules])"
    assert subprocess.run(python("-c", program), capture_output=True, text=True, check=True).stdout.split() == ["zmq"]
