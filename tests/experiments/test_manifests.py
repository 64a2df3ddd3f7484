"""Inventories of machines reserved elsewhere, from recorded samples; other files are refused."""

from pathlib import Path

import pytest

from ares.model.errors import BadInput
from experiments.__main__ import main
from experiments.testbeds import aws, inventory, reserved, rspec
from experiments.testbeds.reserved import GROUP_PATTERNS, ControllerAccess, Jump
from experiments.testbeds.testbed_plan import HostPlan, LinkPlan, check

from .inventories import inventory_of

SAMPLES = Path(__file__).with_name("manifests")
JFED = (SAMPLES / "jfed.rspec").read_bytes()
EMULAB = (SAMPLES / "emulab.xml").read_bytes()
INSTANCES = (SAMPLES / "instances.json").read_bytes()
PATTERNS = list(GROUP_PATTERNS.items())


def test_a_manifest_of_jfed_gives_hosts_behind_their_bastion(tmp_path):
    known, key, out = tmp_path / "known_hosts", tmp_path / "key", tmp_path / "inventory.yml"
    known.touch()
    key.touch()
    words = ["--known-hosts", str(known), "--key", str(key), "--out", str(out)]
    assert main(["inventory", "fed4fire", str(SAMPLES / "jfed.rspec"), *words]) == 0
    all_ = inventory_of(out)["all"]
    server, writer = all_["hosts"]["server0"], all_["hosts"]["writer_1"]
    assert (server["ansible_host"], server["ansible_user"], server["ares_address"]) == (
        "n091-03a.wall1.ilabt.iminds.be",
        "jdoe",
        "192.168.0.1",
    )
    assert (server["ares_site"], writer["ares_site"]) == (
        "wall1-ilabt-iminds-be",
        "wall2-ilabt-iminds-be",
    )
    assert "fffjdoe@bastion.test.iminds.be" in server["ansible_ssh_common_args"]
    assert "ProxyCommand" not in writer["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in server["ansible_ssh_common_args"]
    assert all_["children"]["servers"]["hosts"] == {"server0": {}}
    assert all_["children"]["clients"]["children"].keys() == {"writers", "readers", "recons"}
    assert all_["children"]["controller"]["hosts"] == {"localhost": {"ansible_connection": "local"}}


def test_a_proxy_is_not_taken_for_a_login():
    server, writer = rspec.machines(JFED, "fed4fire")
    assert server.jump == Jump("fffjdoe", "bastion.test.iminds.be", 22)
    assert (server.user, writer.jump) == ("jdoe", None)


def test_at_emulab_the_user_of_the_logins_must_be_given():
    with pytest.raises(BadInput, match=r"logins for jdoe, rroe: say whose to take \(--user\)"):
        rspec.machines(EMULAB, "emulab")
    machines = rspec.machines(EMULAB, "emulab", "rroe")
    assert [(machine.name, machine.user, machine.outer, machine.site) for machine in machines] == [
        ("node0", "rroe", "155.98.36.136", "emulab-net"),
        ("node1", "rroe", "128.110.216.38", "utah-cloudlab-us"),
    ]
    with pytest.raises(BadInput, match="no login for 'nobody'"):
        rspec.machines(EMULAB, "emulab", "nobody")


def test_processes_listen_on_inner_addresses_only_if_all_have_one(tmp_path):
    machines = rspec.machines(JFED, "fed4fire")
    some = [machines[0], *rspec.machines(EMULAB, "emulab", "jdoe")]
    addresses = [
        host.variables["ares_address"]
        for host in reserved.hosts(some, ControllerAccess(tmp_path), PATTERNS)
    ]
    assert addresses == ["10.2.0.47", "155.98.36.136", "128.110.216.38"]


def test_instances_of_aws_that_run():
    machines = aws.machines(INSTANCES)
    assert [(machine.name, machine.site, machine.login, machine.inner) for machine in machines] == [
        ("server0", "eu-west-1", "203.0.113.10", None),
        ("i-0def000000000003", "us-east-1", "198.51.100.7", None),
    ]
    together = INSTANCES.replace(b"vpc-2", b"vpc-1").replace(b"172.31.4.10", b"172.31.4.11", 1)
    assert [machine.inner for machine in aws.machines(together)] == ["172.31.4.11", "172.31.4.10"]
    with pytest.raises(
        BadInput, match="none of 3 instances is running: i-0abc000000000001 is stopped"
    ):
        aws.machines(INSTANCES.replace(b"running", b"stopped"))


def test_a_plain_list_of_addresses_gives_machines():
    machines = aws.machines(
        b"# of today\n203.0.113.1 server0 eu\n\nec2-1.example.org writer0 # far\n2001:db8::1\n"
    )
    assert [(machine.name, machine.site, machine.login) for machine in machines] == [
        ("server0", "eu", "203.0.113.1"),
        ("writer0", "aws", "ec2-1.example.org"),
        ("host2", "aws", "2001:db8::1"),
    ]


BOMB = (
    b'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><r>&c;</r>'
)
REMOTE = (
    b'<!DOCTYPE rspec SYSTEM "file:///etc/passwd">'
    b'<rspec xmlns="http://www.geni.net/resources/rspec/3"/>'
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "this is not XML"),
        (b"\x00\xff", "this is not XML"),
        (JFED[:900], "this is not XML"),
        (b'<?xml version="1.0" encoding="no-such"?><a/>', "this is not XML"),
        (BOMB, "declares a document type"),
        (REMOTE, "declares a document type"),
        (b"<a>" * 200_000, "in more than 64 others"),
        (b"<rspec/>", "no RSpec of version 3"),
        (JFED.replace(b"resources/rspec/3", b"resources/rspec/2"), "no RSpec of version 3"),
        (
            b'<rspec xmlns="http://www.geni.net/resources/rspec/3" type="manifest"/>',
            "has 0 nodes, and none that one can log in to",
        ),
        (JFED.replace(b"login", b"logout").replace(b"manifest", b"request"), "this is a request"),
        (
            JFED.replace(b"wall1.ilabt.iminds.be+authority", b"example.org+authority"),
            "is from example.org, and fed4fire has .* --authority",
        ),
        (
            JFED.replace(b"wall1.ilabt.iminds.be+authority", b"evilimec.be+authority"),
            "is from evilimec.be",
        ),
        (JFED.replace(b"+authority+cm", b""), "is from urn:"),
        (JFED.replace(b'port="22"', b'port="ssh"'), "'ssh' is not a port"),
        (JFED.replace(b'proxy="fffjdoe@', b'proxy="'), "not user@host:port"),
    ],
)
def test_what_is_no_manifest_is_refused(content, says):
    with pytest.raises(BadInput, match=says):
        rspec.machines(content, "fed4fire")


