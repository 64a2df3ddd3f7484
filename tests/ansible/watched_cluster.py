"""An inventory of a cluster and of the services beside it, and stand-ins for programs."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from .ansible_runs import PYTHON, inventory, ports

STAND_IN = Path(__file__).with_name("service_stand_in.py")
PORTS = ("port", "influxdb_port", "grafana_port", "jaeger_port", "jaeger_grpc_port")
OTLP_PORTS = ("otlp_http_port", "otlp_grpc_port")
DEBIANS = {"prometheus": "observability_program", "influxd": "observability_influxdb_program"}
"""Programs of Debian, with their variables. No test installs packages."""


def stand_in(place: Path, name: str) -> Path:
    """Make a program in place of the service ``name``."""
    program = place / name
    program.write_text(f"#!{PYTHON}\n{STAND_IN.read_text()}")
    program.chmod(0o755)
    return program


def watched(place: Path, **more: Any) -> Path:
    """Write an inventory of a cluster, and of services on the host of its first server."""
    directory = place / "hosts"
    directory.mkdir()
    path = inventory(directory)
    told = json.loads(path.read_text())
    names = [f"observability_{name}" for name in (*PORTS, *OTLP_PORTS)]
    variables = {
        "observability_directory": str(directory / "watch"),
        "observability_loopback": True,
        **dict(zip(names, ports(len(names)), strict=True)),
    }
    told["observability"] = {"hosts": {"n0": {}}, "vars": variables | more}
    path.write_text(json.dumps(told))
    return path


def variables_of(hosts: Path) -> dict[str, Any]:
    return json.loads(hosts.read_text())["observability"]["vars"]


def requests(hosts: Path, service: str) -> list[dict[str, str]]:
    """Return the requests to the stand-in of a service."""
    text = (hosts.parent / "watch" / service / "requests").read_text()
    return [json.loads(line) for line in text.splitlines()]


def left(hosts: Path) -> list[Path]:
    """Return the files made by playbooks beside the inventory, except for Ansible's own."""
    found = [path.relative_to(hosts.parent) for path in hosts.parent.rglob("*") if path.is_file()]
    return [
        path
        for path in found
        if path.name not in (hosts.name, "ansible.cfg") and not path.parts[0].startswith("ansible-")
    ]


def installed() -> dict[str, str]:
    """Return the variables for Debian's installed programs; warn of missing programs."""
    found = {variable: shutil.which(name) for name, variable in DEBIANS.items()}
    for name, variable in DEBIANS.items():
        if found[variable] is None:
            warnings.warn(f"{name} is not installed, and left out of this test", stacklevel=2)
    return {variable: path for variable, path in found.items() if path}
