"""Together inside Together: a failure ends all started operations, at any depth.

See ares/client/{jobs,rounds}.py.
"""

import pytest

from ares.engine.effects import Pause, Together
from ares.model.errors import ConfigurationRefused, Unavailable
from ares.model.messages import Ack

from .session_rig import Rig, once, sleeper


@pytest.fixture
def rig():
    return Rig()


def nested(log, name, fails):
    """Run nested operations; a given operation fails."""
    try:
        yield Together(
            iter(
                [
                    sleeper(2, log, f"{name}/a"),
                    sleeper(1, log, f"{name}/b", fails),
                    sleeper(1, log, f"{name}/c"),
                ]
            ),
            2,
        )
        log.append(name)
    except GeneratorExit:
        log.append(f"{name} closed")
        raise


def test_a_group_inside_a_group_runs_to_the_end(rig):
    log = []

    def operation():
        yield Together((nested(log, name, False) for name in "xyz"), 2)
        return "through"

    rig.start(operation())
    for _ in range(6):
        rig.tick(1.01)
    assert rig.value == "through"
    assert [name for name in log if "/" not in name] == ["x", "y", "z"]
    assert len(log) == 12


@pytest.mark.parametrize("caught", [True, False])
def test_a_failure_ends_whatever_the_others_have_started(rig, caught):
    """The failure ends the operations beside it and their nested operations, at any depth."""
    log = []

    def deep():
        yield Together(iter([nested(log, "deep", False)]), 1)

    def operation():
        try:
            yield Together(
                iter([deep(), nested(log, "fails", True), sleeper(1, log, "never begun")]), 2
            )
        except ConfigurationRefused:
            if not caught:
                raise
        yield Pause(10)
        return "went on"

    rig.start(operation())
    rig.tick(1.01)
    assert "deep closed" in log
    assert {"deep/a closed", "fails/a closed"} <= set(log)
    seen = list(log)
    rig.tick(5)
    assert log == seen, "something went on"
    if caught:
        assert rig.ends == []
        rig.tick(6)
        assert rig.value == "went on"
    else:
        assert isinstance(rig.error, ConfigurationRefused)
    assert not rig.session.busy


def test_rounds_of_what_was_ended_are_forgotten(rig):
    def asking():
        yield Together(iter([once(), once()]), 2)

    def operation():
        try:
            yield Together(iter([asking(), sleeper(1, [], "it", fails=True)]), 2)
        except ConfigurationRefused:
            yield Pause(10)
        return "went on"

    rig.start(operation())
    rig.tick(1.01)
    rig.sent()
    rig.tick(5)
    assert rig.sent() == {}, "asked again for somebody who is gone"
    for server in ("s0", "s1"):
        rig.reply(server, Ack(1, None), Ack(2, None))
    assert rig.ends == []
    rig.tick(5)
    assert rig.value == "went on"


def test_a_deadline_reaches_the_innermost(rig):
    def asking(log):
        try:
            yield from once()
        except Unavailable:
            log.append("told")
            raise

    def middle(log):
        yield Together(iter([asking(log), sleeper(100, log, "sleeper")]), 2)

    def operation(log):
        yield Together(iter([middle(log)]), 1)

    log = []
    rig.start(operation(log), timeout_s=2)
    for _ in range(4):
        rig.tick(0.6)
    assert isinstance(rig.error, Unavailable)
    assert log == ["told", "sleeper closed"]
    assert not rig.session.busy