def test_a_manifest_of_another_testbed_is_told_apart():
    with pytest.raises(BadInput, match="that is testbed emulab"):
        rspec.machines(EMULAB, "fed4fire", "jdoe")
    assert len(rspec.machines(EMULAB, "fed4fire", "jdoe", ["emulab.net", "cloudlab.us"])) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"{",
        b'{"Reservations": 3}',
        b'{"Reservations": []}',
        b"[" * 100_000,
        b"a b c d",
        b"\xff",
        b"-x -y",
    ],
)
def test_what_is_no_list_is_refused(content):
    with pytest.raises(BadInput, match="nothing was written"):
        aws.machines(content)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'client_id="server0"', b"client_id=\"{{ lookup('pipe', 'id') }}\""),
        (b'client_id="server0"', b'client_id="a&#10;b"'),
        (b'client_id="server0"', b'client_id="writer_1"'),
        (b'username="jdoe"', b'username="-oProxyCommand=id"'),
        (b'address="192.168.0.1"', b'address="$(id)"'),
        (b'hostname="n091-03a.wall1', b'hostname="-oProxyCommand=id'),
        (b"fffjdoe@bastion.test", b"a;id@bastion.test"),
    ],
)
def test_what_would_be_evaluated_does_not_get_into_an_inventory(old, new, tmp_path):
    with pytest.raises(BadInput):
        reserved.hosts(
            rspec.machines(JFED.replace(old, new), "fed4fire"), ControllerAccess(tmp_path), PATTERNS
        )
    with pytest.raises(BadInput, match="braces"):
        inventory.write(
            tmp_path / "i.yml", [inventory.InventoryHost("a", [], {"x": "{{ 1 }}"})], ""
        )


def test_names_that_yaml_takes_for_something_else_stay_names(tmp_path):
    names = ["server0", "no", "On", "y", "null", "true", "1", "1e3", "0x10", "1.5", "nova", "a-b.c"]
    inventory.write(
        tmp_path / "i.yml",
        [
            inventory.InventoryHost(name, ["servers"], {"ares_address": "10.0.0.1"})
            for name in names
        ],
        "",
    )
    assert list(inventory_of(tmp_path / "i.yml")["all"]["hosts"]) == names


def test_the_command_says_what_is_wrong_and_writes_nothing(tmp_path, capsys):
    out, known = tmp_path / "inventory.yml", tmp_path / "known"
    given = ["--known-hosts", str(known), "--out", str(out)]
    assert main(["inventory", "aws", str(SAMPLES / "instances.json"), *given]) == 1
    assert "--known-hosts) is not a file" in capsys.readouterr().err
    known.touch()
    assert main(["inventory", "aws", str(tmp_path / "missing"), *given]) == 1
    assert main(["inventory", "aws", str(tmp_path), *given]) == 1
    assert (
        main(["inventory", "aws", str(SAMPLES / "instances.json"), *given, "--group", "serfs=*"])
        == 1
    )
    assert "there is no group 'serfs'" in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(SystemExit):
        main(["inventory", "planetlab", str(SAMPLES / "instances.json"), *given])
    assert (
        main(
            [
                "inventory",
                "aws",
                str(SAMPLES / "instances.json"),
                *given,
                "--group",
                "servers=*",
                "--group",
                "writers=i-*",
            ]
        )
        == 0
    )
    assert inventory_of(out)["all"]["children"]["writers"]["hosts"] == {"i-0def000000000003": {}}


@pytest.mark.parametrize(
    ("hosts", "links"),
    [
        ([], []),
        ([HostPlan("a", "x"), HostPlan("a", "y")], []),
        ([HostPlan("a/b", "x")], []),
        ([HostPlan("-a", "x")], []),
        ([HostPlan("a", "x\ny")], []),
        ([HostPlan("a", "x", ["kings"])], []),
        ([HostPlan("a", "x", [], {"data": 1 << 20})], []),
        ([HostPlan("a", "x", [], {"/var/../etc": 1 << 20})], []),
        ([HostPlan("a", "x", [], {"/data": 1})], []),
        ([HostPlan("a", "x")], [LinkPlan("x", "y")]),
        ([HostPlan("a", "x"), HostPlan("b", "y")], [LinkPlan("x", "y", -1)]),
        ([HostPlan("a", "x"), HostPlan("b", "y")], [LinkPlan("x", "y", 1, 2)]),
        ([HostPlan("a", "x"), HostPlan("b", "y")], [LinkPlan("x", "y", float("nan"))]),
        ([HostPlan(f"h{number}", f"site{number}") for number in range(61)], []),
    ],
)
def test_plans_that_cannot_be_are_refused(hosts, links):
    with pytest.raises(BadInput):
        check(hosts, links)
