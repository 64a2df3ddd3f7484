"""Data and messages of the last release, which this release must read.

The data is a cluster's directory; the messages are a recorded message of every kind.
`last_release.tar.xz` is the directory of a durable cluster of five servers and a consensus member,
after `down`: objects, a deletion, two files, a second domain, and a reconfiguration from ABD to EC.
Its addresses are part of its configurations, so it runs in a separate network namespace.
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ares.cluster.settings import Settings
from ares.model.codec import decode, encode
from ares.model.log_messages import ChainReply, ChainRequest
from ares.model.messages import (
    ConsensusDescription,
    Describe,
    Description,
    Finalize,
    Keyed,
    ListReply,
    Located,
    ObjectsReply,
    PullElement,
    QueryList,
    Timed,
    Where,
)
from ares.platform.interpreter import python

from ..transport.samples import SAMPLES, SINCE

HERE = Path(__file__).parent
NUMBERS = "".join(f"{number}\n" for number in range(1, 4001))

needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")),
    reason="needs root, unshare (util-linux) and ip (iproute2): the recorded cluster runs in a "
    "network namespace of its own",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    with tarfile.open(HERE / "last_release.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    password = tmp_path / "c/secrets/consensus.password"
    password.parent.mkdir(mode=0o700)
    password.write_text(secrets.token_hex(16))
    password.chmod(0o600)
    for data in (tmp_path / "c/data").iterdir():
        if data.is_dir():
            data.chmod(0o700)
    return tmp_path / "c"


def test_its_cluster_file_is_read(cluster: Path) -> None:
    settings = Settings.load(cluster / "cluster.toml")
    assert (list(settings.servers), list(settings.members)) == (
        ["s0", "s1", "s2", "s3", "s4"],
        ["r0"],
    )
    assert settings.initial.id.hex() == "6bbfc8a7a6e2c1d6c406b553bef3990c"


PROGRAM = """
import sys, ares
from ares.model.configuration import Configuration, Server
with ares.connect_blocking(sys.argv[1] + "/cluster.toml") as store:
    photos = store.domain("photos")
    print(store.read("greeting"), store.read("after"), photos.read("p1"), end=" ")
    print(len(store.read("large")), list(store.list()))
    try:
        store.read("gone")
    except ares.ObjectNotFound as error:
        print(error)
    print(store.file("numbers").read() == sys.argv[2].encode())
    store.write("greeting", b"again")
    wished = Configuration.abd([Server(id) for id in ("s0", "s1", "s4")])
    print(store.reconfigure(wished).configuration.describe())
    print(store.read("greeting"), store.read("after"))
"""

COMMANDS = """
ip link set lo up && "$@" -m ares up {cluster} --detach >/dev/null &&
    "$@" -c '{program}' {cluster} '{numbers}'
status=$?
"$@" -m ares down {cluster} >/dev/null && exit $status
"""


@needs_namespace
def test_its_cluster_starts_and_goes_on(cluster: Path) -> None:
    commands = COMMANDS.format(cluster=cluster, program=PROGRAM.replace("'", '"'), numbers=NUMBERS)
    told = subprocess.run(
        ["unshare", "--net", "bash", "-c", commands, "-", *python()],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [
        "b'hello' b'move' b'picture' 40000 ['after', 'greeting', 'large']",
        "no object 'gone' in domain 'default'",
        "True",
        "ABD n=3 on s0,s1,s4; quorum 2, survives 1 crash",
        "b'again' b'move'",
    ]


NEW = PullElement | Finalize | Where | Located | QueryList | ListReply | ChainRequest | ChainReply
KNOWN = [sample for sample in SAMPLES if sample not in SINCE and not isinstance(sample, NEW)]
"""Messages of the last release.

The release had no logs, no values pulled between servers, and no answers about the places of
domains.
"""

RENAMED = {"RequestDone": "Done"}
"""Names of the last release for kinds of messages renamed since."""

RECORDED = json.loads((HERE / "last_release_messages.json").read_text(encoding="ascii"))


@pytest.mark.parametrize(
    ("kind", "frames", "sample"),
    [(kind, frames, sample) for (kind, *frames), sample in zip(RECORDED, KNOWN, strict=True)],
)
def test_its_messages_have_the_same_bytes(kind: str, frames: list[str], sample: object) -> None:
    """Check the bytes, except for fields added at the end.

    Added fields are in traced messages, in descriptions and their account of the store, in
    configurations and their introduction, in the use of domains, and in pages of names. Older
    releases skip them.
    """
    name = type(sample).__name__
    assert RENAMED.get(name, name) == kind
    header, *others = encode([sample])  # type: ignore[list-item]
    header = header[:1] + msgspec.msgpack.encode(_without_logs(msgspec.msgpack.decode(header[1:])))
    if isinstance(sample, Description):
        [[*values, core]] = msgspec.msgpack.decode(header[1:])
        assert core == ""
        header = header[:1] + msgspec.msgpack.encode([values])
    if isinstance(sample, ConsensusDescription):
        [[*values, version]] = msgspec.msgpack.decode(header[1:])
        assert version == ""
        header = header[:1] + msgspec.msgpack.encode([values])
    if isinstance(sample, Describe | Description | ConsensusDescription):
        [[*values, used]] = msgspec.msgpack.decode(header[1:])
        assert used == []
        header = header[:1] + msgspec.msgpack.encode([values])
    if isinstance(sample, ObjectsReply):
        [[*values, asked]] = msgspec.msgpack.decode(header[1:])
        assert asked == 0
        header = header[:1] + msgspec.msgpack.encode([values])
    if isinstance(sample, Keyed | Timed | Description):
        [[*values, added]] = msgspec.msgpack.decode(header[1:])
        assert added is None
        if isinstance(sample, Description) and sample.stored is not None:
            assert values[-1].pop() == -1
        header = header[:1] + msgspec.msgpack.encode([values])
    assert [
        _recorded(frame, said) for frame, said in zip([header, *others], frames, strict=True)
    ] == frames


def test_what_it_said_and_what_is_added_since_is_understood() -> None:
    for (_, *frames), sample in zip(RECORDED, KNOWN, strict=True):
        added_to = Keyed | Timed | Describe | Description | ConsensusDescription
        if isinstance(sample, added_to) and not any(
            frame.startswith("blake2b:") for frame in frames
        ):
            assert decode([bytes.fromhex(frame) for frame in frames]) == [sample]


def _without_logs(value: Any) -> Any:
    """Remove the parts that came with logs.

    These are the start of a configuration, the chains introduced with it, the hosted chain, and a
    scrub's report on logs.
    """
    if not isinstance(value, list):
        return value
    values = [_without_logs(each) for each in value]
    if len(values) == 10 and values[0] in ("abd", "ec"):
        assert values.pop() == 0
    elif len(values) == 4 and values[0] == INTRODUCE:
        assert values.pop() == []
    elif len(values) == 8 and isinstance(values[0], list) and values[0][0] in ("abd", "ec"):
        assert values.pop() is None
    elif len(values) == 11 and values[0] == SCRUB_REPLY:
        assert values.pop() == 0
    return values


INTRODUCE, SCRUB_REPLY = 8, 38


def _recorded(frame: bytes, said: str) -> str:
    return (
        f"blake2b:{hashlib.blake2b(frame, digest_size=16).hexdigest()}"
        if said.startswith("blake2b:")
        else frame.hex()
    )
