"""Moves that copy ahead of the decision, without I/O (rule R24)."""

from typing import Any

import pytest
from msgspec import structs

from ares.model.codec import decode
from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused, Unavailable
from ares.model.identity import DEFAULT_DOMAIN, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    Adopt,
    AheadReply,
    AnyMessage,
    CopyOutcome,
    DataReply,
    Describe,
    Description,
    DiskUsage,
    GetAhead,
    GetData,
    ListObjects,
    PullElement,
    PutAhead,
    PutData,
    WriteConfig,
)
from ares.model.value import TOMBSTONE
from ares.reconfig import copy_ahead
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches
from ares.registers.operations import read, write
from ares.replica import ahead_copies
from ares.replica.ahead_copies import AheadCopies
from ares.replica.replica import Replica
from tests.protocol.protocol_world import ProtocolClient, ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2))
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 2)
TO_ABD = Configuration.abd(servers(5, 6, 7))
TO_EC = Configuration.ec(servers(5, 6, 7, 8, 9), 3, 2)
AHEAD = Switches(ahead=True)
NAMES = [ObjectName(f"key{number:02d}") for number in range(20)]


class Traffic:
    """The messages of a client, and the state of the decision when each arrived."""

    def __init__(self, world: ProtocolWorld, client: ProtocolClient) -> None:
        self.messages: list[tuple[bool, Any, AnyMessage]] = []
        self._world, self._client = world, client
        world.watch = self._see

    def _see(self, source: Any, target: Any, message: AnyMessage) -> None:
        if self._client in (source, target):
            peer = target if source is self._client else source
            self.messages.append((self.decided, peer, message))

    @property
    def decided(self) -> bool:
        return self._world.decisions.count > 0

    def of(self, kind: Any, decided: bool | None = None) -> list[AnyMessage]:
        return [
            message
            for when, _, message in self.messages
            if isinstance(message, kind) and decided in (None, when)
        ]


def world_of(
    source: Configuration, seed: int = 1, names: list[ObjectName] = NAMES
) -> tuple[ProtocolWorld, ProtocolClient, ProtocolClient, Traffic]:
    """Return a world with objects, a writer, a mover that copies ahead, and the traffic."""
    world = ProtocolWorld(source.at(DEFAULT_DOMAIN, 0), range(10), seed)
    writer, mover = world.client(), world.client(AHEAD)
    for name in names:
        writer.run(write(writer.view, name, name.encode() * 3))
    while world.step():
        pass
    return world, writer, mover, Traffic(world, mover)


@pytest.mark.parametrize("source", [ABD, EC])
@pytest.mark.parametrize("target", [TO_ABD, TO_EC])
def test_after_the_decision_no_value_travels(source, target):
    world, writer, mover, traffic = world_of(source)
    gone = writer.run(write(writer.view, "gone", TOMBSTONE))
    tag = writer.run(write(writer.view, "once more", b"v"))
    result = mover.run(reconfigure(mover.view, target))
    assert (result.ours, result.moved, result.skipped) == (True, len(NAMES) + 2, 0)
    assert result.bytes == sum(3 * len(name) for name in NAMES) + 1
    assert traffic.of((PutData, GetData)) == []
    assert traffic.of((GetAhead, PutAhead), decided=True) == []
    assert traffic.of(Adopt, decided=False) == []
    assert len(traffic.of(Adopt)) <= 2 * target.n
    for client in (writer, world.client()):
        for name in NAMES:
            assert client.run(read(client.view, name)).value == name.encode() * 3
        assert client.run(read(client.view, "gone")).tag == gone
        assert client.run(read(client.view, "once more")).tag == tag


def test_r1_requests_carry_the_successor_after_the_decision_and_none_is_known_before():
    world, _, mover, traffic = world_of(ABD)
    known = []

    def watch(source: Any, target: Any, message: AnyMessage) -> None:
        if not traffic.decided:
            known.extend(world.replicas[f"s{n}"].hosted[world.initial.id].successor for n in (0, 1))
        traffic._see(source, target, message)

    world.watch = watch
    mover.run(reconfigure(mover.view, TO_EC))
    before = traffic.of(ListObjects, decided=False)
    assert before
    assert {message.successor for message in before} == {None}
    assert set(known) == {None}
    after = [
        message
        for message in traffic.of(ListObjects, decided=True)
        if message.configuration == world.initial.id
    ]
    assert after
    assert all(message.successor.configuration.same_content(TO_EC) for message in after)


