"""Network namespaces of this machine and links between them, made with `ip`.

They give a program a network that can be cut, with processes inside. A namespace is named by the
maker (``ip netns`` shows the name) and removed by name; the interfaces and rules inside go too.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping

from ares.model.errors import AresError

_COMMAND_S = 20.0
NETWORK_TOOLS = {"ip": "iproute2", "iptables": "iptables"}
"""Programs, and the packages of Debian that have them."""


class NamespaceFailed(AresError):
    """A namespace, a link or a rule could not be made."""


def obstacle(tools: Mapping[str, str] = NETWORK_TOOLS) -> str | None:
    """Return why this machine cannot make a network, with the remedy.

    Returns ``None`` if no obstacle exists. ``tools``: programs and packages, as in NETWORK_TOOLS.
    """
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = dict.fromkeys(tools[tool] for tool in missing)
        return (
            f"{' and '.join(missing)} missing. On Debian or Ubuntu: sudo apt-get install "
            f"{' '.join(packages)}"
        )
    if os.geteuid() != 0:
        return "only root may make network namespaces. Run it as root (sudo)"
    probe = f"ares{os.getpid()}-probe"
    try:
        try:
            add(probe)
            run(*inside(probe), "iptables", "-w", "-A", "INPUT", "-s", "127.0.0.2", "-j", "DROP")
        finally:
            remove(probe)
    except NamespaceFailed as error:
        return (
            f"this machine does not let us make network namespaces ({error}); a container needs "
            "CAP_NET_ADMIN and CAP_SYS_ADMIN"
        )
    return None


def add(namespace: str) -> None:
    """Make a namespace. Raises NamespaceFailed, as every function of this module does."""
    run("ip", "netns", "add", namespace)


def remove(namespace: str) -> None:
    """Remove a namespace without processes, with all interfaces and rules; absence is no error."""
    subprocess.run(
        ["ip", "netns", "del", namespace], capture_output=True, check=False, timeout=_COMMAND_S
    )


def inside(namespace: str) -> list[str]:
    """Return the first words of a command in the namespace.

    The command takes the place of `ip`, including the process id.
    """
    return ["ip", "netns", "exec", namespace]


def bridge(hub: str, name: str) -> None:
    """Make a bridge in the namespace ``hub``."""
    run("ip", "-n", hub, "link", "add", name, "type", "bridge")
    run("ip", "-n", hub, "link", "set", name, "up")


def plug(namespace: str, address: str, hub: str, bridge: str, port: str) -> None:
    """Make an interface ``eth0`` in ``namespace`` with ``address`` (``10.0.0.1/24``).

    The peer is ``port`` of ``bridge`` in ``hub``. The loopback interface is set up too.
    """
    run(
        "ip",
        "-n",
        hub,
        "link",
        "add",
        port,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        namespace,
    )
    run("ip", "-n", hub, "link", "set", port, "master", bridge, "up")
    run("ip", "-n", namespace, "addr", "add", address, "dev", "eth0")
    run("ip", "-n", namespace, "link", "set", "lo", "up")
    run("ip", "-n", namespace, "link", "set", "eth0", "up")


def run(*command: str, given: str = "") -> str:
    """Run a command and return the output; ``given``: the standard input."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=_COMMAND_S
    )
    if done.returncode:
        raise NamespaceFailed(
            f"`{' '.join(command)}` failed: {done.stderr.strip() or f'status {done.returncode}'}"
        )
    return done.stdout
