"""Write-once domains: create, fetch and drop (ares/registers/write_once.py; rule R25)."""

import pytest

from ares.dap.reading import AttemptResult, is_below_quorum
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import hollow, sealed
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    LeftBehind,
    ObjectNotFound,
    ObjectsStuck,
    Unavailable,
    Undecodable,
    WriteOnceRefusal,
)
from ares.model.identity import DEFAULT_DOMAIN, CallId, ObjectName
from ares.model.messages import DROPPED_MAX, Ack, Drop, PutData, Reason, Refused
from ares.model.tag import LOST_TAG, TAG_ZERO, WRITE_ONCE_TAG, Tag
from ares.model.value import LOST
from ares.reconfig.mover import MoveOptions, Mover
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.traversal import put_config
from ares.reconfig.view import Switches
from ares.registers.coverable import write_versioned
from ares.registers.operations import delete, propagate, read, write
from ares.registers.survey import list_objects
from ares.registers.write_once import create, drop, fetch, list_names, members
from tests.protocol.protocol_world import ProtocolWorld, servers

EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, write_once=True)
ABD = Configuration.abd(servers(4, 5, 6), write_once=True)
PLAIN = Configuration.abd(servers(0, 1, 2))
VALUE = b"value" * 100


def drain(world):
    while world.step():
        pass


def holding(world, name, configuration):
    """Return the servers with a version of ``name`` in ``configuration``."""
    hosted = {
        server: replica.hosted.get(configuration.id) for server, replica in world.replicas.items()
    }
    return sorted(
        server for server, state in hosted.items() if state and state.objects.newest(name)
    )


@pytest.fixture(params=[EC, ABD], ids=["ec", "abd"])
def world(request):
    return ProtocolWorld(request.param.at(DEFAULT_DOMAIN, 0), range(7))


@pytest.fixture
def client(world):
    return world.client()


@pytest.mark.parametrize(
    "switches", [Switches(), Switches(False, False, False, False)], ids=["all", "none"]
)
def test_a_name_is_created_fetched_and_dropped(world, switches):
    client, other = world.client(switches), world.client()
    client.run(create(client.view, "a", VALUE))
    client.run(create(client.view, "empty", b""))
    assert other.run(fetch(other.view, "a")) == VALUE
    assert other.run(fetch(other.view, "empty")) == b""
    other.run(drop(other.view, ["a", "never"]))
    drain(world)
    assert holding(world, "a", world.initial) == []
    with pytest.raises(ObjectNotFound):
        client.run(fetch(client.view, "a"))
    assert client.run(list_objects(client.view, "", "")) == (["empty"], None)


def test_a_create_is_one_round(world, client):
    seen = []
    world.watch = lambda source, target, message: seen.append(type(message))
    client.run(create(client.view, "a", VALUE))
    drain(world)
    assert set(seen) == {PutData, Ack}
    assert seen.count(PutData) == world.initial.n


def test_a_repeated_create_and_a_repeated_drop_change_nothing(world, client):
    for _ in range(2):
        client.run(create(client.view, "a", VALUE))
    assert client.run(fetch(client.view, "a")) == VALUE
    for _ in range(2):
        client.run(drop(client.view, ["a"]))
    with pytest.raises(ObjectNotFound):
        client.run(fetch(client.view, "a"))


def test_many_names_are_dropped_in_bounded_messages(world, client):
    names = [f"name {number:04}" for number in range(DROPPED_MAX + 10)]
    sizes = []
    world.watch = lambda source, target, message: (
        sizes.append(len(message.names)) if isinstance(message, Drop) else None
    )
    client.run(drop(client.view, names))
    assert set(sizes) == {DROPPED_MAX, 10}


def test_an_impossible_name_is_not_sent(world, client):
    with pytest.raises(BadInput):
        client.run(drop(client.view, ["a", ""]))
    assert not world.flights


def test_silence_of_one_server_is_no_drop(world, client):
    """A version at a quorum is found without any single server."""
    client.run(create(client.view, "a", VALUE))
    drain(world)
    for server in world.initial.server_ids:
        world.down = {server}
        assert client.run(fetch(client.view, "a")) == VALUE
        world.down = set()


