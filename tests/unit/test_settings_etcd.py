"""The [etcd] table of the cluster file: the values of a good table, and the refusal of each fault.

A refusal names file, key and expectation.
"""

import sys
from pathlib import Path

import pytest

from ares.client.connect import consensus_of
from ares.cluster.settings import Settings
from ares.model.errors import BadInput

GOOD = """
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

[etcd]
endpoints = ["127.0.0.1:2379", "127.0.0.1:22379"]
"""

FULL = """prefix = "/storage/ares/"
ca = "pem/ca.pem"
certificate = "pem/me.pem"
key = "/etc/pem/me.key"
user = "ares"
password = "secrets/etcd.password"
"""

PATH = Path("somewhere/cluster.toml").absolute()
HOME = PATH.parent


def test_endpoints_alone_are_enough() -> None:
    settings = Settings.parse(GOOD, PATH)
    assert settings.etcd is not None
    assert (settings.etcd.endpoints, settings.etcd.prefix) == (
        ("127.0.0.1:2379", "127.0.0.1:22379"),
        "/ares",
    )
    assert (
        settings.etcd.ca,
        settings.etcd.certificate,
        settings.etcd.key,
        settings.etcd.user,
        settings.etcd.password(),
    ) == (None,) * 5
    assert settings.members == {}
    assert [process.id for process in settings.processes()] == ["s0"]
    assert settings.notes == (
        "decisions are kept by the etcd at 127.0.0.1:2379, 127.0.0.1:22379, which is started and "
        "stopped elsewhere",
    )


def test_without_the_table_there_is_no_etcd() -> None:
    assert Settings.parse(GOOD[: GOOD.index("[etcd]")], PATH).etcd is None


def test_files_are_relative_to_the_cluster_file() -> None:
    etcd = Settings.parse(GOOD + FULL, PATH).etcd
    assert etcd is not None
    assert (etcd.prefix, etcd.user) == ("/storage/ares", "ares")
    assert (etcd.ca, etcd.certificate, etcd.key) == (
        HOME / "pem/ca.pem",
        HOME / "pem/me.pem",
        Path("/etc/pem/me.key"),
    )
    assert etcd.password_path == HOME / "secrets/etcd.password"


def test_tls_or_a_trusted_network_allow_other_addresses() -> None:
    elsewhere = GOOD.replace("127.0.0.1:2379", "etcd.example.org:2379")
    for text in (
        elsewhere + 'ca = "ca.pem"\n',
        elsewhere.replace("format = 1", 'format = 1\nsecurity = "none"'),
    ):
        etcd = Settings.parse(text, PATH).etcd
        assert etcd is not None
        assert etcd.endpoints[0] == "etcd.example.org:2379"


MEMBER = '[[consensus]]\nid = "r0"\naddress = "127.0.0.1:7410"\nraft = "127.0.0.1:7411"\n[etcd]'
ENDPOINTS = 'endpoints = ["127.0.0.1:2379", "127.0.0.1:22379"]'

BAD = {
    "no endpoints": (
        ENDPOINTS,
        "endpoints = []",
        "etcd.endpoints",
        "at least one member of an etcd cluster, found none",
    ),
    "missing endpoints": (ENDPOINTS, "", "etcd.endpoints", "expected, but missing"),
    "URL": ("127.0.0.1:2379", "http://127.0.0.1:2379", "etcd.endpoints[0]", "expected host:port"),
    "no port": ("127.0.0.1:22379", "127.0.0.1", "etcd.endpoints[1]", "expected host:port"),
    "twice": (":22379", ":2379", "etcd.endpoints[1]", "is also etcd.endpoints[0]"),
    "a server's": (":22379", ":7400", "etcd.endpoints[1]", "is also server[0].address"),
    "reachable": (
        "127.0.0.1:2379",
        "10.0.0.1:2379",
        "etcd.endpoints[0]",
        "expected a loopback address",
    ),
    "a string": (
        ENDPOINTS,
        'endpoints = "127.0.0.1:2379"',
        "etcd.endpoints",
        "expected `array`, got `string`",
    ),
    "misspelt": ("[etcd]", '[etcd]\nprefx = "/ares"', "etcd.prefx", "did you mean prefix?"),
    "empty prefix": ("[etcd]", '[etcd]\nprefix = "/"', "etcd.prefix", "found '/'"),
    "odd prefix": ("[etcd]", '[etcd]\nprefix = "a b"', "etcd.prefix", "found 'a b'"),
    "Raft's password": (
        "format = 1",
        'format = 1\nconsensus_password = "x"',
        "consensus_password",
        "here etcd decides",
    ),
    "certificate alone": (
        "[etcd]",
        '[etcd]\ncertificate = "x"',
        "etcd.key",
        "expected together with certificate",
    ),
    "key alone": ("[etcd]", '[etcd]\nkey = "x"', "etcd.certificate", "expected together with key"),
    "no authority": (
        "[etcd]",
        '[etcd]\ncertificate = "x"\nkey = "y"',
        "etcd.ca",
        "expected together with certificate",
    ),
    "user alone": ("[etcd]", '[etcd]\nuser = "x"', "etcd.password", "expected together with user"),
    "password alone": (
        "[etcd]",
        '[etcd]\npassword = "x"',
        "etcd.user",
        "expected together with password",
    ),
    "no file": ("[etcd]", '[etcd]\nca = ""', "etcd.ca", "expected the path of a file"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_refused_by_file_key_and_expectation(case: str) -> None:
    old, new, key, why = BAD[case]
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        Settings.parse(GOOD.replace(old, new), PATH)
    assert str(caught.value).startswith(f"{PATH}: {key}: ")
    assert why in str(caught.value)


def test_raft_as_well_is_refused() -> None:
    both = GOOD.replace("[etcd]", MEMBER).replace(
        "format = 1", 'format = 1\nconsensus_password = "x"'
    )
    with pytest.raises(BadInput, match=r"etcd: .*found both: two services would decide apart"):
        Settings.parse(both, PATH)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [
        name
        for name in sys.modules
        if name.partition(".")[0] == "aetcd" or name.startswith("ares.consensus.etcd")
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "aetcd", None)
    with pytest.raises(
        BadInput, match=r"aetcd is not installed here: pip install 'ares-storage\[etcd\]'"
    ):
        consensus_of(Settings.parse(GOOD, PATH))
