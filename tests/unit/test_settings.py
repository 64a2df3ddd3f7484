"""The cluster file: the values of a good file, and the refusal of each fault in a bad file.

A refusal names file, key and expectation.
"""

from pathlib import Path

import pytest

from ares.cluster.settings import Settings
from ares.cluster.tables import SITES_BEAT_S, Limits, ScrubSettings
from ares.model.configuration import Configuration, Server
from ares.model.errors import BadInput
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.reconfig.view import Switches

GOOD = """
format = 1
name = "ares-test"
durability = "memory"
consensus_password = "secrets/consensus.password"

[client]
timeout_s = 5
gc = false

[scrub]
every_h = 0.5

[limits]
connections = 100
unread_bytes = 400_000_000

[[server]]
id = "s0"
address = "127.0.0.1:7400"
identity = "00000000000000000000000000000000"

[[server]]
id = "s1"
address = "127.0.0.1:7401"
identity = "11111111111111111111111111111111"
data = "disks/one"

[[server]]
id = "s2"
address = "127.0.0.1:7402"
identity = "22222222222222222222222222222222"

[[server]]
id = "s3"
address = "127.0.0.1:7403"
identity = "33333333333333333333333333333333"

[[consensus]]
id = "r0"
address = "127.0.0.1:7410"
raft = "127.0.0.1:7411"

[initial]
dap = "ec"
servers = ["s0", "s1", "s2"]
k = 1
"""

PATH = Path("somewhere/cluster.toml")