def test_a_drop_needs_a_quorum(world, client):
    client.run(create(client.view, "a", VALUE))
    drain(world)
    world.down = set(world.initial.server_ids[: world.initial.crashes_survived + 1])
    with pytest.raises(Unavailable):
        client.run(drop(client.view, ["a"]), 3.0)


def test_a_fetch_without_a_quorum_fails_and_says_nothing_of_a_drop(world, client):
    client.run(create(client.view, "a", VALUE))
    drain(world)
    world.down = set(world.initial.server_ids[1:])
    with pytest.raises(Unavailable):
        client.run(fetch(client.view, "a"), 3.0)


def test_ordinary_writes_are_refused_in_a_write_once_domain(world, client):
    client.run(create(client.view, "a", VALUE))
    for operation in (
        *(write(client.view, "a", b""), delete(client.view, "a")),
        write_versioned(client.view, "a", b"", WRITE_ONCE_TAG),
    ):
        with pytest.raises(WriteOnceRefusal, match="is write-once"):
            client.run(operation)
    assert client.run(read(client.view, "a")).value == VALUE


def test_a_domain_that_is_not_write_once_refuses():
    world = ProtocolWorld(PLAIN.at(DEFAULT_DOMAIN, 0), range(3))
    client = world.client()
    client.run(write(client.view, "a", VALUE))
    drain(world)
    for operation in (
        *(create(client.view, "b", b""), fetch(client.view, "a"), drop(client.view, ["a"])),
        list_names(client.view, "s0"),
    ):
        with pytest.raises(WriteOnceRefusal, match="not write-once"):
            client.run(operation)
    assert not world.flights
    replica = world.replicas["s0"]
    refused = replica.handle(Drop(CallId(1), world.initial.id, (ObjectName("a"),)))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.BAD_REQUEST
    assert holding(world, "a", world.initial) == ["s0", "s1", "s2"]


def test_a_domain_stays_as_it_began(world, client):
    mutable = Configuration.abd(servers(0, 1, 2, 3, 4))
    with pytest.raises(
        ConfigurationRefused, match=r"stays so.*write_once=True. Nothing was changed"
    ):
        client.run(reconfigure(client.view, mutable))
    target = mutable.at(DEFAULT_DOMAIN, 1, world.initial.cluster_id)
    with pytest.raises(ConfigurationRefused, match="a domain stays as it began"):
        client.run(put_config(world.initial, Successor(target, Status.PENDING)))


# -- moves -----------------------------------------------------------------------------------------


def moved(world, client, wished):
    result = client.run(reconfigure(client.view, wished))
    drain(world)
    return result


def test_names_move_with_their_domain(world, client):
    late = world.client()
    for number in range(5):
        client.run(create(client.view, f"n{number}", VALUE))
    for wished in (ABD, EC, ABD):
        moved(world, client, wished)
    assert late.run(fetch(late.view, "n3")) == VALUE
    stale = world.client()
    stale.run(drop(stale.view, ["n3"]))
    drain(world)
    assert holding(world, "n3", client.view.sequence.last_finalized) == []
    stale = world.client()
    stale.run(create(stale.view, "new", VALUE))
    assert late.run(fetch(late.view, "new")) == VALUE


def begun(world, client, wished):
    """Put the successor ``wished`` at a quorum, and move nothing."""
    target = wished.at(DEFAULT_DOMAIN, 1, world.initial.cluster_id)
    client.run(put_config(world.initial, Successor(target, Status.PENDING)))
    return target


def test_a_create_and_a_drop_follow_the_successor(world, client):
    """Rule R3."""
    target = begun(world, client, ABD)
    writer, dropper = world.client(), world.client()
    writer.run(create(writer.view, "a", VALUE))
    drain(world)
    for configuration in (world.initial, target):
        assert len(holding(world, "a", configuration)) >= configuration.quorum_size
    dropper.run(drop(dropper.view, ["a"]))
    drain(world)
    for configuration in (world.initial, target):
        assert holding(world, "a", configuration) == []


def rot(world, name, *numbers):
    """Damage the element of ``name`` at servers with a disk; its tag stays listed."""
    for number in numbers:
        state = world.replicas[f"s{number}"].hosted[world.initial.id]
        state._journaled = True
        _, element, _ = state.objects.version(name, WRITE_ONCE_TAG)
        state.objects.replace(name, WRITE_ONCE_TAG, hollow(element))