@pytest.mark.parametrize("source", [ABD, EC])
@pytest.mark.parametrize("target", [TO_ABD, TO_EC])
@pytest.mark.parametrize("seed", range(5))
def test_what_changes_after_its_copy_is_moved_after_the_decision(source, target, seed):
    world, writer, mover, traffic = world_of(source, seed)
    pending = mover.start(reconfigure(mover.view, target))
    proposed = []
    world.hold = lambda source, target, message: isinstance(message, WriteConfig)
    world.until(lambda: traffic.decided)
    for name, value in [(NAMES[0], b"newer"), (NAMES[1], TOMBSTONE), ("new", b"new")]:
        writer.run(write(writer.view, name, value))
        proposed.append((name, value))
    world.hold = lambda *_: False
    world.until(lambda: pending.ended)
    assert pending.result().moved == len(NAMES) + 1
    assert len({message.object for message in traffic.of(PutData)}) == 3
    reader = world.client()
    for name, value in proposed:
        assert reader.run(read(reader.view, name)).value == value
    assert reader.run(read(reader.view, NAMES[2])).value == NAMES[2].encode() * 3


@pytest.mark.parametrize("source", [ABD, EC])
def test_what_changes_during_the_copies_is_copied_by_a_further_pass(source):
    world, writer, mover, traffic = world_of(source)
    pending = mover.start(reconfigure(mover.view, TO_EC))
    world.until(lambda: len(traffic.of(AheadReply)) > 3 * len(NAMES))
    assert not traffic.decided
    for name, value in [(NAMES[0], b"newer"), (NAMES[1], TOMBSTONE), ("new", b"new")]:
        writer.run(write(writer.view, name, value))
    world.until(lambda: pending.ended)
    assert (pending.result().moved, traffic.of(PutData)) == (len(NAMES) + 1, [])
    reader = world.client()
    assert reader.run(read(reader.view, NAMES[0])).value == b"newer"


def test_writes_without_end_do_not_keep_the_copies_from_ending():
    world, writer, mover, traffic = world_of(ABD, names=NAMES[:3])
    written = []

    def hold(source: Any, target: Any, message: AnyMessage) -> bool:
        if isinstance(message, PutAhead) and len(written) < 100 and not traffic.decided:
            name = NAMES[len(written) % 3]
            written.append(writer.start(write(writer.view, name, b"%d" % len(written))))
        return False

    world.hold = hold
    pending = mover.start(reconfigure(mover.view, TO_ABD))
    world.until(lambda: pending.ended and all(write.ended for write in written))
    passes = [message for message in traffic.of(ListObjects, False) if not message.after]
    assert len(passes) <= 3 * copy_ahead.PASSES_MAX
    reader = world.client()
    newest = max(write.result() for write in written)
    assert newest in {reader.run(read(reader.view, name)).tag for name in NAMES[:3]}


@pytest.mark.parametrize("cut_at", [Describe, PutAhead])
def test_without_a_quorum_of_the_new_servers_nothing_is_decided_and_writes_go_on(cut_at):
    world, writer, mover, traffic = world_of(ABD)

    def cut(source: Any, target: Any, message: AnyMessage) -> None:
        if isinstance(message, cut_at):
            world.down = {"s5", "s6"}

    world.watch = cut
    with pytest.raises(Unavailable) as raised:
        mover.run(reconfigure(mover.view, TO_ABD), timeout_s=2)
    assert "nothing was changed" in str(raised.value)
    assert not raised.value.may_have_taken_effect
    assert not traffic.decided
    writer.run(write(writer.view, NAMES[0], b"on it goes"))
    world.watch, world.down = lambda *_: None, set()
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert (result.configuration.index, result.moved) == (1, len(NAMES))


def test_a_target_cut_off_after_the_copies_is_not_proposed():
    world, _, mover, traffic = world_of(ABD)

    def cut(source: Any, target: Any, message: AnyMessage) -> None:
        traffic._see(source, target, message)
        if len(traffic.of(PutAhead)) == 3 * len(NAMES):
            world.down = {"s5", "s6"}

    world.watch = cut
    with pytest.raises(Unavailable):
        mover.run(reconfigure(mover.view, TO_ABD), timeout_s=2)
    assert not traffic.decided


