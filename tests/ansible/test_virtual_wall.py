"""The playbooks for imec's Virtual Wall, in a network namespace with a node's addresses.

No packet leaves the namespace.
"""

import subprocess
from pathlib import Path

import pytest

from .ansible_runs import MISSING, PLAYBOOKS, PROGRAMS, PYTHON, environment

pytest.importorskip("ansible.release", reason=MISSING)
pytestmark = [pytest.mark.process, pytest.mark.slow]

NODE = """
set -e
mount -t sysfs none /sys    # of this namespace, for who looks there
ip link set lo up
ip link add node type veth peer name wall
ip link add node.28 type veth peer name pool    # this kernel may know no VLANs
for device in node wall pool; do ip link set $device up; done
ip address add 10.2.0.5/20 dev node
ip route add default via 10.2.15.254
"""


def play_twice(name: str, place: Path) -> str:
    """Return the routes and the recap after the first and the second run."""
    host = f"n0 ansible_connection=local ansible_python_interpreter={PYTHON} ares_become=false"
    (place / "hosts.ini").write_text(
        f"{host} virtual_wall_domain_name=n0.wall1.ilabt.iminds.be "
        "virtual_wall_public_ipv4=193.190.127.150\n"
    )
    command = f"{PROGRAMS}/ansible-playbook -i {place}/hosts.ini {PLAYBOOKS}/{name}.yml"
    script = f"{NODE}\n{command}; ip route; echo; {command}; ip route"
    done = subprocess.run(
        ["unshare", "-n", "-m", "sh", "-c", script],
        capture_output=True,
        text=True,
        env=environment(place),
        check=False,
    )
    if (
        "unshare" in done.stderr
        or "RTNETLINK" in done.stderr
        or "mount" in done.stderr
        or "not found" in done.stderr
    ):
        pytest.skip(
            "network namespaces, or ip (iproute2), are not to be had here: "
            f"{done.stderr.strip()[-200:]}"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nodes_reach_the_internet_by_the_gateway_that_translates(tmp_path):
    said = play_twice("nat_virtual_wall", tmp_path)
    assert said.count("default via 10.2.15.253 dev node") == 2
    assert said.count("10.11.0.0/16 via 10.2.15.254 dev node") == 2
    assert said.count("10.2.32.0/20 via 10.2.15.254 dev node") == 2
    assert ["changed=2" in said, "changed=0" in said, said.count("failed=0")] == [True, True, 2]


def test_nodes_take_their_public_address(tmp_path):
    said = play_twice("public_ipv4_virtual_wall", tmp_path)
    assert said.count("default via 193.190.127.129 dev node.28") == 2
    assert said.count("10.11.0.0/16 via 10.2.15.254 dev node") == 2
    assert ["changed=4" in said, "changed=0" in said, said.count("failed=0")] == [True, True, 2]
