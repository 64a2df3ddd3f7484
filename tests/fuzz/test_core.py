"""Twins, a twin with the compiled core, under random courses of events.

``core/fuzz/run`` is the long form.
"""

import random
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from ares.compiled import CORE

pytestmark = pytest.mark.skipif(CORE is None, reason="nothing is compiled")

COURSES = 150
BYTES_MAX = 1000


@pytest.fixture(scope="module")
def courses():
    spec = spec_from_file_location("courses", Path(__file__).parents[2] / "core/fuzz/courses.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(seed: int):
    chance = random.Random(seed)
    return (chance.randbytes(chance.randrange(BYTES_MAX)) for _ in range(COURSES))


@pytest.mark.parametrize("whose", ["server", "client"])
def test_whatever_happens_they_do_not_differ(courses, whose):
    go(getattr(courses, whose))


def go(course) -> None:
    for data in inputs(7):
        course(data)


def test_a_server_that_answers_otherwise_is_noticed(courses, monkeypatch):
    """The control: a core that takes a batch, and answers no request."""
    receive = courses.Half.receive

    def forget(half, *came):
        quick = half.quick
        receive(half, *came)
        if half.quick > quick and half.sent:
            half.sent.pop()

    monkeypatch.setattr(courses.Half, "receive", forget)
    with pytest.raises(AssertionError):
        go(courses.server)


def test_a_client_that_knows_otherwise_is_noticed(courses, monkeypatch):
    """The control: a twin believes that servers are slower."""
    answer = courses.Both.answer

    def mistake(both, *of):
        answer(both, *of)
        both.twins[0].session.usual_round_s += 1.0

    monkeypatch.setattr(courses.Both, "answer", mistake)
    with pytest.raises(AssertionError):
        go(courses.client)