def test_a_slow_server_is_sent_every_copy_too():
    """The phase waits a little to know the server, and then goes on with a quorum."""
    world, _, mover, _ = world_of(ABD)
    world.hold = lambda source, target, message: (
        target == "s5" and (world.now < 0.1 or not isinstance(message, Describe))
    )
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert result.moved == len(NAMES)
    late = [message for _, to, frames in world.flights if to == "s5" for message in decode(frames)]
    assert {message.object for message in late if isinstance(message, PutAhead)} == set(NAMES)
    assert [message for message in late if isinstance(message, Adopt)]


@pytest.mark.parametrize("target", [TO_ABD, TO_EC])
def test_a_server_that_is_down_does_not_keep_the_others_from_their_copies(target):
    world, _, mover, traffic = world_of(ABD)
    world.down = {"s6"}
    result = mover.run(reconfigure(mover.view, target))
    assert (result.moved, traffic.of(PutData)) == (len(NAMES), [])
    reader = world.client()
    assert reader.run(read(reader.view, NAMES[3])).value == NAMES[3].encode() * 3


def of_an_earlier_release(world: ProtocolWorld, *names: str) -> None:
    """Make servers describe themselves as an earlier release, and refuse unknown messages."""
    for name in names:
        replica = world.replicas[name]
        handle = replica.handle

        def earlier(request: Any, handle: Any = handle) -> Any:
            assert not isinstance(request, PutAhead | Adopt | GetAhead), "it cannot read that"
            reply = handle(request)
            if isinstance(reply, Description):
                return Description(*[getattr(reply, at) for at in reply.__struct_fields__[:8]])
            return reply

        replica.handle = earlier


def test_a_source_that_may_be_of_an_earlier_release_gets_plain_requests():
    world, _, mover, traffic = world_of(ABD)
    world.down = {"s2"}
    assert mover.run(reconfigure(mover.view, TO_ABD)).moved == len(NAMES)
    assert traffic.of(GetAhead) == traffic.of(PutData) == []
    assert {message.successor for message in traffic.of(GetData)} == {None}


@pytest.mark.parametrize("when", [Describe, PutAhead])
@pytest.mark.parametrize("what", ["memory", "disk"])
def test_servers_that_could_not_serve_the_target_are_not_proposed(when, what):
    """The servers lose their memory, or fill their disks, before or during the copies."""
    world, writer, mover, traffic = world_of(ABD)
    changed = []

    def fail(source: Any, target: Any, message: AnyMessage) -> None:
        traffic._see(source, target, message)
        if isinstance(message, when) and not changed:
            changed.append(True)
            for name in ("s5", "s6"):
                if what == "memory":
                    world.replicas[name] = Replica(ServerId(name), "f" * 32, world.initial)
                else:
                    full_disk(world, name)

    world.watch = fail
    with pytest.raises(ConfigurationRefused, match="Nothing was changed"):
        mover.run(reconfigure(mover.view, TO_ABD))
    assert not traffic.decided
    writer.run(write(writer.view, NAMES[0], b"on it goes"))


def full_disk(world: ProtocolWorld, name: str) -> None:
    """Make a server describe its disk as full."""
    replica = world.replicas[name]
    handle = replica.handle

    def full(request: Any) -> Any:
        reply = handle(request)
        if isinstance(reply, Description):
            return structs.replace(reply, stored=DiskUsage(1, 1, full=True))
        return reply

    replica.handle = full


def test_a_taker_that_crashes_ends_the_copies_and_not_the_move():
    """Two of three servers take copies; a server with copies crashes, and the third serves."""
    world, _, mover, traffic = world_of(ABD)
    of_an_earlier_release(world, "s7")

    def crash(source: Any, target: Any, message: AnyMessage) -> None:
        traffic._see(source, target, message)
        if len(traffic.of(AheadReply)) == 4:
            world.down = {"s6"}

    world.watch = crash
    result = mover.run(reconfigure(mover.view, TO_ABD), timeout_s=30)
    assert (result.ours, result.moved, traffic.of(Adopt)) == (True, len(NAMES), [])
    assert world.now < 10


