"""Rules and counters of packets in a network namespace, the addresses, and lasting processes."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ares.testing import namespaces
from experiments import ENVIRONMENT


def ip(namespace: str, words: str) -> None:
    """Run `ip` with these words for the namespace."""
    namespaces.run("ip", "-n", namespace, *words.split())


def restore(namespace: str, rules: str) -> None:
    """Add rules to iptables, all in a single step."""
    command = (*namespaces.inside(namespace), "iptables-legacy-restore", "--wait", "--noflush")
    namespaces.run(*command, given=rules)


def counted(namespace: str) -> list[int]:
    """Return the bytes of each counting rule of POSTROUTING, in order."""
    command = (*namespaces.inside(namespace), "iptables-legacy-save", "--counters")
    shown = namespaces.run(*command, "--table", "mangle")
    return [
        int(line.split(":", 1)[1].split("]")[0])
        for line in shown.splitlines()
        if "-A POSTROUTING" in line and "-j" not in line
    ]


def forward(namespace: str) -> None:
    """Let the namespace pass packets on."""
    switch = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    namespaces.run(*namespaces.inside(namespace), "sh", "-c", switch)


def detached(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that outlives this process and ignores Ctrl-C, which is for the runner."""
    with log.open("ab") as output:
        files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        where = {"cwd": directory, "env": environment or ENVIRONMENT}
        return subprocess.Popen(command, start_new_session=True, **files, **where)
