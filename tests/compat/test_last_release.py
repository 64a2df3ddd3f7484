"""Data and messages of the last release, which this release must read.

`last_release.tar.xz` is the directory of a durable cluster after `down`: objects, a deletion, a
file of each chunking, a second domain, a log that was trimmed and moved, and a reconfiguration from
ABD to EC. `last_release_messages.json` has a recorded message of every kind. `record.py` makes
both.
"""

import json
import os
import secrets
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

from ares.cluster.settings import Settings
from ares.model.codec import decode, encode

from ..transport.samples import SAMPLES, SINCE
from .record import DATA, MESSAGES, in_namespace, recorded

needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")),
    reason="needs root, unshare (util-linux) and ip (iproute2): the recorded cluster runs in a "
    "network namespace of its own",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    with tarfile.open(DATA) as archive:
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
    assert settings.initial.describe().startswith("ABD n=5 on s0,s1,s2,s3,s4")


PROGRAM = """
import sys, ares
from ares.model.configuration import Configuration, Server
from tests.compat.record import LARGE_BYTES, NUMBERS
with ares.connect_blocking(sys.argv[1] + "/cluster.toml") as store:
    photos = store.domain("photos")
    print(store.read("greeting"), store.read("after"), photos.read("p1"), end=" ")
    print(store.read("large") == bytes(LARGE_BYTES), list(store.list()))
    try:
        store.read("gone")
    except ares.ObjectNotFound as error:
        print(error)
    print(store.file("numbers").read() == NUMBERS, store.file("rabin").read() == NUMBERS[::-1])
    events = store.log("events")
    print(events.tail(), [events.read(position) for position in (3, 9, 10, 11)])
    try:
        events.read(2)
    except ares.Trimmed as error:
        print(error.upto)
    print(events.append(b"entry 12"), events.read(12))
    store.reconfigure(ares.Configuration.chain(servers=["s0", "s1", "s4"]), domain="events")
    print(events.append(b"entry 13"), events.read(13), events.read(3))
    store.write("greeting", b"again")
    wished = Configuration.abd([Server(id) for id in ("s0", "s1", "s4")])
    print(store.reconfigure(wished).configuration.describe())
    print(store.read("greeting"), store.read("after"))
"""


@needs_namespace
def test_its_cluster_starts_and_goes_on(cluster: Path) -> None:
    told = in_namespace(cluster, PROGRAM)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [
        "b'hello' b'move' b'picture' True ['after', 'greeting', 'large']",
        "no object 'gone' in domain 'default'",
        "True True",
        "12 [b'entry 3', b'entry 9', b'entry 10', b'entry 11']",
        "3",
        "12 b'entry 12'",
        "13 b'entry 13' b'entry 3'",
        "ABD n=3 on s0,s1,s4; quorum 2, survives 1 crash",
        "b'again' b'move'",
    ]


KNOWN = [sample for sample in SAMPLES if sample not in SINCE]
"""Messages of the last release."""

EXTENDED = {type(sample) for sample in SINCE}
"""Kinds of messages with fields beyond those of the last release, which a decoder may leave out."""


def fields(frame: str) -> list[object]:
    """Return the fields of the only message of a frame, which begins with the format's number."""
    (message,) = msgspec.msgpack.decode(bytes.fromhex(frame)[1:])
    return message  # type: ignore[no-any-return]


def extends(now: object, known: object, value: object) -> bool:
    """Return whether ``now`` is ``known``, with defaults at the ends of ``value`` and its parts."""
    if now == known:
        return True
    if not (
        isinstance(now, list) and isinstance(known, list) and isinstance(value, msgspec.Struct)
    ):
        return False
    parts = msgspec.structs.fields(type(value))
    first = len(now) - len(parts)  # a message begins with its number
    together = zip(now[first:], known[first:], parts, strict=False)
    return (
        now[:first] == known[:first]
        and all(extends(new, old, getattr(value, part.name)) for new, old, part in together)
        and now[len(known) :]
        == [msgspec.to_builtins(part.default) for part in parts[len(known) - first :]]
    )


RECORDED = json.loads(MESSAGES.read_text(encoding="ascii"))


@pytest.mark.parametrize(
    ("kind", "frames", "sample"),
    [(kind, frames, sample) for (kind, *frames), sample in zip(RECORDED, KNOWN, strict=True)],
)
def test_its_messages_have_the_same_bytes(kind: str, frames: list[str], sample: object) -> None:
    assert type(sample).__name__ == kind
    now = [recorded(bytes(frame)) for frame in encode([sample])]  # type: ignore[list-item]
    if type(sample) in EXTENDED:
        assert extends(fields(now[0]), fields(frames[0]), sample)
        assert now[1:] == frames[1:]
    else:
        assert now == frames


def test_its_messages_are_understood() -> None:
    for (_, *frames), sample in zip(RECORDED, KNOWN, strict=True):
        if not any(frame.startswith("blake2b:") for frame in frames):
            assert decode([bytes.fromhex(frame) for frame in frames]) == [sample]
