"""A repair as an operation, in a world without I/O (ares/autopilot/judge.py).

The repair follows the judgement, or does not happen.
"""

from ares.autopilot.judge import Finish, NoAction, Replace, Stuck, look_up, mend
from ares.model.configuration import Configuration
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import add_config, announce_successor, next_to
from ares.reconfig.throttle import Throttle
from ares.reconfig.traversal import read_config
from ares.registers.operations import read, write
from tests.protocol.protocol_world import ProtocolWorld, servers

INITIAL = Configuration.abd(servers(0, 1, 2)).at("default", 0)
WISHED = Configuration.abd(servers(0, 1, 3))
THEIRS = Configuration.abd(servers(3, 4, 5))
FAST = MoveOptions(Throttle(1e9))


def replacing(active):
    return Replace(WISHED, (), ())


def test_what_is_wished_is_installed():
    world = ProtocolWorld(INITIAL, range(6))
    client = world.client()
    client.run(write(client.view, "key", b"v"))
    world.down = {"s2"}
    verdict, result = client.run(mend(client.view, replacing, FAST))
    assert isinstance(verdict, Replace)
    assert (result.ours, result.configuration.index, result.moved) == (True, 1, 1)
    world.down = {"s0"}
    other = world.client()
    assert other.run(read(other.view, "key")).value == b"v"
    assert other.view.sequence.last_finalized.same_content(WISHED)


def test_a_decision_that_was_first_is_completed_and_not_undone():
    """Another client's proposal is decided between the judgement and the autopilot's proposal."""
    world = ProtocolWorld(INITIAL, range(6))
    client = world.client()
    client.run(write(client.view, "key", b"v"))

    def too_late(active):
        world.decisions.decide("default", 1, THEIRS.at("default", 1, INITIAL.id), 99)
        return replacing(active)

    _, result = client.run(mend(client.view, too_late, FAST))
    assert (result.ours, result.configuration.index) == (False, 1)
    assert result.configuration.same_content(THEIRS)
    assert world.decisions.count == 1, "nothing was proposed for the place after it"


def test_it_is_judged_by_what_the_servers_say_now():
    world = ProtocolWorld(INITIAL, range(6))
    client, other = world.client(), world.client()
    client.run(read_config(client.view))
    other.run(mend(other.view, lambda active: Replace(THEIRS, (), ()), FAST))
    seen = []

    def judged(active):
        seen.extend(active)
        return NoAction()

    assert client.run(mend(client.view, judged, FAST)) == (NoAction(), None)
    assert [configuration.index for configuration in seen] == [1]


def test_what_was_left_is_completed():
    world = ProtocolWorld(INITIAL, range(6))
    dead, client = world.client(), world.client()
    dead.run(write(dead.view, "key", b"v"))

    def begin():
        decided = yield from add_config(next_to(dead.view.sequence.last_known, THEIRS))
        yield from announce_successor(dead.view, decided.configuration)
        return decided.configuration

    target = dead.run(begin())
    assert client.run(look_up(client.view)) == ([INITIAL, target], "")
    verdict, result = client.run(mend(client.view, lambda active: Finish(active[-1]), FAST))
    assert verdict == Finish(target)
    assert (result.ours, result.configuration, result.moved) == (True, target, 1)
    assert client.run(look_up(client.view)) == ([target], "")


def test_a_domain_that_does_not_answer_keeps_what_is_known_of_it():
    world = ProtocolWorld(INITIAL, range(6))
    client = world.client()
    world.down = {"s0", "s1"}
    active, trouble = client.run(look_up(client.view), timeout_s=3.0)
    assert active == [INITIAL]
    assert "1 of the 2 servers needed answered" in trouble


def test_nothing_is_done_where_nothing_can_be():
    world = ProtocolWorld(INITIAL, range(6))
    client = world.client()
    assert client.run(mend(client.view, lambda active: Stuck("no spare"), FAST)) == (
        Stuck("no spare"),
        None,
    )
    assert world.decisions.count == 0