def test_a_finisher_needs_no_server_to_say_whether_it_has_copies():
    world, _, dying, traffic = world_of(ABD)
    dying.start(reconfigure(dying.view, TO_EC))
    world.until(lambda: traffic.of(ListObjects, decided=True) != [])
    dying.dead = True
    finisher = world.client(AHEAD)
    world.hold = lambda source, target, message: isinstance(message, Describe)
    result = finisher.run(reconfigure(finisher.view, TO_EC), timeout_s=20)
    assert (result.ours, result.moved + result.skipped) == (True, len(NAMES))
    assert world.now < 10


@pytest.mark.parametrize(
    ("earlier", "copies"),
    [
        (["s5"], True),
        (["s5", "s6"], False),
        (["s0"], True),
        (["s0", "s1", "s2"], True),
        (["s0", "s1", "s2", "s5", "s6", "s7"], False),
    ],
)
def test_servers_of_an_earlier_release_get_no_message_that_they_cannot_read(earlier, copies):
    world, _, mover, traffic = world_of(ABD)
    of_an_earlier_release(world, *earlier)
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert result.moved == len(NAMES)
    assert bool(traffic.of(PutAhead)) == copies
    assert (traffic.of(PutData) == []) == copies
    reader = world.client()
    assert reader.run(read(reader.view, NAMES[3])).value == NAMES[3].encode() * 3


def test_the_switch_keeps_a_move_as_it_was():
    world, _, _, _ = world_of(ABD)
    mover = world.client(Switches(ahead=False))
    traffic = Traffic(world, mover)
    assert mover.run(reconfigure(mover.view, TO_EC)).moved == len(NAMES)
    assert traffic.of((Describe, GetAhead, PutAhead, Adopt)) == []


def test_servers_without_room_end_the_copies_and_the_rest_moves_as_always(monkeypatch):
    world, _, mover, traffic = world_of(ABD)
    monkeypatch.setattr(ahead_copies, "AHEAD_BYTES_MAX", 3000)
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert result.moved == len(NAMES)
    assert 0 < len({message.object for message in traffic.of(PutData)}) < len(NAMES)
    assert not traffic.of(PutAhead, decided=True)
    reader = world.client()
    for name in NAMES:
        assert reader.run(read(reader.view, name)).value == name.encode() * 3


def test_copies_of_a_proposal_that_lost_are_dropped_and_nothing_of_them_is_used():
    world, writer, mover, traffic = world_of(ABD)
    rival = world.client(Switches(ahead=False))
    pending = mover.start(reconfigure(mover.view, TO_ABD))
    world.until(lambda: len(traffic.of(AheadReply)) > 5)
    other = Configuration.abd(servers(5, 6, 8))
    world.hold = lambda source, target, message: source is mover
    rival.run(reconfigure(rival.view, other))
    world.hold = lambda *_: False
    world.until(lambda: pending.ended)
    result = pending.result()
    assert (result.ours, result.configuration.same_content(other)) == (False, True)
    assert traffic.of(Adopt) == []
    assert len({message.object for message in traffic.of(GetAhead)}) < len(NAMES), "it stops"
    while world.step():
        pass
    loser = TO_ABD.at(DEFAULT_DOMAIN, 1, world.initial.id)
    for name in ("s5", "s6"):
        replica = world.replicas[name]
        assert loser.id not in replica.hosted
        assert replica.ahead.bytes == 0
    assert writer.run(read(writer.view, NAMES[0])).value == NAMES[0].encode() * 3


def test_another_client_that_finishes_the_move_uses_the_copies():
    world, _, dying, traffic = world_of(ABD)
    dying.start(reconfigure(dying.view, TO_EC))
    world.until(lambda: traffic.decided and traffic.of(ListObjects, decided=True) != [])
    dying.dead = True
    finisher = world.client(AHEAD)
    traffic = Traffic(world, finisher)
    result = finisher.run(reconfigure(finisher.view, TO_EC))
    assert (result.ours, result.moved + result.skipped) == (True, len(NAMES))
    assert traffic.of((PutData, PutAhead)) == []


def test_a_move_that_follows_an_unfinished_move_copies_nothing_ahead():
    world, writer, dying, traffic = world_of(ABD)
    dying.start(reconfigure(dying.view, TO_EC))
    world.until(lambda: traffic.of(ListObjects, decided=True) != [])
    dying.dead = True
    mover = world.client(AHEAD)
    traffic = Traffic(world, mover)
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert (result.configuration.index, traffic.of((PutAhead, Adopt))) == (2, [])
    assert writer.run(read(writer.view, NAMES[0])).value == NAMES[0].encode() * 3


