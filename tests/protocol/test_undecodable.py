"""Objects that no reader can decode: other operations succeed, and a move can skip the objects.

See ares/reconfig/mover.py.
"""

import pytest

from ares.dap.reading import AttemptResult, proves
from ares.engine.effects import Gather
from ares.fragment.block import BlockId, BlockIds, block_name, genesis_name
from ares.fragment.collect import fm_collect, fm_remove
from ares.fragment.shared_memory import Blocks
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import LeftBehind, ObjectNotFound, ObjectsStuck, Undecodable
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.model.messages import Describe, GetData, PutData
from ares.model.tag import NUMBER_FLOOR, TAG_ZERO, Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.coverable import read_versioned, write_versioned
from ares.registers.operations import delete, read, stat, write
from ares.registers.survey import list_objects
from tests.protocol.protocol_world import ProtocolWorld, servers

DELTA = 1
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, DELTA)
C0 = EC.at(DEFAULT_DOMAIN, 0)
ABD1 = Configuration.abd(servers(4, 5, 6))
EC1 = Configuration.ec(servers(2, 3, 4, 5, 6), 2, 2)
HOSTILE = ClientId(77)
GOOD = ["a", "z"]


def drain(world):
    while world.step():
        pass


def put_at(configuration, object, tag, index, data=b"x" * 100, length=100):
    """Put an element at a single server."""
    element = sealed(configuration.id, object, tag, index, length, (data,))
    yield Gather(
        configuration,
        lambda call: PutData(call, configuration.id, object, tag, element),
        "put-data",
        (configuration.server_ids[index],),
        1,
    )


def overflow(client, object, highest=1000, configuration=C0):
    """Fill every server's List with versions of a single element each.

    The completed version is lost.
    """
    for index in range(configuration.n):
        for more in range(DELTA + 1):
            tag = Tag(highest - index * (DELTA + 1) - more, HOSTILE)
            client.run(put_at(configuration, object, tag, index))


def garbage(client, object, configuration=C0):
    """Put all elements of a version, each sealed correctly, that do not decode together."""
    for index in range(configuration.n):
        client.run(
            put_at(configuration, object, Tag(1000, HOSTILE), index, bytes([index]) * (90 + index))
        )


@pytest.fixture(params=[overflow, garbage])
def spoil(request):
    return request.param


@pytest.fixture
def world():
    world = ProtocolWorld(C0, range(7))
    client = world.client()
    for name in [*GOOD, "bad"]:
        client.run(write(client.view, name, b"value"))
    drain(world)
    return world


@pytest.mark.parametrize(
    "switches", [Switches(), Switches(False, False, False, False)], ids=["all", "none"]
)
def test_what_cannot_be_decoded_is_told_soon_listed_and_replaced(world, spoil, switches):
    client = world.client(switches)
    spoil(client, "bad")
    began = world.now
    for operation in (read, read_versioned, *([stat] if spoil is overflow else [])):
        with pytest.raises(Undecodable, match=r"no version of 'bad' can be decoded now.*s[0-4]"):
            client.run(operation(client.view, "bad"))
    with pytest.raises(Undecodable):
        client.run(write_versioned(client.view, "bad", b"new", Tag(1, ClientId(1))))
    assert world.now - began < 20.0
    began = world.now
    assert client.run(list_objects(client.view, "", "")) == (["a", "bad", "z"], None)
    assert world.now - began < 1.0
    client.run(write(client.view, "bad", b"new"))
    assert client.run(read(client.view, "bad")).value == b"new"


def test_delete_replaces_an_undecodable_object(world, spoil):
    client = world.client()
    spoil(client, "bad")
    assert client.run(delete(client.view, "bad")).number == 1001
    assert client.run(list_objects(client.view, "", "")) == (GOOD, None)
    with pytest.raises(ObjectNotFound):
        client.run(delete(client.view, "bad"))


@pytest.mark.parametrize("target", [ABD1, EC1])
@pytest.mark.parametrize("batch", [True, False])
def test_a_move_takes_all_others_along_and_names_it(world, spoil, target, batch):
    """Alg. 5:8-12."""
    client = world.client(Switches(batch=batch))
    spoil(client, "bad")
    with pytest.raises(
        ObjectsStuck, match=r"nothing was lost\. 'bad': .*s[0-4].*--skip-undecodable"
    ) as caught:
        client.run(reconfigure(client.view, target), timeout_s=5.0, idle=True)
    assert caught.value.objects.keys() == {"bad"}
    assert client.view.sequence.last_finalized == C0
    assert client.run(read(client.view, "a")).value == b"value"
    other = world.client()
    other.run(write(other.view, "bad", b"new"))
    result = client.run(reconfigure(client.view, target), timeout_s=5.0, idle=True)
    assert (result.skipped, result.left) == (3, ()), "the write healed it"
    assert client.run(read(client.view, "bad")).value == b"new"


