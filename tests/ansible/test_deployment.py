"""Deployment, checks, change by process and removal of a cluster on this machine by playbooks."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest

import ares
from ares.cluster.settings import Settings
from ares.gateway.access.sealed_keys import AccessKey, KeyRole
from ares.platform.interpreter import python
from experiments.testbeds.local_testbed import obstacle
from tests.gateway.raw_requests import signed
from tests.gateway.test_gateway_processes import ask

from .ansible_runs import MISSING, inventory, play

pytest.importorskip("ansible.release", reason=MISSING)
pytestmark = [pytest.mark.process, pytest.mark.slow]


async def read_on(file: Path, stop: asyncio.Event) -> list[str]:
    """Read until the stop event, and return the errors. At least a single read was made."""
    wrong = []
    async with ares.connect(file) as store:
        while True:
            try:
                found = await store.read("greeting")
                wrong += [] if found == b"hello" else [f"read {found!r}"]
            except ares.AresError as error:
                wrong.append(str(error))
            if stop.is_set():
                return wrong
            await asyncio.sleep(0.02)


def pids(place: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text().split()[0]) for path in place.glob("n*/run/*.pid")}


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def settings(place: Path) -> dict[Path, bytes]:
    """Return the cluster file and the keys, of the controller and of each host."""
    found = [*place.glob("controller/**/*"), *place.glob("n*/config/**/*")]
    return {path: path.read_bytes() for path in found if path.is_file()}


def surroundings(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def written(place: Path, hosts: Path) -> list[Path]:
    """Return the files made by playbooks, except for Ansible's own."""
    return [
        path
        for path in files(place)
        if path not in (hosts, place / "ansible.cfg") and "ansible-" not in str(path.parent)
    ]


async def test_a_cluster_is_deployed_upgraded_and_destroyed(tmp_path):
    hosts = inventory(tmp_path)
    file = tmp_path / "controller" / "cluster.toml"
    (await play("deploy", hosts, "--check", "--diff")).well()
    assert written(tmp_path, hosts) == []
    try:
        await deployed(tmp_path, hosts, file)
        await upgraded(tmp_path, hosts, file)
        await with_a_gateway(tmp_path, hosts)
        await limited(tmp_path, hosts)
    finally:
        gone = await play("destroy", hosts, "-e", "destroy=trial")
    gone.well()
    assert written(tmp_path, hosts) == []


async def deployed(place: Path, hosts: Path, file: Path) -> None:
    """The cluster works, with secrets unreadable for other users.

    No secret is printed.
    """
    first = (await play("deploy", hosts, "-vvv", "--diff")).well()
    async with ares.connect(file) as store:
        await store.write("greeting", b"hello")
    secrets = [path for path in files(place) if path.suffix in (".secret", ".password")]
    assert {
        path.relative_to(place).as_posix() for path in secrets if "controller" not in path.parts
    } == {
        "n0/config/keys/n0.secret",
        "n0/config/keys/n0-consensus.secret",
        "n0/config/keys/decisions.secret",
        "n0/config/secrets/consensus.password",
        "n1/config/keys/n1.secret",
        "n2/config/keys/n2.secret",
    }
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
    assert not [path for path in secrets if path.read_text().strip() in first.output]
    refused = await play("destroy", hosts)
    assert refused.status != 0
    assert "-e destroy=trial" in refused.output
    assert len(pids(place)) == 4
    if obstacle() is not None:  # test_deployment_by_ssh.py deploys twice
        again = (await play("deploy", hosts)).well()
        assert again.changed == 0, again.output


async def upgraded(place: Path, hosts: Path, file: Path) -> None:
    """A dry run writes no file, and an upgrade replaces every process.

    A reader notices no change.
    """
    before, stop = pids(place), asyncio.Event()
    given = settings(place)
    other = json.dumps(
        {
            "common_environment": {"ARES_TRIAL": "1"},
            "common_cluster_options": {"limits": {"connections": 777}},
        }
    )
    check = (await play("upgrade", hosts, "--check", "-e", other)).well()
    assert check.changed > 0, check.output
    assert pids(place) == before
    assert settings(place) == given
    make_client_key(file, "gateways")
    reader = asyncio.create_task(read_on(file, stop))
    upgrade = await play("upgrade", hosts, "-e", other)
    stop.set()
    assert await reader == []
    upgrade.well()
    after = pids(place)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    assert all(b"ARES_TRIAL=1" in surroundings(pid) for pid in after.values())
    cluster = [path for path in settings(place) if path.name == file.name]
    assert [Settings.load(path).limits.connections for path in cluster] == [777] * 4


async def with_a_gateway(place: Path, hosts: Path) -> None:
    """A gateway is deployed with keys of its own, which are not printed; again, nothing changes."""
    refused = await play("gateways", hosts, "-e", "ares_gateway_key=")
    assert refused.status != 0
    assert "keys new gateways --role write" in refused.output
    assert "n1-gateway" not in pids(place)
    made = (await play("gateways", hosts, "-vvv", "--diff")).well()
    key = first_access_key(place)
    assert key.secret not in made.output
    assert ask(gateway_address(hosts), signed(key, "PUT", "/photos")).status == 200
    before = pids(place)
    again = (await play("gateways", hosts)).well()
    assert (again.changed, pids(place)) == (0, before)


def make_client_key(file: Path, name: str) -> None:
    words = ("keys", "new", name, "--role", "write")
    subprocess.run(python("-m", "ares", "-c", file, *words), check=True, capture_output=True)


def first_access_key(place: Path) -> AccessKey:
    """Return the first access key on the controller. Secrets are unreadable for other users."""
    access = place / "controller/root.access-key"
    secrets = [access, place / "controller/gateway.key", place / "n1/config/keys/gateway.secret"]
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
    words = dict(re.findall(r"^export (\w+)=(\S+)$", access.read_text(), re.MULTILINE))
    id, secret = words["AWS_ACCESS_KEY_ID"], words["AWS_SECRET_ACCESS_KEY"]
    return AccessKey(id, secret, "root", KeyRole.ADMIN)


def gateway_address(hosts: Path) -> str:
    variables = json.loads(hosts.read_text())["gateways"]["hosts"]["n1"]
    return f"127.0.0.1:{variables['ares_gateway_port']}"


async def limited(place: Path, hosts: Path) -> None:
    """A playbook with a limit acts on a single host.

    The other hosts keep their place in the file.
    """
    before, given = pids(place), settings(place)
    other = json.dumps({"common_environment": {"ARES_TRIAL": "2"}})
    (await play("upgrade", hosts, "--limit", "n1", "-e", other)).well()
    after = pids(place)
    assert {id for id in after if after[id] != before[id]} == {"n1"}
    assert settings(place) == given
    (await play("destroy", hosts, "--limit", "n2", "-e", "destroy=trial")).well()
    assert pids(place).keys() == before.keys() - {"n2"}
    assert {path for path in given if "n2" not in path.parts} == settings(place).keys()
