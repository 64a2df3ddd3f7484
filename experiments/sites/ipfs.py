"""IPFS (kubo): a daemon at each site in a private swarm.

The members know each other from the beginning and keep the DHT. Objects are immutable: ``put`` adds
the value at the user's own site, whatever site the name has, and the object is read by its CID. A
site that reads an object keeps a copy. The store has no other replicas. Writes are not synced to
disk.

experiments/build_kubo.sh builds IPFS.
"""

import http.client
import json
import os
import secrets
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from experiments.blocking_calls import in_thread
from experiments.sites.site_store import Deployment, OperationFailed, Parameters, SiteClient

IPFS_VERSION = "v0.39.0"
_SWARM_PORT, _API_PORT = 4001, 5001
_IPFS_START_S = 60.0
_IPFS_OPERATION_S = 120.0
_BOUNDARY = "object-of-a-site"


def binary() -> Path:
    """Return the path of the program."""
    return Path.home() / ".cache" / "ares" / f"kubo-{IPFS_VERSION}"


def missing() -> str | None:
    """Return the missing program, and how to get it."""
    if binary().is_file():
        return None
    return "IPFS is not here: experiments/build_kubo.sh builds it (Go, three minutes)"


class IpfsDeployment(Deployment):
    """A daemon at each site; ``replicas`` is 1."""

    def parameters(self, site: str) -> Parameters:
        """Return the API of the site's own daemon."""
        return {"host": self.bed.address(site), "port": _API_PORT}

    def deploy(self) -> None:
        bed, program, swarm = self.bed, str(binary()), dict[str, str]()
        key = f"/key/swarm/psk/1.0.0/\n/base16/\n{secrets.token_hex(32)}\n"
        for site in bed.sites:
            home = self._home(site)
            bed.run(site, program, "init", "--empty-repo", environment=_environment(home))
            (home / "swarm.key").write_text(key)
            peer = json.loads((home / "config").read_text())["Identity"]["PeerID"]
            swarm[site] = f"/ip4/{bed.address(site)}/tcp/{_SWARM_PORT}/p2p/{peer}"
        others = {
            site: [place for other, place in swarm.items() if other != site] for site in bed.sites
        }
        for site in bed.sites:
            file = self._home(site) / "config"
            config = configured(json.loads(file.read_text()), bed.address(site), others[site])
            file.write_text(json.dumps(config))
            environment = _environment(self._home(site))
            self.serve(site, f"ipfs-{site}", program, "daemon", environment=environment)
        for site in bed.sites:
            self._await(site, f"the daemon at {site} serves", "id")
        for site in bed.sites[1:]:
            what = f"the daemon at {site} meets the other daemons"
            self._await(site, what, "swarm", "connect", *others[site])

    def _home(self, site: str) -> Path:
        return self.bed.directory / f"ipfs-{site}"

    def _await(self, site: str, what: str, *words: str) -> None:
        """Wait until the daemon does the work, by its API.

        Without the API the program would answer from the repository.
        """
        api = f"--api=/ip4/{self.bed.address(site)}/tcp/{_API_PORT}"
        environment = _environment(self._home(site))
        done = partial(self.answer, site, str(binary()), api, *words, environment=environment)
        self.await_server(f"ipfs-{site}", done, what, _IPFS_START_S)


deployment = IpfsDeployment


def configured(config: dict[str, Any], address: str, others: list[str]) -> dict[str, Any]:
    """Return the configuration of a daemon that speaks TCP to ``others`` alone."""
    own: dict[str, Any] = {
        "Addresses": {
            "Swarm": [f"/ip4/{address}/tcp/{_SWARM_PORT}"],
            "API": f"/ip4/{address}/tcp/{_API_PORT}",
            "Gateway": [],
        },
        "AutoConf": {"Enabled": False},
        "AutoTLS": {"Enabled": False},
        "AutoNAT": {"ServiceMode": "disabled"},
        "Bootstrap": others,
        "DNS": {"Resolvers": {}},
        "Discovery": {"MDNS": {"Enabled": False}},
        "Ipns": {"DelegatedPublishers": []},
        "Plugins": {"Plugins": {"telemetry": {"Disabled": True}}},
        "Routing": {"Type": "dhtserver", "DelegatedRouters": []},
        "Swarm": {
            "DisableNatPortMap": True,
            "EnableHolePunching": False,
            "RelayClient": {"Enabled": False},
            "RelayService": {"Enabled": False},
            "Transports": {
                "Network": dict.fromkeys(
                    ("QUIC", "Relay", "WebRTCDirect", "WebTransport", "Websocket"), False
                )
            },
        },
        "Version": {"SwarmCheckDisabled": True},
    }
    for mount in config["Datastore"]["Spec"]["mounts"]:
        if "sync" in mount:
            mount["sync"] = False
    return config | own


class IpfsClient:
    """A user of a daemon's API, with a connection for each simultaneous operation."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._idle: list[http.client.HTTPConnection] = []

    async def put(self, name: str, value: bytes) -> str:
        """Add the value, and return the CID."""
        head = (
            f"--{_BOUNDARY}\r\n"
            'Content-Disposition: form-data; name="file"; filename="object"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        body = head.encode() + value + f"\r\n--{_BOUNDARY}--\r\n".encode()
        answer = await in_thread(self._asked, "add", {"pin": "true", "progress": "false"}, body)
        return str(json.loads(answer)["Hash"])

    async def get(self, name: str) -> bytes:
        """Read the object with CID ``name``."""
        return await in_thread(self._asked, "cat", {"arg": name}, b"")

    async def close(self) -> None:
        """End the idle connections."""
        for connection in self._idle:
            connection.close()

    def _asked(self, command: str, arguments: dict[str, str], body: bytes) -> bytes:
        connect = partial(http.client.HTTPConnection, timeout=_IPFS_OPERATION_S)
        connection = self._idle.pop() if self._idle else connect(self._host, self._port)
        where = f"{command} at {self._host}"
        try:
            kind = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"} if body else {}
            connection.request("POST", f"/api/v0/{command}?{urlencode(arguments)}", body, kind)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OperationFailed(f"{where}: {error or type(error).__name__}") from error
        self._idle.append(connection)
        if answer.status != http.client.OK:
            raise OperationFailed(f"{where}: {content[:300].decode(errors='replace')}")
        return content


async def connect(parameters: Parameters, site: str) -> SiteClient:
    """Return a client of the site's own daemon. Raises OperationFailed."""
    client = IpfsClient(parameters["host"], parameters["port"])
    await in_thread(client._asked, "id", {}, b"")
    return client


def _environment(repository: Path) -> dict[str, str]:
    """Return an environment without the user's settings, which may name another repository."""
    return {
        "IPFS_PATH": str(repository),
        "HOME": str(repository.parent),
        "PATH": os.environ["PATH"],
        "LIBP2P_FORCE_PNET": "1",
    }