@pytest.mark.parametrize("target", [ABD1, EC1])
def test_left_behind_it_is_told_listed_and_replaced(world, spoil, target):
    client = world.client()
    spoil(client, "bad")
    result = client.run(
        reconfigure(client.view, target, MoveOptions(skip_undecodable=True)),
        timeout_s=5.0,
        idle=True,
    )
    assert (result.moved, result.left) == (2, ("bad",))
    assert client.view.sequence.last_finalized.same_content(target)
    stranger = world.client()
    for operation in (read, stat, read_versioned):
        with pytest.raises(LeftBehind, match=r"'bad' could not be decoded.*left behind"):
            stranger.run(operation(stranger.view, "bad"))
    with pytest.raises(LeftBehind) as caught:
        stranger.run(write_versioned(stranger.view, "bad", b"new", None))
    assert stranger.run(list_objects(stranger.view, "", "")) == (["a", "bad", "z"], None)
    assert marked(world, result.configuration) == {"bad"}
    version = caught.value.tag
    assert stranger.run(write_versioned(stranger.view, "bad", b"new", version)).changed
    assert stranger.run(read(stranger.view, "bad")).value == b"new"
    drain(world)
    assert marked(world, result.configuration) == set()


def marked(world, configuration):
    """Return the objects that the servers of a configuration report as left behind."""
    hosted = [
        h
        for replica in world.replicas.values()
        for h in replica.handle(Describe(0)).hosted
        if h.configuration.id == configuration.id
    ]
    return {name for one in hosted for name in one.left_names}


def test_the_mark_moves_on_with_its_domain_and_a_delete_replaces_it(world):
    client = world.client()
    garbage(client, "bad")
    client.run(
        reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)), timeout_s=5.0, idle=True
    )
    result = client.run(reconfigure(client.view, EC1), timeout_s=5.0, idle=True)
    assert (result.moved, result.left) == (3, ())
    assert marked(world, result.configuration) == {"bad"}
    with pytest.raises(LeftBehind):
        client.run(read(client.view, "bad"))
    assert client.run(delete(client.view, "bad")).number == 1001
    assert client.run(read(client.view, "bad")).value is TOMBSTONE


@pytest.mark.parametrize("low", [False, True], ids=["as it is", "control"])
def test_a_late_write_back_does_not_come_before_what_was_written_since(world, monkeypatch, low):
    """A reader holds a value that is lost elsewhere.

    The reader writes the value back after the object was left behind and written again. The
    control: under a mark with a lower tag, a completed write is lost.
    """
    if low:
        monkeypatch.setattr("ares.reconfig.mover.mark_tag", lambda newest: Tag(1, ClientId(0)))
    client, reader = world.client(), world.client()
    for number in range(5):
        client.run(write(client.view, "bad", f"v{number}".encode()))
    drain(world)
    lost = client.run(read(client.view, "bad"))
    reader.view.switches = Switches(fast_read=False)
    world.hold = lambda source, target, message: source is reader and isinstance(message, PutData)
    reading = reader.start(read(reader.view, "bad"))
    drain(world)
    overflow(client, "bad", highest=20)
    result = client.run(
        reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)), timeout_s=5.0, idle=True
    )
    assert result.left == ("bad",)
    client.run(write(client.view, "bad", b"since"))
    world.hold = lambda *_: False
    world.until(lambda: reading.ended)
    assert reading.result().value == lost.value
    drain(world)
    assert client.run(read(client.view, "bad")).value == (lost.value if low else b"since")


@pytest.mark.parametrize("reach", [{"s0"}, {"s0", "s1"}, {"s0", "s1", "s2", "s3"}])
def test_a_write_under_way_stands(world, reach):
    """The write took its tag before the move, and ends after the object was left behind."""
    client, writer = world.client(), world.client()
    overflow(client, "bad")
    world.hold = lambda source, target, message: (
        source is writer and isinstance(message, PutData) and target not in reach
    )
    writing = writer.start(write(writer.view, "bad", b"under way"))
    drain(world)
    moving = client.start(
        reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)), timeout_s=5.0, idle=True
    )
    world.until(lambda: moving.ended)
    assert len(moving.result().left) == (len(reach) < 3)
    world.hold = lambda *_: False
    world.until(lambda: writing.ended)
    writing.result()
    assert client.run(read(client.view, "bad")).value == b"under way"


def test_writers_that_come_and_go_are_not_taken_for_it(world):
    """More writers than delta write all the time.

    As long as their traces change, no object is proven undecodable.
    """
    client = world.client()
    numbers = iter(range(1000, 10_000))

    def busy(source, target, message):
        if isinstance(message, GetData) and target == "s0":
            tag = Tag(next(numbers), HOSTILE)
            element = sealed(C0.id, "bad", tag, 0, 100, (b"x" * 100,))
            world.replicas["s0"].handle(PutData(0, C0.id, "bad", tag, element))

    overflow(client, "bad")
    world.watch = busy
    with pytest.raises(ObjectsStuck):
        client.run(
            reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)),
            timeout_s=5.0,
            idle=True,
        )