def forget(world, name, *numbers):
    """Drop ``name`` at servers only, as a drop under way does."""
    for number in numbers:
        world.replicas[f"s{number}"].handle(Drop(CallId(1), world.initial.id, (name,)))


@pytest.fixture(params=range(4))
def coded(request):
    world = ProtocolWorld(EC.at(DEFAULT_DOMAIN, 0), range(7), request.param)
    client = world.client()
    for name in ("dropped", "kept"):
        client.run(create(client.view, name, VALUE))
    drain(world)
    return world


@pytest.mark.parametrize("holding_servers", [1, 2])
def test_a_move_passes_over_a_name_that_was_mostly_dropped(coded, holding_servers):
    forget(coded, "dropped", *range(holding_servers, 5))
    client = coded.client()
    result = moved(coded, client, ABD)
    assert (result.moved, result.left) == (1, ())
    assert holding(coded, "dropped", result.configuration) == []
    with pytest.raises(ObjectNotFound):
        client.run(fetch(client.view, "dropped"))
    assert client.run(fetch(client.view, "kept")) == VALUE


def test_a_move_passes_over_a_dropped_name_whose_elements_rotted(coded):
    """Three servers list the name, and two have an element; a quorum has four servers."""
    forget(coded, "dropped", 3, 4)
    rot(coded, "dropped", 2)
    client = coded.client()
    result = moved(coded, client, ABD)
    assert result.left == ()
    assert holding(coded, "dropped", result.configuration) == []
    assert client.run(fetch(client.view, "kept")) == VALUE


def listing(*numbers, answered=range(5)):
    """Return a look at which ``answered`` servers answer, and ``numbers`` list the version."""
    lists = {
        f"s{number}": ((WRITE_ONCE_TAG,) if number in numbers else (), TAG_ZERO)
        for number in answered
    }
    return AttemptResult(lists, WRITE_ONCE_TAG, frozenset())


@pytest.mark.parametrize(
    ("look", "below"),
    [
        (listing(0, 1, 2), True),
        (listing(0, 1, 2, 3), False),
        (listing(0, 1, 2, answered=range(4)), False),
        (listing(0, 1, answered=range(4)), True),
        (listing(0, 1, answered=range(3)), False),
        (AttemptResult(listing().lists, None, frozenset()), False),
    ],
)
def test_a_name_at_a_quorum_at_most_was_never_completed_or_was_dropped(look, below):
    """A quorum is four of five servers; silent servers may have the name."""
    assert is_below_quorum(EC, look) is below


@pytest.mark.parametrize("below_quorum", [True, False])
def test_a_move_passes_over_a_name_listed_by_fewer_servers_than_a_quorum(
    coded, monkeypatch, below_quorum
):
    ask = Mover._ask_sources

    def undecodable(mover, question):
        found = yield from ask(mover, question)
        if found.length == len(VALUE):
            raise Undecodable("dropped", "its elements rotted", found.tag, True, below_quorum)
        return found

    client = coded.client(Switches(ahead=False))
    client.run(drop(client.view, ["kept"]))
    drain(coded)
    monkeypatch.setattr(Mover, "_ask_sources", undecodable)
    if below_quorum:
        assert moved(coded, client, ABD).skipped == 1
    else:
        with pytest.raises(ObjectsStuck):
            moved(coded, client, ABD)


def test_a_move_waits_for_the_server_that_may_have_the_missing_element(coded):
    """A rotten element beside a silent server proves no drop."""
    forget(coded, "dropped", 0)
    rot(coded, "dropped", 1)
    coded.down = {"s2"}
    client = coded.client()
    with pytest.raises(ObjectsStuck) as stuck:
        client.run(reconfigure(client.view, ABD, MoveOptions(skip_undecodable=True)), 120.0)
    assert set(stuck.value.objects) == {"dropped"}
    coded.down = set()
    moved(coded, client, ABD)
    assert client.run(fetch(client.view, "dropped")) == VALUE


