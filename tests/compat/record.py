"""A recorder of this release's data and messages, for the tests of the next release.

    sudo .venv/bin/python -m tests.compat.record

Run the recorder once, with the released code. The recorded cluster is durable: five servers, a
consensus member, after `down`. Configurations contain addresses, so the cluster runs in a separate
network namespace. Secrets are left out; the tests make new ones.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ares.model.codec import encode
from ares.platform.interpreter import python

from ..transport.samples import SAMPLES

HERE = Path(__file__).parent
DATA, MESSAGES = HERE / "last_release.tar.xz", HERE / "last_release_messages.json"
NUMBERS = "".join(f"{number}\n" for number in range(1, 4001)).encode()
LARGE_BYTES = 40_000
HASHED_BYTES_MIN = 1000
"""Size from which the digest of a frame is recorded in place of the frame."""

CONTENT = """
import sys, ares
from ares.model.configuration import Configuration, Server
from tests.compat.record import LARGE_BYTES, NUMBERS
with ares.connect_blocking(sys.argv[1] + "/cluster.toml") as store:
    store.write("greeting", b"hello")
    store.write("large", bytes(LARGE_BYTES))
    store.write("gone", b"x")
    store.delete("gone")
    store.file("numbers").write(NUMBERS)
    store.file("rabin", chunking="rabin").write(NUMBERS[::-1])
    three = Configuration.abd([Server(id) for id in ("s1", "s2", "s3")])
    photos = store.domain("photos", create=three)
    photos.write("p1", b"picture")
    events = store.log("events", create=ares.Configuration.chain(servers=["s0", "s1", "s2"]))
    for number in range(10):
        events.append(b"entry %d" % number)
    events.trim(3)
    store.reconfigure(ares.Configuration.chain(servers=["s3", "s1", "s2"]), domain="events")
    events.append_many([b"entry 10", b"entry 11"])
    store.reconfigure(Configuration.ec([Server(id) for id in ("s0", "s1", "s2", "s3", "s4")], 3))
    store.write("after", b"move")
"""

COMMANDS = """
ip link set lo up && "$@" -m ares up {cluster} --detach >/dev/null && "$@" -c '{program}' {cluster}
status=$?
"$@" -m ares down {cluster} >/dev/null && exit $status
"""


def in_namespace(
    cluster: Path, program: str, arguments: Sequence[str] = python()
) -> "subprocess.CompletedProcess[str]":
    """Start the cluster in a network namespace, run the program, and end the cluster."""
    commands = COMMANDS.format(cluster=cluster, program=program.replace("'", '"'))
    return subprocess.run(
        ["unshare", "--net", "bash", "-c", commands, "-", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def recorded(frame: bytes) -> str:
    """Return a frame in hex, or the digest of a long frame."""
    if len(frame) < HASHED_BYTES_MIN:
        return frame.hex()
    return f"blake2b:{hashlib.blake2b(frame, digest_size=16).hexdigest()}"


def messages() -> list[list[str]]:
    """Return the name and the recorded frames of each sample of a message."""
    found = []
    for sample in SAMPLES:
        frames = encode([sample])  # type: ignore[list-item]
        found.append([type(sample).__name__, *(recorded(bytes(frame)) for frame in frames)])
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as top:
        cluster = Path(top) / "c"
        made = [*python("-m", "ares"), "init", str(cluster), "--consensus", "1"]
        subprocess.run([*made, "--base-port", "7400"], check=True, stdout=subprocess.DEVNULL)
        told = in_namespace(cluster, CONTENT)
        if told.returncode or told.stderr:
            sys.exit(told.stderr + told.stdout)
        with tarfile.open(DATA, "w:xz") as archive:
            archive.add(cluster / "cluster.toml", "c/cluster.toml")
            archive.add(cluster / "data", "c/data", filter=_bare)
    MESSAGES.write_text(json.dumps(messages(), indent=0) + "\n", encoding="ascii")


def _bare(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out spare room for writing, files of running processes, and the name of the user."""
    if member.name.endswith(("spare.new", ".out", ".pid")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


if __name__ == "__main__":
    main()