@pytest.mark.parametrize("silent", ["s0", "s4"])
def test_what_a_silent_server_may_complete_is_not_left_behind(world, silent):
    """Two of three elements exist, and the element of the fifth server is unknown."""
    client = world.client()
    newest = client.run(write(client.view, "bad", b"newest"))
    drain(world)
    for id, replica in world.replicas.items():
        if id in ("s1", "s2"):
            hosting = next(iter(replica.hosted.values()))
            held = hosting.objects.get("bad").entries
            others = [entry for entry in held if entry[0] != newest]
            others.append((Tag(1, ClientId(5)), held[0][1], 0))
            hosting.objects.clear()
            for tag, element, _ in others:
                hosting.objects.put("bad", tag, element)
            hosting.objects.trim("bad", newest, 0)
    world.down = {silent}
    with pytest.raises(
        ObjectsStuck, match=f"{silent} did not answer, and may have the missing elements"
    ):
        client.run(
            reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)),
            timeout_s=5.0,
            idle=True,
        )
    world.down = set()
    assert (
        client.run(
            reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)),
            timeout_s=5.0,
            idle=True,
        ).left
        == ()
    )
    assert client.run(read(client.view, "bad")).value == b"newest"


def test_a_thousand_of_them_cost_a_bounded_time(world):
    client = world.client()
    tag = Tag(1000, HOSTILE)
    names = [f"bad{number:04}" for number in range(300)]
    for index in range(5):
        hosting = next(iter(world.replicas[f"s{index}"].hosted.values()))
        for name in names:
            hosting.put(
                PutData(
                    0,
                    C0.id,
                    name,
                    tag,
                    sealed(C0.id, name, tag, index, 100, (bytes([index]) * (90 + index),)),
                ),
                checked=True,
            )
    began = world.now
    result = client.run(
        reconfigure(client.view, ABD1, MoveOptions(skip_undecodable=True)), timeout_s=5.0, idle=True
    )
    assert result.left == tuple(names)
    assert result.moved == 3
    assert world.now - began < 60.0


# -- a tag that servers refuse --------------------------------------------------------------------


def test_an_object_that_the_target_refuses_stops_nothing_either(world):
    """The object's tag was accepted by an earlier release."""
    client, frozen = world.client(), Tag(2**63, HOSTILE)
    abd = Configuration.abd(servers(0, 1, 2)).at("frozen", 0, C0.id)
    world_view = world.client(initial=abd)
    world_view.run(write(world_view.view, "good", b"value"))
    for id in abd.server_ids:
        world.replicas[id].hosted[abd.id].put(
            PutData(0, abd.id, "bad", frozen, sealed(abd.id, "bad", frozen, 0, 4, (b"data",))),
            checked=True,
        )
    with pytest.raises(ObjectsStuck, match=r"'bad': .*the tag 9223372036854775808.* is beyond"):
        world_view.run(reconfigure(world_view.view, ABD1), timeout_s=5.0, idle=True)
    assert world_view.run(list_objects(world_view.view, "", "")) == (["bad", "good"], None)
    result = world_view.run(
        reconfigure(world_view.view, ABD1, MoveOptions(skip_undecodable=True)),
        timeout_s=5.0,
        idle=True,
    )
    assert result.left == ("bad",)
    with pytest.raises(LeftBehind):
        world_view.run(read(world_view.view, "bad"))
    assert world_view.run(write(world_view.view, "bad", b"new")).number == NUMBER_FLOOR + 1
    assert world_view.run(read(world_view.view, "bad")).value == b"new"
    assert client.run(read(client.view, "a")).value == b"value"


# -- files -----------------------------------------------------------------------------------------


def test_a_file_whose_genesis_block_cannot_be_decoded_is_removed(world):
    client = world.client()
    blocks = Blocks(client.view)
    client.run(write(client.view, genesis_name("film"), b"\x01"))
    drain(world)
    overflow(client, genesis_name("film"))
    client.run(fm_remove(blocks, "film", BlockIds(5), 0), idle=True)
    with pytest.raises(ObjectNotFound):
        client.run(fm_remove(blocks, "film", BlockIds(5), 0), idle=True)


def test_collection_passes_over_a_block_that_cannot_be_decoded(world):
    client = world.client()
    lost = block_name(BlockId(1, 1), BlockId(1, 2))
    client.run(write(client.view, lost, b"\x01"))
    drain(world)
    overflow(client, lost)
    assert client.run(fm_collect(Blocks(client.view), 10**9, 0), idle=True) == 0


def test_nothing_is_proven_undecodable_that_a_silent_server_may_complete():
    """A silent fifth server may complete the first version, so a skip must wait for it.

    Four of five completed the first version. Three writers died, the first after two servers and
    the others after a single server; Lists hold two versions. The fifth server lists the first
    version alone.
    """
    configuration = Configuration.ec(servers(1, 2, 3, 4, 5), 3, 1).at(DEFAULT_DOMAIN, 0)
    completed, half, first, second = (Tag(number, ClientId(1)) for number in (1, 2, 3, 4))
    lists = {
        "s1": ((half,), TAG_ZERO),
        "s2": ((second, first), half),
        "s3": ((completed,), TAG_ZERO),
        "s4": ((completed,), TAG_ZERO),
    }
    assert not proves(configuration, AttemptResult(lists, None, frozenset()))