def test_a_move_does_not_pass_over_a_name_whose_elements_all_rotted(coded):
    """An index may have the name: the value is lost, and a fetch says so."""
    rot(coded, "dropped", 0, 1, 2)
    client = coded.client()
    with pytest.raises(ObjectsStuck):
        client.run(reconfigure(client.view, ABD), 120.0)
    result = client.run(reconfigure(client.view, ABD, MoveOptions(skip_undecodable=True)), 120.0)
    assert result.left == ("dropped",)
    with pytest.raises(LeftBehind):
        client.run(fetch(client.view, "dropped"))
    client.run(drop(client.view, ["dropped"]))
    drain(coded)
    assert holding(coded, "dropped", result.configuration) == []


def test_a_create_under_way_that_a_move_passes_over_goes_to_the_successor(coded):
    """Rules R1 and R3: a server without the name tells the writer of the successor."""
    writer, mover = coded.client(), coded.client()
    late = ("s2", "s3", "s4")
    coded.hold = lambda source, target, message: (
        source is writer and isinstance(message, PutData) and target in late
    )
    creating = writer.start(create(writer.view, "new", VALUE))
    drain(coded)
    assert holding(coded, "new", coded.initial) == ["s0", "s1"]
    result = mover.run(reconfigure(mover.view, ABD))
    assert result.left == ()
    coded.hold = lambda *_: False
    coded.until(lambda: creating.ended)
    assert creating.result() is None
    assert mover.run(fetch(mover.view, "new")) == VALUE


# -- one server ------------------------------------------------------------------------------------


def test_litter_is_found_at_each_server_and_dropped(world, client):
    """A late message brings a name back to a single server."""
    for number in range(5):
        client.run(create(client.view, f"n{number}", VALUE))
    client.run(drop(client.view, ["n1"]))
    drain(world)
    last = world.initial.server_ids[-1]
    index = world.initial.n - 1 if world.initial.dap == "ec" else 0
    element = sealed(world.initial.id, "n1", WRITE_ONCE_TAG, index, len(VALUE), (VALUE,))
    world.replicas[last].handle(
        PutData(CallId(1), world.initial.id, ObjectName("n1"), WRITE_ONCE_TAG, element)
    )
    assert client.run(members(client.view)) == world.initial.server_ids
    found = {}
    for server in world.initial.server_ids:
        names, after = [], ""
        while after is not None:
            page = client.run(list_names(client.view, server, after, 2))
            names += page.names
            after = page.after
        found[server] = names
    assert found[last] == ["n0", "n1", "n2", "n3", "n4"]
    assert all(found[server] == ["n0", "n2", "n3", "n4"] for server in found if server != last)
    if world.initial.dap == "ec":
        with pytest.raises(ObjectNotFound):
            client.run(fetch(client.view, "n1"))
    client.run(drop(client.view, ["n1"]))
    drain(world)
    assert holding(world, "n1", world.initial) == []


def test_the_listing_of_a_server_follows_a_finalized_successor(world, client):
    client.run(create(client.view, "a", VALUE))
    moved(world, client, ABD)
    stale = world.client()
    assert stale.run(list_names(stale.view, "s4")).names == ("a",)
    with pytest.raises(BadInput, match="s0 is not in"):
        stale.run(list_names(stale.view, "s0"))


def test_a_server_that_does_not_answer_is_not_listed(world, client):
    world.down = {world.initial.server_ids[0]}
    with pytest.raises(Unavailable):
        client.run(list_names(client.view, world.initial.server_ids[0]), 3.0)


# -- lost values -----------------------------------------------------------------------------------


def test_a_lost_value_is_not_called_dropped(world, client):
    client.run(propagate(client.view, "blob", LOST_TAG, LOST))
    with pytest.raises(LeftBehind):
        client.run(fetch(client.view, "blob"))


def test_a_value_replaces_the_mark_of_its_loss(world, client):
    """A create under way ends above the mark."""
    client.run(propagate(client.view, "blob", LOST_TAG, LOST))
    client.run(create(client.view, "blob", VALUE))
    client.run(propagate(client.view, "blob", LOST_TAG, LOST))
    assert client.run(fetch(client.view, "blob")) == VALUE
    assert Tag(1, 0) == LOST_TAG < WRITE_ONCE_TAG
