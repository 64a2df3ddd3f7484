"""A cluster that playbooks deploy over SSH, on hosts in namespaces.

The playbooks check, deploy twice, ask for the status, and remove the cluster.
"""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from ares.cluster.settings import Settings
from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.testbeds import local_testbed
from experiments.testbeds.testbed_plan import HostPlan

from .ansible_runs import MISSING, Played, play

pytest.importorskip("ansible.release", reason=MISSING)
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(local_testbed.obstacle() is not None, reason=local_testbed.obstacle() or ""),
]

HOSTS = [
    HostPlan("s0", "here", ["servers", "consensus"]),
    HostPlan("s1", "here", ["servers"]),
    HostPlan("s2", "here", ["servers"]),
]
LEFT = ("etc/ares", "var/lib/ares", "var/log/ares", "opt/ares")


def test_a_cluster_is_deployed_over_ssh_and_removed(tmp_path):
    controller = tmp_path / "controller"
    with local_testbed.testbed(HOSTS, [], tmp_path / "made") as made:

        def played(name: str, *words: str, **more: str) -> Played:
            given = {
                "ares_cluster_name": "trial",
                "common_controller_directory": str(controller),
            } | more
            words += ("-e", json.dumps(given))
            return asyncio.run(play(name, made.inventory, *words)).well()

        assert played("deploy", "--check").changed > 0
        assert written(tmp_path) == []
        assert played("deploy").changed > 0
        assert written(tmp_path)
        again = played("deploy")
        assert again.changed == 0, again.output
        words = python("-m", "ares", "-c", controller / "cluster.toml", "--json", "status")
        said = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=True)
        assert all(f'"{host.name}"' in said.stdout for host in HOSTS), said.stdout
        settings = Settings.load(controller / "cluster.toml")
        played("destroy", destroy="trial")
        assert written(tmp_path) == []
        for server in settings.servers.values():
            assert not asyncio.run(listens(server.address))


def written(place: Path) -> list[Path]:
    """Return the cluster's files on the hosts.

    Each host's own files are a layer over the machine's.
    """
    return [path for left in LEFT for path in place.glob(f"made/testbed/hosts/*/upper/{left}")]


async def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 5)
    except OSError:
        return False
    writer.close()
    return True