def test_a_good_file_becomes_settings(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(GOOD)
    settings = Settings.load(path)
    assert settings.path == path
    assert list(settings.servers) == ["s0", "s1", "s2", "s3"]
    assert settings.servers[ServerId("s0")].data == tmp_path / "data/s0"
    assert settings.servers[ServerId("s1")].data == tmp_path / "disks/one"
    assert settings.members[ServerId("r0")].raft == "127.0.0.1:7411"
    assert (settings.client.timeout_s, settings.client.gc, settings.client.batch) == (
        5.0,
        False,
        True,
    )
    assert settings.scrub == ScrubSettings(every_h=0.5, bytes_per_s=8 * 1024 * 1024)
    assert settings.limits == Limits(connections=100, unread_bytes=400_000_000)
    assert settings.notes == ()


def test_the_directory_of_the_file_may_be_that_of_a_server_and_an_empty_text_is_no_directory() -> (
    None
):
    for text, data in ((".", "/c"), ("", "/c/data/s1")):
        assert Settings.parse(GOOD.replace("disks/one", text), Path("/c/cluster.toml")).servers[
            ServerId("s1")
        ].data == Path(data)


def test_the_initial_configuration_is_placed_and_names_addresses_and_identities() -> None:
    members = [
        Server(ServerId(f"s{index}"), f"127.0.0.1:740{index}", str(index) * 32)
        for index in range(3)
    ]
    assert Settings.parse(GOOD, PATH).initial == Configuration.ec(members, k=1).at(
        DEFAULT_DOMAIN, 0
    )


def test_every_switch_of_a_client_reaches_it() -> None:
    for switch in Switches.__struct_fields__:
        for value in (True, False):
            text = GOOD.replace("gc = false", f"{switch} = {str(value).lower()}")
            assert getattr(Settings.parse(text, PATH).client, switch) is value


def test_defaults_need_no_tables() -> None:
    text = GOOD.replace("[client]\ntimeout_s = 5\ngc = false\n", "")
    client = Settings.parse(text, PATH).client
    assert (
        client.timeout_s,
        client.piggyback,
        client.gc,
        client.batch,
        client.fast_read,
        client.optimised,
    ) == (30.0, True, True, True, True, True)


def test_the_beat_of_consensus_members_is_bounded() -> None:
    assert Settings.parse(GOOD, Path("cluster.toml")).beat_s == 0.1
    assert Settings.parse("consensus_beat_s = 1\n" + GOOD, Path("cluster.toml")).beat_s == 1.0
    other = '[[consensus]]\nid = "r1"\naddress = "127.0.0.1:7420"\nraft = "127.0.0.1:7421"\n'
    at_sites = GOOD.replace("[initial]", f'site = "a"\n\n{other}site = "b"\n\n[initial]')
    assert Settings.parse(at_sites, PATH).beat_s == SITES_BEAT_S
    assert [member.site for member in Settings.parse(at_sites, PATH).members.values()] == ["a", "b"]
    assert Settings.parse("consensus_beat_s = 0.1\n" + at_sites, PATH).beat_s == 0.1
    for wrong in ("0.05", "11", "nan", "inf", "-1"):
        with pytest.raises(BadInput, match=r"consensus_beat_s: expected seconds from 0.1 to 10"):
            Settings.parse(f"consensus_beat_s = {wrong}\n" + GOOD, Path("cluster.toml"))


def test_the_transport_is_ours_unless_the_file_says_otherwise() -> None:
    assert Settings.parse(GOOD, PATH).transport == "native"
    for name in ("native", "libzmq"):
        assert (
            Settings.parse(
                GOOD.replace("format = 1", f'format = 1\ntransport = "{name}"'), PATH
            ).transport
            == name
        )


def test_an_even_number_of_consensus_members_and_none_are_noted() -> None:
    second = (
        '[[consensus]]\nid = "r1"\naddress = "127.0.0.1:7420"\nraft = "127.0.0.1:7421"\n\n[initial]'
    )
    assert (
        "2 consensus members survive no more crashes than 1"
        in Settings.parse(GOOD.replace("[initial]", second), PATH).notes[0]
    )
    none = GOOD.replace(
        '[[consensus]]\nid = "r0"\naddress = "127.0.0.1:7410"\nraft = "127.0.0.1:7411"\n', ""
    )
    settings = Settings.parse(none, PATH)
    assert settings.members == {}
    assert "reconfiguring" in settings.notes[0]


def test_other_addresses_and_fragile_configurations_are_accepted_when_written_out() -> None:
    text = GOOD.replace("127.0.0.1:7403", "10.1.2.3:7403").replace(
        'durability = "memory"', 'durability = "memory"\nsecurity = "none"'
    )
    assert Settings.parse(text, PATH).servers[ServerId("s3")].address == "10.1.2.3:7403"
    assert (
        Settings.parse(
            GOOD.replace("k = 1", "k = 2\nallow_no_faults = true"), PATH
        ).initial.crashes_survived
        == 0
    )


BAD = {
    "not TOML": ("format = 1", "format = ", "", "expected TOML"),
    "format": ("format = 1", "format = 2", "format", "expected 1, found 2"),
    "no format": ("format = 1", "", "format", "expected, but missing"),
    "type": (
        "timeout_s = 5",
        'timeout_s = "5"',
        "client.timeout_s",
        "expected `float`, got `string`",
    ),
    "a boolean is no number": (
        "timeout_s = 5",
        "timeout_s = true",
        "client.timeout_s",
        "expected `float`, got `boolean`",
    ),
    "no time": ("timeout_s = 5", "timeout_s = 0", "client.timeout_s", "more than 0"),
    "endless": ("timeout_s = 5", "timeout_s = inf", "client.timeout_s", "more than 0"),
    "table": ("[[consensus]]", "[consensus]", "consensus", "expected `array`, got `table`"),
    "no connection": (
        "connections = 100",
        "connections = 0",
        "limits.connections",
        "expected 1 to",
    ),
    "no room for a value": (
        "unread_bytes = 400_000_000",
        "unread_bytes = 268_000_000",
        "limits.unread_bytes",
        "room for the largest value",
    ),
    "no room for a request": (
        "connections = 100",
        "received_bytes = 1",
        "limits.received_bytes",
        "room for the largest value",
    ),
    "hours before now": (
        "every_h = 0.5",
        "every_h = -1",
        "scrub.every_h",
        "expected hours, or 0 for never, found -1",
    ),
    "no hours": ("every_h = 0.5", "every_h = nan", "scrub.every_h", "expected hours"),
    "a scrub that stands still": (
        "every_h = 0.5",
        "bytes_per_s = 0",
        "scrub.bytes_per_s",
        "1 or more, found 0",
    ),
    "unknown scrub": ("every_h = 0.5", "every_d = 7", "scrub.every_d", "did you mean every_h?"),
    "unknown limit": (
        "connections = 100",
        "connection = 100",
        "limits.connection",
        "did you mean connections?",
    ),
    "unknown key": ("timeout_s = 5", "timeout = 5", "client.timeout", "did you mean timeout_s?"),
    "unknown key in an array": (
        'data = "disks/one"',
        'dat = "disks/one"',
        "server[1].dat",
        "did you mean data?",
    ),
    "unknown table": ("[client]", "[zebra]", "zebra", "expected one of format, name"),
    "missing in an array": (
        'raft = "127.0.0.1:7411"',
        "",
        "consensus[0].raft",
        "expected, but missing",
    ),
    "name": ('name = "ares-test"', 'name = "../x"', "name", "expected letters"),
    "durability": (
        '"memory"',
        '"disk"',
        "durability",
        'expected "fsync" or "memory", found \'disk\'',
    ),
    "security": (
        "format = 1",
        'format = 1\nsecurity = "keys"',
        "security",
        'expected "curve", "none" or no such key',
    ),
    "transport": (
        "format = 1",
        'format = 1\ntransport = "zmq"',
        "transport",
        'expected "native", "libzmq" or no such key, found \'zmq\'',
    ),
    "id": ('id = "s1"', 'id = "../s1"', "server[1].id", "expected letters"),
    "duplicate id": ('id = "s1"', 'id = "s0"', "server[1].id", "'s0' is also server[0].id"),
    "duplicate id across kinds": (
        'id = "r0"',
        'id = "s0"',
        "consensus[0].id",
        "'s0' is also server[0].id",
    ),
    "duplicate identity": ("1" * 32, "0" * 32, "server[1].identity", "is also server[0].identity"),
    "identity": ("1" * 32, "1" * 31, "server[1].identity", "expected 32 characters"),
    "duplicate address": (
        ":7401",
        ":7400",
        "server[1].address",
        "'127.0.0.1:7400' is also server[0].address",
    ),
    "duplicate by another name": (
        "127.0.0.1:7401",
        "localhost:7400",
        "server[1].address",
        "is also server[0].address",
    ),
    "duplicate raft address": (":7411", ":7400", "consensus[0].raft", "is also server[0].address"),
    "duplicate data": (
        'data = "disks/one"',
        'data = "data/s0"',
        "server[1].data",
        "is also server[0].data",
    ),
    "malformed address": (
        "127.0.0.1:7401",
        "127.0.0.1",
        "server[1].address",
        "expected host:port, found '127.0.0.1'",
    ),
    "malformed port": (":7401", ":http", "server[1].address", "expected host:port"),
    "URL": ("127.0.0.1:7401", "tcp://127.0.0.1:7401", "server[1].address", "expected host:port"),
    "port too high": (":7401", ":65536", "server[1].address", "expected a port from 1 to 65535"),
    "port 0": (":7411", ":0", "consensus[0].raft", "expected a port from 1 to 65535"),
    "reachable address": (
        "127.0.0.1:7401",
        "0.0.0.0:7401",
        "server[1].address",
        'write security = "none"',
    ),
    "reachable raft address": (
        "127.0.0.1:7411",
        "192.168.1.1:7411",
        "consensus[0].raft",
        "expected a loopback address",
    ),
    "unknown server": (
        '"s0", "s1", "s2"',
        '"s0", "s1", "s9"',
        "initial.servers",
        "found 's9'; known: s0, s1, s2, s3",
    ),
    "server twice": ('"s0", "s1", "s2"', '"s0", "s1", "s1"', "initial", "s1 is named twice"),
    "dap": ('"ec"', '"raid"', "initial.dap", 'expected "abd" or "ec", found \'raid\''),
    "k = n": ("k = 1", "k = 3", "initial.k", "expected 1 <= k < 3, the number of servers, found 3"),
    "k = 0": ("k = 1", "k = 0", "initial.k", "expected 1 <= k < 3"),
    "no k": ("k = 1", "", "initial.k", "missing"),
    "k with abd": ('"ec"', '"abd"', "initial.k", 'expected only with dap = "ec"'),
    "survives nothing": ("k = 1", "k = 2", "initial", "write allow_no_faults = true"),
    "delta": (
        "k = 1",
        "k = 1\ndelta = 0",
        "initial",
        "delta, the number of writers at once, must be from 1 to 1000, not 0",
    ),
    "no password": (
        'consensus_password = "secrets/consensus.password"',
        "",
        "consensus_password",
        "expected the path of a file",
    ),
}


@pytest.mark.parametrize(("old", "new", "key", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused(old: str, new: str, key: str, expected: str) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        Settings.parse(GOOD.replace(old, new, 1), PATH)
    message = str(caught.value)
    assert message.startswith(f"{PATH}: {key}: " if key else f"{PATH}: ")
    assert expected in message


def test_a_file_without_servers_is_refused() -> None:
    text = 'format = 1\nname = "a"\ndurability = "memory"\n[initial]\ndap = "abd"\nservers = []\n'
    with pytest.raises(BadInput, match=r"somewhere/cluster.toml: server: expected at least one"):
        Settings.parse(text, PATH)


def test_a_configuration_without_servers_is_refused() -> None:
    with pytest.raises(BadInput, match=r"initial: a configuration needs 1 to 32 servers"):
        Settings.parse(
            GOOD.replace('dap = "ec"', 'dap = "abd"')
            .replace("k = 1", "")
            .replace('"s0", "s1", "s2"', ""),
            PATH,
        )


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cluster.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        Settings.load(path)
    assert str(path) in str(caught.value)
    assert ("UTF-8" if content else "No such file") in str(caught.value)


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a directory"):
        Settings.load(tmp_path)


@pytest.mark.parametrize(
    ("mode", "content", "expected"),
    [
        (0o644, "secret\n", "chmod 600"),
        (0o640, "secret\n", "mode 640"),
        (0o600, " \n", "is empty"),
        (0o600, None, "No such file"),
    ],
)
def test_a_password_others_can_read_is_refused_and_never_shown(
    tmp_path: Path, mode: int, content: str | None, expected: str
) -> None:
    file = tmp_path / "secrets/consensus.password"
    file.parent.mkdir()
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(BadInput) as caught:
        Settings.parse(GOOD, tmp_path / "cluster.toml").password()
    assert expected in str(caught.value)
    assert "consensus_password" in str(caught.value)
    assert "secret\n" not in str(caught.value)


def test_the_password_is_read(tmp_path: Path) -> None:
    file = tmp_path / "secrets/consensus.password"
    file.parent.mkdir()
    file.write_text("sesame\n")
    file.chmod(0o600)
    settings = Settings.parse(GOOD, tmp_path / "cluster.toml")
    assert settings.password() == "sesame"
    assert "sesame" not in repr(settings)
