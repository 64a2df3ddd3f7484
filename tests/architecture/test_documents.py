"""Names in README.md, CONTRIBUTING.md and docs/: paths, modules, sections and names in the code.

All must exist; repeated statements must agree.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ares
from ares.testing.sim.plan import OBJECT_SCENARIOS
from experiments.bench import peer_chart
from experiments.bench.goals import goals
from experiments.bench.performance_page import (
    KEPT_FIGURES,
    PAGE_OF_GOALS,
    read_figures,
    with_table,
)
from tests.simulation.controls import CONTROLS
from tests.simulation.log_controls import BY_HAND
from tests.simulation.log_rule_controls import RULE_BY_HAND

from .floors import cited_sections, has_section

CHECKOUT = Path(ares.__file__).parent.parent
PAGES = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md")])
FOLDERS = ("ares", "tests", "experiments", "examples", "packaging", "docs", "ansible", "playbooks")

_path = re.compile(rf"(?<![\w/.\-])((?:{'|'.join(FOLDERS)})/[\w./*\-]*[\w/*])")
_module = re.compile(r"-m ((?:ares|tests|experiments)[\w.]*\w)")
_link = re.compile(r"\]\(([^)#:]+)\)")
_cited_link = re.compile(r"\[[^\]]*\]\((?:docs/)?([\w-]+\.md)\),\s+\"?(?=[A-Z])")
_name = re.compile(r"`([A-Za-z_][\w.]*)`")


def texts(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def missing_paths(text: str, root: Path) -> Iterator[str]:
    """Yield named files and folders that a checkout lacks.

    A path with a star stands for at least a single file.
    """
    for found in _path.finditer(text):
        if not any(root.glob(found[1].rstrip("/"))):
            yield found[1]


def missing_modules(text: str, root: Path) -> Iterator[str]:
    """Yield modules that documents start with ``python -m`` and that cannot be started."""
    for found in _module.finditer(text):
        path = root / found[1].replace(".", "/")
        if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file():
            yield found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_modules_that_a_page_names_are_there(page):
    assert [*missing_paths(texts(page), CHECKOUT), *missing_modules(texts(page), CHECKOUT)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page):
    assert [link for link in _link.findall(texts(page)) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sections_that_a_page_cites_are_there(page):
    """A citation is ``[limits.md](limits.md), Tags``, or the same with quotation marks."""
    as_in_code = _cited_link.sub(r"docs/\1, ", texts(page))
    assert [
        (name, rest[:40])
        for name, rest in cited_sections(as_in_code)
        if not has_section(CHECKOUT / "docs" / name, rest)
    ] == []


def test_paths_that_are_not_there_are_noticed(tmp_path):
    (tmp_path / "ares/dap").mkdir(parents=True)
    (tmp_path / "ares/dap/version_list.py").touch()
    told = (
        "ares/dap, (`ares/dap/version_list.py`), ares/dap/*.py; /var/lib/ares/s0; "
        "ares/runtime/zmtp.py and ares/net/*.py. -m ares.dap.version_list, -m ares.verify"
    )
    assert [*missing_paths(told, tmp_path), *missing_modules(told, tmp_path)] == [
        "ares/runtime/zmtp.py",
        "ares/net/*.py",
        "ares.verify",
    ]


# -- docs/protocol.md ------------------------------------------------------------------------------


def code_words() -> set[str]:
    """Return every word of the code, of tests and of docstrings in both."""
    return {
        word
        for root in ("ares", "tests")
        for path in (CHECKOUT / root).rglob("*.py")
        for word in re.findall(r"\w+", texts(path))
    }


def test_names_that_the_protocol_gives_are_in_the_code():
    words = code_words() | {"ares-cli"}
    names = _name.findall(texts(CHECKOUT / "docs/protocol.md"))
    assert len(names) > 50
    assert [name for name in names if not words.issuperset(name.split("."))] == []


def test_the_protocol_has_a_row_for_every_message():
    page = texts(CHECKOUT / "docs/protocol.md")
    messages = re.findall(
        r"^class (\w+)\(Message,", texts(CHECKOUT / "ares/model/messages.py"), re.MULTILINE
    )
    assert len(messages) > 20
    assert [name for name in messages if page.count(f"\n| `{name}` |") != 1] == []


def test_the_protocol_names_every_scenario_and_every_control_of_the_simulator():
    page = texts(CHECKOUT / "docs/protocol.md") + texts(CHECKOUT / "docs/log.md")
    assert [name for name in OBJECT_SCENARIOS if f"`{name}`" not in page] == []
    by_hand = [control.__name__.replace("_", " ") for control in BY_HAND + RULE_BY_HAND]
    assert [name for name in (*CONTROLS, *by_hand) if f"*{name}*" not in page] == []


# -- sentences that must stand somewhere -----------------------------------------------------------


def test_what_two_puts_over_one_version_come_to_is_said_once_on_the_page_of_files():
    said = (
        "Of two puts over one version, of a block or of an atomic file, one that begins when the "
        "other has ended is told, and changes nothing. Two that overlap in time may both be told "
        "that they took place; then one of them stands, whole."
    )
    assert " ".join(texts(CHECKOUT / "docs/files.md").split()).count(said) == 1


def test_every_public_name_has_its_place_in_the_reference():
    text = "".join(texts(page) for page in CHECKOUT.glob("docs/api*.md"))
    described = re.findall(r"^::: ares\.(\w+)$", text, re.MULTILINE)
    names = [name for name in ares.__all__ if name != "__version__"]
    others = [name for name in names if not hasattr(getattr(ares, name), "__traceback__")]
    assert sorted(described) == sorted(others)
    assert "::: ares.model.errors\n" in text


def test_the_readme_is_short():
    """A stranger reads a page of at most 600 words; everything else has a page in docs/."""
    assert len(texts(CHECKOUT / "README.md").split()) <= 600


def test_the_readme_compares_the_transports_as_their_page_does():
    rows = re.findall(r"^\| .* \| ([\d.]+) times \|", texts(CHECKOUT / "docs/transport.md"), re.M)
    smallest, *_, largest = sorted(rows, key=float)
    readme = " ".join(texts(CHECKOUT / "README.md").split())
    assert f"{smallest} to {largest} times the round trips of pyzmq" in readme


def test_the_chart_beside_peers_has_the_figures_of_the_page():
    drawn = peer_chart.drawing(peer_chart.bars(texts(peer_chart.PERFORMANCE_PAGE)))
    assert texts(peer_chart.DRAWING) == drawn, "run python -P -m experiments.bench.peer_chart"
    assert "142,000  ares" in drawn
    assert len(re.findall('<rect class="(?:ares|other)', drawn)) == 4 * 2 + 4 * 3


def test_the_table_of_goals_has_the_kept_figures():
    page, kept = PAGE_OF_GOALS, read_figures([KEPT_FIGURES])
    again = "run python -P -m experiments.bench.performance_page --keep"
    assert texts(page) == with_table(texts(page), kept), again
    assert set(kept) <= set(goals())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_statement_of_a_drawing_is_cut(page):
    """A semicolon ends a statement of mermaid, also within a text: the drawing is an error then."""
    drawings = re.findall(r"^```mermaid\n(.*?)^```", texts(page), re.MULTILINE | re.DOTALL)
    assert [drawing for drawing in drawings if ";" in drawing] == []
