"""The largest value of a cluster: a setting, kept by servers, clients, and the cluster file."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ares.cli.main import run
from ares.client.store import checked_value
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.cluster.tables import Limits
from ares.compiled import replica_parts
from ares.consensus.local import LocalConsensus
from ares.consensus.port import NoNotes
from ares.model.codec import frame_bytes_max
from ares.model.configuration import Configuration
from ares.model.element import hollow, sealed, too_large
from ares.model.errors import BadInput, ElementRefused
from ares.model.identity import DEFAULT_DOMAIN, VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX
from ares.model.messages import Ack, GetData, PullElement, PutData, Reason
from ares.model.tag import Tag
from ares.model.units import MIB
from ares.net.transports import connections
from ares.reconfig.view import Switches
from ares.registers.operations import read, write
from ares.replica.configuration_state import BadElement, ConfigurationState
from ares.replica.facts import ConfigurationRecord
from ares.replica.replica import Replica
from ares.server import process_lifecycle
from ares.server.scrub import _Repairs
from tests.protocol.protocol_world import ProtocolWorld, servers

TAG = Tag(1, 1)
MEMBERS = servers(0, 1, 2)
ABD = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(MEMBERS, 2, 2, allow_no_faults=True).at(DEFAULT_DOMAIN, 0)
ALLOWED = st.integers(VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX)
FILE = """
format = 1
name = "ares-test"
durability = "memory"
[[server]]
id = "s0"
address = "127.0.0.1:7400"
identity = "00000000000000000000000000000000"
[initial]
dap = "abd"
servers = ["s0"]
allow_no_faults = true
[limits]
"""


def limits(**keys: object) -> Limits:
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return Settings.parse(FILE + lines, Path("cluster.toml")).limits


@given(ALLOWED, st.integers(1, 20))
def test_every_allowed_value_has_limits_with_room_and_no_smaller_ones(value_bytes, at_once):
    found = Limits.for_values(value_bytes, at_once)
    assert found.received_bytes >= at_once * value_bytes
    assert found.unread_bytes >= at_once * value_bytes // 2
    keys = {
        "value_bytes": value_bytes,
        "received_bytes": found.received_bytes,
        "unread_bytes": found.unread_bytes,
    }
    assert limits(**keys) == found
    least = frame_bytes_max(value_bytes) + 64 * MIB
    for key in ("received_bytes", "unread_bytes"):
        assert limits(**keys | {key: least}).value_bytes == value_bytes
        with pytest.raises(BadInput, match=rf"limits.{key}: .*value_bytes = {value_bytes}\)"):
            limits(**keys | {key: least - 1})


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_setting_out_of_bounds_is_refused_and_no_other(value_bytes):
    room = dict.fromkeys(("received_bytes", "unread_bytes"), 2048 * MIB)
    if VALUE_BYTES_DEFAULT <= value_bytes <= VALUE_BYTES_MAX:
        assert limits(value_bytes=value_bytes, **room).value_bytes == value_bytes
    else:
        with pytest.raises(
            BadInput, match=r"limits\.value_bytes: expected 268435456 to 1073741824"
        ):
            limits(value_bytes=value_bytes, **room)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("0", "expected 268435456 to 1073741824, found 0"),
        ("-1", "found -1"),
        (str(VALUE_BYTES_DEFAULT - 1), "expected 268435456 to"),
        (str(VALUE_BYTES_MAX + 1), "to 1073741824, found 1073741825"),
        ('"600 MiB"', "expected `integer`, got `string`"),
        ("6e8", "expected `integer`, got `float`"),
        ("true", "expected `integer`, got `boolean`"),
    ],
)
def test_a_bad_setting_says_its_bounds(value, why):
    with pytest.raises(BadInput, match=f"limits.value_bytes: .*{why}"):
        limits(value_bytes=value)


@pytest.mark.parametrize(("word", "bytes"), [("256M", 256 * MIB), ("1G", 1024 * MIB)])
def test_init_writes_the_setting_and_room_for_it(tmp_path, word, bytes):
    words = ["init", str(tmp_path), "--base-port", "0", "--value-max", word]
    assert run(words) == 0
    found = Settings.load(tmp_path / "cluster.toml").limits
    assert found == Limits.for_values(bytes)
    assert found.received_bytes >= 4 * bytes
    text = (tmp_path / "cluster.toml").read_text()
    assert Settings.load(tmp_path / "cluster.toml").client.timeout_s == 30 * bytes // (256 * MIB)
    assert ("timeout_s =" in text) == (bytes > VALUE_BYTES_DEFAULT)


@pytest.mark.parametrize("transport", ["native", "libzmq"])
@pytest.mark.parametrize("word", ["256M", "257M"])
def test_init_says_what_strangers_may_take_from_libzmq(tmp_path, word, transport, capsys):
    words = ["init", str(tmp_path), "--base-port", "0", "--value-max", word]
    assert run([*words, "--transport", transport]) == 0
    told = "note: with libzmq a connection without a key can make a process hold 269484032 bytes"
    assert (told in capsys.readouterr().out) == (transport == "libzmq" and word == "257M")


@pytest.mark.parametrize("word", ["0", "-1", "255M", "1073741825", "text"])
def test_init_refuses_a_bad_setting_and_writes_nothing(tmp_path, word, capsys):
    assert run(["init", str(tmp_path / "c"), "--base-port", "0", f"--value-max={word}"]) == 2
    assert word in capsys.readouterr().err or word == "255M"
    assert not (tmp_path / "c").exists()


def test_the_defaults_have_room_for_four_of_the_largest_values():
    usual = Limits.for_values(VALUE_BYTES_DEFAULT)
    assert usual == Limits()
    assert usual.received_bytes == 2 * usual.unread_bytes == 4 * VALUE_BYTES_DEFAULT


def test_a_file_without_the_setting_has_none_of_its_lines(tmp_path):
    assert "limits" not in create(tmp_path, InitPlan(base_port=0)).path.read_text()


# -- servers and clients ---------------------------------------------------------------------------


def put_of(configuration, length, tag=TAG):
    data = bytes(-(-length // configuration.k))
    element = sealed(configuration.id, "k", tag, 0, length, (data,))
    return PutData(7, configuration.id, "k", tag, element)


def replica(configuration, **more):
    server = configuration.servers[0]
    return Replica(server.id, server.identity, configuration, **more)


@given(st.integers(1, 500), st.integers(-2, 2), st.sampled_from([ABD, EC]))
def test_a_server_takes_values_up_to_its_setting(value_bytes, more, configuration):
    server = replica(configuration, parts=replica_parts(value_bytes=value_bytes))
    length = max(value_bytes + more, 0)
    reply = server.handle(put_of(configuration, length))
    if length <= value_bytes:
        assert isinstance(reply, Ack)
        return
    assert reply.reason is Reason.BAD_ELEMENT
    assert f"a value of {length} bytes" in reply.detail
    assert f"allows {value_bytes} (value_bytes under [limits])" in reply.detail
    assert server.hosted[configuration.id].elements == 0


def restarted(configuration, put):
    """Return a server that took ``put`` under an earlier limit, and has a limit of 10 now."""
    server = replica(configuration, journaled=True, parts=replica_parts(value_bytes=10))
    server.begin_restoring()
    server.restore(ConfigurationRecord(configuration, None, False), 1)
    server.restore(put, 1)
    server.restored()
    return server


@pytest.mark.parametrize("configuration", [ABD, EC])
def test_a_server_with_a_lower_setting_keeps_and_gives_its_larger_values(configuration):
    server = restarted(configuration, put_of(configuration, 11))
    assert server.handle(GetData(7, configuration.id, "k", True, TAG)).element.length == 11
    state = server.hosted[configuration.id]
    assert isinstance(server.handle(put_of(configuration, 11)), Ack), "it is written back"
    assert server.handle(put_of(configuration, 11, Tag(3, 1))).reason is Reason.BAD_ELEMENT
    for number in range(4, 4 + state.capacity):
        assert isinstance(server.handle(put_of(configuration, 10, Tag(number, 1))), Ack)
    held = list(state.objects.get("k").entries)
    assert isinstance(server.handle(put_of(configuration, 11)), Ack), "it was replaced"
    assert state.objects.get("k").entries == held


@pytest.mark.parametrize(("configuration", "length"), [(ABD, 11), (EC, 20), (EC, 21)])
async def test_a_damaged_larger_value_is_repaired_where_its_element_can_come(
    configuration, length, caplog
):
    put = put_of(configuration, length)
    server = restarted(configuration, structs.replace(put, element=hollow(put.element)))
    pulled = []

    async def pull(*version):
        pulled.append(version)
        return put.element

    host = SimpleNamespace(replica=server, repair=lambda put: isinstance(server.handle(put), Ack))
    repairs = _Repairs(host, pull)
    for _ in range(3):
        await repairs.try_all()
    fits = length <= 10 * configuration.k
    assert (len(pulled), server.is_quarantined((configuration.id, "k", TAG))) == (fits, not fits)
    told = [line for line in caplog.messages if f"a value of {length} bytes" in line]
    assert len(told) == (not fits)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_larger_value_is_read_where_it_is_at_a_quorum_and_no_server_takes_it(
    fast, copies, monkeypatch
):
    """Without the fast read a client writes each version back."""
    world = ProtocolWorld(ABD, range(3))
    for server in MEMBERS[:copies]:
        world.replicas[server.id].handle(put_of(ABD, 11))

    def refuse(state, put):
        raise BadElement(too_large(put.element.length, 10))

    monkeypatch.setattr(ConfigurationState, "put", refuse)
    world.hold = lambda source, target, message: target == MEMBERS[2].id
    reader = world.client(Switches(fast_read=fast))
    if copies == 3:
        assert reader.run(read(reader.view, "k")).value == bytes(11)
    else:
        with pytest.raises(ElementRefused, match="allows 10"):
            reader.run(read(reader.view, "k"), idle=True)


def test_a_client_with_another_file_learns_the_setting_from_the_refusal():
    world = ProtocolWorld(ABD, range(3))
    for server in MEMBERS:
        world.replicas[server.id] = Replica(
            server.id, server.identity, ABD, parts=replica_parts(value_bytes=10)
        )
    client = world.client()
    client.run(write(client.view, "k", bytes(10)))
    with pytest.raises(ElementRefused, match=r"allows 10 \(value_bytes under \[limits\]\)"):
        client.run(write(client.view, "k", bytes(11)))
    assert client.run(read(client.view, "k")).value == bytes(10)


@given(st.integers(0, 100), st.integers(-2, 2), st.sampled_from([bytes, bytearray]))
def test_a_client_sends_values_up_to_the_setting(bytes_max, more, kind):
    given_bytes = kind(max(bytes_max + more, 0))
    for value in (given_bytes, memoryview(given_bytes)):
        if len(value) <= bytes_max:
            assert checked_value(value, bytes_max) == bytes(given_bytes)
        else:
            with pytest.raises(BadInput, match=f"at most {bytes_max} bytes .*value_bytes under"):
                checked_value(value, bytes_max)


async def test_a_repair_has_time_for_its_length(tmp_path, monkeypatch):
    settings, given_s = create(tmp_path, InitPlan(base_port=1)), []

    async def record(operation, label, timeout_s):
        given_s.append(timeout_s)

    session = SimpleNamespace(readiness=SimpleNamespace(suspects=()))
    runner = SimpleNamespace(run=record, session=session)
    client = process_lifecycle.ElementClient(settings, next(iter(settings.servers.values())))
    monkeypatch.setattr(client, "_connected", lambda: runner)
    for length in (0, VALUE_BYTES_MAX):
        await client.rebuilt(settings.initial, "k", TAG, length)
        request = PullElement(1, settings.initial.id, "k", TAG, length, settings.initial)
        await client._fetch(request, settings.initial, lambda *_: None)
    assert given_s[:2] == [60.0, 60.0]
    assert min(given_s[2:]) > 160


async def test_a_process_s_own_connections_have_the_bound_of_its_file(tmp_path, monkeypatch):
    made = []

    def record(*words, **keys):
        made.append(connections(*words, **keys))
        return made[-1]

    monkeypatch.setattr(process_lifecycle, "connections", record)
    settings = create(tmp_path, InitPlan(base_port=1, value_bytes=300 * MIB, autopilot=True))
    server, member = next(iter(settings.servers.values())), next(iter(settings.members.values()))
    process_lifecycle._links(settings, server)
    async with contextlib.aclosing(process_lifecycle.ElementClient(settings, server)) as client:
        client._connected()
        make = process_lifecycle.piloted(settings, member)
        make(LocalConsensus(), lambda: True, NoNotes())
    # the autopilot reads values from before a lower limit, to name them
    assert [each.value_bytes for each in made] == [300 * MIB, 300 * MIB, VALUE_BYTES_MAX]