def test_servers_that_lost_their_copies_get_the_objects_as_always():
    world, _, mover, traffic = world_of(ABD)
    proposed = []

    def lose(source: Any, target: Any, message: AnyMessage) -> bool:
        if traffic.decided and not proposed:
            proposed.append(True)
            for name in ("s5", "s6"):
                world.replicas[name].ahead._of.clear()
        return False

    world.hold = lose
    assert mover.run(reconfigure(mover.view, TO_ABD)).moved == len(NAMES)
    assert len({message.object for message in traffic.of(PutData)}) == len(NAMES)


def test_the_phase_ends_in_time_and_takes_the_copies_under_way_with_it(monkeypatch):
    monkeypatch.setattr(copy_ahead, "AHEAD_S", 2.0)
    world, _, mover, traffic = world_of(ABD)
    slow = set(NAMES[8:])
    world.hold = lambda source, target, message: (
        isinstance(message, GetAhead) and message.object in slow and not traffic.decided
    )
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert result.moved == len(NAMES)
    assert 2.0 <= world.now < 10
    assert {message.object for message in traffic.of(PutData)} == slow
    assert traffic.of(PutAhead, decided=True) == []


def with_clocks(world: ProtocolWorld) -> None:
    """Let servers measure the time of their copies by the clock of the world."""
    for replica in world.replicas.values():
        replica.ahead = AheadCopies(lambda: world.now)


def test_movers_that_take_turns_share_the_time_of_the_phase(monkeypatch):
    """Each mover dies in the phase; a further mover finds the time used up, and proposes."""
    monkeypatch.setattr(copy_ahead, "AHEAD_S", 10.0)
    world, _, first, traffic = world_of(ABD)
    with_clocks(world)
    held = set(NAMES[8:])
    world.hold = lambda source, target, message: (
        isinstance(message, GetAhead) and message.object in held and not traffic.decided
    )
    mover, began = first, world.now
    for turn in range(1, 20):
        pending = mover.start(reconfigure(mover.view, TO_ABD))
        world.until(lambda turn=turn, job=pending: job.ended or world.now > began + 3 * turn)
        if traffic.decided:
            break
        mover.dead = True
        mover = world.client(AHEAD)
    world.until(lambda: pending.ended)
    assert pending.result().moved == len(NAMES)
    assert world.now - began < 2 * 10.0
    assert turn == 4


def test_a_mover_after_the_time_of_the_phase_proposes_at_once_and_uses_the_copies():
    world, _, first, traffic = world_of(ABD)
    with_clocks(world)
    first.start(reconfigure(first.view, TO_ABD))
    world.until(lambda: len(traffic.of(AheadReply)) == 3 * len(NAMES))
    assert not traffic.decided
    first.dead = True
    world.now += copy_ahead.AHEAD_S
    mover = world.client(AHEAD)
    traffic = Traffic(world, mover)
    began = world.now
    assert mover.run(reconfigure(mover.view, TO_ABD)).moved == len(NAMES)
    assert traffic.of((PutAhead, GetAhead, PutData)) == []
    assert traffic.of(Adopt)
    assert world.now - began < 2


def test_a_mover_of_another_target_has_its_own_time():
    world, _, first, traffic = world_of(ABD)
    with_clocks(world)
    first.start(reconfigure(first.view, TO_ABD))
    world.until(lambda: len(traffic.of(AheadReply)) == 3 * len(NAMES))
    assert not traffic.decided
    first.dead = True
    world.now += copy_ahead.AHEAD_S
    mover = world.client(AHEAD)
    traffic = Traffic(world, mover)
    assert mover.run(reconfigure(mover.view, TO_EC)).moved == len(NAMES)
    assert traffic.of(PutAhead)


def test_the_phase_ends_after_some_time_without_a_copy():
    world, _, mover, traffic = world_of(ABD)
    slow = set(NAMES[8:])
    world.hold = lambda source, target, message: (
        isinstance(message, GetAhead) and message.object in slow and not traffic.decided
    )
    result = mover.run(reconfigure(mover.view, TO_ABD), timeout_s=200.0)
    assert result.moved == len(NAMES)
    assert copy_ahead.COPY_GAP_S <= world.now < 2 * copy_ahead.COPY_GAP_S


