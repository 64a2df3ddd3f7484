"""gc-config: requests to retired configurations, also to silent ones.

See ares/reconfig/reconfigure.py.
"""

import pytest

from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import ConfigurationRefused, Superseded, Unavailable
from ares.model.messages import Ack, CollectConfig
from ares.reconfig.reconfigure import COLLECT_S, gc_config
from ares.reconfig.view import Switches, View

C = [Configuration.abd(["s0", "s1", "s2"]).at("d", index) for index in range(4)]


def view() -> View:
    view = View(1, C[0], Switches())
    view.sequence.add(C[0], Successor(C[1], Status.PENDING))
    view.sequence.add(C[1], Successor(C[2], Status.PENDING))
    view.sequence.add(C[0], Successor(C[2], Status.FINALIZED))
    view.sequence.add(C[2], Successor(C[3], Status.PENDING))
    return view


def collect(view, reactions):
    """Run with the given reactions; return the rounds' configurations and the result."""
    operation = gc_config(view)
    asked, gather = [], next(operation)
    for reaction in reactions:
        asked.append(gather.configuration.index)
        request = gather.requests(1, *gather.arguments)
        assert request == CollectConfig(
            1, gather.configuration.id, Successor(C[2], Status.FINALIZED)
        )
        assert gather.give_up_s == COLLECT_S
        try:
            gather = (
                operation.throw(reaction)
                if isinstance(reaction, Exception)
                else operation.send(reaction)
            )
        except StopIteration as stop:
            return asked, stop.value
    raise AssertionError("more rounds than reactions")


DONE = {"s0": Ack(1, None), "s1": Ack(1, None)}


def test_everything_before_the_last_finalized_one_is_collected_and_forgotten():
    """Alg. 2:37-46."""
    known = view()
    assert collect(known, [DONE, DONE]) == ([0, 1], [])
    assert (known.sequence.retired, known.sequence.active) == ([], [C[2], C[3]])


@pytest.mark.parametrize("trouble", [Unavailable(2, 1, {"s2": "no answer"}), Superseded(C[3])])
def test_one_without_a_quorum_is_reported_and_does_not_hold_up_the_rest(trouble):
    """Alg. 2:37-46."""
    known = view()
    assert collect(known, [trouble, DONE]) == ([0, 1], [C[0]])
    assert known.sequence.retired == []


def test_a_refusal_is_an_error():
    with pytest.raises(ConfigurationRefused):
        collect(view(), [ConfigurationRefused("a second decision")])


def test_nothing_retired_nothing_asked():
    with pytest.raises(StopIteration) as stop:
        next(gc_config(View(1, C[0], Switches())))
    assert stop.value.value == []
