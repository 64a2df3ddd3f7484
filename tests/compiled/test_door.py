"""The door to the compiled core names all common knowledge of Python and the core."""

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ares import compiled
from ares.compiled import CONSTANTS, CORE, CRATE, GIVEN, SEEN, ClientCore, ServedTurn, ServerCore
from ares.dap.coding import ReedSolomon
from ares.dap.primitives import DataAccess
from ares.dap.version_list import VersionList
from ares.engine.readiness import Readiness
from ares.engine.session import Session
from ares.engine.takeover import FastOperation, FastRound
from ares.model.configuration import Status, Successor
from ares.model.identity import ClientId, ObjectName
from ares.model.messages import Element
from ares.model.tag import TAG_ZERO, TagSource
from ares.platform.environment import PURE_VARIABLE
from ares.reconfig.view import Switches, View
from ares.replica.configuration_state import ConfigurationState
from ares.replica.facts import ConfigurationUsage, JournalUsage
from ares.replica.group_commit import GroupCommit
from ares.replica.port import ObjectTable
from tests.compiled.server_twins import CODED

CHECKOUT = Path(__file__).parents[2]
RUST = {path.stem: path.read_text() for path in CHECKOUT.glob("core/src/*.rs")}
ALL = "".join(RUST.values())
ATTRIBUTE = re.compile(r'(?:intern!\([\w.()]+, |[gs]etattr\(|call_method\w*\()"(\w+)"')
OBJECT = re.compile(r'(?:door\.|import\(DOOR\)\?\.)getattr\("(\w+)"|import\(py, DOOR, "(\w+)"')
OF_PYTHON = {"call", "done", "extend", "set_result"}
"""Attributes of every message, of lists and of futures."""
TAKEN = {name or other for name, other in OBJECT.findall(ALL)}
"""Names of the objects that the core takes from the door."""

needs_core = pytest.mark.skipif(CORE is None, reason="nothing is compiled")


def instances():
    """Return an object of each class that the core sees."""
    readiness = Readiness()
    view = View(ClientId(1), CODED, Switches(), readiness)
    return [
        *(Session(), readiness, readiness.order(CODED), view, view.sequence, view.tags),
        *(TagSource(ClientId(1)).begin(ObjectName("a")), CODED, DataAccess(CODED, readiness)),
        *(
            ReedSolomon(5, 3, CODED.backend),
            ConfigurationState(CODED, 0),
            Successor(CODED, Status.PENDING),
        ),
        *(
            ConfigurationUsage(JournalUsage()),
            GroupCommit(),
            VersionList(),
            Element(0, 0, 0, ()),
            TAG_ZERO,
        ),
    ]


def test_the_core_reads_the_attributes_of_the_door_and_no_other():
    seen = {name for names in SEEN.values() for name in names}
    assert not [name for name in seen if name.startswith("_")]
    assert re.findall(r'"(_\w+)"', ALL) == ["_core"], "the core knows a private name"
    assert set(ATTRIBUTE.findall(OBJECT.sub("", ALL))) - OF_PYTHON == seen


def test_the_classes_have_the_attributes_of_the_door():
    found = {type(each): each for each in instances()}
    assert found.keys() == SEEN.keys()
    missing = [
        (kind.__name__, name)
        for kind, names in SEEN.items()
        for name in names
        if not hasattr(found[kind], name)
    ]
    assert not missing


def test_the_core_takes_the_objects_of_the_door_and_no_other():
    given = {name for name, value in vars(compiled).items() if any(value is each for each in GIVEN)}
    assert (TAKEN, len(TAKEN)) == (given, len(GIVEN))
    assert f'DOOR: &str = "{compiled.__name__}"' in ALL
    assert set(re.findall(r"import\((?:py, )?(\w+)", ALL)) == {"DOOR"}


def test_a_constant_of_both_sides_is_compared():
    """Constants with a name of Python's are in constants.rs, and have Python's value."""
    python = {
        target.id
        for path in CHECKOUT.glob("ares/**/*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    elsewhere = {
        name
        for module, text in RUST.items()
        if module != "constants"
        for name in re.findall(r"^\s*(?:pub )?const (\w+)", text, re.MULTILINE)
    }
    assert not elsewhere & python
    assert (
        set(re.findall(r"^    (\w+): .* = ", RUST["constants"], re.MULTILINE)) == CONSTANTS.keys()
    )


@needs_core
def test_the_core_has_the_constants_of_python():
    assert CORE.CONSTANTS == CONSTANTS


@pytest.mark.parametrize(
    ("constants", "reason"),
    [
        (CONSTANTS, ""),
        (CONSTANTS | {"RELEASE": "0.0.1"}, f"its RELEASE is 0.0.1, not {CRATE}"),
        (CONSTANTS | {"KEY_BYTES_MAX": 512}, "its KEY_BYTES_MAX is 512, not 1024"),
        (CONSTANTS | {"MORE": 1}, "its MORE is 1, not None"),
        (None, f"its RELEASE is None, not {CRATE}"),
    ],
    ids=["equal", "release", "value", "more", "none"],
)
def test_a_core_with_other_constants_is_refused_with_the_reason(monkeypatch, constants, reason):
    monkeypatch.delenv(PURE_VARIABLE, raising=False)
    core = SimpleNamespace() if constants is None else SimpleNamespace(CONSTANTS=constants)
    monkeypatch.setitem(sys.modules, "ares._core", core)
    loaded, why = compiled._loaded()
    assert (loaded is core, reason in why) == (not reason, True)
    monkeypatch.setattr(compiled, "CORE", loaded)
    monkeypatch.setattr(compiled, "_REFUSED", why)
    assert reason in compiled.advice()


@needs_core
@pytest.mark.parametrize(
    "kind", [ClientCore, FastOperation, FastRound, ObjectTable, ServedTurn, ServerCore]
)
def test_the_classes_of_the_core_have_the_members_of_the_door(kind):
    members = {
        name
        for base in kind.__mro__
        for name in (*vars(base), *vars(base).get("__annotations__", ()))
        if not name.startswith("_")
    }
    assert {name for name in dir(getattr(CORE, kind.__name__)) if name[0] != "_"} == members