def test_a_near_full_server_does_not_hide_an_able_one_far_away():
    """Two able servers and a full server; an able server answers after a second."""
    world, _, mover, traffic = world_of(ABD)
    full_disk(world, "s5")
    world.hold = lambda source, target, message: target == "s7" and world.now < 1.0
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert result.moved == len(NAMES)
    assert traffic.of(PutAhead)


def test_without_an_answer_from_far_away_a_full_server_is_named():
    world, _, mover, traffic = world_of(ABD)
    full_disk(world, "s5")
    world.down = {"s7"}
    with pytest.raises(ConfigurationRefused, match=r"s5 \(its disk is full\)"):
        mover.run(reconfigure(mover.view, TO_ABD))
    assert not traffic.decided
    assert world.now < 10


def test_the_loser_of_a_proposal_uses_the_copies_of_the_winner():
    """The winner dies after the decision, and the loser finishes its move."""
    world, _, winner, winning = world_of(ABD)
    loser = world.client(AHEAD)
    world.hold = lambda source, target, message: (
        (source is loser and isinstance(message, PutAhead | GetAhead))
        or (source is winner and isinstance(message, WriteConfig))
    )
    lost = loser.start(reconfigure(loser.view, TO_EC))
    winner.start(reconfigure(winner.view, TO_ABD))
    world.until(lambda: winning.decided)
    winner.dead = True
    losing = Traffic(world, loser)
    world.hold = lambda source, target, message: source is winner
    world.until(lambda: lost.ended)
    result = lost.result()
    assert (result.ours, result.configuration.same_content(TO_ABD)) == (False, True)
    assert result.moved + result.skipped == len(NAMES)
    assert losing.of(Adopt)
    assert losing.of(PutData) == []


def test_large_values_are_copied_ahead_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(copy_ahead, "AHEAD_VALUE_BYTES_MAX", 50_000)
    world, writer, mover, traffic = world_of(EC, names=NAMES[:2])
    values = {"large": b"l" * 50_000, "too large": b"t" * 50_001}
    for name, value in values.items():
        writer.run(write(writer.view, name, value))
    assert mover.run(reconfigure(mover.view, TO_EC)).moved == 4
    assert {message.object for message in traffic.of(PutData)} == {"too large"}
    reader = world.client()
    for name, value in values.items():
        assert reader.run(read(reader.view, name)).value == value


def test_large_values_that_travel_between_servers_do_so_after_the_decision():
    _, writer, mover, traffic = world_of(ABD, names=NAMES[:2])
    writer.run(write(writer.view, "large", b"l" * 50_000))
    options = MoveOptions(transfer="servers")
    assert mover.run(reconfigure(mover.view, TO_EC, options)).moved == 3
    assert {message.object for message in traffic.of(PullElement)} == {"large"}
    assert traffic.of(PutData) == []
    assert [m for m in traffic.of(DataReply) if m.element and m.element.size > 8192] == []


def test_servers_that_stop_adopting_get_the_objects_as_always(monkeypatch):
    """Half of the servers answer no adoption any more: the mover asks for no further adoption."""
    world, _, mover, traffic = world_of(ABD)
    world.hold = lambda source, target, message: (
        isinstance(message, Adopt) and target in ("s5", "s6")
    )
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert result.moved + result.skipped == len(NAMES)
    assert len({message.object for message in traffic.of(PutData)}) == len(NAMES)


def test_servers_that_answer_for_the_first_versions_only_are_asked_again(monkeypatch):
    monkeypatch.setattr("ares.replica.replica.ADOPTED_BYTES_MAX", 30)
    _, _, mover, traffic = world_of(ABD)
    result = mover.run(reconfigure(mover.view, TO_ABD))
    assert (result.moved, traffic.of(PutData)) == (len(NAMES), [])
    assert len(traffic.of(Adopt)) > 3 * len(NAMES) / 3
    assert all(set(m.outcomes) <= {CopyOutcome.DONE} for m in traffic.of(AheadReply))


def test_no_undecided_configuration_is_introduced():
    world, _, mover, traffic = world_of(ABD)
    seen = []

    def watch(source: Any, target: Any, message: AnyMessage) -> None:
        if not traffic.decided:
            seen.extend(id for replica in world.replicas.values() for id in replica.hosted)
        traffic._see(source, target, message)

    world.watch = watch
    mover.run(reconfigure(mover.view, TO_EC))
    assert set(seen) == {world.initial.id}
    assert traffic.of(Ack)
