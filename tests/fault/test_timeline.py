"""The page: well-formed, self-contained, and complete."""

import json
from html.parser import HTMLParser

import pytest

from ares.model.configuration import Configuration, Server
from ares.testing.torture.records import Record, Timeline
from ares.testing.torture.timeline import render
from ares.testing.torture.verdict import LatencySummary, Summary
from ares.testing.verify.history import Event

VOID = {"meta", "br"}
NOTHING = LatencySummary(0, None, None, None)
NASTY = 'Unavailable: </script><script>alert("x")</script>'


class Page(HTMLParser):
    """A check that tags nest; keeps the text and attributes of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        self.text.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text[self.open[-1]][-1] += data


@pytest.fixture
def chronicle() -> Timeline:
    made = Timeline()
    made.state("s0", "up", new_life=True)
    made.state("r0", "up", new_life=True)
    first = Configuration.abd([Server(name, "h:1", "1") for name in ("s0", "s1", "s2")]).at(
        "default", 0
    )
    made.reigns_now(first, None)
    made.mark("kill", "s0", fault=True)
    made.state("s0", "dead")
    made.state("s0", "up", new_life=True)
    made.mark("new life", "s0")
    made.reigns_now(
        Configuration.ec([*first.servers, Server("s3", "h:1", "1")], 2).at("default", 1), 0.0
    )
    made.close()
    return made


def operations() -> list[Record]:
    return [
        Record(Event("a.writer", "write", "hot/0", "a.writer-1", 1, 1.5), 1.5),
        Record(Event("b.reader", "read", "hot/0", None, 1, 1.25), 1.25),
        Record(Event("a.writer", "write", "hot/1", "a.writer-2", 2, None, "unknown"), 22, NASTY),
        Record(Event("b.reader", "delete", "hot/1", None, 3, None, "unknown"), 3.001, "", True),
    ]


@pytest.fixture
def page(chronicle) -> str:
    summary = Summary(
        5,
        30.0,
        4,
        1,
        True,
        {"read": {"ok": 1}},
        {"kill": 1},
        {"done": 1},
        2,
        NOTHING,
        NOTHING,
        0.5,
        [],
        [],
        [NASTY],
        [],
        [],
    )
    return render(operations(), chronicle, summary)


def test_it_is_well_formed_and_complete_in_itself(page):
    parsed = Page(page)
    assert parsed.open == []
    assert page.startswith("<!doctype html>")
    assert not {"src", "href", "srcset"} & {name for name, _ in parsed.attributes}
    assert not any(
        word in page for word in ("http:", "https:", "@import", "url(", "fetch(", "XMLHttpRequest")
    )
    assert len(parsed.text["script"]) == 2, "text from outside starts no script"


def test_everything_that_happened_is_in_it(page):
    data = json.loads(Page(page).text["script"][0])
    assert data["heading"] == "seed 5: NOT CLEAN: 1 liveness failure"
    assert data["findings"] == [NASTY]
    assert data["clients"] == ["a.writer", "b.reader"]
    writes, reads = data["operations"]
    kinds, outcomes = data["kinds"], data["outcomes"]
    assert writes == [
        [1000, 500, kinds.index("write"), outcomes.index("ok"), "hot/0", "a.writer-1"],
        [
            2000,
            20000,
            kinds.index("write"),
            outcomes.index("unknown"),
            "hot/1",
            "a.writer-2",
            NASTY,
        ],
    ]
    assert reads == [
        [1000, 250, kinds.index("read"), 0, "hot/0"],
        [3000, 1, kinds.index("delete"), outcomes.index("abandoned"), "hot/1"],
    ]
    assert data["processes"] == ["s0", "r0"]
    states = data["states"]
    assert [(spell[2], spell[3]) for spell in data["spells"][0]] == [
        (states.index("up"), 1),
        (states.index("dead"), 1),
        (states.index("up"), 2),
    ]
    assert [mark[1:] for mark in data["marks"]] == [
        ["kill", "s0", "", 1],
        ["new life", "s0", "", 0],
    ]
    assert [(each[3], each[4].split(" on ")[0]) for each in data["configurations"]] == [
        (0, "ABD n=3"),
        (1, "EC n=4 k=2 delta=8"),
    ]
    assert data["end"] == 22000


def test_a_run_of_a_hundred_thousand_operations_stays_a_page_that_can_be_opened(chronicle):
    many = [
        Record(
            Event(
                f"c{number % 12}",
                "read",
                "hot/0",
                f"c1-{number}",
                number / 500,
                number / 500 + 0.001,
            ),
            number / 500 + 0.001,
        )
        for number in range(100_000)
    ]
    summary = Summary(
        5, 200.0, 4, 1, False, {}, {}, {"done": 1}, 2, NOTHING, NOTHING, 0.5, [], [], [], [], []
    )
    page = render(many, chronicle, summary)
    assert sum(map(len, json.loads(Page(page).text["script"][0])["operations"])) == 100_000
    assert len(page) < 6_000_000
