"""A cluster deployed by playbooks on this machine: started, changed by process, removed."""

import asyncio
import json
from pathlib import Path

import pytest

import ares
from experiments.testbeds.local import obstacle

from .playing import MISSING, inventory, play

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


def surroundings(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_cluster_is_deployed_upgraded_and_destroyed(tmp_path):
    hosts = inventory(tmp_path)
    file = tmp_path / "controller" / "cluster.toml"
    try:
        await deployed(tmp_path, hosts, file)
        await upgraded(tmp_path, hosts, file)
    finally:
        gone = await play("destroy", hosts, "-e", "destroy=trial")
    gone.well()
    left = [
        path
        for path in files(tmp_path)
        if path not in (hosts, tmp_path / "ansible.cfg") and "ansible-" not in str(path.parent)
    ]
    assert left == []


async def deployed(place: Path, hosts: Path, file: Path) -> None:
    """Check that the cluster works, with secrets unreadable for other users.

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
    """Check for new processes without a change for a reader."""
    before, stop = pids(place), asyncio.Event()
    reader = asyncio.create_task(read_on(file, stop))
    other = json.dumps({"common_environment": {"ARES_TRIAL": "1"}})
    upgrade = await play("upgrade", hosts, "-e", other)
    stop.set()
    assert await reader == []
    upgrade.well()
    after = pids(place)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    assert all(b"ARES_TRIAL=1" in surroundings(pid) for pid in after.values())
